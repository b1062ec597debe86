// SPDX-License-Identifier: BSD-3-Clause
#include "entry_queue.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::fi {

EntryQueue::EntryQueue(std::size_t entry_bytes, std::size_t entries)
    : memory_(std::make_unique_for_overwrite<std::byte[]>(entries * entry_bytes)),
      entry_bytes_(entry_bytes),
      entries_(entries),
      room_(entries) {
    rewind();
    use(std::min(entries, kTouchedMin));
    const bool is_fast =
        entry_bytes == sizeof(fi_cq_entry) || entry_bytes == sizeof(fi_cq_tagged_entry);
    set_slow(kFormat, !is_fast);
}

void EntryQueue::set_slow(Reason reason, bool is_so) {
    slow_ = static_cast<std::uint8_t>(is_so ? slow_ | reason : slow_ & ~reason);
    end_ = slow_ != 0 ? nullptr : memory_end_;
}

void EntryQueue::use(std::size_t entries) {
    used_ = entries;
    memory_end_ = memory_.get() + used_ * entry_bytes_;
    set_slow(kGrown, used_ > entries_);
}

std::size_t EntryQueue::take(void* to, std::size_t count, fi_addr_t* sources) {
    const std::size_t taken = std::min(count, waiting());
    if (taken == 0)
        return 0;
    std::memcpy(to, oldest_, taken * entry_bytes_);
    if (sources != nullptr && sources_ != nullptr)
        std::copy_n(sources_.get() + index_of(oldest_), taken, sources);
    else if (sources != nullptr)
        std::fill_n(sources, taken, FI_ADDR_NOTAVAIL);
    oldest_ += taken * entry_bytes_;
    if (!is_empty())
        return taken;
    rewind();
    next_source_ = sources_.get();
    if (used_ > entries_)
        use(entries_);
    return taken;
}

bool EntryQueue::make_room() {
    if (is_lent()) {
        end_loan();
        return true;
    }
    const std::size_t read = index_of(oldest_);
    const std::size_t waits = waiting();
    if (waits > used_ / 2 && used_ < entries_) {
        use(std::min(2 * used_, entries_));
        return true;
    }
    if (waits > used_ / 2)
        return double_memory();
    std::memmove(memory_.get(), oldest_, waiting_bytes());
    if (sources_ != nullptr)
        next_source_ = std::copy_n(sources_.get() + read, waits, sources_.get());
    oldest_ = memory_.get();
    next_ = oldest_ + waits * entry_bytes_;
    return true;
}

/// Waiting entries move to the start of the new memory.
bool EntryQueue::double_memory() {
    const std::size_t read = index_of(oldest_);
    const std::size_t waits = waiting();
    if (2 * used_ > room_) {
        std::unique_ptr<std::byte[]> larger(new (std::nothrow) std::byte[2 * room_ * entry_bytes_]);
        std::unique_ptr<fi_addr_t[]> sources;
        if (larger != nullptr && sources_ != nullptr)
            sources.reset(new (std::nothrow) fi_addr_t[2 * room_]);
        if (larger == nullptr || (sources_ != nullptr && sources == nullptr))
            return false;
        std::memcpy(larger.get(), oldest_, waiting_bytes());
        if (sources_ != nullptr)
            next_source_ = std::copy_n(sources_.get() + read, waits, sources.get());
        memory_ = std::move(larger);
        sources_ = std::move(sources);
        room_ *= 2;
        oldest_ = memory_.get();
        next_ = oldest_ + waits * entry_bytes_;
    }
    use(2 * used_);
    return true;
}

void EntryQueue::end_loan() {
    if (!is_lent())
        return;
    lent_entries_ = static_cast<std::size_t>(next_ - lent_) / entry_bytes_;
    lent_ = nullptr;
    rewind();
    end_ = memory_end_;
}

void EntryQueue::keep_sources() {
    if (sources_ != nullptr)
        return;
    sources_ = std::make_unique_for_overwrite<fi_addr_t[]>(room_);
    next_source_ = std::fill_n(sources_.get() + index_of(oldest_), waiting(), FI_ADDR_NOTAVAIL);
    set_slow(kSources, true);
}

}  // namespace tagwire::fi
