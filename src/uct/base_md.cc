// SPDX-License-Identifier: BSD-3-Clause
#include "uct/base_md.hpp"

namespace tagwire::uct {

Md::~Md() = default;

ucs_status_t Md::mem_alloc(std::size_t*, void**, ucs_memory_type_t, unsigned, const char*,
                           uct_mem_h*) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mem_free(uct_mem_h) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mem_reg(void*, std::size_t, unsigned, uct_mem_h*) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mem_dereg(uct_mem_h) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mem_query(const void*, std::size_t, uct_md_mem_attr_t*) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mem_advise(uct_mem_h, void*, std::size_t, uct_mem_advice_t) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t Md::mkey_pack(uct_mem_h, void*) {
    return UCS_ERR_UNSUPPORTED;
}

}  // namespace tagwire::uct
