// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

constexpr int kTimeoutMs = 60000;

TEST(Program, gives_input_and_collects_both_outputs) {
    const std::string input(1 << 20, 'x');  // more than a pipe holds
    const ProgramResult done =
        run_program({"sh", "-c", "cat; echo why >&2; exit 3"}, kTimeoutMs, input);
    EXPECT_EQ(done.status, 3);
    EXPECT_EQ(done.out, input);
    EXPECT_EQ(done.error, "why\n");
}

TEST(Program, input_that_nobody_reads_is_no_error) {
    const ProgramResult done =
        run_program({"sh", "-c", "exit 0"}, kTimeoutMs, std::string(1 << 20, 'x'));
    EXPECT_EQ(done.status, 0);
}

TEST(Program, that_does_not_exist_is_named) {
    try {
        run_program({"tagwire-no-such-program"}, kTimeoutMs);
        FAIL() << "it ran";
    } catch (const Failure& failure) {
        EXPECT_NE(std::string(failure.what()).find("tagwire-no-such-program"), std::string::npos);
    }
    EXPECT_FALSE(has_program("tagwire-no-such-program"));
    EXPECT_TRUE(has_program("sh"));
}

TEST(Program, that_does_not_end_is_killed) {
    EXPECT_THROW(run_program({"sleep", "1000"}, 10), Failure);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "a process was left";
}

TEST(Program, ends_with_its_object) {
    {
        Program sleeper({"sleep", "1000"});
        EXPECT_TRUE(sleeper.is_running());
    }
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "a process was left";
}

}  // namespace
}  // namespace tagwire::tools
