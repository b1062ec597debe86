// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target of the configuration: the lines of a file, and values for every option of the
// library. First byte even: the rest is a file. Odd: the index of an option and a value for it.
#include <array>
#include <string>
#include <vector>

#include "input.hpp"
#include "target.hpp"
#include "ucs/config/config.hpp"
#include "ucs/config/config_file.hpp"
#include "uct/components.hpp"

namespace tagwire::fuzz::config_fuzz {
namespace {

void parse_file(std::string_view text) {
    std::vector<std::string> problems;
    const auto lines = ucs::config_parse_lines(text, "fuzzed.conf", &problems);
    for (const auto& line : lines) {
        require(!line.name.empty() && line.number > 0);
        require(line.value.find('\n') == std::string::npos);
    }
    for (const auto& problem : problems)
        require(!problem.empty());
}

// An accepted value reads back as a text that is accepted and means the same.
void set_option(std::uint8_t which, std::string_view rest) {
    const auto tables = uct::all_option_tables();
    for (const ucs::OptionTable* table : tables) {
        if (which >= table->options.size()) {
            which = static_cast<std::uint8_t>(which - table->options.size());
            continue;
        }
        const char* name = table->options[which].name;
        std::vector<std::byte> values(table->values_bytes);
        std::vector<std::string> problems;
        ucs::config_resolve(*table, values.data(), {}, &problems);
        const auto before = values;
        const std::string text(rest);
        if (ucs::config_set(*table, values.data(), name, text.c_str()) != UCS_OK) {
            require(values == before);
            return;
        }
        std::array<char, ucs::kOptionTextBytesMax + 1> shown{};
        require(ucs::config_get(*table, values.data(), name, shown.data(), shown.size()) == UCS_OK);
        require(ucs::config_set(*table, values.data(), name, shown.data()) == UCS_OK);
        std::array<char, ucs::kOptionTextBytesMax + 1> again{};
        require(ucs::config_get(*table, values.data(), name, again.data(), again.size()) == UCS_OK);
        require(shown == again);
        return;
    }
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    if (input.take<std::uint8_t>() % 2 == 0) {
        parse_file(input.rest_as_text());
    } else {
        const auto which = input.take<std::uint8_t>();
        set_option(which, input.rest_as_text());
    }
}

}  // namespace

extern const Target kTarget{"config", nullptr, run_input};

}  // namespace tagwire::fuzz::config_fuzz
