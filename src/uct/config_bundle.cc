// SPDX-License-Identifier: BSD-3-Clause
#include "uct/config_bundle.hpp"

#include <new>

namespace tagwire::uct {

namespace {

constexpr ucs::OptionTable kNoOptions{"no options", {}, 0};

}  // namespace

ConfigBundle::ConfigBundle(const ucs::OptionTable* table)
    : table_(table), values_(::operator new(this->table().values_bytes)) {}

ConfigBundle::~ConfigBundle() {
    magic_ = 0;
}

const ucs::OptionTable& ConfigBundle::table() const {
    return table_ != nullptr ? *table_ : kNoOptions;
}

ucs_status_t ConfigBundle::read(const ucs::OptionTable* table, const ucs::ConfigSources& sources,
                                ConfigBundle** bundle_p) {
    std::unique_ptr<ConfigBundle> bundle(new ConfigBundle(table));
    const ucs_status_t status = ucs::config_fill(bundle->table(), bundle->values(), sources);
    if (status != UCS_OK)
        return status;
    *bundle_p = bundle.release();
    return UCS_OK;
}

ConfigBundle* ConfigBundle::from(const void* handle) {
    auto* bundle = static_cast<ConfigBundle*>(const_cast<void*>(handle));
    return bundle != nullptr && bundle->magic_ == kMagic ? bundle : nullptr;
}

}  // namespace tagwire::uct
