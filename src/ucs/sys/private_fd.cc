// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/private_fd.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "ucs/memory/reserve.hpp"

namespace tagwire::ucs {

namespace {

/// The private descriptors of this process, a bit for each number.
class PrivateFds {
  public:
    static PrivateFds& get() {
        // Never destroyed: descriptors of static objects are closed at any time.
        static auto& all = *new PrivateFds;
        return all;
    }

    void add(int fd) {
        const std::lock_guard locked(lock_);
        leave_parent();
        const auto word = static_cast<std::size_t>(fd) / kBits;
        if (word >= words_.size())
            words_.resize(word + 1);
        words_[word] |= bit(fd);
    }
    /// False: it belongs to the parent of this process.
    bool remove(int fd) {
        const std::lock_guard locked(lock_);
        leave_parent();
        const auto word = static_cast<std::size_t>(fd) / kBits;
        const bool is_ours = word < words_.size() && (words_[word] & bit(fd)) != 0;
        if (is_ours)
            words_[word] &= ~bit(fd);
        return is_ours;
    }

  private:
    static constexpr std::size_t kBits = 64;
    static std::uint64_t bit(int fd) {
        return std::uint64_t{1} << (static_cast<std::size_t>(fd) % kBits);
    }

    PrivateFds() {
        ::pthread_atfork([] { get().lock_.lock(); }, [] { get().lock_.unlock(); },
                         [] {
                             get().replace_all();
                             get().lock_.unlock();
                         });
    }

    /// In a child that was made without fork handlers none is ours.
    void leave_parent() {
        if (const pid_t self = ::getpid(); std::exchange(pid_, self) != self)
            words_.clear();
    }

    /// In the child. Only calls that are safe behind fork(), and no memory.
    void replace_all() {
        const int empty = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        for (std::size_t word = 0; word < words_.size(); ++word)
            for (std::uint64_t left = std::exchange(words_[word], 0); left != 0; left &= left - 1)
                if (empty >= 0)
                    ::dup3(empty, static_cast<int>(word * kBits) + std::countr_zero(left),
                           O_CLOEXEC);
        ::close(empty);
        pid_ = ::getpid();
    }

    std::mutex lock_;
    pid_t pid_ = ::getpid();
    ReserveVector<std::uint64_t> words_;
};

}  // namespace

void PrivateFd::reset(int fd) {
    if (fd_ >= 0) {
        if (PrivateFds::get().remove(fd_))
            ::shutdown(fd_, SHUT_RDWR);
        ::close(fd_);
    }
    fd_ = fd;
    if (fd_ >= 0)
        PrivateFds::get().add(fd_);
}

}  // namespace tagwire::ucs
