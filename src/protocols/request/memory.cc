// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/memory.hpp"

#include <cstdint>

#include "protocols/worker/worker_core.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

ucs_status_t Memory::map(Context& context, void* address, std::size_t length,
                         std::unique_ptr<Memory>* memory_p) {
    std::unique_ptr<Memory> memory(new Memory(context, address, length));
    ++context.users;
    memory->handles_.reserve(context.domains().size());  // what is registered is written down
    for (const Domain& domain : context.domains()) {
        uct_mem_h handle = UCT_MEM_HANDLE_NULL;
        const ucs_status_t status =
            uct_md_mem_reg(domain.md, address, length, UCT_MD_MEM_ACCESS_ALL, &handle);
        if (status != UCS_OK) {
            TW_LOG_ERROR("mapping %zu bytes at %p failed in a memory domain of %s: %s", length,
                         address, domain.attr.component_name, ucs_status_string(status));
            return status;
        }
        memory->handles_.push_back(handle);
    }
    *memory_p = std::move(memory);
    return UCS_OK;
}

Memory::~Memory() {
    for (std::size_t i = 0; i < handles_.size(); ++i)
        uct_md_mem_dereg(context_.domains()[i].md, handles_[i]);
    --context_.users;
}

RegLease* WorkerCore::cache_region(const Request& request, std::size_t domain, RegUse use) {
    const Buffer& buffer = request.buffer;
    const std::size_t bytes =
        request.kind == RequestKind::kReceive ? request.wanted : buffer.length;
    if (leases_ == nullptr || buffer.list != nullptr || bytes == 0)
        return nullptr;
    bool is_new = false;
    RegLease* lease = leases_->acquire(domain, buffer.base, bytes, use, &is_new);
    count(lease == nullptr ? WorkerCounter::kRegRefused
          : is_new         ? WorkerCounter::kRegMade
                           : WorkerCounter::kRegCached);
    return lease;
}

bool Memory::covers(const void* address, std::size_t length) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(address_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at - begin <= length_ && length <= length_ - (at - begin);
}

}  // namespace tagwire::proto
