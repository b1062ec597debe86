// SPDX-License-Identifier: BSD-3-Clause
// Help fits the terminal, and shells complete commands and options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "cli/help.hpp"
#include "command.hpp"
#include "tools/job.hpp"

namespace tagwire::test {
namespace {

std::size_t longest_line(const std::string& lines) {
    std::size_t longest = 0;
    std::istringstream all(lines);
    for (std::string line; std::getline(all, line);)
        longest = std::max(longest, line.size());
    return longest;
}

bool has_vhca() {
    return std::getenv("TAGWIRE_TEST_HAS_VHCA") != nullptr;
}

TEST(Help, is_as_wide_as_the_terminal) {
    std::vector<std::vector<std::string>> commands{{"perf"}, {"run"}, {}};
    if (has_vhca())
        commands.push_back({"vhca", "run"});
    for (const char* width : {"60", "80", "100"}) {
        const Setting columns("COLUMNS", width);
        for (const std::vector<std::string>& command : commands) {
            std::vector<std::string> arguments = command;
            arguments.emplace_back("--help");
            const Finished finished = tagwire(arguments);
            EXPECT_EQ(finished.status, 0);
            EXPECT_LE(longest_line(finished.out), std::stoul(width)) << finished.out;
        }
    }
}

TEST(Help, values_have_their_whole_name_without_the_check) {
    const std::string perf = tagwire({"perf", "--help"}).out;
    EXPECT_NE(perf.find("--connect HOST[:PORT]"), std::string::npos) << perf;
    const std::string run = tagwire({"run", "--help"}).out;
    EXPECT_NE(run.find("--ranks N  "), std::string::npos) << run;
    const std::string completion = tagwire({"completion", "--help"}).out;
    EXPECT_NE(completion.find("shell SHELL "), std::string::npos) << completion;
}

TEST(Help, lines_continue_below_their_text) {
    EXPECT_EQ(tools::wrapped("  name    one two three four five six seven eight nine ten", 42),
              "  name    one two three four five six\n          seven eight nine ten\n");
    EXPECT_EQ(tools::wrapped("short\n\n  a  b", 42), "short\n\n  a  b\n");
    const std::string word(60, 'x');
    EXPECT_EQ(tools::wrapped("before " + word + " after", 42), "before\n" + word + "\nafter\n");
}

/// Asks bash for the words that may follow.
std::string completions(const std::vector<std::string>& line) {
    std::string script = "source <(\"$TAGWIRE_TEST_COMMAND\" completion bash); COMP_WORDS=(";
    for (const std::string& word : line)
        script += "'" + word + "' ";
    script += "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tagwire; echo \"${COMPREPLY[*]}\"";
    const Finished finished = tagwire({"run", "-n", "1", "bash", "-c", script});
    EXPECT_EQ(finished.status, 0) << finished.error;
    return finished.out.substr(0, finished.out.find('\n'));
}

TEST(Completion, bash_knows_commands_options_and_values) {
    EXPECT_EQ(completions({"tagwire", "per"}), "perf");
    EXPECT_EQ(completions({"tagwire", "perf", "--si"}), "--size");
    EXPECT_EQ(completions({"tagwire", "perf", "--level", ""}), "uct msg");
    EXPECT_EQ(completions({"tagwire", "perf", "tag_lat", "--json", "x", "tag_r"}), "tag_rate");
    if (has_vhca()) {
        EXPECT_EQ(completions({"tagwire", "vhca", "run", "--driver", "m"}), "mlx5");
    }
    EXPECT_EQ(completions({"tagwire", "completion", "z"}), "zsh");
}

TEST(Completion, has_every_test_for_every_shell) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const Finished finished = tagwire({"completion", shell});
        EXPECT_EQ(finished.status, 0) << finished.error;
        for (const tools::TestInfo& test : tools::all_tests())
            EXPECT_NE(finished.out.find(test.name), std::string::npos) << test.name << shell;
    }
    EXPECT_EQ(tagwire({"completion", "csh"}).status, 2);
}

}  // namespace
}  // namespace tagwire::test
