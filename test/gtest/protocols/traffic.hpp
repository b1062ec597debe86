// SPDX-License-Identifier: BSD-3-Clause
// Random use of the messaging layer by one thread or by several that share workers
// (TW_THREAD_MULTI), checked by reference.hpp.
//
// A seed decides what each thread calls: sends of every kind and length, receives of every kind,
// peeks, claims, cancels of its own operations and of others', flushes, closes, and how each end is
// reported: by the queue of the worker, a completion queue of all threads, a callback, a test, a
// wait, or not at all; a completion counter counts some of all kinds. Threads progress, poll, wait
// and sleep. Beside these there may be one-sided operations (traffic_memory.hpp) and active
// messages (traffic_am.hpp). Each end is checked at once: its number, status, flags, envelope and
// bytes, and that nothing else was written. Then whatever is left is received, and the reference
// looks whether an order of all calls explains it.
//
// A message begins with its number among those of its thread, as far as it has bytes, and the rest
// follows from that number; so does the immediate. One of fewer than four bytes and without an
// immediate is told by its envelope alone.
//
// One thread alone drives all workers in turn. Then the order of its calls is known, and the
// reference says exactly what each receive and each peek had to find; a message is excused only if
// its connection broke after its call; a flush is compared with what its peer has counted. Any
// worker may die in the middle, and another one comes; workers may be TW_THREAD_SINGLE, pause, and
// have different transports; allocations may fail (common/nomem.hpp). The seed decides the
// operations, not when packets move: a repeated run may interleave otherwise than the first one.
//
// 1. A thread writes its own operations alone. Others come to one by its end, or through the table
//    of those that anybody may cancel; `guard` is for what both may touch.
// 2. The clock, counters and links between threads are relaxed: they order nothing, so that
//    ThreadSanitizer sees what the library does not order. It does not see what shared memory
//    orders that both sides have mapped at places of their own: so a message tells its receiver
//    that it was drawn.
// 3. An endpoint has a lock: those who use its handle share it, and who closes it has it alone.
// 4. One of several threads, the mortal, may have a worker of its own, and destroys it in the
//    middle.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <span>
#include <string>
#include <tagwire_msg.hpp>
#include <vector>

#include "protocols/fixture.hpp"
#include "protocols/reference.hpp"
#include "protocols/traffic_am.hpp"
#include "protocols/traffic_memory.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficThread;

struct FreeAligned {
    void operator()(void* memory) const { std::free(memory); }
};

/// An endpoint of the program, from its creation to its close.
struct TrafficEp {
    tw_ep_h handle = nullptr;
    unsigned from = 0, to = 0;
    std::uint64_t number = 0;
    Tick created = 0;
    std::atomic<int> failures{0};
    std::atomic<bool> has_met_a_break{false};
};

struct TrafficOp {
    enum class Kind : std::uint8_t {
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
    enum class Report : std::uint8_t { kPolled, kQueued, kCalled, kTested, kNobody };

    Traffic* traffic = nullptr;
    TrafficThread* owner = nullptr;
    Kind kind = Kind::kSend;
    Report report = Report::kPolled;
    std::uint32_t flags = 0;
    bool is_tagged = false;
    bool is_counted = false;
    bool is_plain = false;  // nothing that keeps a short message from the fast path
    bool is_refused = false;
    bool is_forced = false;                       // a close
    tw_flush_level_t level = TW_FLUSH_DELIVERED;  // of a flush, or of a close in order
    unsigned worker = 0;
    unsigned peer = kAnybody;  // whom it goes to, or who alone may have sent
    std::uint64_t tag = 0, mask = ~std::uint64_t{0}, imm = 0;
    std::uint32_t number = 0;  // of a message
    std::size_t length = 0;
    std::size_t header_length = 0;  // of an active message
    TrafficEp* ep = nullptr;        // not of receives of anything
    Bytes bytes;                    // and some more behind it
    std::vector<tw_iov_t> list;
    std::unique_ptr<void, FreeAligned> memory;  // of the request
    tw_mem_h mapped = nullptr;
    tw_message_h message = nullptr;   // that a claim is about
    TrafficOp* claimed_by = nullptr;  // ... what found it
    TrafficOp* sent = nullptr;        // whose data a receive of an active message gets
    std::size_t match = 0;            // among the matches of `claimed_by`
    Span call;
    Tick taken = kNever;             // of a message of one thread: a flush behind it has ended
    tw_request_h request = nullptr;  // of several threads: kTested alone, with the guard
    std::atomic<Tick> cancelled{kNever};
    // Its end
    std::atomic<int> ends{0};
    std::atomic<int> received{0};  // of a message
    std::atomic<bool> is_drawn{false};
    std::atomic<bool> has_lost_part{false};  // a message in a receive of many ended badly
    tw_status_t status = TW_INPROGRESS;
    Tick told = kNever;
    std::uint64_t told_source = 0;
    std::mutex guard;
    std::vector<RefMatch> matches;
    bool is_over() const { return ends.load(std::memory_order_relaxed) > 0; }
    bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
    // Kinds of receives, beside the flags of the operation.
    static constexpr std::uint32_t kBuffered = std::uint32_t{1} << 28;
    static constexpr std::uint32_t kTakes = std::uint32_t{1} << 29;  // a probe: for a claim
    static constexpr std::uint32_t kDrops = std::uint32_t{1} << 30;  // a probe
    static constexpr std::uint32_t kKindFlags = kBuffered | kTakes | kDrops;
    /// A receive that takes its message.
    bool takes() const { return kind != Kind::kPeek || has(kTakes | kDrops); }
};

struct TrafficWorker {
    Traffic* traffic = nullptr;
    unsigned index = 0;
    tw_context_h context = nullptr;
    std::unique_ptr<tw_worker, WorkerDeleter> worker;
    Bytes address;
    std::uint64_t id = 0;
    std::size_t buffered_limit = 0, buffered_min = 0;
    std::atomic<bool> is_dead{false};  // or is about to be
    std::atomic<int> open{0};          // operations that have not ended
    std::atomic<int> pause{0};         // calls of work() without progress
};

/// From one worker to another.
struct TrafficWay {
    std::shared_mutex lock;
    TrafficEp* ep = nullptr;  // null: none
    std::deque<TrafficEp> eps;
    std::atomic<bool> has_failed{false};
    std::atomic<Tick> broken{0};  // when a side was last told of a close by force or a death
    std::atomic<std::uint64_t> unknown{0};  // received messages that only their envelope tells
    // For one thread alone.
    bool is_closing = false;
    std::vector<TrafficOp*> sent;
};

/// A message that a thread has found and that nobody has received.
struct TrafficClaim {
    TrafficOp* found = nullptr;
    std::size_t match = 0;
    tw_message_h message = nullptr;
};

/// State of one thread.
struct TrafficThread {
    unsigned number = 0;
    std::mt19937_64 random;
    std::unique_ptr<TrafficOp[]> sends;
    std::size_t sent = 0;
    std::deque<TrafficOp> others;
    std::vector<TrafficOp*> tested;
    std::vector<TrafficClaim> claims;
    std::vector<TrafficOp*> rest;  // what receives whatever is left
    std::atomic<bool> has_claims{false};
    unsigned depth = 0;              // of callbacks that act
    std::optional<unsigned> mortal;  // its own worker
};

class Traffic {
  public:
    struct Options {
        unsigned threads = 1;
        unsigned workers = 3;
        unsigned steps = 600;      // of each thread
        unsigned tx_contexts = 1;  // of each worker
        int open_max = 40;         // operations of a worker
        bool has_death = false;    // one is destroyed in the middle
        bool has_closes = false;   // endpoints are closed and made again
        bool has_breaks = false;   // ... some of them by force
        bool has_others = true;    // puts, gets, atomics, active messages
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
    static constexpr std::byte kEmpty{0xee};
    static constexpr std::size_t kSendsMax = 1 << 16;
    static constexpr std::size_t kCancellable = 32;
    static constexpr std::uint64_t kImm = 0x9e3779b97f4a7c15;
    static constexpr std::uint64_t kImmInverse = 0xf1de83e19937733d;
    static_assert(kImm * kImmInverse == 1);

    // ---- traffic.cc: the world, and what a thread does
    static std::uint64_t pick(TrafficThread& self, std::uint64_t below) {
        return self.random() % below;
    }
    static bool chance(TrafficThread& self, unsigned in) { return pick(self, in) == 0; }
    static bool is_for_lack_of_memory(tw_status_t status);
    bool is_alone() const { return options_.threads == 1; }
    Tick tick() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }
    std::size_t ops_max() const { return std::size_t{options_.steps} * 4; }
    std::size_t workers_max() const { return options_.workers + (options_.has_death ? 1 : 0); }
    void open_worker();
    TrafficWay& way(unsigned from, unsigned to) { return ways_[from * workers_max() + to]; }
    unsigned some_worker(TrafficThread& self);
    std::vector<unsigned> living();
    void run_threads();
    void live(TrafficThread& self);
    void act(TrafficThread& self, unsigned worker);
    void look(TrafficThread& self, unsigned worker);
    void work(TrafficThread& self, unsigned worker);
    void poll(TrafficThread& self, unsigned worker);
    void poll_queue(TrafficThread& self);
    void test(TrafficThread& self, unsigned worker);
    bool is_tested_over(TrafficThread& self, TrafficOp& op);
    void die(TrafficThread& self, unsigned dead);

    // ---- traffic_close.cc
    bool is_broken(const TrafficEp& ep);
    bool is_anything_broken(unsigned worker);
    bool is_excused(const TrafficOp& op);
    void note_break(unsigned from, unsigned to, Tick until);
    static void on_failure(void* arg, tw_ep_h ep, tw_status_t status);
    static void on_peer(void* arg, std::uint64_t id, tw_peer_event_t event, tw_status_t status);
    void open_ep(unsigned from, unsigned to);
    std::shared_lock<std::shared_mutex> use_ep(unsigned from, unsigned to);
    void close(TrafficThread& self, unsigned worker);
    void close_by_force(TrafficThread& self, unsigned worker, unsigned to);
    bool close_in_order(TrafficThread& self, unsigned worker, unsigned to, tw_flush_level_t level);
    void close_failed(TrafficThread& self, unsigned worker);
    void flush(TrafficThread& self, unsigned worker);
    tw_status_t flush_way(TrafficThread& self, unsigned worker, unsigned to,
                          tw_flush_level_t level);
    static tw_flush_level_t draw_level(TrafficThread& self) {
        return chance(self, 2) ? TW_FLUSH_SENT : TW_FLUSH_DELIVERED;
    }
    void end_flush(TrafficOp& op, const tw_completion_t& done);
    void check_flushed(unsigned to);

    // ---- traffic_send.cc
    std::size_t pick_length(TrafficThread& self);
    static Bytes content(std::size_t length, std::uint32_t number);
    void draw_end(TrafficThread& self, TrafficOp& op, std::size_t inject_max);
    void send(TrafficThread& self, unsigned worker);
    void draw_message(TrafficThread& self, TrafficOp& op);
    tw_status_t call_send(TrafficOp& op, tw_ep_h ep, const Bytes& data, const tw_op_t* what,
                          tw_request_h* request_p);
    void end_send(TrafficOp& op, const tw_completion_t& done);
    void cancel(TrafficThread& self);

    // ---- traffic_receive.cc
    void receive(TrafficThread& self, unsigned worker);
    void receive_many(TrafficThread& self, unsigned worker);
    void peek(TrafficThread& self, unsigned worker);
    void claim(TrafficThread& self, unsigned worker);
    void draw_selection(TrafficThread& self, TrafficOp& op);
    void post_receive(TrafficThread& self, TrafficOp& op);
    void end_receive(TrafficOp& op, const tw_completion_t& done);
    void check_receive(TrafficOp& op, const tw_completion_t& done, std::size_t count);
    RefMatch match_of(TrafficOp& op, const tw_completion_t& done, std::span<const std::byte> data);
    void end_claim(TrafficOp& op, const RefMatch& match);
    void keep_claim(TrafficOp& op, const tw_completion_t& done, std::size_t match);

    // ---- traffic_op.cc: any operation
    TrafficOp& new_op(TrafficThread& self, Kind kind, unsigned worker);
    void draw_report(TrafficThread& self, TrafficOp& op);
    void draw_list(TrafficThread& self, TrafficOp& op, Bytes& data);
    tw_op_t how(TrafficOp& op, tw_message_info_t* info);
    static tw_completion_t answer_of(TrafficOp& op, tw_status_t status,
                                     const tw_message_info_t& info);
    tw_status_t probe(TrafficOp& op, const tw_op_t* what);
    void drop(tw_worker_h worker, tw_message_h message);
    using Call = std::function<tw_status_t(const tw_op_t*, tw_request_h*)>;
    bool post(TrafficThread& self, TrafficOp& op, const Call& call);
    void keep_request(TrafficThread& self, TrafficOp& op, tw_request_h request);
    bool answered(TrafficOp& op, tw_status_t status, const tw_completion_t& done);
    static void on_complete(const tw_completion_t* done);
    void ended(TrafficOp& op, const tw_completion_t& done);
    void check_end(TrafficOp& op, const tw_completion_t& done);
    bool may_be_read_still(const TrafficOp& op);
    void give_back(TrafficOp& op);
    void wrong(const std::string& what, const TrafficOp* op = nullptr);
    static std::string text(const TrafficOp& op);
    std::string history();
    std::string missing();
    void for_each_op(const std::function<void(TrafficOp&)>& act);

    // ---- traffic_end.cc
    void settle(TrafficThread& self);
    void receive_the_rest(TrafficThread& self, unsigned worker);
    void claim_the_rest(TrafficThread& self);
    bool is_everything_received();
    void describe_workers();
    void wait_for_threads(const char* what, const std::function<bool()>& is_over);
    void finish();
    void for_each_way(const char* what, const std::function<bool(unsigned, unsigned)>& is_done);
    void cancel_the_rest();
    void drop_the_rest();
    void progress_until(const char* what, const std::function<bool()>& is_over);

    // ---- traffic_check.cc
    void check();
    void check_status(const TrafficOp& op);
    void check_space(unsigned worker, bool is_tagged);
    void check_counter();
    void check_garbage();
    RefMessage message_of(const TrafficOp& op);
    RefReceive receive_of(const TrafficOp& op);

    static thread_local TrafficThread* t_self;

    tw_context_h context_;
    const Options options_;
    const std::uint64_t seed_;
    std::atomic<Tick> clock_{0};
    std::deque<TrafficWorker> workers_;
    std::deque<TrafficWay> ways_;
    std::deque<TrafficThread> threads_;
    std::array<std::atomic<TrafficOp*>, kCancellable> cancellable_{};
    tw_cq_h queue_ = nullptr;
    tw_counter_h counter_ = nullptr;
    std::atomic<std::uint64_t> tallied_{0};
    std::atomic<std::uint64_t> eps_{0};
    std::atomic<unsigned> acting_{0}, settling_{0};
    std::atomic<bool> is_settling_{false}, may_end_{false}, has_failed_{false};
    std::mutex wrong_lock_;
    std::string wrong_;
    TrafficThread main_;
    TrafficMemory memory_{*this};
    TrafficAm am_{*this};
};

}  // namespace tagwire::test
