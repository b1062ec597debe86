// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/gather.hpp"

#include <algorithm>
#include <cstring>

#include "ucs/log/log.hpp"

namespace tagwire::ib {

ucs_status_t refuse(const char* call, std::size_t value, std::size_t limit) {
    TW_LOG_ERROR("%s: %zu exceeds the limit of %zu", call, value, limit);
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t refuse_am_id(std::uint8_t id) {
    TW_LOG_ERROR("active message id %u is out of range: the largest is %u", id,
                 static_cast<unsigned>(UCT_AM_ID_MAX - 1));
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t Gather::add(const char* call, const uct_iov_t* iov, std::size_t iovcnt,
                         unsigned pieces_max, std::size_t bytes_max) {
    if (iovcnt > pieces_max - count) {
        TW_LOG_ERROR("%s: %zu pieces exceed the limit of %u", call, iovcnt, pieces_max - count);
        return UCS_ERR_INVALID_PARAM;
    }
    for (std::size_t i = 0; i < iovcnt; ++i) {
        const uct_iov_t& element = iov[i];
        if (element.length == 0 || element.count == 0)
            continue;
        if (element.length > bytes_max - bytes)
            return refuse(call, bytes + element.length, bytes_max);
        if (element.memh == nullptr) {
            TW_LOG_ERROR("%s: the buffer at %p has no handle: register it with uct_md_mem_reg()",
                         call, element.buffer);
            return UCS_ERR_INVALID_PARAM;
        }
        const std::uint32_t lkey = registration_of(element.memh).mr->lkey;
        for (unsigned k = 0; k < element.count; ++k) {
            if (count == pieces_max || element.length > bytes_max - bytes)
                return refuse(call, bytes + element.length, bytes_max);
            add(static_cast<const std::byte*>(element.buffer) + k * element.stride, element.length,
                lkey);
        }
    }
    return UCS_OK;
}

std::size_t Gather::cut_first(std::byte& to) {
    to = *reinterpret_cast<const std::byte*>(sges[1].addr);  // NOLINT: as verbs has it
    ++sges[1].addr;
    // One without bytes would mean 2 GiB.
    if (--sges[1].length == 0) {
        --count;
        std::copy(sges + 2, sges + 1 + count, sges + 1);
    }
    return 1;
}

std::size_t gather_bytes(const uct_iov_t* iov, std::size_t iovcnt) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < iovcnt; ++i)
        bytes += iov[i].length * iov[i].count;
    return bytes;
}

std::size_t gather_copy(void* to, const uct_iov_t* iov, std::size_t iovcnt) {
    auto* at = static_cast<std::byte*>(to);
    for (std::size_t i = 0; i < iovcnt; ++i) {
        for (unsigned k = 0; k < iov[i].count && iov[i].length > 0; ++k) {
            std::memcpy(at, static_cast<const std::byte*>(iov[i].buffer) + k * iov[i].stride,
                        iov[i].length);
            at += iov[i].length;
        }
    }
    return static_cast<std::size_t>(at - static_cast<std::byte*>(to));
}

}  // namespace tagwire::ib
