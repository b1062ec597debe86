// SPDX-License-Identifier: BSD-3-Clause
#include "tools/completion.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "cli/failure.hpp"
#include "tools/job.hpp"

namespace tagwire::tools {
namespace {

struct CompletedOption {
    std::vector<std::string> names;  // "-n", "--ranks"
    std::string value;               // "FILE"; empty: takes none
    std::vector<std::string> choices;
    std::string text;
};

struct Completed {
    std::vector<std::string> path;  // "vhca", "run"; empty: the command itself
    std::string text;
    std::vector<CompletedOption> options;
    std::vector<CompletedOption> positionals;
    std::vector<DescribedCommand> subcommands;
    bool starts_program = false;

    std::string name() const {
        std::string all;
        for (const std::string& one : path)
            all += (all.empty() ? "" : " ") + one;
        return all;
    }
};

std::string joined(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& word : words)
        all += (all.empty() ? "" : " ") + word;
    return all;
}

/// Values of options that are checked only when the whole line is known.
std::vector<std::string> known_choices(const std::string& command, const std::string& option) {
    static const std::map<std::string, std::vector<std::string>> kChoices{
        {"perf --level", {"uct", "msg"}},
        {"perf --op", {"auto", "short", "bcopy", "zcopy", "rndv"}},
        {"perf --memory", {"user", "alloc", "mapped", "list"}},
        {"perf --share", {"context", "worker"}},
        {"perf --wait", {"spin", "yield", "sleep"}},
        {"explain --buffer", {"plain", "mapped", "list"}},
        {"report --compare", {"ucx", "libfabric", "openmpi"}},
    };
    if (command == "perf" && option == "test") {
        std::vector<std::string> tests;
        for (const TestInfo& test : all_tests())
            tests.emplace_back(test.name);
        return tests;
    }
    const auto at = kChoices.find(command + " " + option);
    return at == kChoices.end() ? std::vector<std::string>() : at->second;
}

/// Those of "NAME:{tagwire,mlx5}", as a check for membership shows itself.
std::vector<std::string> checked_choices(const std::string& type) {
    std::vector<std::string> choices;
    const std::size_t begin = type.find('{');
    const std::size_t end = type.rfind('}');
    if (begin == std::string::npos || end == std::string::npos)
        return choices;
    std::istringstream list(type.substr(begin + 1, end - begin - 1));
    for (std::string one; std::getline(list, one, ',');)
        choices.push_back(one);
    return choices;
}

/// The first part of a description, which a shell shows in a line.
std::string short_text(const std::string& words) {
    return words.substr(
        0, std::min({words.find(" ("), words.find("; "), words.find(". "), words.size()}));
}

CompletedOption completed(const std::string& command, const DescribedOption& option) {
    CompletedOption result;
    if (!option.is_positional)
        result.names = option.names;
    result.value = option.type.substr(0, option.type.find(':'));
    result.choices = checked_choices(option.type);
    if (result.choices.empty())
        result.choices = known_choices(command, option.names.back());
    result.text = short_text(option.text);
    return result;
}

void collect(const DescribedCommand& described, const std::vector<std::string>& path,
             std::vector<Completed>* all) {
    Completed command;
    command.path = path;
    command.text = short_text(described.text);
    command.starts_program = described.starts_program;
    for (const DescribedOption& option : described.options) {
        CompletedOption one = completed(command.name(), option);
        command.starts_program = command.starts_program || one.value.starts_with("PROGRAM");
        (option.is_positional ? command.positionals : command.options).push_back(one);
    }
    command.subcommands = described.commands;
    all->push_back(command);
    for (const DescribedCommand& sub : described.commands) {
        std::vector<std::string> deeper = path;
        deeper.push_back(sub.name);
        collect(sub, deeper, all);
    }
}

/// Each word in quotes of its own where a shell would take it apart.
std::string quoted(const std::string& words) {
    std::string safe;
    for (const char c : words)
        safe += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return "'" + safe + "'";
}

/// All names and values that may come next, but values of options.
std::vector<std::string> next_words(const Completed& command) {
    std::vector<std::string> words;
    for (const DescribedCommand& sub : command.subcommands)
        words.push_back(sub.name);
    for (const CompletedOption& one : command.positionals)
        words.insert(words.end(), one.choices.begin(), one.choices.end());
    for (const CompletedOption& option : command.options)
        words.insert(words.end(), option.names.begin(), option.names.end());
    return words;
}

std::string bash_script(const std::vector<Completed>& commands) {
    std::string paths, values, words;
    for (const Completed& command : commands) {
        const std::string name = command.name();
        if (!command.path.empty()) {
            const std::vector<std::string> parent(command.path.begin(), command.path.end() - 1);
            paths += text("            %s) command=%s ;;\n",
                          quoted(joined(parent) + ":" + command.path.back()).c_str(),
                          quoted(name).c_str());
        }
        for (const CompletedOption& option : command.options) {
            std::string patterns;
            for (const std::string& one : option.names)
                patterns.append(patterns.empty() ? "" : "|")
                    .append(quoted(text("%s:%s", name.c_str(), one.c_str())));
            if (!option.value.empty() && option.value != "[PORT]") {
                values += text("        %s) words=%s ;;\n", patterns.c_str(),
                               quoted(joined(option.choices)).c_str());
            }
        }
        words += text("                %s) words=%s%s ;;\n", quoted(name).c_str(),
                      quoted(joined(next_words(command))).c_str(),
                      command.starts_program ? " programs=-c" : "");
    }
    return "# bash completion of tagwire: source <(tagwire completion bash)\n"
           "_tagwire() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} command='' words='' programs='' i\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case \"$command:${COMP_WORDS[i]}\" in\n" +
           paths +
           "        esac\n"
           "    done\n"
           "    case \"$command:${COMP_WORDS[COMP_CWORD - 1]}\" in\n" +
           values +
           "        *)\n"
           "            case \"$command\" in\n" +
           words +
           "            esac\n"
           "            ;;\n"
           "    esac\n"
           "    # No word of ours: names of files, by -o default.\n"
           "    [[ $word == -* ]] && programs=''\n"
           "    mapfile -t COMPREPLY < <(compgen $programs -W \"$words\" -- \"$word\")\n"
           "}\n"
           "complete -o default -F _tagwire tagwire\n";
}

std::string zsh_value(const CompletedOption& option) {
    if (option.value.empty())
        return "";
    const std::string name = ":" + option.value + ":";
    if (!option.choices.empty())
        return name + "(" + joined(option.choices) + ")";
    return option.value.starts_with("FILE") || option.value.starts_with("OUT") ? name + "_files"
                                                                               : name + " ";
}

/// A description within brackets.
std::string zsh_text(const std::string& words) {
    std::string safe;
    for (const char c : words)
        safe += c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
    return "[" + safe + "]";
}

std::string zsh_function(const Completed& command) {
    std::string function = "_tagwire";
    for (const std::string& one : command.path)
        function += "_" + one;
    std::string script = function + "() {\n    local context state line\n    _arguments -S -C";
    for (const CompletedOption& option : command.options)
        for (const std::string& name : option.names)
            script += " \\\n        " + quoted(name + zsh_text(option.text) + zsh_value(option));
    if (command.starts_program) {
        script += " \\\n        '*::program:_normal'\n}\n";
        return script;
    }
    for (const CompletedOption& one : command.positionals)
        script += " \\\n        " + quoted("*" + zsh_value(one));
    if (command.subcommands.empty())
        return script + "\n}\n";
    script +=
        " \\\n        '1:command:->command' '*::argument:->argument'\n"
        "    case $state in\n        command)\n            local -a commands=(";
    std::string calls;
    for (const DescribedCommand& sub : command.subcommands) {
        script += "\n                " + quoted(sub.name + ":" + short_text(sub.text));
        calls += text("                %s) %s_%s ;;\n", sub.name.c_str(), function.c_str(),
                      sub.name.c_str());
    }
    return script +
           ")\n            _describe command commands\n            ;;\n        argument)\n"
           "            case $line[1] in\n" +
           calls + "            esac\n            ;;\n    esac\n}\n";
}

std::string zsh_script(const std::vector<Completed>& commands) {
    std::string script =
        "#compdef tagwire\n# zsh completion of tagwire: source <(tagwire completion zsh), or as "
        "_tagwire in $fpath\n";
    for (const Completed& command : commands)
        script += zsh_function(command);
    return script +
           "if [ \"$funcstack[1]\" = _tagwire ]; then\n    _tagwire \"$@\"\nelse\n"
           "    compdef _tagwire tagwire\nfi\n";
}

/// Where a command's words are completed: the names on its path have been seen, and for one of the
/// first level no other of these.
std::string fish_condition(const Completed& command, const Completed& top) {
    if (command.path.empty())
        return "__fish_use_subcommand";
    std::string condition;
    for (const std::string& one : command.path)
        condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + one);
    std::string others;
    for (const DescribedCommand& sub : top.subcommands)
        if (sub.name != command.path.front() && command.path.size() == 1)
            others += " " + sub.name;
    return others.empty() ? condition
                          : condition + "; and not __fish_seen_subcommand_from" + others;
}

std::string fish_script(const std::vector<Completed>& commands) {
    std::string script =
        "# fish completion of tagwire: tagwire completion fish | source\n"
        "complete -c tagwire -f\n";
    for (const Completed& command : commands) {
        const std::string start =
            "complete -c tagwire -n " + quoted(fish_condition(command, commands.front()));
        for (const DescribedCommand& sub : command.subcommands)
            script += start + " -a " + sub.name + " -d " + quoted(short_text(sub.text)) + "\n";
        for (const CompletedOption& one : command.positionals) {
            const bool is_file = one.value == "FILE" || one.value.starts_with("OUT");
            if (is_file || !one.choices.empty())
                script += start + (is_file ? " -F" : " -a " + quoted(joined(one.choices))) + "\n";
        }
        if (command.starts_program)
            script += start + " -a '(__fish_complete_command)'\n";
        for (const CompletedOption& option : command.options) {
            script += start;
            for (const std::string& name : option.names) {
                const bool is_long = name.starts_with("--");
                script += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1);
            }
            if (option.value == "FILE")
                script += " -r -F";
            else if (!option.value.empty() && option.value != "[PORT]")
                script +=
                    " -x" + (option.choices.empty() ? std::string()
                                                    : " -a " + quoted(joined(option.choices)));
            script += " -d " + quoted(option.text) + "\n";
        }
    }
    return script;
}

}  // namespace

std::string completion_script(const DescribedCommand& described, const std::string& shell) {
    std::vector<Completed> commands;
    collect(described, {}, &commands);
    if (shell == "bash")
        return bash_script(commands);
    return shell == "zsh" ? zsh_script(commands) : fish_script(commands);
}

}  // namespace tagwire::tools
