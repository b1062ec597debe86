// SPDX-License-Identifier: BSD-3-Clause
// Several interfaces of rc or dc in one process on the virtual HCA, driven by a seed, and a plain
// model of what they owe each other. Each callback of the library is checked against the model at
// once; settle() then waits until nothing is missing.
//
//   node   an interface with its memory; any may stop progressing for a while, or be closed
//   link   an endpoint of it to another node, which has one back: `back`. Those of rc are connected
//          and fail together; those of dc know nothing of each other
//   message what a link sends: active messages have one numbering, tagged ones another
//   op     what has a completion
//
// A tag names its message:  number 32 | link 16 | 0 | class 8, where receives are posted for any
// class, one class, or one class of one link. An active message begins with number 32 | link 32.
//
// Invariants that are checked
//  (1) Messages of a link are seen once each, in their order, with their bytes; all of them unless
//      an end of the link is gone, or a receive that was cancelled by force had taken it.
//  (2) A receive ends once, none if cancelled by force; by a message that it matches, and no older
//      receive did; where software matches none is unexpected while a receive matches.
//  (3) An op completes once; with success unless an end is gone; a flush after all before it.
//  (4) When an end is gone the other hears of it, once, after all its ops completed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "buffer.hpp"
#include "entity.hpp"

namespace tagwire::test {

class Sim;
struct SimNode;
struct SimLink;
struct SimOp;

struct SimMessage {
    enum class Kind { kEager, kRndv, kRequest };
    Kind kind = Kind::kEager;
    uct_tag_t tag = 0;
    std::uint64_t imm = 0;
    std::size_t bytes = 0;
    std::uint64_t seed = 0;
    std::uint64_t position = 0;  // among all that its receiver took; 0: not yet
    SimOp* op = nullptr;
};

struct SimOp : uct_completion_t {
    enum class Kind { kZcopy, kRndv, kPut, kGet, kAtomic, kFlush };
    Kind kind = Kind::kZcopy;
    Sim* sim = nullptr;
    SimLink* link = nullptr;
    std::uint64_t number = 0;
    int calls = 0;
    bool is_dead = false;  // a rendezvous that was cancelled: nothing may come
    std::unique_ptr<Buffer> buffer;
    std::uint64_t seed = 0;
    std::uint64_t result = 0, expected = 0;
    unsigned slot = 0;
    void* handle = nullptr;
    SimMessage* fetched = nullptr;  // a get that carries out a rendezvous
    SimLink* fetched_of = nullptr;
    [[nodiscard]] bool is_over() const { return is_dead || calls > 0; }
};

struct SimReceive : uct_tag_context_t {
    Sim* sim = nullptr;
    SimNode* node = nullptr;
    uct_tag_t tag = 0, mask = 0;
    std::unique_ptr<Buffer> buffer;
    int consumed = 0, ended = 0;
    bool is_cancelled = false, is_forced = false;
    std::uint64_t position = 0;
    // Those that were posted before it, still there when it was consumed.
    std::vector<std::pair<uct_tag_t, uct_tag_t>> older;
    [[nodiscard]] bool matches(uct_tag_t other) const { return ((tag ^ other) & mask) == 0; }
};

struct SimPut {
    std::uint64_t number, seed;
    unsigned slot;
};

struct SimRequest : uct_pending_req_t {
    Sim* sim = nullptr;
    SimLink* link = nullptr;
    bool is_done = false;
};

struct SimLink {
    unsigned id = 0;
    SimNode* from = nullptr;
    SimNode* to = nullptr;
    SimLink* back = nullptr;
    uct_ep_h ep = nullptr;    // null: destroyed
    bool may_fail = false;    // an end is gone
    bool has_failed = false;  // and its error handler ran
    std::deque<SimMessage> ams, tagged;
    std::size_t ams_seen = 0;
    std::vector<SimOp*> ops;
    std::vector<SimPut> puts;  // that nothing said to be done yet
    bool is_slot_used[4] = {};
    std::uint64_t counter = 0;       // as it must be, once all atomics arrived
    std::unique_ptr<RemoteKey> key;  // of the peer's memory
    std::deque<std::unique_ptr<SimRequest>> requests;
};

struct SimFetch {
    SimLink* link;
    SimMessage* message;
    std::uint64_t remote_addr;
    Bytes rkey;
};

/// Data that a pack callback writes.
struct SimPacked {
    std::uint64_t header;
    bool has_header;
    std::size_t bytes;
    std::uint64_t seed;
    static std::size_t pack(void* dest, void* arg);
};
inline ucs_status_t status_of_packed(ssize_t packed) {
    return packed < 0 ? static_cast<ucs_status_t>(packed) : UCS_OK;
}

struct SimHeld {
    void* descriptor;
    const std::byte* data;
    std::size_t bytes;
    std::uint64_t seed;
};

struct SimNode {
    unsigned id = 0;
    std::unique_ptr<Entity> entity;
    std::unique_ptr<Buffer> memory;
    bool is_alive = true;
    unsigned pause = 0;  // steps without progress
    std::uint64_t positions = 0;
    std::size_t held_max = 0;
    std::vector<SimHeld> held;
    std::vector<SimFetch> fetches;
    std::deque<SimReceive*> posted;
    std::vector<std::pair<uct_tag_t, uct_tag_t>> may_be_lost;
};

using SimConfig = std::vector<std::pair<std::string, std::string>>;

class Sim {
  public:
    struct Options {
        std::string transport = "rc";
        SimConfig config = {};  // on top of what is drawn
        bool has_device_tags = true;
        bool has_crash = false;
        bool has_rebirth = false;  // a new interface after the crash
        unsigned steps = 1500;
        unsigned joins = 1;  // two links each, of any two nodes; twice as many of some
        std::size_t links_max = 64;
        [[nodiscard]] bool is_connectionless() const { return transport == "dc"; }
        [[nodiscard]] std::string prefix() const { return is_connectionless() ? "DC_" : "RC_"; }
    };
    Sim(std::uint64_t seed, const Options& options);
    ~Sim();
    Sim(const Sim&) = delete;
    Sim& operator=(const Sim&) = delete;

    void run();

  private:
    static constexpr std::size_t kFixedBytes = 4096;  // never written: what gets read
    static constexpr std::size_t kSlotBytes = 512;
    static constexpr std::size_t kSlots = 4;
    static constexpr std::size_t kLinkBytes = kSlots * kSlotBytes + sizeof(std::uint64_t);
    static constexpr std::uint64_t kSettleSteps = 30'000'000;

    // ---- sim.cc: the world
    std::uint64_t pick(std::uint64_t below) { return random_() % below; }
    bool chance(unsigned in) { return pick(in) == 0; }
    [[nodiscard]] static bool ok() { return !::testing::Test::HasFailure(); }
    void open();
    SimConfig draw_config(std::uint64_t held);
    SimNode& open_node();
    void join(SimNode& a, SimNode& b);
    void step();
    void progress(SimNode& node);
    void crash();
    void give_birth();
    void destroy_link(SimLink& link);
    void lose(SimLink& link, bool with_node);
    void on_error(const PeerError& error);

    // ---- sim_end.cc
    void settle();
    [[nodiscard]] std::string missing();
    [[nodiscard]] std::string missing_of(SimLink& link);
    [[nodiscard]] static std::string unexcused(const SimLink& link);
    void settle_receives();
    void check_order();

    // ---- sim_send.cc: what links do
    SimLink& pick_link() { return *links_[pick(links_.size())]; }
    void act();
    void send_am(SimLink& link, unsigned how);
    ucs_status_t send_am_now(SimLink& link, unsigned how);
    void send_eager(SimLink& link, unsigned how);
    void send_rndv(SimLink& link);
    void send_request(SimLink& link);
    void cancel_rndv(SimLink& link);
    void flush(SimLink& link);
    void add_pending(SimLink& link);
    SimOp& new_op(SimLink& link, SimOp::Kind kind);
    void drop_last_op(SimLink& link);
    bool was_taken(SimLink& link, ucs_status_t status, const char* what);
    void completed(SimOp& op);
    void completed_flush(SimOp& op);

    // ---- sim_remote.cc: memory of others
    void put(SimLink& link, unsigned how);
    void get(SimLink& link, bool by_zcopy);
    void atomic(SimLink& link, unsigned how);
    void fetch(SimNode& node);
    void completed_put(SimOp& op);
    void completed_get(SimOp& op);
    [[nodiscard]] std::byte* slot_at(SimLink& link, unsigned slot) const;
    [[nodiscard]] std::uint64_t slot_address(SimLink& link, unsigned slot) const;
    [[nodiscard]] std::uint64_t* counter_of(SimLink& link) const;
    static std::unique_ptr<Buffer> payload(SimNode& node, std::size_t bytes, std::uint64_t seed);

    // ---- sim_receive.cc: what nodes hear
    void listen(SimNode& node);
    void post(SimNode& node);
    void cancel(SimNode& node);
    void release(SimNode& node);
    ucs_status_t on_am(SimNode& node, const AmMessage& message);
    ucs_status_t on_eager(SimNode& node, const EagerFragment& fragment);
    ucs_status_t on_rndv(SimNode& node, const RndvMessage& message);
    void on_consumed(SimReceive& receive);
    void on_received(SimReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                     ucs_status_t status);
    void on_requested(SimReceive& receive, uct_tag_t tag, const void* header, unsigned bytes);
    void take(SimReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
              ucs_status_t status);
    void end(SimReceive& receive);
    SimMessage* message_of(SimNode& node, uct_tag_t tag, SimLink** link_p = nullptr);
    void see_unexpected(SimNode& node, uct_tag_t tag, SimMessage& message);
    void hold(SimNode& node, void* data, std::size_t skip, std::size_t bytes, std::uint64_t seed);

    std::mt19937_64 random_;
    Options options_;
    std::vector<std::unique_ptr<SimNode>> nodes_;
    std::vector<std::unique_ptr<SimLink>> links_;
    std::deque<std::unique_ptr<SimOp>> ops_;
    std::deque<std::unique_ptr<SimReceive>> receives_;
    struct Partial {
        SimMessage* message;
        std::size_t bytes;
    };
    std::deque<Partial> partials_;
    std::uint64_t next_seed_ = 1;
    std::uint64_t next_number_ = 1;
    bool is_settling_ = false;
    std::size_t seg_bytes_ = 0;
};

}  // namespace tagwire::test
