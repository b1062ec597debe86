// SPDX-License-Identifier: BSD-3-Clause
#include "cli/command.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <optional>

#include "cli/failure.hpp"
#include "cli/help.hpp"

namespace tagwire::tools {
namespace {

/// The innermost command that was asked for.
const CLI::App& asked_command(const CLI::App& app) {
    const std::vector<const CLI::App*> asked =
        app.get_subcommands([](const CLI::App* one) { return one->parsed(); });
    return asked.empty() ? app : asked_command(*asked.front());
}

std::string asked_of(const CLI::App& app) {
    const std::vector<const CLI::App*> asked =
        app.get_subcommands([](const CLI::App* one) { return one->parsed(); });
    return app.get_name() + (asked.empty() ? "" : " " + asked_of(*asked.front()));
}

DescribedOption described(const CLI::Option& option) {
    DescribedOption result;
    for (const std::string& name : option.get_snames())
        result.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames())
        result.names.push_back("--" + name);
    result.is_positional = option.get_positional();
    if (result.is_positional)
        result.names.push_back(option.get_name(true));
    result.type = option.get_type_size() == 0 ? "" : option.get_type_name();
    result.text = option.get_description();
    return result;
}

DescribedCommand described(const CLI::App& app) {
    DescribedCommand result;
    result.name = app.get_name();
    result.text = app.get_description();
    result.starts_program = app.get_prefix_command();
    for (const CLI::Option* option : app.get_options())
        result.options.push_back(described(*option));
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        result.commands.push_back(described(*sub));
    return result;
}

std::vector<std::string> options_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options())
        for (const std::string& name : option->get_lnames())
            names.push_back("--" + name);
    return names;
}

std::vector<std::string> commands_of(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(sub->get_name());
    return names;
}

/// Whether they are the same but for two letters in a row.
bool are_alike(const std::string& a, const std::string& b) {
    const auto front = std::ranges::mismatch(a, b);
    const std::string end_of_a(front.in1, a.end()), end_of_b(front.in2, b.end());
    const auto back =
        std::mismatch(end_of_a.rbegin(), end_of_a.rend(), end_of_b.rbegin(), end_of_b.rend());
    return std::max(end_of_a.rend() - back.first, end_of_b.rend() - back.second) <= 2;
}

/// The name that was probably meant, else all of them, as the end of a sentence.
std::string guess(const std::string& word, const std::vector<std::string>& names) {
    for (const std::string& name : names)
        if (are_alike(word, name))
            return text("; did you mean '%s'?", name.c_str());
    std::string list;
    for (const std::string& name : names)
        list += " " + name;
    return names.empty() ? "" : "; there are" + list;
}

/// The sentence about a word that nothing takes. `words`: those that are left.
std::string sentence_about(const CLI::App& app, const std::vector<std::string>& words) {
    const auto is_option = [](const std::string& word) {
        return word.size() > 1 && word.front() == '-' && word != "--";
    };
    const auto option = std::ranges::find_if(words, is_option);
    if (option != words.end()) {
        const std::string name = option->substr(0, option->find('='));
        return text("'%s' is not an option of '%s'%s", name.c_str(), asked_of(app).c_str(),
                    guess(name, options_of(asked_command(app))).c_str());
    }
    const std::vector<std::string> commands = commands_of(asked_command(app));
    if (words.empty() || commands.empty())
        return "";
    return text("'%s' is not a command of '%s'%s", words.front().c_str(), asked_of(app).c_str(),
                guess(words.front(), commands).c_str());
}

}  // namespace

CommandOption& CommandOption::type_name(const std::string& name) {
    option_->type_name(name);
    return *this;
}

CommandOption& CommandOption::choices(const std::vector<std::string>& values) {
    option_->check(CLI::IsMember(values));
    return *this;
}

CommandOption& CommandOption::range(std::uint64_t min, std::uint64_t max) {
    option_->check(CLI::Range(min, max));
    return *this;
}

CommandOption& CommandOption::required() {
    option_->required();
    return *this;
}

CommandOption& CommandOption::value_is_optional() {
    option_->expected(0, 1);
    return *this;
}

bool CommandOption::is_given() const {
    return option_->count() > 0;
}

Command Command::add_command(const std::string& name, const std::string& text) const {
    return Command(app_->add_subcommand(name, text));
}

void Command::require_command() const {
    app_->require_subcommand(1);
}

template <class Value>
CommandOption Command::add_option(const std::string& names, Value* value,
                                  const std::string& text) const {
    return CommandOption(app_->add_option(names, *value, text));
}

template CommandOption Command::add_option(const std::string&, std::string*,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::vector<std::string>*,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, unsigned*, const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::uint64_t*,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::string>*,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<std::uint64_t>*,
                                           const std::string&) const;
template CommandOption Command::add_option(const std::string&, std::optional<double>*,
                                           const std::string&) const;

CommandOption Command::add_option(const std::string& names,
                                  const std::function<void(const std::string&)>& take,
                                  const std::string& text) const {
    return CommandOption(app_->add_option_function<std::string>(names, take, text));
}

void Command::add_flag(const std::string& names, bool* is_given, const std::string& text) const {
    app_->add_flag(names, *is_given, text);
}

void Command::add_flag(const std::string& names, std::function<void()> take,
                       const std::string& text) const {
    app_->add_flag_callback(names, std::move(take), text);
}

void Command::footer(const std::string& text) const {
    app_->footer(text);
}

void Command::starts_program() const {
    app_->prefix_command();
}

bool Command::has_got(const std::string& command) const {
    return app_->got_subcommand(command);
}

std::vector<std::string> Command::remaining() const {
    return app_->remaining();
}

bool Command::takes_value(const std::string& name) const {
    const CLI::Option* const option = std::as_const(*app_).get_option_no_throw(name);
    return option != nullptr && option->get_type_size() > 0;
}

RootCommand::RootCommand(std::unique_ptr<CLI::App> app)
    : Command(app.get()), owned_(std::move(app)) {}

RootCommand::RootCommand(const std::string& name, const std::string& text,
                         const std::string& version)
    : RootCommand(std::make_unique<CLI::App>(text, name)) {
    app().set_version_flag("--version", version);
    use_wrapped_help(owned_.get());
}

RootCommand::~RootCommand() = default;

bool RootCommand::parse(std::vector<std::string> words) const {
    std::ranges::reverse(words);  // CLI11 takes them from the end
    try {
        app().parse(std::move(words));
        return true;
    } catch (const CLI::Success& success) {
        app().exit(success);
        return false;
    } catch (const CLI::ParseError& error) {
        // CLI11 names the command that is missing rather than the word that stands in its place,
        // and the last word rather than the first.
        std::string sentence;
        if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
            dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
            sentence = sentence_about(app(), app().remaining(true));
        throw UsageError(sentence.empty() ? error.what() : sentence);
    }
}

std::string RootCommand::asked() const {
    return asked_of(app());
}

DescribedCommand RootCommand::describe() const {
    return described(app());
}

std::vector<std::string> words_of(int argc, char** argv) {
    return {argv + std::min(argc, 1), argv + argc};
}

}  // namespace tagwire::tools
