// SPDX-License-Identifier: BSD-3-Clause
// Facts about an object as text and JSON: a transport writes keys and values,
// tagwire_uct_*_describe() passes them on. Keys are lower case with underscores and end in their
// unit ("ring_bytes").
#pragma once

#include <uct/api/tagwire_uct.h>

#include <cstdint>
#include <string>

namespace tagwire::uct {

class DescribeSink {
  public:
    DescribeSink(tagwire_uct_describe_cb_t callback, void* arg) : callback_(callback), arg_(arg) {}

    void text(const char* key, const std::string& value) const {
        callback_(arg_, key, value.c_str());
    }
    void number(const char* key, std::uint64_t value) const { text(key, std::to_string(value)); }
    void flag(const char* key, bool value) const { callback_(arg_, key, value ? "yes" : "no"); }

  private:
    tagwire_uct_describe_cb_t callback_;
    void* arg_;
};

}  // namespace tagwire::uct
