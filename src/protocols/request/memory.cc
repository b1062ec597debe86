// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/memory.hpp"

#include <cstdint>
#include <utility>

#include "protocols/completion/completion_counter.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/wire/memory_key.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/mapped.hpp"

namespace tagwire::proto {

namespace {

/// Where it can be reached by loads and stores of other processes; null: nowhere.
uct_md_h allocating_domain(const Context& context) {
    constexpr unsigned kNeeded = UCT_MD_FLAG_ALLOC | UCT_MD_FLAG_RKEY_PTR;
    for (const Domain& domain : context.domains())
        if ((domain.attr.cap.flags & kNeeded) == kNeeded)
            return domain.md;
    return nullptr;
}

/// The rights of peers that a domain checks, of TW_ACCESS_x. Without a key it is read by those
/// whom messages from it are sent to.
unsigned domain_rights(std::uint32_t access) {
    unsigned flags = 0;
    if ((access & (TW_ACCESS_READ | TW_ACCESS_NONE)) != 0)
        flags |= UCT_MD_MEM_ACCESS_REMOTE_GET;
    if ((access & TW_ACCESS_WRITE) != 0)
        flags |= UCT_MD_MEM_ACCESS_REMOTE_PUT;
    if ((access & TW_ACCESS_ATOMIC) != 0)
        flags |= UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;
    return flags;
}

/// No process has so much mapped: it is all that it has and will have.
constexpr std::size_t kEverything = std::size_t{1} << 57;

}  // namespace

ucs_status_t Memory::make(Context& context, void* address, std::size_t length, std::uint32_t access,
                          std::unique_ptr<Memory>* memory_p) {
    // Domains differ: some find it when they register, some when a peer writes, some never.
    const bool is_all =
        length >= kEverything && length <= UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(address);
    if (address != nullptr && !is_all && !ucs::is_mapped(address, length)) {
        TW_LOG_ERROR(
            "tw_mem_map: not all of the %zu bytes at %p are mapped in this process; expected "
            "memory that stays mapped until tw_mem_unmap()",
            length, address);
        return UCS_ERR_INVALID_ADDR;
    }
    std::unique_ptr<Memory> memory(new Memory(context, address, length, access));
    ++context.users;
    ucs_status_t status = address == nullptr ? memory->allocate() : UCS_OK;
    if (status == UCS_OK)
        status = memory->register_all();
    if (status == UCS_OK)
        *memory_p = std::move(memory);
    return status;
}

ucs_status_t Memory::allocate() {
    const uct_md_h domain = allocating_domain(context_);
    const uct_alloc_method_t method =
        domain == nullptr ? UCT_ALLOC_METHOD_MMAP : UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params{};
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = UCT_MD_MEM_ACCESS_ALL;
    params.mds.mds = &domain;
    params.mds.count = domain == nullptr ? 0 : 1;
    params.name = "tw_mem_alloc";
    const ucs_status_t status = uct_mem_alloc(length_, &method, 1, &params, &allocated_);
    if (status != UCS_OK) {
        allocated_ = {};
        return status;
    }
    address_ = allocated_.address;
    length_ = allocated_.length;
    return UCS_OK;
}

// Memory that is mapped read-only can be sent from, and read by peers: a device that is to write
// there refuses it.
ucs_status_t Memory::register_in(uct_md_h domain, uct_mem_h* handle_p) {
    const unsigned rights = domain_rights(access_) | UCT_MD_MEM_ACCESS_LOCAL_READ;
    const auto attempt = [&](unsigned flags) {
        return uct_md_mem_reg(domain, address_, length_, rights | flags, handle_p);
    };
    constexpr unsigned kWritten = UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;
    if (is_read_only_)
        return attempt(0);
    if ((rights & kWritten) != 0)
        return attempt(UCT_MD_MEM_ACCESS_LOCAL_WRITE);
    ucs_status_t status = attempt(UCT_MD_MEM_ACCESS_LOCAL_WRITE | UCT_MD_MEM_FLAG_HIDE_ERRORS);
    if (status == UCS_OK)
        return UCS_OK;
    is_read_only_ = status == UCS_ERR_INVALID_ADDR;
    return attempt(is_read_only_ ? 0 : unsigned{UCT_MD_MEM_ACCESS_LOCAL_WRITE});
}

ucs_status_t Memory::register_all() {
    handles_.reserve(context_.domains().size());  // what is registered is written down
    for (const Domain& domain : context_.domains()) {
        uct_mem_h handle = UCT_MEM_HANDLE_NULL;
        const ucs_status_t status = register_in(domain.md, &handle);
        if (status != UCS_OK) {
            TW_LOG_ERROR("mapping %zu bytes at %p failed in a memory domain of %s: %s", length_,
                         address_, domain.attr.component_name, ucs_status_string(status));
            return status;
        }
        handles_.push_back(handle);
    }
    return UCS_OK;
}

Memory::~Memory() {
    if (id_ != 0)
        context_.memories().remove(id_);
    for (std::size_t i = 0; i < handles_.size(); ++i)
        uct_md_mem_dereg(context_.domains()[i].md, handles_[i]);
    if (allocated_.length > 0)
        uct_mem_free(&allocated_);
    if (counter_ != nullptr)
        counter_->users().leave();
    --context_.users;
}

void Memory::count_puts(CompletionCounter& counter) {
    counter.users().enter();
    counter_ = &counter;
}

void Memory::count_put() {
    counter_->add_by_hand(1, 0);
}

ucs_status_t Memory::expose() {
    const std::lock_guard guard(key_lock_);
    if (id_ != 0)
        return UCS_OK;
    atomics_by_device_ = context_.atomics_by_device();
    id_ = context_.memories().add(*this);
    return id_ == 0 ? UCS_ERR_EXCEEDS_LIMIT : UCS_OK;
}

ucs_status_t Memory::pack(std::byte* to, std::size_t* length_p) {
    if (const ucs_status_t status = expose(); status != UCS_OK)
        return status;
    MemoryKeyWriter writer({id_, reinterpret_cast<std::uintptr_t>(address_), length_, access_,
                            atomics_by_device_, owner_of(context_.name())});
    for (std::size_t i = 0; i < handles_.size(); ++i) {
        std::byte key[UINT8_MAX];
        const Domain& domain = context_.domains()[i];
        if (domain.attr.rkey_packed_size <= sizeof key &&
            uct_md_mkey_pack(domain.md, handles_[i], key) == UCS_OK)
            writer.add(i, {key, domain.attr.rkey_packed_size});
    }
    *length_p = writer.write(to);
    return UCS_OK;
}

void Memory::list_keys(Keys* keys) const {
    for (std::size_t i = 0; i < handles_.size(); ++i)
        keys->add(context_.domains()[i], i, handles_[i]);
}

std::byte* Memory::reach(std::uint64_t address, std::uint64_t length, std::uint32_t access) const {
    auto* const at = reinterpret_cast<std::byte*>(address);
    return (access_ & access) != 0 && covers(at, length) ? at : nullptr;
}

bool Memory::covers(const void* address, std::size_t length) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(address_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= begin && at - begin <= length_ && length <= length_ - (at - begin);
}

}  // namespace tagwire::proto
