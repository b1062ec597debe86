// SPDX-License-Identifier: BSD-3-Clause
// Active messages of the threads of a Traffic.
//
// A message is labelled with its thread and its number among that thread's. The handler checks that
// it comes once, with the header and the data that were sent, and behind those that this thread has
// sent over the same endpoint before (of one thread, to the same worker), urgent ones and others
// apart. Then it leaves it, keeps it for any thread to receive or release, or receives it at once.
//
// Threads: a worker's handler runs in one thread at a time, and what it remembers has no lock. Kept
// messages have one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficEp;
struct TrafficOp;
struct TrafficThread;
struct TrafficWorker;

class TrafficAm {
  public:
    explicit TrafficAm(Traffic& traffic) : traffic_(traffic) {}
    TrafficAm(const TrafficAm&) = delete;
    TrafficAm& operator=(const TrafficAm&) = delete;

    /// A worker that has just been created, in the order of their indices.
    void open(TrafficWorker& worker);
    /// A message of that worker, or a message that it has kept.
    void act(TrafficThread& self, unsigned worker);
    void end(TrafficOp& op, const tw_completion_t& done);
    void end_receive(TrafficOp& op, const tw_completion_t& done);
    /// Receives and releases all that this worker has kept.
    void take_all(TrafficThread& self, unsigned worker);
    /// The worker is about to be destroyed.
    void forget(unsigned worker);
    /// Each message that must come has, and all that was kept has been received.
    bool is_quiet();
    void check();

  private:
    static constexpr unsigned kId = 4711;

    struct Label {
        std::uint32_t thread, number;
    };
    struct Kept {
        tw_message_h message = nullptr;
        const void* data = nullptr;  // null: it is still with its sender
        TrafficOp* sent = nullptr;
    };
    /// The last one among the messages of a thread by a worker.
    struct Last {
        const TrafficEp* ep = nullptr;
        std::uint32_t number = 0;
    };
    struct Inbox {
        std::map<std::tuple<unsigned, unsigned, bool>, Last> last;  // thread, worker, urgent
        std::mutex guard;
        std::deque<Kept> kept;
    };
    using Sent = std::vector<std::atomic<TrafficOp*>>;

    void send(TrafficThread& self, unsigned worker);
    static Bytes header(const TrafficOp& sent);
    static void on_message(void* arg, tw_am_t* am);
    void handle(TrafficThread& self, unsigned worker, tw_am_t& am);
    /// The message that was sent with this header; null after a complaint.
    TrafficOp* find(const tw_am_t& am);
    void check_order(unsigned worker, const TrafficOp& sent);
    bool is_its_data(const TrafficOp& sent, const void* data);
    /// False: not now.
    bool receive(TrafficThread& self, unsigned worker, tw_message_h message, TrafficOp& sent);
    void keep(unsigned worker, const Kept& kept);
    void take(TrafficThread& self, unsigned worker);
    bool must_come(const TrafficOp& op);

    Traffic& traffic_;
    std::deque<Inbox> inboxes_;                   // by worker
    std::deque<Sent> sent_;                       // by thread
    std::deque<std::atomic<std::size_t>> count_;  // of them
};

}  // namespace tagwire::test
