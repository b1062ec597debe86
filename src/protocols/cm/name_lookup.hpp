// SPDX-License-Identifier: BSD-3-Clause
// Looks a name up in a thread of its own, as getaddrinfo(3) may wait for other hosts.
#pragma once

#include <ucs/type/status.h>

#include <memory>

#include "ucs/sys/inet.hpp"

namespace tagwire::proto {

class NameLookup {
  public:
    /// Numbers need no thread. UCS_ERR_IO_ERROR: the system has no more threads or descriptors.
    ucs_status_t begin(const ucs::HostPort& at);
    bool is_over() const;
    /// begin() has looked it up: no thread was needed.
    bool was_number() const { return was_number_; }
    /// Readable when it is over.
    int fd() const;
    /// Behind is_over(). 0, or an error of getaddrinfo(3).
    int take(ucs::AddressList* list_p);

  private:
    /// The thread may outlive whoever asked.
    struct State;
    std::shared_ptr<State> state_;
    bool was_number_ = false;
};

}  // namespace tagwire::proto
