// SPDX-License-Identifier: BSD-3-Clause
// Memory that an endpoint lends to its peer (tagwire_uct_ep_lend()): the part of an interface that
// can. An interface without it answers UCS_ERR_UNSUPPORTED.
//
// Threads: the owner of the interface.
#pragma once

#include <uct/api/tagwire_uct.h>

#include <cstddef>

namespace tagwire::uct {

class Lending {
  public:
    /// As tagwire_uct_ep_lend().
    virtual ucs_status_t lend(uct_ep_h ep, const void* buffer, std::size_t length,
                              tagwire_uct_loan_t* loan_p) = 0;
    /// As tagwire_uct_ep_read_lent().
    virtual ucs_status_t read(uct_ep_h ep, const uct_iov_t* iov, std::size_t iovcnt,
                              const tagwire_uct_loan_t& loan, uct_completion_t* comp) = 0;
    /// As tagwire_uct_iface_set_lent_handler().
    virtual void set_handler(tagwire_uct_lent_cb_t callback, void* arg) = 0;

  protected:
    ~Lending() = default;
};

}  // namespace tagwire::uct
