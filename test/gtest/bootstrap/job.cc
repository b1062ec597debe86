// SPDX-License-Identifier: BSD-3-Clause
#include "job.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace tagwire::test {

Process::Process(const std::function<void()>& body) {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0)
        return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
        ::_exit(1);  // it died before we asked to be told
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? kFailedInRank : 0);
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Process::~Process() {
    kill_now();
}

void Process::kill_now() {
    if (pid_ <= 0)
        return;
    ::kill(pid_, SIGKILL);
    join();
}

void Process::kill_group_now() {
    if (pid_ > 0)
        ::kill(-pid_, SIGKILL);
    kill_now();
}

bool Process::ends_within(int limit_ms) const {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    pollfd entry{fd, POLLIN, 0};
    const bool has_ended = ::poll(&entry, 1, limit_ms) == 1;
    ::close(fd);
    return has_ended;
}

int Process::join() {
    int status = 0;
    if (pid_ <= 0 || ::waitpid(std::exchange(pid_, -1), &status, 0) < 0)
        return -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Gate::Gate() {
    if (::pipe(ends_) != 0)
        throw std::runtime_error("pipe failed");
}

Gate::~Gate() {
    ::close(ends_[0]);
    ::close(ends_[1]);
}

void Gate::open() const {
    EXPECT_EQ(1, ::write(ends_[1], "o", 1));
}

// The byte stays: a gate that is open is open for everybody.
void Gate::wait() const {
    pollfd entry{ends_[0], POLLIN, 0};
    EXPECT_EQ(1, ::poll(&entry, 1, static_cast<int>(kPatienceMs)));
}

ScratchDirectory::ScratchDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "tw-bootstrap-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr)
        throw std::runtime_error("mkdtemp failed");
}

ScratchDirectory::~ScratchDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
}

std::vector<std::string> ScratchDirectory::names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

tw_bootstrap_params_t Place::params(std::uint32_t rank, std::uint32_t size,
                                    std::uint64_t timeout_ms) const {
    tw_bootstrap_params_t params{};
    params.struct_bytes = sizeof params;
    params.method = method;
    params.where = where.c_str();
    params.job = job.c_str();
    params.rank = rank;
    params.size = size;
    params.timeout_ms = timeout_ms;
    return params;
}

Rank::Rank(const Place& place, std::uint32_t rank, std::uint32_t size, std::uint64_t timeout_ms) {
    const tw_bootstrap_params_t params = place.params(rank, size, timeout_ms);
    status_ = tw_bootstrap_create(&params, &job_);
    if (status_ == TW_OK) {
        EXPECT_EQ(rank, tw_bootstrap_rank(job_));
        EXPECT_EQ(size, tw_bootstrap_size(job_));
    }
}

bool Rank::gather(std::size_t bytes) {
    if (job_ == nullptr)
        return false;
    const std::uint32_t size = tw_bootstrap_size(job_);
    std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(1 + tw_bootstrap_rank(job_)));
    std::vector<unsigned char> all(bytes * size);
    if (tw_bootstrap_allgather(job_, mine.data(), bytes, all.data()) != TW_OK)
        return false;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i] != 1 + i / bytes) {
            ADD_FAILURE() << "byte " << i << " of " << all.size() << " is " << int{all[i]};
            break;
        }
    }
    return true;
}

void expect_failure(tw_status_t wanted, tw_status_t status, const std::string& part) {
    EXPECT_EQ(wanted, status) << tw_bootstrap_last_error();
    const std::string sentence = tw_bootstrap_last_error();
    EXPECT_NE(std::string::npos, sentence.find(part)) << "'" << part << "' in: " << sentence;
}

std::vector<int> run_ranks(std::uint32_t size, const std::function<void(std::uint32_t)>& body) {
    std::vector<Process> processes;
    for (std::uint32_t rank = 0; rank < size; ++rank)
        processes.emplace_back([&] { body(rank); });
    std::vector<int> statuses;
    statuses.reserve(size);
    for (Process& process : processes)
        statuses.push_back(process.join());
    return statuses;
}

void expect_all_well(const std::vector<int>& statuses) {
    EXPECT_EQ(std::vector<int>(statuses.size(), 0), statuses);
}

}  // namespace tagwire::test
