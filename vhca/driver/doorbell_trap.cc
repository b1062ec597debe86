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

/// More pages than this are taken away with the whole file.
constexpr std::ptrdiff_t kHolesMax = 64;
constexpr std::size_t kBlockBytes = 512;  // that stat(2) counts in
/// A thread that was let go gets so many calls of close() to store: then it was no store, or its
/// thread has ended.
constexpr unsigned kUnsettledMax = 1000;
#ifndef UFFD_USER_MODE_ONLY
constexpr int kUserModeOnly = 1;
#else
constexpr int kUserModeOnly = UFFD_USER_MODE_ONLY;
#endif

/// One line of /proc/self/maps.
struct MapLine {
    std::uint64_t begin = 0, end = 0, offset = 0, device = 0, inode = 0;
    bool is_shared_writable = false;
};

/// Takes a number from the front of `text`, and the character behind it.
bool take_number(std::string_view* text, int base, std::uint64_t* value_p) {
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), *value_p, base);
    if (parsed.ec != std::errc())
        return false;
    const auto used = static_cast<std::size_t>(parsed.ptr - text->data());
    text->remove_prefix(std::min(used + 1, text->size()));
    return true;
}

bool parse_line(std::string_view text, MapLine* line_p) {
    constexpr std::size_t kRights = 5;  // "rw-s "
    std::uint64_t major = 0, minor = 0;
    if (!take_number(&text, 16, &line_p->begin) || !take_number(&text, 16, &line_p->end) ||
        text.size() < kRights) {
        return false;
    }
    line_p->is_shared_writable = text[1] == 'w' && text[3] == 's';
    text.remove_prefix(kRights);
    if (!take_number(&text, 16, &line_p->offset) || !take_number(&text, 16, &major) ||
        !take_number(&text, 16, &minor) || !take_number(&text, 10, &line_p->inode)) {
        return false;
    }
    line_p->device = makedev(static_cast<unsigned>(major), static_cast<unsigned>(minor));
    return true;
}

/// The whole of a file of /proc. False: it cannot be read.
bool read_whole(int fd, std::vector<char>* out, std::size_t* filled_p) {
    std::size_t filled = 0;
    for (;;) {
        constexpr std::size_t kRoomMin = 4096;
        if (out->size() - filled < kRoomMin)
            out->resize(std::max<std::size_t>(2 * out->size(), 16 * kRoomMin));
        const ssize_t got =
            ::pread(fd, out->data() + filled, out->size() - filled, static_cast<off_t>(filled));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0) {
            *filled_p = filled;
            return true;
        }
        filled += static_cast<std::size_t>(got);
    }
}

bool is_empty(int memfd, std::uint64_t offset) {
    std::array<std::uint64_t, 512> words;
    for (std::size_t at = 0; at < ucs::page_bytes(); at += sizeof words) {
        words.fill(1);  // what cannot be read
        static_cast<void>(
            !::pread(memfd, words.data(), sizeof words, static_cast<off_t>(offset + at)));
        if (std::any_of(words.begin(), words.end(), [](auto word) { return word != 0; }))
            return false;
    }
    return true;
}

}  // namespace

DoorbellTrap::~DoorbellTrap() {
    while (!watched_.empty())
        unwatch(watched_.back().memfd);
}

bool DoorbellTrap::make() {
    if (was_tried_)
        return static_cast<bool>(fd_);
    was_tried_ = true;
    ucs::UniqueFd fd(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly)));
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    if (!fd || ::ioctl(fd.get(), UFFDIO_API, &api) != 0 ||
        (api.features & UFFD_FEATURE_MISSING_SHMEM) == 0) {
        TW_LOG_DEBUG("virtual HCA: no userfaultfd (errno %d): doorbells are found by polling",
                     errno);
        return false;
    }
    // Open all the time: programs that count their descriptors see none come and go.
    maps_fd_.reset(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    fd_ = std::move(fd);
    // SYNC vhca_trap_fd: a thread that sees it may wait on it
    shown_fd_.store(fd_.get(), std::memory_order_release);
    return true;
}

// Waiting threads go on; from now on the engine takes naps.
void DoorbellTrap::disable() {
    for (Watched& watched : watched_) {
        for (const Range& range : watched.ranges)
            leave(range.begin, range.end);
        watched.ranges.clear();
    }
    attend();
    // SYNC vhca_trap_fd: the engine's thread alone looks at it again
    shown_fd_.store(-1, std::memory_order_release);
}

void DoorbellTrap::watch(int memfd, std::size_t bytes, std::size_t kept) {
    struct stat file {};
    if (!make() || ::fstat(memfd, &file) != 0)
        return;
    void* own =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
    if (own == MAP_FAILED) {
        disable();
        return;
    }
    ::madvise(own, bytes, MADV_DONTFORK);
    ::madvise(own, bytes, MADV_DONTDUMP);
    watched_.push_back({.memfd = memfd,
                        .device = file.st_dev,
                        .inode = file.st_ino,
                        .own = static_cast<std::byte*>(own),
                        .bytes = bytes,
                        .kept = kept,
                        .kept_blocks = file.st_blocks,
                        .ranges = {},
                        .open_pages = {}});
    note_command();
}

void DoorbellTrap::unwatch(int memfd) {
    const auto found = std::find_if(watched_.begin(), watched_.end(),
                                    [&](const Watched& one) { return one.memfd == memfd; });
    if (found == watched_.end())
        return;
    for (const Range& range : found->ranges)
        leave(range.begin, range.end);
    ::munmap(found->own, found->bytes);
    watched_.erase(found);
    attend();
}

void DoorbellTrap::add_mapping(const Range& range, Watched* watched) {
    uffdio_register wanted{.range = {.start = range.begin, .len = range.end - range.begin},
                           .mode = UFFDIO_REGISTER_MODE_MISSING,
                           .ioctls = 0};
    // One that is registered already is fine; one that is gone since is of no interest.
    if (::ioctl(fd_.get(), UFFDIO_REGISTER, &wanted) == 0)
        watched->ranges.push_back(range);
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
            add_mapping({line.begin, line.end, line.offset}, &watched);
        }
    }
}

// False: it cannot be told what is mapped.
bool DoorbellTrap::find_mappings(bool* has_changed_p) {
    // SYNC vhca_mappings: what was mapped before a command is seen after it
    const std::uint64_t commands = commands_.load(std::memory_order_acquire);
    *has_changed_p = commands != seen_commands_;
    if (!*has_changed_p)
        return true;
    std::size_t filled = 0;
    if (!read_whole(maps_fd_.get(), &maps_, &filled))
        return false;
    seen_commands_ = commands;
    for (Watched& watched : watched_)
        watched.ranges.clear();
    const char* const end = maps_.data() + filled;
    for (const char* at = maps_.data(); at < end;) {
        const char* const line_end = std::find(at, end, '\n');
        read_line(at, line_end);
        at = line_end + 1;
    }
    return true;
}

bool DoorbellTrap::punch(const Watched& watched, std::uint64_t offset, std::size_t bytes) {
    return offset >= watched.bytes || ::madvise(watched.own + offset, bytes, MADV_REMOVE) == 0;
}

// A page that was put back is empty until somebody stores to it, and no doorbell is all zeros.
bool DoorbellTrap::is_settled(Watched* watched) const {
    bool is_all = true;
    for (OpenPage& page : watched->open_pages) {
        page.was_stored_to = page.was_stored_to || unsettled_ >= kUnsettledMax ||
                             !is_empty(watched->memfd, page.offset);
        is_all = is_all && page.was_stored_to;
    }
    return is_all;
}

// False: it cannot be done.
bool DoorbellTrap::close_pages(Watched* watched) {
    std::vector<OpenPage>& pages = watched->open_pages;
    const auto kept = std::partition(pages.begin(), pages.end(),
                                     [](const OpenPage& page) { return !page.was_stored_to; });
    bool is_done = pages.end() - kept <= kHolesMax;
    for (auto page = kept; is_done && page != pages.end(); ++page)
        is_done = punch(*watched, page->offset, ucs::page_bytes());
    pages.erase(kept, pages.end());
    struct stat file {};
    const auto blocks = static_cast<blkcnt_t>(pages.size() * ucs::page_bytes() / kBlockBytes);
    return (is_done && ::fstat(watched->memfd, &file) == 0 &&
            file.st_blocks <= blocks + watched->kept_blocks) ||
           close_all(watched);
}

// False: it cannot be done.
bool DoorbellTrap::close_all(Watched* watched) {
    watched->open_pages.clear();
    if (watched->kept == kNoPage)
        return punch(*watched, 0, watched->bytes);
    const std::size_t behind = watched->kept + ucs::page_bytes();
    return punch(*watched, 0, watched->kept) && punch(*watched, behind, watched->bytes - behind);
}

// Pages that nobody put back may be there: a child of fork(2) stored to them, or the program did
// before its mapping was found. The number of pages that the file has tells.
bool DoorbellTrap::close() {
    if (fd() < 0)
        return true;
    bool has_changed = false, is_all = true;
    if (!find_mappings(&has_changed)) {
        disable();
        return true;
    }
    for (Watched& watched : watched_) {
        is_all = is_settled(&watched) && is_all;
        if (!(has_changed ? close_all(&watched) : close_pages(&watched))) {
            disable();
            return true;
        }
    }
    is_all = is_all || has_changed;
    unsettled_ = is_all ? 0 : unsettled_ + 1;
    return is_all;
}

// The pages are the kernel's affair again; stores to them are not noticed.
void DoorbellTrap::leave(std::uint64_t begin, std::uint64_t end) {
    uffdio_range whole{.start = begin, .len = end - begin};
    ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &whole);
    ::ioctl(fd_.get(), UFFDIO_WAKE, &whole);
    seen_commands_ = 0;
}

// The page of the file at this address can be stored to from now on.
void DoorbellTrap::note_open(std::uint64_t address) {
    for (Watched& watched : watched_) {
        const auto range = std::find_if(
            watched.ranges.begin(), watched.ranges.end(),
            [&](const Range& one) { return one.begin <= address && address < one.end; });
        if (range == watched.ranges.end())
            continue;
        const std::uint64_t offset = range->offset + (address - range->begin);
        const bool is_known =
            std::any_of(watched.open_pages.begin(), watched.open_pages.end(),
                        [&](const OpenPage& one) { return one.offset == offset; });
        if (!is_known)
            watched.open_pages.push_back({.offset = offset, .was_stored_to = false});
        return;
    }
}

// Puts an empty page there, if none is, and lets who waits for it go on.
void DoorbellTrap::fill(std::uint64_t page) {
    const std::size_t page_bytes = ucs::page_bytes();
    uffdio_zeropage zero{.range = {.start = page, .len = page_bytes}, .mode = 0, .zeropage = 0};
    while (::ioctl(fd_.get(), UFFDIO_ZEROPAGE, &zero) != 0) {
        if (errno == EEXIST) {  // by another mapping, or another thread
            ::ioctl(fd_.get(), UFFDIO_WAKE, &zero.range);
            break;
        }
        if (errno != EAGAIN) {
            leave(page, page + page_bytes);  // not mapped any more, or no memory
            return;
        }
    }
    note_open(page);
}

bool DoorbellTrap::attend() {
    std::array<uffd_msg, 16> messages{};
    bool has_any = false;
    ssize_t got = 0;
    while (fd_ && (got = ::read(fd_.get(), messages.data(), sizeof messages)) > 0) {
        has_any = true;
        for (std::size_t i = 0; i < static_cast<std::size_t>(got) / sizeof messages[0]; ++i)
            if (messages[i].event == UFFD_EVENT_PAGEFAULT)
                fill(messages[i].arg.pagefault.address & ~std::uint64_t{ucs::page_bytes() - 1});
    }
    return has_any;
}

}  // namespace tagwire::vhca::driver
