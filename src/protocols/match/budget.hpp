// SPDX-License-Identifier: BSD-3-Clause
// The budget of a worker for messages that nobody has received yet, and notices of puts that nobody
// has polled yet: their memory and their number, whoever sent them, also of peers that are gone. A
// single thread uses it.
//
//     to 1/8   data comes again, if it was held
//     to 1/4   messages come again, if they were held
//     1/4      data stays with its senders
//     3/4      all peers are told to send nothing
//     all      messages of peers that are gone go; a peer that sends on ends
//
// The number of messages has the limits of the second half: half of all, and a quarter to resume.
// Messages of peers that are gone (orphans) hold nobody back: they count for the last limit alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocols/wire/limits.hpp"

namespace tagwire::proto {

class Budget {
  public:
    Budget(std::uint64_t bytes_max, std::uint64_t messages_max)
        : bytes_max_(bytes_max), messages_max_(messages_max) {}

    void add(std::size_t bytes) {
        bytes_ += bytes;
        ++messages_;
    }
    void remove(std::size_t bytes) {
        bytes_ -= bytes;
        --messages_;
    }
    /// A message that is kept takes more.
    void grow(std::size_t bytes) { bytes_ += bytes; }
    /// The sender of a message that is kept has gone, or the message is about to.
    void add_orphan(std::size_t bytes) {
        orphan_bytes_ += bytes;
        ++orphans_;
    }
    void remove_orphan(std::size_t bytes) {
        orphan_bytes_ -= bytes;
        --orphans_;
    }

    bool is_data_held() const { return live_bytes() > bytes_max_ / 4; }
    bool is_data_resumed() const { return live_bytes() <= bytes_max_ / 8; }
    bool is_all_held() const {
        return live_bytes() > bytes_max_ / 4 * 3 || live_messages() > messages_max_ / 2;
    }
    bool is_all_resumed() const {
        return live_bytes() <= bytes_max_ / 4 && live_messages() <= messages_max_ / 4;
    }
    /// The budget is exceeded by more than one peer may have on its way.
    bool is_passed() const {
        return bytes_ > bytes_max_ + kWindowBytes ||
               messages_ > messages_max_ + kWindowBytes / kMessageBytes;
    }
    /// With one more message of so many bytes.
    bool would_be_passed(std::uint64_t more) const {
        return more > bytes_max_ || bytes_ > bytes_max_ - more || messages_ >= messages_max_;
    }

    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t messages() const { return messages_; }

  private:
    std::uint64_t live_bytes() const { return bytes_ - orphan_bytes_; }
    std::uint64_t live_messages() const { return messages_ - orphans_; }

    const std::uint64_t bytes_max_;
    const std::uint64_t messages_max_;
    std::uint64_t bytes_ = 0;
    std::uint64_t messages_ = 0;
    std::uint64_t orphan_bytes_ = 0;  // of these
    std::uint64_t orphans_ = 0;
};

}  // namespace tagwire::proto
