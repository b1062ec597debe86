// SPDX-License-Identifier: BSD-3-Clause
// Active messages of the provider itself, between endpoints: short headers without data.
//
//     initiator                          target
//     kAskKey    key              ---->  looks for the region
//                                 <----  kTellKey   what it is, and its packed key; or a refusal
//     kNotice    key, what        ---->  counts an operation that it cannot see (FI_RMA_EVENT)
//                                 <----  kRevokeKey key: the region was closed or has changed
//     kForgotKey key              ---->  may name another region from now on
//
// 1. All runs with the domain's lock, in calls and in progress.
// 2. Letters to one peer arrive in the order in which they were sent.
// 3. A letter that cannot be sent now waits, and leaves by a later progress of its endpoint.
#pragma once

#include <tagwire.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "provider.hpp"

namespace tagwire::fi {

class Ep;

/// Ids of active messages. No program sees them: an endpoint has none of its own.
enum Letter : unsigned {
    kAskKey = 1,
    kTellKey,
    kRevokeKey,
    kForgotKey,
    kNotice,
    kAtomicFirst = 16  ///< From here on those of atomics.
};

/// Letters that an endpoint could not send at once.
class Outbox {
  public:
    explicit Outbox(Ep& owner) : owner_(owner) {}

    /// Sends to a worker that is connected, or that the endpoint has a Peer of. A letter that there
    /// is no memory for, or whose receiver has gone, is lost; the log says so.
    void send(std::uint64_t worker_id, Letter id, const void* header, std::size_t bytes);
    template <class Header>
    void send(std::uint64_t worker_id, Letter id, const Header& header) {
        static_assert(sizeof header <= kHeaderBytesMax);
        send(worker_id, id, &header, sizeof header);
    }
    bool is_empty() const { return waiting_.empty(); }
    /// Sends what waits, as far as possible.
    void flush();

  private:
    static constexpr std::size_t kHeaderBytesMax = 160;

    struct Waiting {
        std::uint64_t worker_id;
        Letter id;
        std::size_t bytes;
        std::array<std::byte, kHeaderBytesMax> header;
    };

    tw_status_t try_send(std::uint64_t worker_id, Letter id, const void* header, std::size_t bytes);

    Ep& owner_;
    std::deque<Waiting> waiting_;
};

}  // namespace tagwire::fi
