// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/packet_trace.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "ucs/log/log.hpp"

namespace tagwire::vhca {

namespace {

using std::chrono::milliseconds;

/// The thread lets packets gather for so long.
constexpr milliseconds kGatherTime{1};
/// The end of a process waits for the file at most so long.
constexpr milliseconds kFarewell{2000};

std::int64_t clock_ns(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

const char* reason_of(int error) {
    return error == EWOULDBLOCK ? "another process writes it; put %p into its name to give each "
                                  "process a file of its own"
           : error == ENXIO     ? "no process reads this pipe"
                                : std::strerror(error);
}

/// Opens, and takes it for this process alone. A pipe without a reader is not waited for.
int open_file(const std::string& path, ucs::UniqueFd* fd_p) {
    ucs::UniqueFd fd(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
    if (!fd)
        return errno;
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0 || ::fcntl(fd.get(), F_SETFL, 0) != 0)
        return errno;
    if (S_ISREG(status.st_mode) &&
        (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::ftruncate(fd.get(), 0) != 0)) {
        return errno;
    }
    *fd_p = std::move(fd);
    return 0;
}

/// Bytes of whole records among the first `written`.
std::size_t whole_records(std::span<const std::byte> records, std::size_t written) {
    std::size_t end = 0;
    for (;;) {
        PcapRecord record;
        if (end + sizeof record > written)
            return end;
        std::memcpy(&record, &records[end], sizeof record);
        if (end + sizeof record + record.bytes > written)
            return end;
        end += sizeof record + record.bytes;
    }
}

}  // namespace

std::string trace_path_of(const std::string& path) {
    std::string expanded = path;
    const std::string pid = std::to_string(::getpid());
    for (std::size_t at = expanded.find("%p"); at != std::string::npos;
         at = expanded.find("%p", at + pid.size())) {
        expanded.replace(at, 2, pid);
    }
    return expanded;
}

// ---- Made ---------------------------------------------------------------------------------------

PacketTrace::PacketTrace(std::string path, ucs::UniqueFd fd)
    : path_(std::move(path)), fd_(std::move(fd)) {}

PacketTrace* PacketTrace::begin(const std::string& path, std::uint32_t link_type) {
    ucs::UniqueFd fd;
    int error = open_file(path, &fd);
    PacketTrace* trace = nullptr;
    if (error == 0) {
        trace = new (std::nothrow) PacketTrace(path, std::move(fd));
        error = trace == nullptr ? ENOMEM : trace->start(link_type);
    }
    if (error != 0) {
        TW_LOG_ERROR("virtual HCA: cannot write a packet trace to %s: %s", path.c_str(),
                     reason_of(error));
        delete trace;
        trace = nullptr;
    }
    return trace;
}

int PacketTrace::start(std::uint32_t link_type) {
    filling_.reserve(kGatherBytes);
    writing_.reserve(kGatherBytes);
    epoch_ns_ = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    PcapHeader header;
    header.link_type = link_type;
    header.snap_bytes = PacketFramer::kFrameBytesMax;
    if (const int error = write_all(std::as_bytes(std::span(&header, 1))))
        return error;
    // Signals are the program's. A reader that goes is told by write(), not by SIGPIPE.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = pthread_create(
        &thread, nullptr,
        [](void* trace) -> void* {
            static_cast<PacketTrace*>(trace)->run();
            return nullptr;
        },
        this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error == 0) {
        pthread_setname_np(thread, "tagwire-trace");
        pthread_detach(thread);
    }
    return error;
}

// ---- Packets ------------------------------------------------------------------------------------

void PacketTrace::add(const PacketFramer& framer, const FramePath& path,
                      std::span<const std::byte> packet) {
    std::unique_lock lock(mutex_);
    if (has_failed_)
        return;
    if (!has_room()) [[unlikely]] {
        is_stuck_ = is_stuck_ || !progress_.wait_for(lock, milliseconds(kPatienceMs),
                                                     [this] { return has_room(); });
        if (!has_room() || has_failed_) {
            ++left_out_;
            return;
        }
    }
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t now = clock_ns(CLOCK_MONOTONIC) + epoch_ns_;
    const std::size_t start = filling_.size();
    filling_.resize(start + sizeof(PcapRecord) + PacketFramer::kFrameBytesMax);  // reserved
    std::byte* const frame = &filling_[start + sizeof(PcapRecord)];
    const auto bytes = static_cast<std::uint32_t>(framer.put(
        frame, {path.source, path.target, path.service, static_cast<std::uint64_t>(now)}, packet));
    const PcapRecord record{static_cast<std::uint32_t>(now / kSecond),
                            static_cast<std::uint32_t>(now % kSecond), bytes, bytes};
    std::memcpy(&filling_[start], &record, sizeof record);
    filling_.resize(start + sizeof record + bytes);
    const bool is_half_full = start < kGatherBytes / 2 && filling_.size() >= kGatherBytes / 2;
    if (start == 0 || is_half_full || is_finishing_)
        work_.notify_one();
    if (is_finishing_) [[unlikely]] {
        is_stuck_ = is_stuck_ || !progress_.wait_for(lock, milliseconds(kPatienceMs),
                                                     [this] { return is_written(); });
    }
}

std::uint64_t PacketTrace::finish() {
    // Not lock(): a signal handler may have ended the program in the middle of add().
    std::unique_lock lock(mutex_, std::try_to_lock);
    for (int i = 0; !lock.owns_lock() && i < 2 * kPatienceMs; ++i) {
        const timespec rest{0, 1'000'000};
        ::nanosleep(&rest, nullptr);
        static_cast<void>(lock.try_lock());
    }
    if (!lock.owns_lock())
        return left_out_;
    is_finishing_ = true;
    work_.notify_one();
    progress_.wait_for(lock, kFarewell, [this] { return is_written(); });
    return left_out_;
}

// ---- The thread ---------------------------------------------------------------------------------

void PacketTrace::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return !filling_.empty(); });
        work_.wait_for(lock, kGatherTime,
                       [this] { return is_finishing_ || filling_.size() >= kGatherBytes / 2; });
        write_out(lock);
    }
}

void PacketTrace::write_out(std::unique_lock<std::mutex>& lock) {
    std::swap(filling_, writing_);
    is_writing_ = true;
    is_stuck_ = false;
    progress_.notify_all();  // there is room
    lock.unlock();
    const int error = has_failed_ ? 0 : write_all(writing_);
    if (error != 0) {
        TW_LOG_ERROR("virtual HCA: the packet trace %s ends: %s", path_.c_str(),
                     std::strerror(error));
    }
    lock.lock();
    has_failed_ = has_failed_ || error != 0;
    writing_.clear();
    is_writing_ = false;
    progress_.notify_all();
}

int PacketTrace::write_all(std::span<const std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count = ::write(fd_.get(), &bytes[done], bytes.size() - done);
        if (count < 0 && errno != EINTR) {
            const int error = errno;
            // A pipe has no such call, and needs none.
            const std::uint64_t end = file_bytes_ + whole_records(bytes, done);
            static_cast<void>(!::ftruncate(fd_.get(), static_cast<off_t>(end)));
            return error;
        }
        done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    file_bytes_ += done;
    return 0;
}

}  // namespace tagwire::vhca
