// SPDX-License-Identifier: BSD-3-Clause
// Random use of the messaging layer by several workers of one process, checked by the reference.
//
// A seed decides the operations: sends of every kind and length, receives of every kind, buffered
// ones too, peeks, claims, cancels, flushes, closes, active messages, operations on each other's
// memory, and how each end is reported. Reports of the
// workers are checked at once: that an operation ends once, envelopes, both lengths, every byte,
// that nothing else was written. settle() then receives whatever is left until nothing is
// outstanding, and the reference checks each name space of each worker.
//
// A message begins with its number among those of its receiver and name space, and the rest follows
// from that number; so does the immediate. One of fewer than four bytes and without an immediate
// cannot be told from its like, and the reference finds out which it was.
//
// The seed decides the operations, not when packets move: a repeated run may interleave otherwise
// than the first one.
#pragma once

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "protocols/fixture.hpp"
#include "protocols/reference.hpp"
#include "protocols/traffic_am.hpp"
#include "protocols/traffic_memory.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficNode;

struct FreeMemory {
    void operator()(void* memory) const { std::free(memory); }
};

/// One operation of the program.
struct TrafficOp {
    enum class Kind {
        kSend,
        kReceive,
        kMany,
        kPeek,
        kClaim,
        kFlush,
        kClose,
        kPut,
        kGet,
        kAtomic,
        kAm,
        kAmReceive
    };
    enum class Report { kPolled, kCalled, kTested, kNobody };
    Traffic* traffic = nullptr;
    TrafficNode* node = nullptr;
    Kind kind = Kind::kSend;
    Report report = Report::kPolled;
    std::uint32_t flags = 0;
    bool is_tagged = false;
    unsigned peer = kAnybody;    // whom it goes to, or who alone may have sent
    std::size_t record = kNone;  // of a message with its receiver, of a receive with its node
    std::uint64_t tag = 0, mask = 0, imm = 0;
    Bytes bytes;  // and some more behind it
    std::size_t length = 0;
    std::vector<tw_iov_t> list;
    std::unique_ptr<void, FreeMemory> memory;  // of the request
    tw_mem_h mapped = nullptr;
    tw_request_h request = nullptr;
    tw_message_h message = nullptr;  // that a claim is about
    std::size_t match = 0;           // ... among those of the record
    TrafficOp* claimed_by = nullptr;
    std::size_t mark = 0;         // a flush: how much was sent before
    std::size_t memory_mark = 0;  // ... and was put
    Tick cancelled = kNever;
    bool is_open = false;  // its end will be told
    int ends = 0;
    bool is_over() const { return ends > 0; }
};

struct TrafficNode {
    Traffic* traffic = nullptr;
    unsigned index = 0;
    std::unique_ptr<tw_worker, WorkerDeleter> worker;  // null: it died
    Bytes address;
    std::uint64_t id = 0;
    std::vector<tw_ep_h> eps;   // by node
    std::vector<char> closing;  // by node: its endpoint is being closed
    std::vector<char> closed;   // ... was closed: receives that named it may end with it
    std::vector<char> broken;   // ... a close by force, of either side, has ended operations
    std::vector<tw_ep_h> failed;
    std::vector<std::vector<std::pair<bool, std::size_t>>> sent;  // to each node: space, record
    std::vector<std::size_t> flushed;                             // ... so many have surely arrived
    Reference spaces[2];
    std::vector<TrafficOp*> claimed;  // found or shown: messages that nobody has received yet
    std::size_t buffered_limit = 0, buffered_min = 0;
    TrafficOp* rest[2] = {};  // what receives whatever is left
    unsigned open = 0;        // operations that have not ended
    unsigned pause = 0;       // steps without progress
    bool is_alive() const { return worker != nullptr; }
};

class Traffic {
  public:
    struct Options {
        unsigned workers = 3;
        unsigned steps = 600;
        unsigned open_max = 40;   // operations of a worker
        bool has_death = false;   // one is destroyed in the middle, another one comes
        bool has_closes = false;  // endpoints are closed and made again
        bool has_breaks = false;  // ... some of them by force
        std::size_t bytes_max = 300'000;
        tw_context_h odd = nullptr;  // of every other worker; null: they have the same
    };
    Traffic(std::uint64_t seed, tw_context_h context, const Options& options);
    ~Traffic();
    Traffic(const Traffic&) = delete;
    Traffic& operator=(const Traffic&) = delete;

    void run();

  private:
    friend TrafficMemory;
    friend TrafficAm;
    using Kind = TrafficOp::Kind;
    using Report = TrafficOp::Report;
    static constexpr std::size_t kGuardBytes = 16;

    // ---- traffic.cc: the world
    std::uint64_t pick(std::uint64_t below) { return random_() % below; }
    bool chance(unsigned in) { return pick(in) == 0; }
    static bool ok() { return !::testing::Test::HasFailure(); }
    static bool is_for_lack_of_memory(tw_status_t status);
    TrafficNode& open_node();
    TrafficNode& pick_node();
    void act(TrafficNode& node);
    void progress(TrafficNode& node);
    void test_handles(TrafficNode& node);
    void forget_ended();
    void kill();
    bool is_anything_broken() const { return dead_ > 0 || breaks_ > 0; }
    bool is_broken(const TrafficOp& op) const {
        return !nodes_[op.peer]->is_alive() || op.node->broken[op.peer] != 0;
    }
    bool may_be_read_still(const TrafficOp& op) const;

    // ---- traffic_close.cc
    void close(TrafficNode& node);
    void close_gracefully(TrafficNode& node, unsigned peer);
    void close_by_force(TrafficNode& node, unsigned peer);
    void end_close(TrafficOp& op, const tw_completion_t& done);
    void close_failed(TrafficNode& node);
    void make_old(TrafficNode& a, TrafficNode& b);
    void excuse(TrafficNode& a, TrafficNode& b);

    // ---- traffic_end.cc
    void settle();
    void receive_the_rest(TrafficNode& node);
    void flush_all();
    bool is_everything_received();
    bool is_all_over() const;
    std::string missing() const;
    static std::string text(const TrafficOp& op);
    void cancel_the_rest();
    void close_all();
    void run_until(const char* what, const std::function<bool()>& is_over);
    void check_reference();

    // ---- traffic_send.cc
    tw_ep_h ep_to(TrafficNode& node, unsigned peer);
    std::size_t pick_length();
    static Bytes content(std::size_t length, std::size_t number);
    void send(TrafficNode& node);
    void draw_message(TrafficOp& op);
    void flush(TrafficNode& node);
    tw_status_t flush_to(TrafficNode& node, unsigned peer);
    void cancel(TrafficNode& node);
    void end_send(TrafficOp& op, const tw_completion_t& done);
    void end_flush(TrafficOp& op, const tw_completion_t& done);
    void check_flushed(TrafficNode& to);

    // ---- traffic_receive.cc
    void receive(TrafficNode& node);
    void receive_many(TrafficNode& node);
    void peek(TrafficNode& node);
    void claim(TrafficNode& node);
    void draw_selection(TrafficOp& op);
    void post_receive(TrafficOp& op);
    void end_receive(TrafficOp& op, const tw_completion_t& done);
    void end_many(TrafficOp& op, const tw_completion_t& done);
    void end_peek(TrafficOp& op, const tw_completion_t& done);
    void end_buffered(TrafficOp& op, const tw_completion_t& done);
    bool ends_badly(TrafficOp& op, const tw_completion_t& done);
    RefMatch match_of(TrafficOp& op, const tw_completion_t& done, std::span<const std::byte> data);
    void check_data(TrafficOp& op, RefMatch& match, const std::byte* data, std::size_t bytes);

    // ---- traffic_op.cc: any operation
    TrafficOp& new_op(TrafficNode& node, Kind kind);
    void draw_report(TrafficOp& op);
    void draw_list(TrafficOp& op);
    using Call = std::function<tw_status_t(const tw_op_t*, tw_request_h*)>;
    tw_status_t post(TrafficOp& op, const Call& call);
    tw_op_t how(TrafficOp& op, tw_completion_t* done);
    void ended(TrafficOp& op, const tw_completion_t& done);
    static void on_complete(const tw_completion_t* done);
    RefReceive& record_of(TrafficOp& op);
    RefMessage& message_of(TrafficOp& op);

    std::mt19937_64 random_;
    tw_context_h context_of(unsigned index) const {
        return index % 2 != 0 && options_.odd != nullptr ? options_.odd : context_;
    }

    tw_context_h context_;
    Options options_;
    Tick clock_ = 0;
    std::vector<std::unique_ptr<TrafficNode>> nodes_;
    std::deque<std::unique_ptr<TrafficOp>> ops_;
    std::vector<TrafficOp*> with_memory_;  // that has not been given back
    std::vector<TrafficOp*> tested_;
    TrafficMemory memory_{*this};
    TrafficAm ams_{*this};
    unsigned dead_ = 0;
    unsigned breaks_ = 0;  // closes by force
    unsigned depth_ = 0;   // callbacks that act
    bool is_settling_ = false;
};

}  // namespace tagwire::test
