// SPDX-License-Identifier: BSD-3-Clause
// Names that no option has: most often a typing error, so it is worth a warning, and never worth a
// failure, because another version of the library may know them.
#include <algorithm>
#include <atomic>

#include "ucs/config/config.hpp"
#include "ucs/config/config_file.hpp"
#include "ucs/config/edit_distance.hpp"
#include "ucs/config/environment.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::ucs {
namespace {

// Read elsewhere: here, by the test suites, by the comparison runs, by the virtual HCA.
bool belongs_elsewhere(std::string_view name) {
    return name == "CONFIG_FILE" || name.starts_with("TEST_") || name.starts_with("BENCH_") ||
           name.starts_with("VHCA_");
}

// TAGWIRE_<env_prefix>_<NAME> is known too, whatever prefix a program gives to uct_*_config_read().
// Those calls read no option of one word (RANK, SIZE), which would be the end of many a mistake.
bool is_known(std::string_view name, const std::vector<std::string_view>& known) {
    return std::any_of(known.begin(), known.end(), [name](std::string_view option) {
        return name == option ||
               (option.find('_') != std::string_view::npos && name.size() > option.size() + 1 &&
                name.ends_with(option) && name[name.size() - option.size() - 1] == '_');
    });
}

std::string sentence(const std::string& where, std::string_view name,
                     const std::vector<std::string_view>& known) {
    return where + "no option is called " + std::string(kVariablePrefix).append(name) +
           "; did you mean " + std::string(kVariablePrefix).append(nearest_name(name, known)) + "?";
}

}  // namespace

std::vector<std::string> config_unknown_names(std::span<const OptionTable* const> tables) {
    std::vector<std::string_view> known;
    for (const OptionTable* table : tables)
        for (const Option& option : table->options)
            known.emplace_back(option.name);
    std::vector<std::string> sentences;
    if (known.empty())
        return sentences;
    std::vector<std::string> problems;  // config_fill() reports these
    for (const ConfigFile& file : config_files(nullptr, &problems)) {
        for (const ConfigLine& line : file.lines) {
            if (!is_known(line.name, known)) {
                sentences.push_back(sentence(file.path + ":" + std::to_string(line.number) + ": ",
                                             line.name, known));
            }
        }
    }
    for (const auto& [variable, value] : environment_list(kVariablePrefix)) {
        const std::string_view name = std::string_view(variable).substr(kVariablePrefix.size());
        if (!belongs_elsewhere(name) && !is_known(name, known))
            sentences.push_back(sentence("", name, known));
    }
    return sentences;
}

void config_warn_unknown_once(std::span<const OptionTable* const> tables) {
    static constinit std::atomic<bool> done{false};
    if (done.exchange(true, std::memory_order_relaxed))
        return;
    for (const std::string& text : config_unknown_names(tables))
        TW_LOG_WARN("%s", text.c_str());
}

}  // namespace tagwire::ucs
