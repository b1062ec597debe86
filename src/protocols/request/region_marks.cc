// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/region_marks.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "ucs/debug/check.hpp"

namespace tagwire::proto {

void* PageRange::address() const {
    return reinterpret_cast<void*>(begin);
}

std::shared_ptr<RegionMarks> RegionMarks::of_process(std::string* reason) {
    static std::mutex mutex;
    static std::weak_ptr<RegionMarks> shared;
    static pid_t owner = 0;  // a child of fork() has mappings of its own, and no marks
    const std::lock_guard lock(mutex);
    std::shared_ptr<RegionMarks> marks = owner == ::getpid() ? shared.lock() : nullptr;
    if (marks != nullptr)
        return marks;
    std::unique_ptr<ucs::MappingMarks> opened = ucs::MappingMarks::open(reason);
    if (opened == nullptr)
        return nullptr;
    marks.reset(new RegionMarks(std::move(opened)));
    shared = marks;
    owner = ::getpid();
    return marks;
}

RegionMarks::Pieces::iterator RegionMarks::first_behind(std::uintptr_t address) {
    auto at = pieces_.upper_bound(address);
    if (at != pieces_.begin() && std::prev(at)->second.end > address)
        --at;
    return at;
}

void RegionMarks::split(std::uintptr_t address) {
    const auto at = first_behind(address);
    if (at == pieces_.end() || at->first >= address)
        return;
    pieces_.emplace(address, at->second);
    at->second.end = address;
}

std::uint64_t RegionMarks::add(PageRange range) {
    const std::lock_guard lock(mutex_);
    split(range.begin);
    split(range.end);
    ++generation_;
    if (!fill(range)) {
        clear_unused(range);
        return 0;
    }
    for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at)
        ++at->second.users;
    return generation_;
}

/// Covers the range with marked pieces. A piece joins the new generation before its mark is set,
/// because has_stayed() looks at the mark first, then at the generation.
bool RegionMarks::fill(PageRange range) {
    for (std::uintptr_t begin = range.begin; begin < range.end;) {
        auto at = first_behind(begin);
        const bool is_piece = at != pieces_.end() && at->first == begin;
        std::uintptr_t end = is_piece ? at->second.end : range.end;
        if (!is_piece && at != pieces_.end())
            end = std::min(end, at->first);
        const PageRange part{begin, end};
        if (!is_piece) {
            at = pieces_.emplace(begin, Piece{end, 0, generation_}).first;
        } else if (!marks_->is_set(part.address(), part.bytes())) {
            at->second.since = generation_;
            // SYNC reg_remarks: before the mark is set, pairs with has_stayed_since().
            remarks_.fetch_add(1, std::memory_order_release);
        }
        if (at->second.since == generation_ && !marks_->set(part.address(), part.bytes()))
            return false;
        begin = end;
    }
    return true;
}

void RegionMarks::clear_unused(PageRange range) {
    for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end;) {
        const PageRange part{at->first, at->second.end};
        if (at->second.users > 0) {
            ++at;
            continue;
        }
        marks_->clear(part.address(), part.bytes());
        at = pieces_.erase(at);
    }
}

void RegionMarks::remove(PageRange range) {
    const std::lock_guard lock(mutex_);
    for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at) {
        TW_CHECK(at->second.users > 0);
        --at->second.users;
    }
    clear_unused(range);
}

bool RegionMarks::has_stayed(PageRange range, std::uint64_t generation) {
    if (!marks_->is_set(range.address(), range.bytes()))
        return false;
    const std::lock_guard lock(mutex_);
    for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at)
        if (at->second.since > generation)
            return false;
    return true;
}

}  // namespace tagwire::proto
