// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/zeroed_memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/anonymous_memory.hpp"

namespace tagwire::ucs {

bool ZeroedMemory::allocate(std::size_t bytes) {
    if (bytes > PTRDIFF_MAX - kAlignment)
        return false;  // nothing is that long, and AddressSanitizer ends who asks for it
    ZeroedMemory fresh;
    if (!(bytes >= kLargeBytes && fresh.try_map(bytes)) && !fresh.try_take(bytes))
        return false;
    swap(fresh);
    return true;
}

bool ZeroedMemory::try_map(std::size_t bytes) {
    AnonymousMemory memory{};
    if (map_for_huge_pages(bytes, &memory) != UCS_OK)
        return false;
    data_ = block_ = memory.address;
    mapped_bytes_ = memory.bytes;
    return true;
}

bool ZeroedMemory::try_take(std::size_t bytes) {
    const std::size_t with_room = bytes + kAlignment;
    block_ = std::calloc(with_room, 1);
    if (block_ == nullptr) {
        block_ = reserve_try_allocate(with_room);
        if (block_ == nullptr)
            return false;
        std::memset(block_, 0, with_room);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(block_) + kAlignment - 1;
    data_ = reinterpret_cast<void*>(address & ~std::uintptr_t{kAlignment - 1});
    return true;
}

void ZeroedMemory::release() {
    if (mapped_bytes_ != 0)
        static_cast<void>(unmap_anonymous({block_, mapped_bytes_}));
    else
        reserve_free(block_);
    data_ = block_ = nullptr;
    mapped_bytes_ = 0;
}

}  // namespace tagwire::ucs
