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
//    Letters to one peer do not wait for those to another. At most kRepliesMax replies are under
//    way to one peer: one that asks and never listens takes no more memory than that.
// 4. Letters come from any process that can reach the worker: those that are not as described here,
//    or that nobody has asked for, are refused (Refusals), and nothing else happens.
#pragma once

#include <tagwire.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

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

/// Counts what peers have sent in vain, and says so in the log: each time that the number of them
/// has doubled, so that no peer can fill it.
class Refusals {
  public:
    void add(std::uint64_t worker_id, const char* why);

  private:
    std::uint64_t count_ = 0;
};

/// Letters that an endpoint could not send at once.
class Outbox {
  public:
    explicit Outbox(Ep& owner) : owner_(owner) {}

    /// Sends to a worker that is connected, or that the endpoint has a Peer of. A letter is lost if
    /// there is no memory for it, if its receiver has gone, or if it is a reply above kRepliesMax;
    /// the log says so.
    void send(std::uint64_t worker_id, Letter id, const void* header, std::size_t bytes);
    template <class Header>
    void send(std::uint64_t worker_id, Letter id, const Header& header) {
        static_assert(sizeof header <= kHeaderBytesMax);
        send(worker_id, id, &header, sizeof header);
    }
    bool is_empty() const { return waiting_ == 0; }
    /// Sends what waits, as far as possible.
    void flush();

  private:
    static constexpr std::size_t kHeaderBytesMax = 160;
    static constexpr std::size_t kRepliesMax = 65536;

    struct Waiting {
        Letter id;
        std::size_t bytes;
        std::array<std::byte, kHeaderBytesMax> header;
    };

    /// Letters to one worker. It stays as long as there are any.
    struct Post {
        Outbox* owner = nullptr;
        std::uint64_t worker_id = 0;
        std::size_t under_way = 0;  ///< With the messaging layer.
        std::deque<Waiting> waiting;
    };

    static void on_sent(const tw_completion_t* done);
    tw_status_t try_send(Post& post, Letter id, const void* header, std::size_t bytes);
    void settle(Post& post);

    Ep& owner_;
    std::map<std::uint64_t, Post> posts_;  // by worker; iterators stay valid
    std::size_t waiting_ = 0;
};

}  // namespace tagwire::fi
