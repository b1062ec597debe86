// SPDX-License-Identifier: BSD-3-Clause
// Random use of workers that threads share (TW_THREAD_MULTI), checked by span_reference.hpp.
//
// A seed decides what each thread calls: sends of every kind and length, receives of every kind,
// peeks, claims, cancels of its own operations and of others', flushes, closes, and how each end is
// reported: by the queue of the worker, a completion queue of all threads, a callback, a test, a
// wait, or not at all; a completion counter counts some of all kinds. Every thread progresses,
// polls, waits and sleeps. Each end is checked at once: its number, status, envelope and bytes.
// Then the threads receive whatever is left, and the reference looks whether an order of all calls
// explains it. Beside these there may be one-sided operations (thread_traffic_memory.hpp) and
// active messages (thread_traffic_am.hpp).
//
// 1. A thread writes its own operations alone. Others come to one by its end, or through the table
//    of those that anybody may cancel; `guard` is for what both may touch.
// 2. The clock, counters and links between threads are relaxed: they order nothing, so that
//    ThreadSanitizer sees what the library does not order. It does not see what shared memory
//    orders that both sides have mapped at places of their own: so a message tells its receiver
//    that it was drawn, and under ThreadSanitizer buffers of sends stay to the end.
// 3. An endpoint has a lock: those who use its handle share it, and who closes it has it alone.
// 4. One thread, the mortal, may have a worker of its own, and destroys it in the middle.
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
#include <vector>

#include "protocols/fixture.hpp"
#include "protocols/span_reference.hpp"
#include "protocols/thread_traffic_am.hpp"
#include "protocols/thread_traffic_memory.hpp"

namespace tagwire::test {

class ThreadTraffic;
struct TrafficThread;

struct FreeAligned {
    void operator()(void* memory) const { std::free(memory); }
};

/// An endpoint of the program, from its creation to its close.
struct ThreadEp {
    tw_ep_h handle = nullptr;
    unsigned from = 0, to = 0;
    std::uint64_t number = 0;
    Tick created = 0;
    std::atomic<int> failures{0};
    std::atomic<bool> has_met_a_break{false};
};

struct ThreadOp {
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
        kAdd,
        kAm
    };
    enum class Report : std::uint8_t { kPolled, kQueued, kCalled, kTested, kNobody };

    ThreadTraffic* traffic = nullptr;
    TrafficThread* owner = nullptr;
    Kind kind = Kind::kSend;
    Report report = Report::kPolled;
    std::uint32_t flags = 0;
    bool is_tagged = false;
    bool is_plain = false;  // nothing that keeps a short message from the fast path
    bool is_refused = false;
    bool is_forced = false;  // a close
    unsigned worker = 0;
    unsigned peer = kAnybody;  // whom it goes to, or who alone may have sent
    std::uint64_t tag = 0, mask = ~std::uint64_t{0}, imm = 0;
    std::uint32_t number = 0;  // of a message
    std::size_t length = 0;
    ThreadEp* ep = nullptr;  // sends, flushes, closes
    Bytes bytes;             // and some more behind it
    std::vector<tw_iov_t> list;
    std::unique_ptr<void, FreeAligned> memory;  // of the request
    tw_mem_h mapped = nullptr;
    tw_message_h message = nullptr;  // that a claim is about
    ThreadOp* claimed_by = nullptr;  // ... what found it
    std::size_t match = 0;           // ... among the matches of that
    Span call;
    tw_request_h request = nullptr;  // kTested: with the guard
    std::atomic<Tick> cancelled{kNever};
    // Its end
    std::atomic<int> ends{0};
    std::atomic<int> received{0};  // of a message
    std::atomic<bool> is_drawn{false};
    tw_status_t status = TW_INPROGRESS;
    Tick told = kNever;
    std::uint64_t told_source = 0;
    std::mutex guard;
    std::vector<RefMatch> matches;
    bool is_over() const { return ends.load(std::memory_order_relaxed) > 0; }
};

struct ThreadWorker {
    ThreadTraffic* traffic = nullptr;
    unsigned index = 0;
    std::unique_ptr<tw_worker, WorkerDeleter> worker;
    Bytes address;
    std::uint64_t id = 0;
    std::size_t buffered_limit = 0, buffered_min = 0;
    std::atomic<bool> is_dead{false};       // or is about to be
    std::atomic<int> open{0};               // operations that have not ended
    std::atomic<std::uint64_t> unknown{0};  // received messages that only their envelope tells
};

/// From one worker to another.
struct ThreadWay {
    std::shared_mutex lock;
    ThreadEp* ep = nullptr;  // null: none
    std::deque<ThreadEp> eps;
    std::atomic<bool> has_failed{false};
    std::atomic<Tick> broken{0};  // when a side was last told of a close by force or a death
};

/// A message that a thread has found and that nobody has received.
struct ThreadClaim {
    ThreadOp* found = nullptr;
    std::size_t match = 0;
    tw_message_h message = nullptr;
};

/// State of one thread.
struct TrafficThread {
    unsigned number = 0;
    std::mt19937_64 random;
    std::unique_ptr<ThreadOp[]> sends;
    std::size_t sent = 0;
    std::deque<ThreadOp> others;
    std::vector<ThreadOp*> tested;
    std::vector<ThreadClaim> claims;
    std::vector<ThreadOp*> rest;  // what receives whatever is left
    std::atomic<bool> has_claims{false};
    unsigned depth = 0;              // not 0: callbacks do not act
    std::optional<unsigned> mortal;  // its own worker
};

class ThreadTraffic {
  public:
    struct Options {
        unsigned threads = 4;
        unsigned workers = 2;
        unsigned steps = 250;      // of each thread
        unsigned tx_contexts = 1;  // of each worker
        int open_max = 40;         // operations of a worker
        bool has_death = false;
        bool has_closes = false;  // endpoints are closed and made again
        bool has_breaks = false;  // ... some of them by force
        bool has_others = false;  // puts, gets, additions, active messages
        std::size_t bytes_max = 100'000;
    };
    ThreadTraffic(std::uint64_t seed, tw_context_h context, const Options& options);
    ~ThreadTraffic();
    ThreadTraffic(const ThreadTraffic&) = delete;
    ThreadTraffic& operator=(const ThreadTraffic&) = delete;

    void run();

  private:
    friend ThreadTrafficMemory;
    friend ThreadTrafficAm;
    using Kind = ThreadOp::Kind;
    using Report = ThreadOp::Report;
    static constexpr std::size_t kGuardBytes = 16;
    static constexpr std::size_t kSendsMax = 1 << 16;
    static constexpr std::size_t kCancellable = 32;
    static constexpr std::uint64_t kImm = 0x9e3779b97f4a7c15;
    static constexpr std::uint64_t kImmInverse = 0xf1de83e19937733d;
    static_assert(kImm * kImmInverse == 1);

    // ---- thread_traffic.cc: the world, and what a thread does
    static std::uint64_t pick(TrafficThread& self, std::uint64_t below) {
        return self.random() % below;
    }
    static bool chance(TrafficThread& self, unsigned in) { return pick(self, in) == 0; }
    Tick tick() { return clock_.fetch_add(1, std::memory_order_relaxed) + 1; }
    void open_worker();
    ThreadWay& way(unsigned from, unsigned to) { return ways_[from * workers_.size() + to]; }
    unsigned some_worker(TrafficThread& self);
    void live(TrafficThread& self);
    void act(TrafficThread& self, unsigned worker);
    void look(TrafficThread& self, unsigned worker);
    void work(TrafficThread& self, unsigned worker);
    void poll(TrafficThread& self, unsigned worker);
    void poll_queue(TrafficThread& self);
    void test(TrafficThread& self, unsigned worker);
    bool is_tested_over(TrafficThread& self, ThreadOp& op);
    void die(TrafficThread& self);

    // ---- thread_traffic_close.cc
    bool is_broken(const ThreadEp& ep);
    bool is_anything_broken(unsigned worker);
    void note_break(unsigned from, unsigned to, Tick until);
    static void on_failure(void* arg, tw_ep_h ep, tw_status_t status);
    static void on_peer(void* arg, std::uint64_t id, tw_peer_event_t event, tw_status_t status);
    void open_ep(unsigned from, unsigned to);
    std::shared_lock<std::shared_mutex> use_ep(unsigned from, unsigned to);
    /// The answer of a close: that of an endpoint that had failed has closed it all the same.
    static bool is_closed_by(tw_status_t answer) {
        return answer != TW_ERR_NO_RESOURCE && answer != TW_ERR_NO_MEMORY;
    }
    void close(TrafficThread& self, unsigned worker);
    void close_failed(unsigned worker);
    void flush(TrafficThread& self, unsigned worker);

    // ---- thread_traffic_send.cc
    std::size_t pick_length(TrafficThread& self);
    static Bytes content(std::size_t length, std::uint32_t number);
    void send(TrafficThread& self, unsigned worker);
    void draw_message(TrafficThread& self, ThreadOp& op);
    tw_status_t call_send(ThreadOp& op, tw_ep_h ep, const Bytes& data, const tw_op_t* what,
                          tw_request_h* request_p);
    void cancel(TrafficThread& self);

    // ---- thread_traffic_receive.cc
    void receive(TrafficThread& self, unsigned worker);
    void receive_many(TrafficThread& self, unsigned worker);
    void peek(TrafficThread& self, unsigned worker);
    void claim(TrafficThread& self, unsigned worker);
    void draw_selection(TrafficThread& self, ThreadOp& op);
    void post_receive(TrafficThread& self, ThreadOp& op);
    void end_receive(ThreadOp& op, const tw_completion_t& done);
    RefMatch match_of(ThreadOp& op, const tw_completion_t& done, std::span<const std::byte> data);
    void keep_claim(ThreadOp& op, const tw_completion_t& done, std::size_t match);

    // ---- thread_traffic_op.cc: any operation
    ThreadOp& new_op(TrafficThread& self, Kind kind, unsigned worker);
    void draw_report(TrafficThread& self, ThreadOp& op);
    void draw_list(TrafficThread& self, ThreadOp& op, Bytes& data);
    tw_op_t how(ThreadOp& op, tw_completion_t* done);
    using Call = std::function<tw_status_t(const tw_op_t*, tw_request_h*)>;
    bool post(TrafficThread& self, ThreadOp& op, const Call& call);
    bool answered(ThreadOp& op, tw_status_t status, const tw_completion_t& done);
    static void on_complete(const tw_completion_t* done);
    void ended(ThreadOp& op, const tw_completion_t& done);
    void give_back(ThreadOp& op);
    void wrong(const std::string& what, const ThreadOp* op = nullptr);
    static std::string text(const ThreadOp& op);
    std::string history();
    std::string missing();

    // ---- thread_traffic_others.cc
    static bool is_other(const ThreadOp& op);
    void act_otherwise(TrafficThread& self, unsigned worker);
    void told(ThreadOp& op, const tw_completion_t& done);

    // ---- thread_traffic_end.cc
    void settle(TrafficThread& self);
    void receive_the_rest(TrafficThread& self, unsigned worker);
    void claim_the_rest(TrafficThread& self);
    bool is_everything_received();
    void describe_workers();
    void wait_for_threads(const char* what, const std::function<bool()>& is_over);
    void finish();
    void cancel_the_rest();
    void close_all();
    void drop_the_rest();
    void progress_until(const char* what, const std::function<bool()>& is_over);
    void check_statuses();
    void check_status(const ThreadOp& op);
    void check_space(unsigned worker, bool is_tagged);
    void check_reference();
    void check_counter();
    SpanMessage message_of(const ThreadOp& op);
    SpanReceive receive_of(const ThreadOp& op);
    void for_each_op(const std::function<void(ThreadOp&)>& act);

    static thread_local TrafficThread* t_self;

    tw_context_h context_;
    const Options options_;
    const std::uint64_t seed_;
    std::atomic<Tick> clock_{0};
    std::deque<ThreadWorker> workers_;
    std::deque<ThreadWay> ways_;
    std::deque<TrafficThread> threads_;
    std::array<std::atomic<ThreadOp*>, kCancellable> cancellable_{};
    tw_cq_h queue_ = nullptr;
    tw_counter_h counter_ = nullptr;
    std::atomic<std::uint64_t> tallied_{0};
    std::atomic<std::uint64_t> eps_{0};
    std::atomic<unsigned> acting_{0}, settling_{0};
    std::atomic<bool> is_settling_{false}, may_end_{false}, has_failed_{false};
    std::mutex wrong_lock_;
    std::string wrong_;
    TrafficThread main_;
    ThreadTrafficMemory memory_{*this};
    ThreadTrafficAm am_{*this};
};

}  // namespace tagwire::test
