// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/mapping_marks.hpp"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "ucs/sys/shm.hpp"

namespace tagwire::ucs {

namespace {

// Constants of newer headers than Debian 12's. Both features together let a scan see the mark.
constexpr int kUserModeOnly = 1;                                  // UFFD_USER_MODE_ONLY
constexpr std::uint64_t kWpUnpopulated = std::uint64_t{1} << 13;  // UFFD_FEATURE_WP_UNPOPULATED
constexpr std::uint64_t kWpAsync = std::uint64_t{1} << 15;        // UFFD_FEATURE_WP_ASYNC
constexpr std::uint64_t kScanChecksMarks = 2;                     // PM_SCAN_CHECK_WPASYNC
constexpr std::uint64_t kScanMarked = 1;                          // PAGE_IS_WPALLOWED

struct ScanArg {  // pm_scan_arg
    std::uint64_t size;
    std::uint64_t flags;
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t walk_end;
    std::uint64_t regions;
    std::uint64_t regions_max;
    std::uint64_t pages_max;
    std::uint64_t inverted;
    std::uint64_t all_of;
    std::uint64_t any_of;
    std::uint64_t returned;
};
static_assert(sizeof(ScanArg) == 96);
constexpr unsigned long kScan = _IOWR('f', 16, ScanArg);  // PAGEMAP_SCAN

std::uint64_t number(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
}

std::string failure(const char* what) {
    return std::string(what) + ": " + std::strerror(errno);
}

}  // namespace

std::unique_ptr<MappingMarks> MappingMarks::open(std::string* reason) {
    UniqueFd faults(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly)));
    if (!faults) {
        *reason = failure("userfaultfd");
        return nullptr;
    }
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = kWpAsync | kWpUnpopulated;
    if (::ioctl(faults.get(), UFFDIO_API, &api) != 0) {
        *reason = "the kernel is older than 6.7";
        return nullptr;
    }
    UniqueFd pages(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (!pages) {
        *reason = failure("/proc/self/pagemap");
        return nullptr;
    }
    std::unique_ptr<MappingMarks> marks(new MappingMarks(std::move(faults), std::move(pages)));
    // Memory without a mark must be told from memory with one, or all of this is worth nothing.
    const std::size_t page = page_bytes();
    const auto* unmarked = reinterpret_cast<const void*>(number(marks.get()) / page * page);
    if (marks->is_set(unmarked, page)) {
        *reason = "the kernel does not show marks";
        return nullptr;
    }
    return marks;
}

bool MappingMarks::set(const void* address, std::size_t bytes) {
    uffdio_register range{};
    range.range = {number(address), bytes};
    range.mode = UFFDIO_REGISTER_MODE_WP;
    return ::ioctl(faults_.get(), UFFDIO_REGISTER, &range) == 0;
}

// The scan looks for pages without what a mark gives and ends with EPERM at a mapping without mark;
// a mapping with a mark has no such pages and is passed over at once.
bool MappingMarks::is_set(const void* address, std::size_t bytes) const {
    std::uint64_t region[3];
    ScanArg scan{};
    scan.size = sizeof scan;
    scan.flags = kScanChecksMarks;
    scan.start = number(address);
    scan.end = scan.start + bytes;
    scan.regions = number(region);
    scan.regions_max = 1;
    scan.pages_max = 1;
    scan.inverted = kScanMarked;
    scan.all_of = kScanMarked;
    scan.returned = kScanMarked;
    return ::ioctl(pages_.get(), kScan, &scan) == 0;
}

void MappingMarks::clear(const void* address, std::size_t bytes) {
    uffdio_range range{number(address), bytes};
    ::ioctl(faults_.get(), UFFDIO_UNREGISTER, &range);  // what is unmapped has none to clear
}

}  // namespace tagwire::ucs
