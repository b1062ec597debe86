// SPDX-License-Identifier: BSD-3-Clause
// The transports that TAGWIRE_TRANSPORTS, or a context's parameter, names.
#pragma once

#include <uct/api/uct.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tagwire::proto {

/// A device of the virtual HCA, or its memory domain.
bool is_virtual(std::string_view device);

/// One part of a list.
struct TransportName {
    std::string text;       // as it was written, without ^
    std::string transport;  // in small letters
    std::string device;     // empty: each of the transport
    bool is_exception;      // it is left out

    bool names(const uct_tl_resource_desc_t& desc) const;
    /// Every transport but those of virtual devices.
    bool is_auto() const { return transport == "auto"; }
    /// Every transport.
    bool is_all() const { return transport == "all"; }
};

/// Names separated by commas, with blanks around them or without. A list that begins with ^ names
/// what is left out of auto, as UCX reads it; in another list a ^ leaves out the name behind it.
/// Nothing stands for auto.
class TransportList {
  public:
    /// False: `*problem` says what is wrong with which part, and what would be right.
    static bool parse(std::string_view text, TransportList* list, std::string* problem);

    std::span<const TransportName> names() const { return names_; }
    /// Named, and not left out.
    bool wants(const uct_tl_resource_desc_t& desc) const;

  private:
    std::vector<TransportName> names_;
};

}  // namespace tagwire::proto
