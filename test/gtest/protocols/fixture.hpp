// SPDX-License-Identifier: BSD-3-Clause
// Workers of one process over the transports that TAGWIRE_TEST_TRANSPORTS names ("sm" without it),
// driven in turn. Only the public API.
#pragma once

#include <gtest/gtest.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tagwire::test {

using Bytes = std::vector<std::byte>;

/// `length` bytes that depend on `seed` and on where they are.
Bytes pattern(std::size_t length, std::uint64_t seed);

struct ContextDeleter {
    void operator()(tw_context_h context) const { tw_context_destroy(context); }
};
struct WorkerDeleter {
    void operator()(tw_worker_h worker) const { tw_worker_destroy(worker); }
};

// Messages that no receive has matched.

inline tw_status_t probe(tw_worker_h worker, std::uint64_t tag, std::uint64_t ignore = 0) {
    return tw_tag_probe(worker, tag, ignore, nullptr, nullptr, nullptr);
}
/// nullptr: there is none.
inline tw_message_h take(tw_worker_h worker, std::uint64_t tag, std::uint64_t ignore = 0) {
    tw_message_h message = nullptr;
    return tw_tag_probe(worker, tag, ignore, nullptr, nullptr, &message) == TW_OK ? message
                                                                                  : nullptr;
}
inline bool take_and_drop(tw_worker_h worker, std::uint64_t tag, std::uint64_t ignore = 0) {
    tw_message_h message = take(worker, tag, ignore);
    return message != nullptr && tw_message_drop(worker, message) == TW_OK;
}

/// A worker, what it was told, and what it told.
class Node {
  public:
    explicit Node(tw_context_h context, tw_thread_mode_t mode = TW_THREAD_SINGLE);
    /// With its own callback for failures.
    Node(tw_context_h context, const tw_worker_params_t& params);

    tw_worker_h worker() const { return worker_.get(); }
    Bytes address() const;
    std::uint64_t id() const;
    /// An endpoint to the other; made at the first call.
    tw_ep_h to(Node& other);
    /// Completions that were polled so far, oldest first; progress() polls.
    std::vector<tw_completion_t> done;
    std::vector<std::pair<tw_ep_h, tw_status_t>> failures;
    struct PeerEvent {
        std::uint64_t worker_id;
        tw_peer_event_t event;
        tw_status_t status;
        bool operator==(const PeerEvent&) const = default;
    };
    std::vector<PeerEvent> events;

    void progress();
    std::uint64_t counter(const std::string& name) const;
    std::string description() const;
    void destroy() { worker_.reset(); }

  private:
    std::unique_ptr<tw_worker, WorkerDeleter> worker_;
};

/// Variables of the environment for as long as it lives; a base before MsgTest, whose context reads
/// them.
class Settings {
  public:
    explicit Settings(std::initializer_list<std::pair<std::string, std::string>> values);
    Settings(const Settings&) = delete;
    Settings& operator=(const Settings&) = delete;
    ~Settings();

  private:
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

class MsgTest : public ::testing::Test {
  protected:
    MsgTest();

    /// Another one, without nodes.
    void renew_context();
    Node& node(std::size_t i);
    /// The next are new ones.
    void destroy_nodes() { nodes_.clear(); }
    /// The one of the highest number is destroyed; the next of that number is a new one.
    void forget_last_node() { nodes_.pop_back(); }
    /// Progress of all until `is_over`; a failure when that takes too long.
    void run_until(const std::function<bool()>& is_over);
    /// ... and for some rounds, for what must not happen.
    void run_some();
    /// The end of an operation, which is taken from what the node has polled.
    tw_completion_t end_of(Node& node, const void* context);

    /// Names of the transports in use, as TAGWIRE_TEST_TRANSPORTS.
    static std::string transports();
    /// The one that lanes between nodes use: the first that is named; for "auto" the nearest.
    static std::string lane_transport();
    /// Devices match tagged messages, and those longer than a buffer of theirs go by rendezvous.
    static bool offloads();
    static tw_op_t op(void* context, std::uint32_t flags = 0);
    /// Sends and waits for its end.
    void send(Node& from, Node& to, const Bytes& data, std::uint64_t tag, std::uint32_t flags = 0);
    /// Sends what no receive waits for, until it is there.
    void send_unexpected(Node& from, Node& to, const Bytes& data, std::uint64_t tag,
                         const tw_op_t& how);
    /// Receives it.
    void expect_message(Node& at, const Bytes& data, std::uint64_t tag);

    std::unique_ptr<tw_context, ContextDeleter> context_;

  private:
    std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace tagwire::test
