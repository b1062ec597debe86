// SPDX-License-Identifier: BSD-3-Clause
#include "harness.hpp"

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "common/network.hpp"

namespace tagwire::test {

namespace {

std::pair<int, int> make_channel() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair failed");
    return {ends[0], ends[1]};
}

[[noreturn]] void run_role(const Child::Role& role, int fd, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);  // it died before we asked to be told
    int code = 0;
    try {
        Channel channel(fd);
        role(channel);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "child %d: %s\n", getpid(), error.what());
        code = kFailedInChild;
    }
    if (::testing::Test::HasFailure())
        code = kFailedInChild;
    std::fflush(nullptr);
    _exit(code);
}

}  // namespace

Channel::~Channel() {
    if (fd_ >= 0)
        ::close(fd_);
}

void Channel::send(const Bytes& bytes) const {
    // The other end may be dead already, which is for the test to notice.
    static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

std::optional<Bytes> Channel::receive(int timeout_ms) const {
    pollfd entry = {fd_, POLLIN, 0};
    if (poll(&entry, 1, timeout_ms) != 1)
        return std::nullopt;
    Bytes bytes(65536);
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
    if (got <= 0)
        return std::nullopt;
    bytes.resize(static_cast<std::size_t>(got));
    return bytes;
}

bool Channel::has_message() const {
    pollfd entry = {fd_, POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
}

Child::Child(const Role& role) : Child(make_channel(), role) {}

Child::Child(std::pair<int, int> ends, const Role& role) : channel_(ends.first) {
    std::fflush(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
        ::close(ends.first);
        run_role(role, ends.second, parent);
    }
    ::close(ends.second);
    if (pid_ < 0)
        throw std::runtime_error("fork failed");
}

Child::~Child() {
    if (is_running_)
        kill_now();
}

void Child::signal(int number) const {
    if (pid_ > 0)  // kill(-1) would end every process there is
        ::kill(pid_, number);
}

void Child::kill_now() {
    signal(SIGKILL);
    join();
}

int Child::join(int timeout_ms) {
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (pidfd >= 0) {
        pollfd entry = {pidfd, POLLIN, 0};
        const int ended = poll(&entry, 1, timeout_ms);
        ::close(pidfd);
        if (ended != 1)
            return -1;
    }
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_)
        return -1;
    is_running_ = false;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool progress_until(Entity& entity, const std::function<bool()>& done, int timeout_ms) {
    const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(timeout_ms) * 1'000'000;
    unsigned idle = 0;
    while (!done()) {
        idle = entity.progress() == 0 ? idle + 1 : 0;
        if (idle % 64 == 63) {
            sched_yield();
            if (now_ns() > end)
                return done();
        }
    }
    return true;
}

ucs_status_t retry(Entity& entity, const std::function<ucs_status_t()>& operation) {
    ucs_status_t status = UCS_ERR_NO_RESOURCE;
    progress_until(entity, [&] { return (status = operation()) != UCS_ERR_NO_RESOURCE; });
    return status;
}

Bytes pack(const std::vector<Bytes>& parts) {
    Bytes packed;
    for (const Bytes& part : parts) {
        const auto length = static_cast<std::uint32_t>(part.size());
        const auto* first = reinterpret_cast<const std::byte*>(&length);
        packed.insert(packed.end(), first, first + sizeof length);
        packed.insert(packed.end(), part.begin(), part.end());
    }
    return packed;
}

std::vector<Bytes> unpack(const Bytes& packed) {
    std::vector<Bytes> parts;
    for (std::size_t at = 0; at + 4 <= packed.size();) {
        std::uint32_t length = 0;
        std::memcpy(&length, packed.data() + at, sizeof length);
        at += sizeof length;
        if (length > packed.size() - at)
            break;
        const auto first = packed.begin() + static_cast<std::ptrdiff_t>(at);
        parts.emplace_back(first, first + length);
        at += length;
    }
    return parts;
}

Bytes address_of(const Entity& entity) {
    return pack({entity.device_address(), entity.iface_address()});
}

Endpoint connect_to(Entity& from, const Bytes& address) {
    const auto parts = unpack(address);
    return connect_to_address(from, parts.at(0), parts.at(1));
}

std::uint64_t now_ns() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

void spin_ns(std::uint64_t duration_ns) {
    const std::uint64_t end = now_ns() + duration_ns;
    while (now_ns() < end) {
    }
}

std::uint64_t seed_of_run() {
    const char* text = std::getenv("TAGWIRE_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : 20260;
}

int rounds_of_run(int rounds) {
    const char* text = std::getenv("TAGWIRE_TEST_ROUNDS");
    return text != nullptr ? std::atoi(text) : rounds;
}

std::vector<std::string> bound_sockets() {
    std::vector<std::string> names;
    std::ifstream table("/proc/net/unix");
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string word;
        for (int i = 0; i < 8 && words >> word; ++i)
            if (i == 7)
                names.push_back(word);
    }
    if (!names.empty() && names.front() == "Path")
        names.erase(names.begin());
    return names;
}

std::vector<std::string> files_in(const std::string& directory) {
    std::vector<std::string> names;
    DIR* opened = opendir(directory.c_str());
    if (opened == nullptr)
        return names;
    while (const dirent* entry = readdir(opened))
        names.emplace_back(entry->d_name);
    closedir(opened);
    std::sort(names.begin(), names.end());
    return names;
}

namespace {

std::vector<std::string> new_ones(const std::vector<std::string>& before,
                                  const std::vector<std::string>& after) {
    std::vector<std::string> fresh;
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                        std::back_inserter(fresh));
    // Others work on this machine, too: only what carries the library's name is its own. Tests that
    // run meanwhile name their files otherwise.
    std::erase_if(fresh, [](const std::string& name) {
        return name.find("tagwire") == std::string::npos && name.find("tw-") == std::string::npos;
    });
    return fresh;
}

}  // namespace

void ProcessTest::SetUp() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // an orphan of a dead child becomes ours and is found below
    owns_network_ = enter_private_network();
    shared_memory_ = files_in("/dev/shm");
    temporary_ = files_in("/tmp");
}

void ProcessTest::TearDown() {
    EXPECT_EQ(-1, waitpid(-1, nullptr, WNOHANG)) << "a process was left behind";
    EXPECT_EQ(std::vector<std::string>{}, new_ones(shared_memory_, files_in("/dev/shm")));
    EXPECT_EQ(std::vector<std::string>{}, new_ones(temporary_, files_in("/tmp")));
    if (owns_network_) {
        EXPECT_EQ(std::vector<std::string>{}, bound_sockets());
    }
}

}  // namespace tagwire::test
