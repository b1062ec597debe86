// SPDX-License-Identifier: BSD-3-Clause
// Command lines: commands, their subcommands and options. CLI11 does the work, but no other header
// and no command includes it: that would take longer to compile than the rest of a command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tagwire::tools {

/// Refers to an option or a positional argument of a RootCommand.
class CommandOption {
  public:
    explicit CommandOption(CLI::Option* option) : option_(option) {}

    CommandOption& type_name(const std::string& name);
    CommandOption& choices(const std::vector<std::string>& values);
    CommandOption& range(std::uint64_t min, std::uint64_t max);
    CommandOption& required();
    /// It may stand without a value, too.
    CommandOption& value_is_optional();

    bool is_given() const;

  private:
    CLI::Option* option_;
};

struct DescribedOption {
    std::vector<std::string> names;  // "-n", "--ranks"; of a positional argument its name
    std::string type;                // "N", "SHELL:{bash,zsh}"; empty: takes no value
    std::string text;
    bool is_positional = false;
};

struct DescribedCommand {
    std::string name;
    std::string text;
    std::vector<DescribedOption> options;
    std::vector<DescribedCommand> commands;
    bool starts_program = false;
};

/// Refers to a RootCommand or a subcommand of it.
class Command {
  public:
    Command add_command(const std::string& name, const std::string& text) const;
    /// Exactly one of its subcommands has to be given.
    void require_command() const;
    /// `*value` outlives it. Only for the types that cli.cc lists.
    template <class Value>
    CommandOption add_option(const std::string& names, Value* value, const std::string& text) const;
    CommandOption add_option(const std::string& names,
                             const std::function<void(const std::string&)>& take,
                             const std::string& text) const;
    void add_flag(const std::string& names, bool* is_given, const std::string& text) const;
    void add_flag(const std::string& names, std::function<void()> take,
                  const std::string& text) const;
    /// Below its help.
    void footer(const std::string& text) const;
    /// Words behind its own are those of a program: remaining().
    void starts_program() const;

    bool has_got(const std::string& command) const;
    std::vector<std::string> remaining() const;
    /// `name`: "--tl". False, too, if there is no such option.
    bool takes_value(const std::string& name) const;

  protected:
    explicit Command(CLI::App* app) : app_(app) {}
    CLI::App& app() const { return *app_; }

  private:
    CLI::App* app_;
};

/// Owns all of its subcommands and options.
class RootCommand : public Command {
  public:
    /// `version`: the answer to --version.
    RootCommand(const std::string& name, const std::string& text, const std::string& version);
    ~RootCommand();
    RootCommand(const RootCommand&) = delete;
    RootCommand& operator=(const RootCommand&) = delete;

    /// `words`: without the program's name. False: help or the version was printed. Throws
    /// UsageError.
    bool parse(std::vector<std::string> words) const;
    /// "tagwire vhca run": the subcommands that were understood.
    std::string asked() const;
    DescribedCommand describe() const;

  private:
    explicit RootCommand(std::unique_ptr<CLI::App> app);

    std::unique_ptr<CLI::App> owned_;
};

/// The words behind the name of the program.
std::vector<std::string> words_of(int argc, char** argv);

}  // namespace tagwire::tools
