// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cost/given_options.hpp"

#include <algorithm>
#include <array>
#include <new>

#include <fmt/format.h>
#include <uct/api/tagwire_uct.h>

#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

constexpr std::string_view kPrefix = "TAGWIRE_";
constexpr std::string_view kDefault = "default";  // tagwire_config_entry_t.source
constexpr std::size_t kProblemBytes = 512;
constexpr const char* kParameter = "tw_context_params_t.options";

std::string_view without_prefix(std::string_view name) {
    return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace

ucs_status_t GivenOptions::check(const tw_option_t& option, std::size_t index) {
    if (option.name == nullptr || option.value == nullptr) {
        TW_LOG_ERROR("%s[%zu]: %s is NULL", kParameter, index,
                     option.name == nullptr ? "name" : "value");
        return UCS_ERR_INVALID_PARAM;
    }
    if (option.rank != TW_OPTION_OVERRIDE && option.rank != TW_OPTION_DEFAULT) {
        TW_LOG_ERROR("%s[%zu]: rank %d of %s is not a tw_option_rank_t", kParameter, index,
                     static_cast<int>(option.rank), option.name);
        return UCS_ERR_INVALID_PARAM;
    }
    std::array<char, kProblemBytes> reason{};
    const ucs_status_t status =
        tagwire_config_check(option.name, option.value, reason.data(), reason.size());
    if (status == UCS_OK || status == UCS_ERR_NO_MEMORY)
        return status;
    TW_LOG_ERROR("%s[%zu]: %s", kParameter, index, reason.data());
    return UCS_ERR_INVALID_PARAM;
}

ucs_status_t GivenOptions::take(std::span<const tw_option_t> given, GivenOptions* options_p) {
    std::vector<Given>& all = options_p->all_;
    bool has_defaults = false;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const ucs_status_t status = check(given[i], i);
        if (status != UCS_OK)
            return status;
        const std::string name(without_prefix(given[i].name));
        if (std::ranges::find(all, name, &Given::name) != all.end()) {
            TW_LOG_ERROR("%s[%zu]: %s is given twice", kParameter, i, given[i].name);
            return UCS_ERR_INVALID_PARAM;
        }
        const bool is_default = given[i].rank == TW_OPTION_DEFAULT;
        has_defaults |= is_default;
        all.push_back({name, given[i].value, is_default ? std::string(kDefault) : std::string()});
    }
    if (!has_defaults)
        return UCS_OK;
    const auto find_winner = [](void* arg, const tagwire_config_entry_t* entry) {
        for (Given& each : *static_cast<std::vector<Given>*>(arg))
            if (each.winner == kDefault && each.name == without_prefix(entry->name))
                each.winner = entry->source == kDefault ? "" : entry->source;
    };
    // A bad value of another source is refused where it is read.
    if (tagwire_config_list(find_winner, &all) == UCS_ERR_NO_MEMORY)
        return UCS_ERR_NO_MEMORY;
    return UCS_OK;
}

ucs_status_t GivenOptions::apply(const ucs::OptionTable& table, void* values) const {
    for (const Given& each : all_) {
        const bool has = std::ranges::any_of(
            table.options, [&](const ucs::Option& option) { return option.name == each.name; });
        if (!has || !each.winner.empty())
            continue;
        const ucs_status_t status =
            ucs::config_set(table, values, each.name.c_str(), each.value.c_str());
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

ucs_status_t GivenOptions::apply_to_uct(void* config) const {
    for (const Given& each : all_) {
        std::array<char, ucs::kOptionTextBytesMax + 1> present;
        if (!each.winner.empty() || uct_config_get(config, each.name.c_str(), present.data(),
                                                   present.size()) == UCS_ERR_NO_ELEM)
            continue;
        const ucs_status_t status =
            uct_config_modify(config, each.name.c_str(), each.value.c_str());
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

std::string_view GivenOptions::value_of(std::string_view name) const {
    const auto found = std::ranges::find(all_, name, &Given::name);
    return found != all_.end() && found->winner.empty() ? std::string_view(found->value)
                                                        : std::string_view();
}

std::string GivenOptions::description() const {
    std::string text;
    for (const Given& each : all_) {
        text += fmt::format("{}{}={}", text.empty() ? "" : ", ", each.name, each.value);
        if (!each.winner.empty())
            text += fmt::format(" ({} wins)", each.winner);
    }
    return text;
}

}  // namespace tagwire::proto
