// SPDX-License-Identifier: BSD-3-Clause
// The target of uct_md_config_t* and uct_iface_config_t*: a table of options and the values read
// for it. Any thread, one at a time.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/config/config.hpp"

namespace tagwire::uct {

class ConfigBundle {
  public:
    /// Reads all sources; `table` may be null (no options). UCS_ERR_INVALID_PARAM: a value of a
    /// source is bad (logged).
    static ucs_status_t read(const ucs::OptionTable* table, const ucs::ConfigSources& sources,
                             ConfigBundle** bundle_p);
    ~ConfigBundle();
    ConfigBundle(const ConfigBundle&) = delete;
    ConfigBundle& operator=(const ConfigBundle&) = delete;

    /// The bundle behind a handle; null when the pointer is not one of ours. (A pointer to freed
    /// memory is the caller's bug.)
    static ConfigBundle* from(const void* handle);

    [[nodiscard]] bool is_of(const ucs::OptionTable* table) const { return table_ == table; }
    [[nodiscard]] const ucs::OptionTable& table() const;
    [[nodiscard]] void* values() { return values_.get(); }

  private:
    static constexpr std::uint64_t kMagic = 0x7477636f6e666967;  // "twconfig"

    struct Free {
        void operator()(void* values) const { ::operator delete(values); }
    };

    explicit ConfigBundle(const ucs::OptionTable* table);

    std::uint64_t magic_ = kMagic;
    const ucs::OptionTable* table_;
    std::unique_ptr<void, Free> values_;
};

}  // namespace tagwire::uct
