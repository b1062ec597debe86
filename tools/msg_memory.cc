// SPDX-License-Identifier: BSD-3-Clause
#include "tools/msg_memory.hpp"

#include <algorithm>

namespace tagwire::tools {

MsgMemory::MsgMemory(tw_context_h context, MemoryKind kind, std::size_t bytes)
    : context_(context), bytes_(bytes) {
    if (kind == MemoryKind::kAlloc) {
        void* address = nullptr;
        const tw_status_t status =
            tw_mem_alloc(context, std::max<std::size_t>(bytes, 1), nullptr, &address, &handle_);
        if (status != TW_OK)
            throw Failure(text("tw_mem_alloc of %zu bytes: %s", bytes, tw_status_string(status)));
        data_ = static_cast<std::uint8_t*>(address);
        return;
    }
    pages_.emplace(bytes);
    data_ = pages_->data();
    if (kind == MemoryKind::kMapped)
        check(tw_mem_map(context, data_, pages_->bytes(), nullptr, &handle_), "tw_mem_map");
}

MsgMemory::~MsgMemory() {
    if (handle_ != nullptr)
        tw_mem_unmap(context_, handle_);
}

}  // namespace tagwire::tools
