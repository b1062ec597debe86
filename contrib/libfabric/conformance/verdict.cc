// SPDX-License-Identifier: BSD-3-Clause
#include "verdict.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

Result outcome_of(const std::function<void()>& body) {
    try {
        body();
        return {};
    } catch (const Unsupported& e) {
        return {Outcome::kUnsupported, e.what()};
    } catch (const Hung& e) {
        return {Outcome::kHang, e.what()};
    } catch (const std::exception& e) {
        return {Outcome::kFail, e.what()};
    }
}

// The provider shm names regions by the number of their process. One with this number that died
// before left regions, and the provider takes them for those of a live process: itself.
void remove_regions(pid_t process) {
    const auto name = std::to_string(process) + ":" + std::to_string(getuid()) + ":";
    for (int i = 0; i < 8; ++i)
        unlink(("/dev/shm/" + name + std::to_string(i)).c_str());
}

// A /dev/shm that ends with the last process of this case, however that ends. Only root may have
// one; for others what this process itself could meet or leave behind is removed.
void have_own_regions() {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("regions", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) != 0)
        remove_regions(getpid());
}

[[noreturn]] void be_child(const std::function<void()>& body, int out) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);  // processes that a case starts go with it
    have_own_regions();
    // psm2, which libfabric links, writes a file about each crash into the working directory.
    for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGINT, SIGTERM})
        signal(number, SIG_DFL);
    const Result result = outcome_of(body);
    const std::string line =
        static_cast<char>('0' + static_cast<int>(result.outcome)) + result.text;
    const auto written = write(out, line.data(), line.size());
    // No destructor of the provider runs: a case that ended is not judged by how libraries unload.
    _exit(written == static_cast<ssize_t>(line.size()) ? 0 : 1);
}

// Everything the child writes until it closes its end; false at the deadline.
bool read_until(int fd, Clock::time_point deadline, std::string& text) {
    std::array<char, 4096> part{};
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd wait{fd, POLLIN, 0};
        if (left <= 0 || poll(&wait, 1, static_cast<int>(left)) == 0)
            return false;
        const auto got = read(fd, part.data(), part.size());
        if (got <= 0)
            return true;
        text.append(part.data(), static_cast<std::size_t>(got));
    }
}

Result judge(bool in_time, const std::string& line, int status) {
    if (!in_time)
        return {Outcome::kHang, "did not return before the deadline"};
    if (line.empty() && WIFSIGNALED(status))
        return {Outcome::kCrash, std::string("killed by ") + strsignal(WTERMSIG(status))};
    if (line.empty() || line[0] < '0' || line[0] > '4')
        return {Outcome::kCrash, "ended without a result"};
    return {static_cast<Outcome>(line[0] - '0'), line.substr(1)};
}

}  // namespace

const char* name_of(Outcome outcome) {
    constexpr std::array<const char*, 5> kNames{"pass", "fail", "not supported", "hang", "crash"};
    return kNames.at(static_cast<std::size_t>(outcome));
}

Result run_apart(const std::function<void()>& body, std::chrono::milliseconds deadline) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        throw std::runtime_error("no pipe");
    const pid_t child = fork();
    if (child < 0)
        throw std::runtime_error("no process");
    if (child == 0) {
        close(ends[0]);
        be_child(body, ends[1]);
    }
    close(ends[1]);
    std::string line;
    const bool in_time = read_until(ends[0], Clock::now() + deadline, line);
    close(ends[0]);
    if (kill(-child, SIGKILL) != 0)  // its group, or itself before it had one
        kill(child, in_time ? 0 : SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    remove_regions(child);
    return judge(in_time, line, status);
}

}  // namespace conformance
