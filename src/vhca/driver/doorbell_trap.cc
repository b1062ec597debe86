// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/driver/doorbell_trap.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/shm.hpp"

namespace tagwire::vhca::driver {
namespace {

/// Pages of a larger mapping are not all put back: each costs memory.
constexpr std::uint64_t kFilledPagesMax = 64;
#ifndef UFFD_USER_MODE_ONLY
constexpr int kUserModeOnly = 1;
#else
constexpr int kUserModeOnly = UFFD_USER_MODE_ONLY;
#endif

/// One line of /proc/self/maps.
struct MapLine {
    std::uint64_t begin = 0, end = 0, device = 0, inode = 0;
    bool is_shared_writable = false;
};

/// Takes a number from the front of `text`, and the character behind it.
bool take_number(std::string_view* text, int base, std::uint64_t* value_p) {
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), *value_p, base);
    if (parsed.ec != std::errc()) {
        return false;
    }
    const auto used = static_cast<std::size_t>(parsed.ptr - text->data());
    text->remove_prefix(std::min(used + 1, text->size()));
    return true;
}

bool parse_line(std::string_view text, MapLine* line_p) {
    constexpr std::size_t kRights = 5;  // "rw-s "
    std::uint64_t offset = 0, major = 0, minor = 0;
    if (!take_number(&text, 16, &line_p->begin) || !take_number(&text, 16, &line_p->end) ||
        text.size() < kRights) {
        return false;
    }
    line_p->is_shared_writable = text[1] == 'w' && text[3] == 's';
    text.remove_prefix(kRights);
    if (!take_number(&text, 16, &offset) || !take_number(&text, 16, &major) ||
        !take_number(&text, 16, &minor) || !take_number(&text, 10, &line_p->inode)) {
        return false;
    }
    line_p->device = makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor));
    return true;
}

/// The whole of a file of /proc. False: it cannot be read.
bool read_whole(const char* path, std::vector<char>* out, std::size_t* filled_p) {
    const ucs::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
    if (!fd) {
        return false;
    }
    std::size_t filled = 0;
    for (;;) {
        constexpr std::size_t kRoomMin = 4096;
        if (out->size() - filled < kRoomMin) {
            out->resize(std::max<std::size_t>(2 * out->size(), 16 * kRoomMin));
        }
        const ssize_t got = ::read(fd.get(), out->data() + filled, out->size() - filled);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (got == 0) {
            *filled_p = filled;
            return true;
        }
        filled += static_cast<std::size_t>(got);
    }
}

}  // namespace

DoorbellTrap::~DoorbellTrap() {
    while (!watched_.empty()) {
        forget(watched_.back().memfd);
    }
}

bool DoorbellTrap::make() {
    if (was_tried_) {
        return static_cast<bool>(fd_);
    }
    was_tried_ = true;
    ucs::UniqueFd fd(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly)));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (!fd || ::ioctl(fd.get(), UFFDIO_API, &api) != 0 ||
        (api.features & UFFD_FEATURE_MISSING_SHMEM) == 0) {
        TW_LOG_DEBUG("virtual HCA: no userfaultfd (errno %d): doorbells are looked for by time",
                     errno);
        return false;
    }
    fd_ = std::move(fd);
    // SYNC vhca_trap_fd: a thread that sees it may wait on it
    shown_fd_.store(fd_.get(), std::memory_order_release);
    return true;
}

// Whoever waits goes on; from now on the engine takes naps.
void DoorbellTrap::give_up() {
    for (Watched& watched : watched_) {
        for (const Range& range : watched.ranges) {
            leave(range);
        }
        watched.ranges.clear();
    }
    take_messages();
    is_closed_ = false;
    // SYNC vhca_trap_fd: the engine's thread alone looks at it again
    shown_fd_.store(-1, std::memory_order_release);
}

void DoorbellTrap::watch(int memfd, std::size_t bytes) {
    struct stat file {};
    if (!make() || ::fstat(memfd, &file) != 0) {
        return;
    }
    void* own =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
    if (own == MAP_FAILED) {
        give_up();
        return;
    }
    ::madvise(own, bytes, MADV_DONTFORK);
    ::madvise(own, bytes, MADV_DONTDUMP);
    watched_.push_back({.memfd = memfd,
                        .device = file.st_dev,
                        .inode = file.st_ino,
                        .own = static_cast<std::byte*>(own),
                        .bytes = bytes,
                        .ranges = {}});
    note_command();
}

void DoorbellTrap::forget(int memfd) {
    const auto found = std::find_if(watched_.begin(), watched_.end(),
                                    [&](const Watched& one) { return one.memfd == memfd; });
    if (found == watched_.end()) {
        return;
    }
    for (const Range& range : found->ranges) {
        leave(range);
    }
    ::munmap(found->own, found->bytes);
    watched_.erase(found);
    take_messages();
}

void DoorbellTrap::add_mapping(const Range& range, Watched* watched) {
    uffdio_register wanted{.range = {.start = range.begin, .len = range.end - range.begin},
                           .mode = UFFDIO_REGISTER_MODE_MISSING,
                           .ioctls = 0};
    // One that is registered already is fine; one that is gone since is of no interest.
    if (::ioctl(fd_.get(), UFFDIO_REGISTER, &wanted) == 0) {
        watched->ranges.push_back(range);
    }
}

void DoorbellTrap::read_line(const char* begin, const char* end) {
    MapLine line;
    if (!parse_line({begin, static_cast<std::size_t>(end - begin)}, &line) ||
        !line.is_shared_writable) {
        return;
    }
    for (Watched& watched : watched_) {
        if (line.inode == watched.inode && line.device == watched.device &&
            line.begin != reinterpret_cast<std::uintptr_t>(watched.own)) {
            add_mapping({line.begin, line.end}, &watched);
        }
    }
}

// False: it cannot be told what is mapped.
bool DoorbellTrap::find_mappings() {
    // SYNC vhca_mappings: what was mapped before a command is seen after it
    const std::uint64_t commands = commands_.load(std::memory_order_acquire);
    if (commands == seen_commands_) {
        return true;
    }
    std::size_t filled = 0;
    if (!read_whole("/proc/self/maps", &maps_, &filled)) {
        return false;
    }
    seen_commands_ = commands;
    for (Watched& watched : watched_) {
        watched.ranges.clear();
    }
    const char* const end = maps_.data() + filled;
    for (const char* at = maps_.data(); at < end;) {
        const char* const line_end = std::find(at, end, '\n');
        read_line(at, line_end);
        at = line_end + 1;
    }
    return true;
}

void DoorbellTrap::close() {
    if (is_closed_ || fd() < 0) {
        return;
    }
    if (!find_mappings()) {
        give_up();
        return;
    }
    is_closed_ = true;
    for (const Watched& watched : watched_) {
        if (!watched.ranges.empty() && ::madvise(watched.own, watched.bytes, MADV_REMOVE) != 0) {
            give_up();
            return;
        }
    }
}

// The pages are the kernel's affair again; stores to them are not noticed.
void DoorbellTrap::leave(const Range& range) {
    uffdio_range whole{.start = range.begin, .len = range.end - range.begin};
    ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &whole);
    ::ioctl(fd_.get(), UFFDIO_WAKE, &whole);
    seen_commands_ = 0;
}

// Puts empty pages where none are.
void DoorbellTrap::fill(const Range& range) {
    const std::size_t page_bytes = ucs::page_bytes();
    if (range.end - range.begin > kFilledPagesMax * page_bytes) {
        leave(range);
        return;
    }
    std::uint64_t at = range.begin;
    while (at < range.end) {
        uffdio_zeropage zero{
            .range = {.start = at, .len = range.end - at}, .mode = 0, .zeropage = 0};
        if (::ioctl(fd_.get(), UFFDIO_ZEROPAGE, &zero) == 0) {
            break;
        }
        if (zero.zeropage > 0) {
            at += static_cast<std::uint64_t>(zero.zeropage);
        } else if (errno == EEXIST) {
            at += page_bytes;  // by another mapping, or never taken away
        } else if (errno != EAGAIN) {
            leave(range);  // not mapped any more, or no memory
            return;
        }
    }
    uffdio_range whole{.start = range.begin, .len = range.end - range.begin};
    ::ioctl(fd_.get(), UFFDIO_WAKE, &whole);
}

void DoorbellTrap::take_messages() {
    std::array<uffd_msg, 16> messages{};
    for (;;) {
        const ssize_t got = ::read(fd_.get(), messages.data(), sizeof messages);
        if (got <= 0) {
            return;
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(got) / sizeof messages[0]; ++i) {
            if (messages[i].event == UFFD_EVENT_PAGEFAULT) {
                const std::uint64_t page =
                    messages[i].arg.pagefault.address & ~std::uint64_t{ucs::page_bytes() - 1};
                fill({page, page + ucs::page_bytes()});
            }
        }
    }
}

void DoorbellTrap::attend() {
    if (fd_) {
        take_messages();
    }
}

void DoorbellTrap::open() {
    if (!is_closed_) {
        return;
    }
    is_closed_ = false;
    for (const Watched& watched : watched_) {
        for (const Range& range : watched.ranges) {
            fill(range);
        }
    }
    take_messages();
}

}  // namespace tagwire::vhca::driver
