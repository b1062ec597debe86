// SPDX-License-Identifier: BSD-3-Clause
#include "cli/help.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "cli/environment.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kDefaultWidth = 80;
constexpr std::size_t kWidthMin = 40;
constexpr std::size_t kWidthMax = 120;  // longer lines are hard to read
constexpr std::size_t kNames = 30;      // columns for the names of options
constexpr std::size_t kTextMin = 30;    // with fewer columns for it, text stands below the name

/// `words` after `line`, which has something already; continuations begin at `indent`.
std::string filled(std::string line, const std::string& words, std::size_t indent,
                   std::size_t width) {
    std::string done;
    std::istringstream rest(words);
    bool is_first = true;
    for (std::string word; rest >> word; is_first = false) {
        if (!is_first && line.size() + 1 + word.size() > width) {
            done += line + "\n";
            line.assign(indent, ' ');
            is_first = true;
        }
        line += (is_first ? "" : " ") + word;
    }
    return done + line;
}

/// A name with its text beside it, or below it where there is no room.
std::string entry(const std::string& name, const std::string& words) {
    const std::size_t width = help_width();
    const std::size_t indent = width >= kNames + kTextMin ? kNames : 6;
    std::string line = "  " + name;
    if (words.empty())
        return line + "\n";
    if (line.size() + 1 > indent) {
        line += "\n";
        return line + filled(std::string(indent, ' '), words, indent, width) + "\n";
    }
    line.resize(indent, ' ');
    return filled(line, words, indent, width) + "\n";
}

/// CLI11 puts the check behind a value's name: "N:INT in [1 - 9]", "SHELL:{bash,zsh}".
std::string name_of_value(const std::string& type) {
    const std::size_t check = std::min(type.find(" in ["), type.find(":{"));
    return type.substr(0, check == std::string::npos ? check : type.rfind(':', check));
}

class WrappedFormatter final : public CLI::Formatter {
  public:
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        return entry(make_option_name(option, is_positional) + make_option_opts(option),
                     make_option_desc(option));
    }
    /// The value's name alone: the description says what it may be.
    std::string make_option_opts(const CLI::Option* option) const override {
        if (option->get_type_size() == 0)
            return "";
        const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
        return " " + name_of_value(option->get_type_name()) + (is_list ? "..." : "");
    }
    std::string make_subcommand(const CLI::App* command) const override {
        return entry(command->get_name(), command->get_description());
    }
    std::string make_description(const CLI::App* command) const override {
        return wrapped(CLI::Formatter::make_description(command), help_width());
    }
    std::string make_usage(const CLI::App* command, std::string name) const override {
        std::string usage = CLI::Formatter::make_usage(command, name);
        if (command->get_prefix_command())
            usage.insert(usage.size() - 1, " PROGRAM [ARGS...]");
        return usage;
    }
    std::string make_footer(const CLI::App* command) const override {
        return wrapped(CLI::Formatter::make_footer(command), help_width());
    }
};

}  // namespace

std::size_t help_width() {
    std::size_t width = 0;
    const std::string_view columns = environment_value("COLUMNS");
    std::from_chars(columns.data(), columns.data() + columns.size(), width);
    winsize terminal{};
    if (width == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0)
        width = terminal.ws_col;
    return width == 0 ? kDefaultWidth : std::clamp(width, kWidthMin, kWidthMax);
}

std::string wrapped(const std::string& lines, std::size_t width) {
    std::string result;
    std::istringstream all(lines);
    for (std::string line; std::getline(all, line);) {
        const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
        const std::size_t gap = line.find("  ", first);
        const std::size_t text =
            gap == std::string::npos ? first : line.find_first_not_of(' ', gap);
        const std::size_t indent = text + kTextMin > width ? first + 4 : text;
        result += filled(line.substr(0, text), line.substr(text), indent, width) + "\n";
    }
    return result;
}

void use_wrapped_help(CLI::App* app) {
    app->formatter(std::make_shared<WrappedFormatter>());
}

}  // namespace tagwire::tools
