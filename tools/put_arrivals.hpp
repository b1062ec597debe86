// SPDX-License-Identifier: BSD-3-Clause
// Arrival and check of messages that are put; at both levels: `AnyInbox` is an Inbox (inbox.hpp) or
// a MsgInbox (msg_inbox.hpp).
#pragma once

#include <cstdint>
#include <cstring>

#include "tools/job.hpp"
#include "tools/loops.hpp"
#include "tools/pattern.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

/// The end of a message of a ping-pong: the last 8 bytes (or the last byte of a shorter one) carry
/// the sequence number, and the target polls them.
class PutMarker {
  public:
    /// `stream`: of the messages that come here.
    PutMarker(const Job& job, std::uint64_t stream)
        : validate_(job.validate),
          stream_(stream),
          bytes_(job.size >= sizeof(std::uint64_t) ? sizeof(std::uint64_t) : 1),
          offset_(job.size - bytes_) {}

    void write(std::uint64_t sequence, std::uint8_t* data) const {
        const std::uint64_t marker = sequence + 1;
        std::memcpy(data + offset_, &marker, bytes_);
    }

    template <class AnyInbox>
    bool has_arrived(const AnyInbox& inbox, std::uint64_t sequence) {
        const std::uint64_t marker = sequence + 1;
        const bool is_here = bytes_ == 1 ? inbox.template load<std::uint8_t>(offset_) ==
                                               static_cast<std::uint8_t>(marker)
                                         : inbox.template load<std::uint64_t>(offset_) == marker;
        if (is_here && validate_) [[unlikely]]
            check_bytes(inbox, sequence);
        return is_here;
    }

    Outcome outcome() const { return {validated_, errors_}; }

  private:
    /// A put promises nothing about the order of its bytes: those before the marker may come a
    /// little later.
    template <class AnyInbox>
    void check_bytes(const AnyInbox& inbox, std::uint64_t sequence) {
        constexpr unsigned kPatience = 1000000;
        const Pattern pattern(stream_, sequence);
        ++validated_;
        for (unsigned i = 0; i < kPatience; ++i) {
            if (pattern.matches(inbox.data(), offset_))
                return;
            inbox.look_again();
        }
        ++errors_;
    }

    bool validate_;
    std::uint64_t stream_;
    std::size_t bytes_;
    std::size_t offset_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

/// The places of a stream's messages, used again and again.
class PutSlots {
  public:
    explicit PutSlots(const Job& job) : job_(job), slots_(slots_of(job)) {}

    /// Bytes of all slots.
    std::size_t bytes() const { return buffer_bytes(job_, slots_); }
    std::size_t offset_of(std::uint64_t sequence) const {
        return (sequence % slots_) * stride_of(job_);
    }

    /// All messages before `end` have come to `data`: each slot holds the last one that went there.
    void check(const std::uint8_t* data, std::uint64_t end) {
        if (!job_.validate || checked_ >= end)
            return;
        const std::uint64_t stream = stream_from(Side::kDriver, job_);
        for (std::uint64_t sequence = end > slots_ ? end - slots_ : 0; sequence < end; ++sequence) {
            const bool is_right =
                Pattern(stream, sequence).matches(data + offset_of(sequence), job_.size);
            errors_ += is_right ? 0 : 1;
            ++validated_;
        }
        checked_ = end;
    }

    Outcome outcome() const { return {validated_, errors_}; }

  private:
    const Job job_;
    std::size_t slots_;
    std::uint64_t checked_ = 0;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace tagwire::tools
