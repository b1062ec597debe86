// SPDX-License-Identifier: BSD-3-Clause
// `tagwire run`: ranks that meet, end, fail, are told to end and are killed.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "command.hpp"

namespace tagwire::test {
namespace {

std::vector<std::string> run_of(std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"sh", "-c", script});
    return options;
}

std::set<std::string> lines_of(const std::string& out) {
    std::istringstream all(out);
    std::set<std::string> lines;
    for (std::string line; std::getline(all, line);)
        lines.insert(line);
    return lines;
}

TEST(Run, every_rank_knows_its_number_and_how_many_they_are) {
    const Finished finished = tagwire(run_of({"-n", "3"}, "echo $TAGWIRE_RANK of $TAGWIRE_SIZE"));
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(lines_of(finished.out), (std::set<std::string>{"0 of 3", "1 of 3", "2 of 3"}));
    EXPECT_EQ(finished.error, "");
}

TEST(Run, options_behind_the_program_are_the_programs) {
    for (const char* mark : {"", "--"}) {
        std::vector<std::string> arguments{"run",  "--ranks", "1",       mark,
                                           "echo", "-n",      "--label", "--"};
        std::erase(arguments, "");
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 0) << finished.error;
        EXPECT_EQ(finished.out, "--label --") << mark;
    }
}

TEST(Run, ranks_meet_and_use_the_transports_that_are_named) {
    const char* const command = std::getenv("TAGWIRE_TEST_COMMAND");
    ASSERT_NE(command, nullptr);
    const Finished finished =
        tagwire({"run", "-n", "3", "--tl", "sm", command, "perf", "all_to_all", "--iters", "100",
                 "--validate", "--json", "-"});
    EXPECT_EQ(finished.status, 0) << finished.error;
    const nlohmann::json results = nlohmann::json::parse(finished.out)["results"];
    EXPECT_EQ(results[0]["peers"], 2);
    EXPECT_EQ(results[0]["transport"], "sm");
}

TEST(Run, first_two_ranks_are_the_pair_of_a_measurement) {
    const char* const command = std::getenv("TAGWIRE_TEST_COMMAND");
    ASSERT_NE(command, nullptr);
    for (const char* bind : {"", "--bind"}) {
        std::vector<std::string> arguments{
            "run", "-n",     "3",     bind,      command, "perf",       "tag_lat", "--level",
            "msg", "--size", "8,64k", "--iters", "100",   "--validate", "--json",  "-"};
        std::erase(arguments, "");
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 0) << finished.error;
        EXPECT_EQ(nlohmann::json::parse(finished.out)["results"].size(), 2U) << bind;
    }
}

TEST(Run, label_stands_before_each_line) {
    const Finished finished =
        tagwire(run_of({"-n", "2", "--label"}, "echo one; echo two; echo three >&2; printf end"));
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(lines_of(finished.out), (std::set<std::string>{"[0] one", "[0] two", "[0] end",
                                                             "[1] one", "[1] two", "[1] end"}));
    EXPECT_EQ(lines_of(finished.error), (std::set<std::string>{"[0] three", "[1] three"}));
}

TEST(Run, standard_input_is_that_of_rank_0) {
    int in[2];
    ASSERT_EQ(pipe(in), 0);
    EXPECT_EQ(write(in[1], "words\n", 6), 6);
    close(in[1]);
    const int before = dup(STDIN_FILENO);
    dup2(in[0], STDIN_FILENO);
    const Finished finished = tagwire(run_of({"-n", "2"}, "read word; echo $TAGWIRE_RANK=$word"));
    dup2(before, STDIN_FILENO);
    close(before);
    close(in[0]);
    EXPECT_EQ(lines_of(finished.out), (std::set<std::string>{"0=words", "1="}));
}

TEST(Run, first_rank_that_fails_ends_the_others_and_gives_the_status) {
    const Finished finished =
        tagwire(run_of({"-n", "3"}, "test $TAGWIRE_RANK = 1 && exit 7; exec sleep 1000"));
    EXPECT_EQ(finished.status, 7);
    EXPECT_NE(finished.error.find("rank 1 ended with status 7; the others are told to end"),
              std::string::npos)
        << finished.error;
}

TEST(Run, rank_that_dies_by_a_signal_is_named_with_it) {
    const Finished finished =
        tagwire(run_of({"-n", "2"}, "test $TAGWIRE_RANK = 0 && kill -9 $$; exec sleep 1000"));
    EXPECT_EQ(finished.status, 128 + SIGKILL);
    EXPECT_NE(finished.error.find("rank 0 was ended by signal 9"), std::string::npos)
        << finished.error;
}

TEST(Run, signals_are_passed_on) {
    Command command("TAGWIRE_TEST_COMMAND",
                    run_of({"-n", "2"},
                           "trap 'exit 9' TERM; trap 'echo first' USR1; echo ready; "
                           "while :; do sleep 0.01; done"));
    command.read_line();
    command.read_line();
    kill(command.pid(), SIGUSR1);
    EXPECT_EQ(command.read_line(), "first");
    EXPECT_EQ(command.read_line(), "first");
    kill(command.pid(), SIGTERM);
    EXPECT_EQ(command.wait().status, 9);
}

/// Whether a process is gone, or dead and waiting to be taken note of, soon.
bool ends(pid_t pid) {
    for (int i = 0; i < 10000000; ++i) {
        std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
        std::string id, name, state;
        if (!(stat >> id >> name >> state) || state == "Z" || state == "X")
            return true;
        sched_yield();
    }
    return false;
}

TEST(Run, ranks_die_with_the_launcher) {
    Command command("TAGWIRE_TEST_COMMAND", run_of({"-n", "2"}, "echo $$; exec sleep 1000"));
    const pid_t one = std::stoi(command.read_line());
    const pid_t other = std::stoi(command.read_line());
    command.kill_now();
    EXPECT_TRUE(ends(one));
    EXPECT_TRUE(ends(other));
}

TEST(Run, processes_that_ranks_leave_behind_are_ended) {
    const Finished finished = tagwire(run_of({"-n", "1"}, "sleep 1000 >/dev/null 2>&1 & echo $!"));
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_TRUE(ends(std::stoi(finished.out)));
}

TEST(Run, wrong_usage_says_what_would_be_right) {
    const struct {
        std::vector<std::string> arguments;
        int status;
        const char* says;
    } cases[] = {
        {{"run"}, 2, "--ranks is required"},
        {{"run", "-n", "2"}, 2, "name the program to start"},
        {{"run", "-n", "0", "true"}, 2, "1 to 1024"},
        {{"run", "-n", "2", "--bogus", "true"}, 2, "'--bogus' is no option of tagwire run"},
        {{"run", "-n", "2", "--tl", "pigeon", "true"}, 2, "--tl: no transport 'pigeon'"},
        {{"run", "-n", "2", "/nowhere/program"}, 127, "cannot start /nowhere/program: No such"},
        {{"run", "-n", "2", "/"}, 126, "cannot start /: Permission denied"},
    };
    for (const auto& [arguments, status, says] : cases) {
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, status) << testing::PrintToString(arguments);
        EXPECT_NE(finished.error.find(says), std::string::npos) << finished.error;
    }
}

}  // namespace
}  // namespace tagwire::test
