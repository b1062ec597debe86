// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "protocols/request/request.hpp"

namespace tagwire::proto {

std::byte* Buffer::piece(std::size_t offset, std::size_t* bytes_p) const {
    if (list == nullptr) {
        *bytes_p = length - offset;
        return base + offset;
    }
    std::size_t i = 0;
    while (i < count && offset >= list[i].length)
        offset -= list[i++].length;
    if (i == count) {
        *bytes_p = 0;
        return nullptr;
    }
    *bytes_p = list[i].length - offset;
    return static_cast<std::byte*>(list[i].base) + offset;
}

void Buffer::gather(void* to, std::size_t offset, std::size_t bytes, ucs::CopyKind kind) const {
    auto* at = static_cast<std::byte*>(to);
    while (bytes > 0) {
        std::size_t there = 0;
        const std::byte* from = piece(offset, &there);
        const std::size_t now = std::min(bytes, there);
        ucs::copy(kind, at, from, now);
        at += now;
        offset += now;
        bytes -= now;
    }
}

void Buffer::scatter(std::size_t offset, const void* from, std::size_t bytes,
                     ucs::CopyKind kind) const {
    const auto* at = static_cast<const std::byte*>(from);
    while (bytes > 0) {
        std::size_t there = 0;
        std::byte* to = piece(offset, &there);
        const std::size_t now = std::min(bytes, there);
        ucs::copy(kind, to, at, now);
        at += now;
        offset += now;
        bytes -= now;
    }
}

}  // namespace tagwire::proto
