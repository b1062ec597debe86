// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/codes.hpp"

namespace tagwire::ib {

std::uint8_t timeout_code(std::uint64_t ns) {
    std::uint8_t code = 1;
    while (code < 31 && (std::uint64_t{4096} << code) < ns)
        ++code;
    return code;
}

std::uint8_t rnr_code(std::uint64_t ns) {
    constexpr std::uint32_t kMicroseconds[] = {
        655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
        480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
        20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
    for (std::uint8_t code = 1; code < 32; ++code)
        if (std::uint64_t{kMicroseconds[code]} * 1000 >= ns)
            return code;
    return 0;
}

unsigned access_of(const Device& device) {
    unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    if (device.attr().orig_attr.atomic_cap != IBV_ATOMIC_NONE)
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

ucs_status_t status_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_SUCCESS:
            return UCS_OK;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
        case IBV_WC_REM_ABORT_ERR:
            return UCS_ERR_ENDPOINT_TIMEOUT;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            return UCS_ERR_CONNECTION_RESET;
        case IBV_WC_WR_FLUSH_ERR:
            return UCS_ERR_CANCELED;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

ucs_status_t failure_of(ibv_wc_status status) {
    const ucs_status_t failure = status_of(status);
    return failure == UCS_ERR_CANCELED ? UCS_ERR_CONNECTION_RESET : failure;
}

}  // namespace tagwire::ib
