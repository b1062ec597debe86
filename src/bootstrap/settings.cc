// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/settings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "bootstrap/options.hpp"
#include "ucs/config/environment.hpp"
#include "ucs/memory/sized.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr std::uint64_t kTimeoutMsMax = 86'400'000;

/// A method and its place, as in TAGWIRE_BOOTSTRAP.
struct Choice {
    tw_bootstrap_method_t method = TW_BOOTSTRAP_AUTO;
    std::string where;
};

struct MethodName {
    std::string_view name;
    tw_bootstrap_method_t method;
    bool has_place;
};

constexpr std::array kNames{
    MethodName{"auto", TW_BOOTSTRAP_AUTO, false},
    MethodName{"pmix", TW_BOOTSTRAP_PMIX, false},
    MethodName{"dir", TW_BOOTSTRAP_DIR, true},
    MethodName{"single", TW_BOOTSTRAP_SINGLE, false},
};

const MethodName* find_name(tw_bootstrap_method_t method) {
    const auto* found =
        std::ranges::find_if(kNames, [&](const MethodName& row) { return row.method == method; });
    return found == kNames.end() ? nullptr : found;
}

Result parse_choice(std::string_view text, Choice* choice_p) {
    const std::string_view name = text.substr(0, text.find(':'));
    const bool has_place = name.size() < text.size();
    for (const MethodName& row : kNames) {
        if (row.name == name && row.has_place == has_place) {
            *choice_p = {row.method, std::string(has_place ? text.substr(name.size() + 1) : "")};
            return {};
        }
    }
    return failed(UCS_ERR_INVALID_PARAM,
                  "TAGWIRE_BOOTSTRAP=%.*s is not accepted: expected auto, pmix, dir:PATH or single",
                  static_cast<int>(text.size()), text.data());
}

bool was_started_by_pmix() {
    return ucs::environment_get("PMIX_NAMESPACE") != nullptr &&
           ucs::environment_get("PMIX_RANK") != nullptr;
}

Result check_params(const tw_bootstrap_params_t& params) {
    const MethodName* name = find_name(params.method);
    if (name == nullptr)
        return failed(UCS_ERR_INVALID_PARAM, "params->method %d is not a tw_bootstrap_method_t",
                      int{params.method});
    if (params.where != nullptr && !name->has_place)
        return failed(UCS_ERR_INVALID_PARAM, "`where` is given without method DIR");
    if (params.timeout_ms > kTimeoutMsMax)
        return failed(UCS_ERR_INVALID_PARAM, "timeout_ms is more than a day");
    return {};
}

Result choose_method(const tw_bootstrap_params_t& params, const Options& options,
                     Settings* settings) {
    Choice choice;
    if (Result result = parse_choice(options.method.text, &choice); !result.ok())
        return result;
    settings->method = params.method != TW_BOOTSTRAP_AUTO ? params.method : choice.method;
    if (settings->method == TW_BOOTSTRAP_AUTO) {
        settings->may_be_single = true;
        settings->method = was_started_by_pmix() ? TW_BOOTSTRAP_PMIX : TW_BOOTSTRAP_SINGLE;
    }
    if (params.where != nullptr)
        settings->where = params.where;
    else if (choice.method == settings->method)
        settings->where = choice.where;
    const MethodName* name = find_name(settings->method);
    if (name->has_place && settings->where.empty()) {
        const std::string method(name->name);
        return failed(UCS_ERR_INVALID_PARAM,
                      "method %s needs a place: `where`, or TAGWIRE_BOOTSTRAP=%s:...",
                      method.c_str(), method.c_str());
    }
    return {};
}

Result choose_rank(const tw_bootstrap_params_t& params, const Options& options,
                   Settings* settings) {
    const bool is_told = params.size != 0;
    const std::uint64_t size = is_told ? params.size : options.size;
    const std::uint64_t rank = is_told ? params.rank : options.rank;
    const bool needs_rank = settings->method == TW_BOOTSTRAP_DIR;
    if (needs_rank && (size == 0 || rank == kRankNotGiven)) {
        return failed(UCS_ERR_INVALID_PARAM,
                      "rank and size of the job are not known: set TAGWIRE_RANK and TAGWIRE_SIZE");
    }
    if (size > TW_BOOTSTRAP_RANKS_MAX) {
        return failed(UCS_ERR_INVALID_PARAM, "a job of %llu processes exceeds the limit of %u",
                      static_cast<unsigned long long>(size), TW_BOOTSTRAP_RANKS_MAX);
    }
    if (size != 0 && rank != kRankNotGiven && rank >= size) {
        return failed(UCS_ERR_INVALID_PARAM, "rank %llu in a job of %llu; ranks begin with 0",
                      static_cast<unsigned long long>(rank), static_cast<unsigned long long>(size));
    }
    if (settings->method == TW_BOOTSTRAP_SINGLE && size > 1) {
        return failed(UCS_ERR_INVALID_PARAM,
                      "a job of %llu processes, but nothing says how they meet: set "
                      "TAGWIRE_BOOTSTRAP, or start it with a PMIx launcher",
                      static_cast<unsigned long long>(size));
    }
    const bool is_ours = is_told || needs_rank;  // else the launcher says it
    settings->size = is_ours ? static_cast<std::uint32_t>(size) : 0;
    settings->rank = is_ours ? static_cast<std::uint32_t>(rank) : 0;
    return {};
}

Result choose_job(const char* name, Settings* settings) {
    const std::string_view job = name;
    const bool is_valid = !job.empty() && job.size() <= TW_BOOTSTRAP_JOB_MAX &&
                          std::ranges::all_of(job, [](char letter) {
                              return (letter >= 'a' && letter <= 'z') ||
                                     (letter >= 'A' && letter <= 'Z') ||
                                     (letter >= '0' && letter <= '9') || letter == '.' ||
                                     letter == '_' || letter == '-';
                          });
    if (!is_valid) {
        return failed(UCS_ERR_INVALID_PARAM,
                      "the job's name '%s' is not 1 to %zu letters, digits, '.', '_' or '-'", name,
                      TW_BOOTSTRAP_JOB_MAX);
    }
    settings->job = job;
    return {};
}

}  // namespace

Result choose_settings(const tw_bootstrap_params_t* given, Settings* settings_p) {
    tw_bootstrap_params_t params{};
    if (given != nullptr) {
        if (!ucs::has_size(*given)) {
            return failed(UCS_ERR_INVALID_PARAM,
                          "params->struct_bytes is %zu, expected 1 to %zu: set it to "
                          "sizeof(tw_bootstrap_params_t), or use the library of these headers",
                          given->struct_bytes, sizeof params);
        }
        params = ucs::read_sized(*given);
        if (Result result = check_params(params); !result.ok())
            return result;
    }
    Options options{};
    if (ucs::config_fill(option_table(), &options) != UCS_OK)
        return failed(UCS_ERR_INVALID_PARAM, "an option is wrong; the log says which");
    Settings settings;
    settings.timeout_ns =
        params.timeout_ms != 0 ? params.timeout_ms * kNsPerMs : options.timeout_ns;
    Result result = choose_method(params, options, &settings);
    if (result.ok())
        result = choose_rank(params, options, &settings);
    if (result.ok())
        result = choose_job(params.job != nullptr ? params.job : options.job.text, &settings);
    if (result.ok())
        *settings_p = settings;
    return result;
}

}  // namespace tagwire::bootstrap
