// SPDX-License-Identifier: BSD-3-Clause
// The entries of a completion queue that wait for the program: in the layout that it reads, oldest
// first and without gaps, so that a read is one copy. While a read that found none makes progress,
// entries go straight into its buffer (lend()).
//
//     memory_ [ read | waiting | free ]      oldest_ <= next_ <= memory_end_
//
// 1. When nothing waits, both pointers are at the start: a queue that is read soon touches the same
//    lines again and again.
// 2. At the end of the memory, waiting entries move to the start if they fill at most half; else
//    more memory is used. There is room for `entries` from the start, but only as much of it is
//    touched as entries have waited at once.
// 3. The fast calls (push_fast, take_one, lend) need a queue that is_fast(): there is no reason in
//    `slow_`. While there is one, end_ is null, so that has_fast_room() is false. Fast room is
//    never more than `entries`: a queue that grew beyond them is slow until it is empty.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace tagwire::fi {

class EntryQueue {
  public:
    /// Why entries cannot take the fast path.
    enum Reason : std::uint8_t {
        kSources = 1 << 0,  ///< Each entry has a source.
        kFormat = 1 << 1,   ///< Neither a context nor all that there is.
        kGrown = 1 << 2,    ///< There is room for more than `entries`.
        kWaits = 1 << 3,    ///< The owner has somebody to wake.
        kMarks = 1 << 4,    ///< The owner has something between the entries.
        kShared = 1 << 5,   ///< The owner serves several endpoints, or none.
        kBacklogs = 1 << 6  ///< ... or one that has more to do in progress.
    };
    static constexpr std::size_t kLentMax = std::size_t{1} << 20;  // entries

    /// `entry_bytes` is the length of one of libfabric's entries; `entries` at least 1.
    EntryQueue(std::size_t entry_bytes, std::size_t entries);
    EntryQueue(const EntryQueue&) = delete;
    EntryQueue& operator=(const EntryQueue&) = delete;

    bool is_empty() const { return next_ == oldest_; }
    std::size_t waiting_bytes() const { return static_cast<std::size_t>(next_ - oldest_); }
    std::size_t waiting() const { return waiting_bytes() / entry_bytes_; }
    std::size_t entry_bytes() const { return entry_bytes_; }
    void set_slow(Reason reason, bool is_so);
    /// From now on each entry has a source; waiting ones have none. May throw std::bad_alloc.
    void keep_sources();

    // ---- Any queue

    /// Each format is the start of the next one, so `entry` has all that can be asked for. `source`
    /// answers its source, if that is kept. False: no memory.
    template <class Source>
    bool push(const fi_cq_tagged_entry& entry, Source source) {
        if (next_ == (is_lent() ? end_ : memory_end_) && !make_room()) [[unlikely]]
            return false;
        std::memcpy(next_, &entry, entry_bytes_);
        next_ += entry_bytes_;
        if (next_source_ != nullptr)
            *next_source_++ = source();
        return true;
    }
    /// Moves up to `count` entries to the program. `sources` may be null.
    std::size_t take(void* to, std::size_t count, fi_addr_t* sources);
    /// Entries do not go into a lent buffer any more.
    void end_loan();

    // ---- Fast ones; Entry is that of the queue's format

    bool is_fast() const { return slow_ == 0; }
    bool has_fast_room() const { return next_ < end_; }
    /// There is room.
    template <class Entry>
    [[gnu::always_inline]] void push_fast(const Entry& entry) {
        next_ = reinterpret_cast<std::byte*>(::new (next_) Entry(entry) + 1);
    }
    /// One waits.
    template <class Entry>
    [[gnu::always_inline]] void take_one(void* to) {
        std::memcpy(to, oldest_, sizeof(Entry));
        rewind();
    }
    /// Nothing waits: what comes goes into this buffer, up to take_back(). `count` is not 0, and at
    /// most kLentMax.
    template <class Entry>
    [[gnu::always_inline]] void lend(void* to, std::size_t count) {
        lent_ = next_ = static_cast<std::byte*>(to);
        end_ = next_ + count * sizeof(Entry);
    }
    /// Since lend(), and no reason has come that entries cannot take the fast path.
    bool is_lent() const { return lent_ != nullptr; }
    /// The number of entries that went there.
    template <class Entry>
    [[gnu::always_inline]] std::size_t take_back(void* lent) {
        if (!is_lent()) [[unlikely]]
            return lent_entries_;
        const auto taken = reinterpret_cast<const Entry*>(next_) - static_cast<const Entry*>(lent);
        lent_ = nullptr;
        next_ = oldest_;
        end_ = memory_end_;
        return static_cast<std::size_t>(taken);
    }

  private:
    static constexpr std::size_t kTouchedMin = 64;  // entries

    bool make_room();
    void use(std::size_t entries);
    bool double_memory();
    std::size_t index_of(const std::byte* at) const {
        return static_cast<std::size_t>(at - memory_.get()) / entry_bytes_;
    }
    void rewind() { oldest_ = next_ = memory_.get(); }

    std::byte* next_;
    std::byte* end_;
    std::byte* oldest_;
    std::byte* memory_end_;  // of the used part
    std::unique_ptr<std::byte[]> memory_;
    std::uint8_t slow_ = 0;  // Reasons
    std::byte* lent_ = nullptr;
    std::size_t lent_entries_ = 0;  // of a loan that has ended before take_back()
    const std::size_t entry_bytes_;
    const std::size_t entries_;
    std::size_t room_;  // entries that there is memory for
    std::size_t used_;  // ... of which so many are used
    fi_addr_t* next_source_ = nullptr;
    std::unique_ptr<fi_addr_t[]> sources_;
};

}  // namespace tagwire::fi
