// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/config.hpp"

#include <cstring>

#include "ucs/config/config_file.hpp"
#include "ucs/config/edit_distance.hpp"
#include "ucs/config/environment.hpp"
#include "ucs/config/option_value.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::ucs {
namespace {

constexpr const char* kFromDefault = "default";
constexpr const char* kFromEnvironment = "environment";

std::string_view without_prefix(std::string_view name) {
    if (name.starts_with(kVariablePrefix))
        name.remove_prefix(kVariablePrefix.size());
    return name;
}

const Option* find_option(const OptionTable& table, std::string_view name) {
    for (const Option& option : table.options)
        if (name == option.name)
            return &option;
    return nullptr;
}

std::string refusal(const Option& option, std::string_view text, const std::string& where) {
    return std::string(kVariablePrefix).append(option.name) + "=" + std::string(text) + " (" +
           where + ") is not accepted: expected " + option_accepted(option);
}

// The source of one option's value, and the problem with it.
struct Origin {
    std::string source = kFromDefault;
    std::string problem;
};

class Resolver {
  public:
    Resolver(const OptionTable& table, void* values, const ConfigSources& sources)
        : table_(table), values_(values), sources_(sources), origins_(table.options.size()) {}

    void run() {
        std::memset(values_, 0, table_.values_bytes);
        for (const Option& option : table_.options) {
            const bool default_accepted = option_parse(option, option.default_value, values_);
            TW_CHECK(default_accepted);
        }
        for (const ConfigFile& file : config_files(sources_.file, &problems_))
            apply_file(file);
        apply_environment(std::string(kVariablePrefix));
        if (sources_.env_prefix != nullptr && *sources_.env_prefix != '\0')
            apply_environment(std::string(kVariablePrefix) + sources_.env_prefix + "_");
    }

    const std::vector<std::string>& problems() const { return problems_; }
    const Origin& origin(std::size_t index) const { return origins_[index]; }

  private:
    void apply_file(const ConfigFile& file) {
        for (const ConfigLine& line : file.lines) {
            if (const Option* option = find_option(table_, line.name)) {
                apply(*option, line.value, file.path,
                      file.path + ":" + std::to_string(line.number));
            }
        }
    }

    void apply_environment(const std::string& prefix) {
        for (const Option& option : table_.options) {
            const std::string variable = prefix + option.name;
            if (const char* text = environment_get(variable.c_str()))
                apply(option, text, kFromEnvironment, "environment variable " + variable);
        }
    }

    void apply(const Option& option, std::string_view text, const std::string& source,
               const std::string& where) {
        Origin& origin = origins_[static_cast<std::size_t>(&option - table_.options.data())];
        if (option_parse(option, text, values_)) {
            origin = {source, {}};
            return;
        }
        origin.problem = refusal(option, text, where);
        problems_.push_back(origin.problem);
    }

    const OptionTable& table_;
    void* values_;
    ConfigSources sources_;
    std::vector<std::string> problems_;
    std::vector<Origin> origins_;
};

}  // namespace

ucs_status_t config_resolve(const OptionTable& table, void* values, const ConfigSources& sources,
                            std::vector<std::string>* problems_p) {
    Resolver resolver(table, values, sources);
    resolver.run();
    problems_p->insert(problems_p->end(), resolver.problems().begin(), resolver.problems().end());
    return resolver.problems().empty() ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

ucs_status_t config_fill(const OptionTable& table, void* values, const ConfigSources& sources) {
    log_check_options();
    std::vector<std::string> problems;
    const ucs_status_t status = config_resolve(table, values, sources, &problems);
    for (const std::string& problem : problems)
        TW_LOG_ERROR("%s", problem.c_str());
    return status;
}

ucs_status_t config_set(const OptionTable& table, void* values, const char* name,
                        const char* text) {
    const std::string_view wanted = without_prefix(name);
    const Option* option = find_option(table, wanted);
    if (option == nullptr) {
        std::vector<std::string_view> names;
        for (const Option& known : table.options)
            names.emplace_back(known.name);
        // No error of ours: programs try names of other libraries and heed the answer.
        TW_LOG_INFO("there is no option %s for %s; the nearest is %s", name, table.title,
                    std::string(nearest_name(wanted, names)).c_str());
        return UCS_ERR_NO_ELEM;
    }
    if (!option_parse(*option, text, values)) {
        TW_LOG_ERROR("%s", refusal(*option, text, "set by the program").c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

ucs_status_t config_check(std::span<const OptionTable* const> tables, std::string_view name,
                          std::string_view text, std::string* problem_p) {
    const std::string_view wanted = without_prefix(name);
    std::vector<std::string_view> names;
    for (const OptionTable* table : tables) {
        for (const Option& known : table->options)
            names.emplace_back(known.name);
        const Option* option = find_option(*table, wanted);
        if (option == nullptr)
            continue;
        if (table->process_reason != nullptr) {
            *problem_p =
                std::string(kVariablePrefix).append(wanted) +
                " belongs to the process, and a context cannot set it: " + table->process_reason;
            return UCS_ERR_UNSUPPORTED;
        }
        // uint64_t, so that fields of any option type are aligned.
        std::vector<std::uint64_t> values(table->values_bytes / sizeof(std::uint64_t) + 1);
        if (option_parse(*option, text, values.data()))
            return UCS_OK;
        *problem_p = refusal(*option, text, "set by the program");
        return UCS_ERR_INVALID_PARAM;
    }
    *problem_p = "no option is called " + std::string(kVariablePrefix).append(wanted) +
                 "; did you mean " +
                 std::string(kVariablePrefix).append(nearest_name(wanted, names)) + "?";
    return UCS_ERR_NO_ELEM;
}

ucs_status_t config_get(const OptionTable& table, const void* values, const char* name, char* out,
                        std::size_t out_bytes) {
    const Option* option = find_option(table, without_prefix(name));
    if (option == nullptr)
        return UCS_ERR_NO_ELEM;
    const std::string text = option_format(*option, values);
    if (text.size() >= out_bytes)
        return UCS_ERR_BUFFER_TOO_SMALL;
    std::memcpy(out, text.c_str(), text.size() + 1);
    return UCS_OK;
}

std::vector<OptionReport> config_report(const OptionTable& table) {
    // uint64_t, so that fields of any option type are aligned.
    std::vector<std::uint64_t> values(table.values_bytes / sizeof(std::uint64_t) + 1);
    std::vector<std::uint64_t> defaults(values.size());
    Resolver resolver(table, values.data(), {});
    resolver.run();
    std::vector<OptionReport> rows;
    for (std::size_t i = 0; i < table.options.size(); ++i) {
        const Option& option = table.options[i];
        option_parse(option, option.default_value, defaults.data());
        rows.push_back({.option = &option,
                        .variable = std::string(kVariablePrefix).append(option.name),
                        .type = option_type_name(option.type),
                        .accepted = option_accepted(option),
                        .default_value = option_format(option, defaults.data()),
                        .value = option_format(option, values.data()),
                        .source = resolver.origin(i).source,
                        .problem = resolver.origin(i).problem});
    }
    return rows;
}

std::string config_table_problem(const OptionTable& table) {
    std::vector<std::uint64_t> values(table.values_bytes / sizeof(std::uint64_t) + 1);
    for (const Option& option : table.options) {
        const std::string name = option.name;
        if (find_option(table, name) != &option)
            return name + " is there twice";
        if (name.empty() ||
            name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != std::string::npos) {
            return name + " is no name of capital letters, digits and _";
        }
        if (option.offset + option_field_bytes(option.type) > table.values_bytes)
            return name + " lies outside the values";
        if ((option.choices != nullptr) != (option.type == OptionType::kEnum))
            return name + " has choices without being a choice, or the reverse";
        if (*option.doc == '\0' || std::strchr(option.doc, '\n') != nullptr)
            return name + " has no doc of one line";
        if (!option_parse(option, option.default_value, values.data()))
            return name + " refuses its default " + option.default_value;
    }
    return {};
}

}  // namespace tagwire::ucs
