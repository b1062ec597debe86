// SPDX-License-Identifier: BSD-3-Clause
// Active messages of the provider itself, between endpoints.
//
//     initiator                          target
//     kAskKey    key              ---->  looks for the region
//                                 <----  kTellKey   what it is, and its packed key; or a refusal
//     kNotice    key, what        ---->  counts an operation that it cannot see (FI_RMA_EVENT)
//                                 <----  kRevokeKey key: the region was closed or has changed
//     kForgotKey key              ---->  may name another region from now on
//     kAtomicAsk an operation     ---->  carries it out (atomic_messages.hpp)
//                                 <----  kAtomicTell its results
//
// 1. All runs with the domain's lock, in calls and in progress.
// 2. Letters to one peer arrive in the order in which they were sent.
// 3. Letters are urgent messages (TW_OP_URGENT): they come with their data, and a peer that has
//    messages that nobody receives gets them all the same, since it may wait for them before it
//    receives. Whoever gets one keeps nothing of it.
// 4. A letter that cannot be sent now waits, and leaves by a later progress of its endpoint. It
//    waits for none to another peer. At most kUnderWayMax letters to one peer are with the
//    messaging layer, whose room for operations is that of all peers.
// 5. A peer that asks and never listens takes no more memory than kRepliesMax replies, of which
//    those with data have a limit of their own (kDataRepliesMax): an initiator awaits half of it.
// 6. Letters come from any process that can reach the worker: those that are not as described here,
//    or that nobody has asked for, are refused (Refusals), and nothing else happens.
#pragma once

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

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
    kAtomicAsk = 16,
    kAtomicTell
};

/// Counts what peers have sent in vain, and says so in the log: each time that the number of them
/// has doubled, so that no peer can fill it.
class Refusals {
  public:
    void add(std::uint64_t worker_id, const char* why);

  private:
    std::uint64_t count_ = 0;
};

using LetterBytes = std::span<const std::byte>;

/// Letters of an endpoint that no call can refuse; those of kAtomicAsk leave by their calls.
class Outbox {
  public:
    static constexpr std::size_t kDataRepliesMax = 2048;

    explicit Outbox(Ep& owner) : owner_(owner) {}

    /// Sends to a worker that is connected, or that the endpoint has a Peer of, now or in a later
    /// progress. Another status than TW_OK, and nothing has happened: TW_ERR_NO_MEMORY,
    /// TW_ERR_EXCEEDS_LIMIT of a reply above its limit, or why the receiver is not reached.
    tw_status_t try_send(std::uint64_t worker_id, Letter id, LetterBytes header,
                         LetterBytes data = {});
    template <class Header>
    tw_status_t try_send(std::uint64_t worker_id, Letter id, const Header& header) {
        return try_send(worker_id, id, bytes_of(header));
    }
    /// The same of a letter that its receiver may wait for and that nobody can repeat: without
    /// memory for it the connection to its receiver ends.
    template <class Header>
    void send(std::uint64_t worker_id, Letter id, const Header& header, LetterBytes data = {}) {
        if (try_send(worker_id, id, bytes_of(header), data) == TW_ERR_NO_MEMORY)
            end_connection(worker_id);
    }
    /// Nothing waits for a later progress.
    bool is_empty() const { return waiting_ == 0; }
    /// Something waits for memory alone, which no event tells of.
    bool lacks_memory() const { return lacks_memory_; }
    /// So many replies with data are on their way to that worker that it takes none.
    bool has_too_many(std::uint64_t worker_id) const;
    /// Sends what waits, as far as possible.
    void flush();

  private:
    static constexpr std::size_t kRepliesMax = 65536;
    static constexpr std::size_t kUnderWayMax = 32;

    struct Waiting {
        Letter id;
        std::size_t header_bytes;
        std::vector<std::byte> bytes;  ///< Header, then data.
    };

    /// Letters to one worker. It is kept as long as there are any.
    struct Post {
        Outbox* owner = nullptr;
        std::uint64_t worker_id = 0;
        std::size_t under_way = 0;     ///< With the messaging layer.
        std::size_t data_replies = 0;  ///< Under way or waiting.
        std::deque<Waiting> waiting;
    };
    using Posts = std::unordered_map<std::uint64_t, Post>;
    /// Data of a letter that is under way and longer than what the messaging layer copies.
    struct Copy;

    template <class Header>
    static LetterBytes bytes_of(const Header& header) {
        static_assert(sizeof header <= TW_AM_HEADER_MAX);
        return std::as_bytes(std::span(&header, 1));
    }
    static void on_sent(const tw_completion_t* done);
    static void on_copy_sent(const tw_completion_t* done);
    Post& post_to(std::uint64_t worker_id);
    bool is_above_limit(const Post& post, Letter id) const;
    tw_status_t post_now(Post& post, Letter id, LetterBytes header, LetterBytes data);
    tw_status_t post_or_wait(Post& post, Letter id, LetterBytes header, LetterBytes data);
    void sent(Post& post, const tw_completion_t& done);
    void settle(Post& post);
    void drop_waiting(std::uint64_t worker_id);
    void end_connection(std::uint64_t worker_id);

    Ep& owner_;
    Posts posts_;
    Posts::node_type spare_;  // for a worker that has none: most letters leave at once
    bool is_flushing_ = false;
    bool lacks_memory_ = false;
    std::size_t waiting_ = 0;
};

}  // namespace tagwire::fi
