// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/setup/pinning.hpp"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/fd.hpp"
#include "vhca/setup/options.hpp"

namespace tagwire::vhca {
namespace {

// Relaxed: counters of their own, they order nothing.
constinit std::atomic<std::uint64_t> pages_pinned{0};
constinit std::atomic<std::uint64_t> generation{0};  // of the process: another one after fork(2)

/// One line of /proc/self/maps: "7f00-7f20 rw-p ...".
struct Mapping {
    std::uint64_t first = 0, end = 0;
    bool is_readable = false, is_writable = false;
};

std::optional<Mapping> parse(std::string_view line) {
    Mapping mapping;
    const char* const last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, mapping.first, 16);
    if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-')
        return std::nullopt;
    const auto end = std::from_chars(first.ptr + 1, last, mapping.end, 16);
    if (end.ec != std::errc() || last - end.ptr < 3)
        return std::nullopt;
    mapping.is_readable = end.ptr[1] == 'r';
    mapping.is_writable = end.ptr[2] == 'w';
    return mapping;
}

/// Calls take(mapping) for the mappings of the process, in the order of their addresses, until it
/// returns false. False: they cannot be read.
template <typename F>
bool for_each_mapping(const F& take) {
    const ucs::UniqueFd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    if (!maps)
        return false;
    std::array<char, 16384> buffer;
    std::size_t held = 0;
    for (;;) {
        const ssize_t got = ::read(maps.get(), buffer.data() + held, buffer.size() - held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0;
        held += static_cast<std::size_t>(got);
        std::string_view text(buffer.data(), held);
        for (std::size_t end = text.find('\n'); end != std::string_view::npos;
             end = text.find('\n')) {
            const auto mapping = parse(text.substr(0, end));
            if (!mapping)
                return false;
            if (!take(*mapping))
                return true;
            text.remove_prefix(end + 1);
        }
        if (text.size() == buffer.size())
            return false;  // a line without an end
        std::memmove(buffer.data(), text.data(), text.size());
        held = text.size();
    }
}

std::uint64_t page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

/// capable(CAP_IPC_LOCK), whatever user namespace this is.
bool may_lock_all() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> data{};
    return ::syscall(SYS_capget, &header, data.data()) == 0 &&
           (data[0].effective >> CAP_IPC_LOCK & 1) != 0;
}

/// Pages that the process may have pinned.
std::uint64_t pages_max() {
    static const int rule = [] {
        Options options;
        return ucs::config_fill(option_table(), &options) == UCS_OK ? options.memlock
                                                                    : int{kMemlockNone};
    }();
    rlimit limit{};
    if (rule == kMemlockNone || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY || (rule == kMemlockKernel && may_lock_all())) {
        return UINT64_MAX;
    }
    return limit.rlim_cur / page_bytes();
}

void begin_in_child() {
    pages_pinned.store(0, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_relaxed);
}

/// Once: a program that goes on with less memory may come here often.
void tell_limit(std::uint64_t wanted, std::uint64_t held, std::uint64_t most) {
    static std::atomic<bool> is_told{false};
    if (is_told.exchange(true, std::memory_order_relaxed))
        return;
    const auto kib = [](std::uint64_t pages) {
        return static_cast<unsigned long long>(pages * page_bytes() >> 10);
    };
    TW_LOG_ERROR(
        "virtual HCA: %llu KiB cannot be registered beside the %llu KiB that are: RLIMIT_MEMLOCK "
        "is %llu KiB; raise it (ulimit -l), or set TAGWIRE_VHCA_MEMLOCK=none",
        kib(wanted), kib(held), kib(most));
}

bool count_pages(std::uint64_t pages) {
    static const int atfork_error = ::pthread_atfork(nullptr, nullptr, begin_in_child);
    static_cast<void>(atfork_error);
    const std::uint64_t all = pages_pinned.fetch_add(pages, std::memory_order_relaxed) + pages;
    const std::uint64_t most = pages_max();
    if (all <= most)
        return true;
    pages_pinned.fetch_sub(pages, std::memory_order_relaxed);
    tell_limit(pages, all - pages, most);
    return false;
}

}  // namespace

Pinned::~Pinned() {
    if (pages_ != 0 && generation_ == generation.load(std::memory_order_relaxed))
        pages_pinned.fetch_sub(pages_, std::memory_order_relaxed);
}

bool changes_memory(unsigned access) {
    constexpr unsigned kChanges = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    return (access & kChanges) != 0;
}

int check_mapping(const void* base, std::size_t bytes, bool is_written) {
    const auto first = reinterpret_cast<std::uintptr_t>(base);
    const std::uintptr_t end = first + bytes;
    if (bytes == 0)
        return 0;
    if (end < first)
        return EFAULT;
    std::uintptr_t at = first;
    const auto take = [&](const Mapping& mapping) {
        if (mapping.end <= at)
            return true;
        if (mapping.first > at || !(is_written ? mapping.is_writable : mapping.is_readable))
            return false;
        at = mapping.end;
        return at < end;
    };
    const bool is_known = for_each_mapping(take);
    return !is_known || at >= end ? 0 : EFAULT;
}

int pin(const void* base, std::size_t bytes, unsigned access, Pinned* pinned_p) {
    const auto first = reinterpret_cast<std::uintptr_t>(base);
    if (bytes == 0)
        return 0;  // refused by who knows what is wrong with it
    if (first + bytes < first)
        return EFAULT;
    Pinned pinned;
    const std::uint64_t pages = (first + bytes - 1) / page_bytes() - first / page_bytes() + 1;
    if (!count_pages(pages))
        return ENOMEM;
    pinned.pages_ = pages;
    pinned.generation_ = generation.load(std::memory_order_relaxed);
    if (const int error = check_mapping(base, bytes, changes_memory(access)))
        return error;
    *pinned_p = std::move(pinned);
    return 0;
}

}  // namespace tagwire::vhca
