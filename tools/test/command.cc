// SPDX-License-Identifier: BSD-3-Clause
#include "command.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace tagwire::test {
namespace {

std::string read_all(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;)
        text.append(buffer, static_cast<std::size_t>(n));
    return text;
}

[[noreturn]] void become(const char* binary, const std::vector<std::string>& arguments) {
    std::vector<std::string> copies(arguments);
    std::vector<char*> argv{const_cast<char*>(binary)};
    for (std::string& argument : copies)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(binary, argv.data());
    _exit(127);
}

}  // namespace

Command::Command(const char* program, const std::vector<std::string>& arguments) {
    const char* const binary = std::getenv(program);
    if (binary == nullptr) {
        ADD_FAILURE() << program << " is not set: run this through ctest";
        return;
    }
    int out[2];
    int error[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(error, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
        dup2(out[1], STDOUT_FILENO);
        dup2(error[1], STDERR_FILENO);
        become(binary, arguments);
    }
    close(out[1]);
    close(error[1]);
    out_ = out[0];
    error_ = error[0];
}

Command::~Command() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    if (out_ >= 0) {
        close(out_);
        close(error_);
    }
}

void Command::send(int signal) const {
    ASSERT_GT(pid_, 0) << "the command is not running";
    kill(pid_, signal);
}

std::string Command::read_line() {
    std::string line;
    for (char c = 0; read(out_, &c, 1) == 1 && c != '\n';)
        line += c;
    return line;
}

Finished Command::wait() {
    Finished finished{-1, "", ""};
    if (pid_ < 0)
        return finished;
    // The commands write less than a pipe holds to each stream, so reading one after the other is
    // safe.
    finished.out = read_all(out_);
    finished.error = read_all(error_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return finished;
}

Finished tagwire(const std::vector<std::string>& arguments) {
    return Command("TAGWIRE_TEST_COMMAND", arguments).wait();
}

}  // namespace tagwire::test
