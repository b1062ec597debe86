// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "cli/failure.hpp"
#include "tools/child.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

struct Pipe {
    Pipe() {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0)
            throw Failure(text("pipe: %s", std::strerror(errno)));
        read_end = fds[0];
        write_end = fds[1];
    }
    ~Pipe() {
        close_end(&read_end);
        close_end(&write_end);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    static void close_end(int* end) {
        if (*end >= 0)
            close(std::exchange(*end, -1));
    }

    int read_end = -1, write_end = -1;
};

/// The child's part: nothing here allocates.
[[noreturn]] void become(char* const* arguments, const Pipe& in, const Pipe& out, const Pipe& error,
                         int failed, pid_t parent) {
    die_with(parent);
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(error.write_end, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execvp(arguments[0], arguments);
    const int reason = errno;
    [[maybe_unused]] const ssize_t told = write(failed, &reason, sizeof reason);
    _exit(127);
}

/// Moves what there is; false at the end of the stream, which is closed.
bool read_some(int* fd, std::string* text) {
    char buffer[16384];
    const ssize_t n = read(*fd, buffer, sizeof buffer);
    if (n > 0)
        text->append(buffer, static_cast<std::size_t>(n));
    else if (n == 0 || errno != EINTR)
        Pipe::close_end(fd);
    return *fd >= 0;
}

}  // namespace

Program::Program(const std::vector<std::string>& command, std::string input)
    : name_(command.front()), input_(std::move(input)) {
    Pipe in, out, error, failed;
    std::vector<std::string> copies(command);
    std::vector<char*> arguments;
    for (std::string& argument : copies)
        arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0)
        throw Failure(text("cannot start %s: %s", name_.c_str(), std::strerror(errno)));
    if (pid_ == 0)
        become(arguments.data(), in, out, error, failed.write_end, parent);
    Pipe::close_end(&failed.write_end);
    int reason = 0;
    if (read(failed.read_end, &reason, sizeof reason) == sizeof reason) {
        waitpid(std::exchange(pid_, -1), nullptr, 0);
        throw Failure(text("cannot start %s: %s", name_.c_str(), std::strerror(reason)));
    }
    in_ = std::exchange(in.write_end, -1);
    out_ = std::exchange(out.read_end, -1);
    error_ = std::exchange(error.read_end, -1);
    // A program may end before it has read everything: an error of write, not of this process.
    signal(SIGPIPE, SIG_IGN);
    fcntl(in_, F_SETFL, O_NONBLOCK);
}

Program::~Program() {
    end();
    for (int* fd : {&in_, &out_, &error_})
        Pipe::close_end(fd);
}

void Program::end() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
}

bool Program::is_running() {
    siginfo_t info{};
    return pid_ > 0 &&
           waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

void Program::write_some() {
    const ssize_t n = write(in_, input_.data() + written_, input_.size() - written_);
    if (n > 0)
        written_ += static_cast<std::size_t>(n);
    else if (errno != EAGAIN && errno != EINTR)
        Pipe::close_end(&in_);
}

void Program::exchange(int timeout_ms) {
    const std::uint64_t deadline = now_ns() + static_cast<std::uint64_t>(timeout_ms) * 1000000;
    while (in_ >= 0 || out_ >= 0 || error_ >= 0) {
        if (in_ >= 0 && written_ == input_.size())
            Pipe::close_end(&in_);
        pollfd fds[] = {{in_, POLLOUT, 0}, {out_, POLLIN, 0}, {error_, POLLIN, 0}};
        const std::uint64_t now = now_ns();
        const int left = now >= deadline ? 0 : static_cast<int>((deadline - now) / 1000000 + 1);
        if (left == 0 || poll(fds, 3, left) == 0) {
            end();
            throw Failure(text("%s did not end within %d s", name_.c_str(), timeout_ms / 1000));
        }
        if (fds[0].revents != 0)
            write_some();
        if (fds[1].revents != 0)
            read_some(&out_, &result_.out);
        if (fds[2].revents != 0)
            read_some(&error_, &result_.error);
    }
}

ProgramResult Program::wait(int timeout_ms) {
    exchange(timeout_ms);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return std::move(result_);
}

ProgramResult run_program(const std::vector<std::string>& command, int timeout_ms,
                          std::string input) {
    return Program(command, std::move(input)).wait(timeout_ms);
}

bool has_program(const std::string& name) {
    constexpr int kTimeoutMs = 10000;
    try {
        const std::vector<std::string> command{"sh", "-c", "command -v -- \"$1\"", "sh", name};
        return run_program(command, kTimeoutMs).status == 0;
    } catch (const Failure&) {
        return false;  // a path without even a shell
    }
}

}  // namespace tagwire::tools
