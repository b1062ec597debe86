// SPDX-License-Identifier: BSD-3-Clause
// `tagwire run`: ranks that meet, exit, fail, get signals and are killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
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

TEST(Run, tests_within_a_host_are_measured_once) {
    const char* const command = std::getenv("TAGWIRE_TEST_COMMAND");
    ASSERT_NE(command, nullptr);
    const std::vector<std::string> cases[] = {{"memcpy", "tag_lat"},
                                              {"cacheline"},
                                              {"chase"},
                                              {"tag_rate", "--level", "msg", "--threads", "2"}};
    for (const std::vector<std::string>& tests : cases) {
        std::vector<std::string> arguments{"run", "-n", "3", command, "perf"};
        arguments.insert(arguments.end(), tests.begin(), tests.end());
        arguments.insert(arguments.end(), {"--iters", "100", "--json", "-"});
        const Finished finished = tagwire(arguments);
        EXPECT_EQ(finished.status, 0) << tests[0] << finished.error;
        EXPECT_TRUE(nlohmann::json::accept(finished.out)) << tests[0] << finished.out;
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
    EXPECT_NE(finished.error.find("rank 1 ended with status 7; sending SIGTERM to the other ranks"),
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

/// Whether there is no such file, soon.
bool goes(const std::string& path) {
    for (int i = 0; i < 10000000; ++i) {
        if (!std::filesystem::exists(path))
            return true;
        sched_yield();
    }
    return false;
}

TEST(Run, ranks_meet_in_a_directory_of_their_user_that_goes_with_the_job) {
    for (const char* end : {"exit 0", "kill -9 $$", "kill -9 $PPID; exec sleep 1000"}) {
        const std::string script =
            "place=${TAGWIRE_BOOTSTRAP#dir:}; echo $place; stat -c %a $place; ";
        Command command("TAGWIRE_TEST_COMMAND", run_of({"-n", "1"}, script + end));
        const std::string directory = command.read_line();
        EXPECT_EQ(command.read_line(), "700");
        EXPECT_NE(directory.find("/tagwire-run-"), std::string::npos) << directory;
        command.wait();
        EXPECT_TRUE(goes(directory)) << end;
    }
}

TEST(Run, directories_of_jobs_that_were_killed_as_a_whole_are_removed) {
    namespace fs = std::filesystem;
    std::string folder = (fs::temp_directory_path() / "tagwire-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const Setting temporary("TMPDIR", folder.c_str());
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot, '-');
    const std::string ours = "tagwire-run-" + boot + "-";
    const auto place = [&](const std::string& name, bool is_old) {
        const fs::path path = fs::path(folder) / name;
        EXPECT_EQ(mkdir(path.c_str(), 0700), 0);
        std::ofstream(path / "0") << "rank";
        if (is_old)
            fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
        return path;
    };
    const fs::path abandoned = place(ours + "000000", true);
    const fs::path young = place(ours + "000001", false);
    const fs::path used = place(ours + "000002", true), foreign = place("other", true);
    const fs::path of_user = place("tagwire-run-results", true);
    const fs::path of_another_host = place("tagwire-run-00000000-000000", true);
    fs::create_directory_symlink(foreign, fs::path(folder) / (ours + "000003"));
    const int lock = open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(tagwire(run_of({"-n", "1"}, "exit 0")).status, 0);
    EXPECT_FALSE(fs::exists(abandoned));
    for (const fs::path& kept : {young, used, foreign, of_user, of_another_host})
        EXPECT_TRUE(fs::exists(kept / "0")) << kept;
    close(lock);
    fs::remove_all(folder);
}

TEST(Run, ranks_meet_elsewhere_where_the_named_folder_cannot_be_used) {
    const Setting temporary("TMPDIR", "/no/such");
    const Finished finished = tagwire(run_of({"-n", "2"}, "echo ${TAGWIRE_BOOTSTRAP%/*}"));
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(lines_of(finished.out), std::set<std::string>{"dir:/dev/shm"});
}

TEST(Run, signals_are_passed_on) {
    Command command("TAGWIRE_TEST_COMMAND",
                    run_of({"-n", "2"},
                           "trap 'exit 9' TERM; trap 'echo first' USR1; echo ready; "
                           "while :; do sleep 0.01; done"));
    command.read_line();
    command.read_line();
    command.send(SIGUSR1);
    EXPECT_EQ(command.read_line(), "first");
    EXPECT_EQ(command.read_line(), "first");
    command.send(SIGTERM);
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

/// Runs a script of sh in which $tagwire is the command.
Finished shell(const std::string& script) {
    const char* const command = std::getenv("TAGWIRE_TEST_COMMAND");
    const Setting setting("tagwire", command != nullptr ? command : "");
    const Setting sh("TAGWIRE_TEST_SH", "/bin/sh");
    return Command("TAGWIRE_TEST_SH", {"-c", script}).wait();
}

TEST(Run, job_that_had_to_be_killed_has_failed) {
    Command command("TAGWIRE_TEST_COMMAND",
                    run_of({"-n", "2"}, "trap '' TERM; echo ready; while :; do sleep 0.01; done"));
    command.read_line();
    command.read_line();
    command.send(SIGTERM);
    const Finished finished = command.wait();
    EXPECT_EQ(finished.status, 128 + SIGKILL);
    EXPECT_NE(finished.error.find("was ended by signal 9"), std::string::npos) << finished.error;
}

TEST(Run, signals_that_were_ignored_stay_ignored) {
    const Finished finished =
        shell("trap '' HUP; exec \"$tagwire\" run -n 1 sh -c 'kill -HUP $PPID; sleep 0.3; exit 3'");
    EXPECT_EQ(finished.status, 3) << finished.error;
}

TEST(Run, status_is_known_where_sigchld_was_ignored) {
    signal(SIGCHLD, SIG_IGN);
    Command command("TAGWIRE_TEST_COMMAND", run_of({"-n", "2"}, "exit 5"));
    signal(SIGCHLD, SIG_DFL);
    EXPECT_EQ(command.wait().status, 5);
}

TEST(Run, children_that_were_there_before_live_on) {
    const Finished finished = shell(
        "sleep 1000 >/dev/null 2>&1 & echo $!; exec \"$tagwire\" run -n 1 sh -c "
        "'sleep 1000 >/dev/null 2>&1 & echo $!'");
    EXPECT_EQ(finished.status, 0) << finished.error;
    std::istringstream pids(finished.out);
    pid_t before = 0, orphan = 0;
    ASSERT_TRUE(pids >> before >> orphan) << finished.out;
    EXPECT_EQ(kill(before, SIGKILL), 0);
    EXPECT_TRUE(ends(orphan));
}

TEST(Run, orphans_that_end_during_the_job_are_reaped) {
    const Finished finished = tagwire(
        run_of({"-n", "1"},
               "pid=$(sh -c 'sleep 0.1 >/dev/null & echo $!'); i=0; "
               "while test -d /proc/$pid && test $i -lt 500; do sleep 0.01; i=$((i+1)); done; "
               "test ! -d /proc/$pid"));
    EXPECT_EQ(finished.status, 0) << finished.error;
}

TEST(Run, labels_of_many_ranks_need_no_higher_limit_of_descriptors) {
    const Finished finished =
        shell("ulimit -S -n 64; exec \"$tagwire\" run -n 48 --label sh -c 'ulimit -n'");
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(lines_of(finished.out).size(), 48U);
    EXPECT_TRUE(lines_of(finished.out).contains("[47] 64")) << finished.out;
}

TEST(Run, line_that_is_longer_than_a_buffer_stays_one) {
    const Finished finished = shell(
        "\"$tagwire\" run -n 1 --label sh -c \"head -c 200000 /dev/zero | tr '\\0' x; "
        "echo; echo end\" | wc -lc");
    std::istringstream counts(finished.out);
    std::size_t lines = 0, bytes = 0;
    ASSERT_TRUE(counts >> lines >> bytes) << finished.out << finished.error;
    EXPECT_EQ(lines, 2U);
    EXPECT_EQ(bytes, 200001U + 4 + 4 + 4);
}

TEST(Run, streams_that_are_closed_do_not_become_others) {
    const Finished finished =
        shell("exec \"$tagwire\" run -n 2 --label sh -c 'echo words >&2' <&- >&-");
    EXPECT_EQ(finished.status, 0) << finished.error;
    EXPECT_EQ(lines_of(finished.error), (std::set<std::string>{"[0] words", "[1] words"}));
}

TEST(Run, wrong_usage_says_what_would_be_right) {
    const struct {
        std::vector<std::string> arguments;
        int status;
        const char* says;
    } cases[] = {
        {{"run"}, 2, "--ranks is required"},
        {{"run", "-n", "2"}, 2, "no program given: tagwire run -n 4 PROGRAM [ARGS]"},
        {{"run", "-n", "0", "true"}, 2, "1 to 1024"},
        {{"run", "-n", "2", "--bogus", "true"},
         2,
         "unknown option '--bogus'; options for the program go"},
        {{"run", "-n", "2", "--tl", "pigeon", "true"}, 2, "--tl: transport 'pigeon' not found"},
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
