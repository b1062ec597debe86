// SPDX-License-Identifier: BSD-3-Clause
// Active messages of the threads of a ThreadTraffic.
//
// A message is labelled with its thread and its number among that thread's. The handler checks that
// it comes once, as it was sent, and behind those that this thread has sent over the same endpoint
// before. Then it leaves it, keeps it for any thread to receive or release, or receives it at once.
//
// Threads: a worker's handler runs in one thread at a time, and what it remembers has no lock. Kept
// messages have one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class ThreadTraffic;
struct ThreadEp;
struct ThreadOp;
struct ThreadWorker;
struct TrafficThread;

class ThreadTrafficAm {
  public:
    explicit ThreadTrafficAm(ThreadTraffic& traffic) : traffic_(traffic) {}
    ThreadTrafficAm(const ThreadTrafficAm&) = delete;
    ThreadTrafficAm& operator=(const ThreadTrafficAm&) = delete;

    /// The handlers of all workers. Before the threads start.
    void open();
    /// A message of that worker, or a message that it has kept.
    void act(TrafficThread& self, unsigned worker);
    void end(const ThreadOp& op, const tw_completion_t& done);
    /// Receives and releases all that this worker has kept.
    void take_all(TrafficThread& self, unsigned worker);
    /// The worker is about to be destroyed.
    void forget(unsigned worker);
    /// Each message that must come has, and all that was kept has been received.
    bool is_quiet();
    void check();

  private:
    static constexpr unsigned kId = 9;
    static constexpr std::size_t kMessagesMax = 1 << 16;  // of each thread

    struct Label {
        std::uint32_t thread, number;
    };
    /// A message, as it was sent.
    struct Sent {
        const ThreadOp* op = nullptr;
        std::atomic<bool> is_drawn{false};
        std::atomic<int> handled{0};
    };
    struct Kept {
        tw_message_h message = nullptr;
        const void* data = nullptr;  // null: it is still with its sender
        const ThreadOp* sent = nullptr;
    };
    /// A receive of the data of a message.
    struct Receive {
        ThreadTrafficAm* all = nullptr;
        unsigned worker = 0;
        const ThreadOp* sent = nullptr;
        Bytes bytes;
    };
    /// The last one among the messages of a thread by a worker.
    struct Last {
        const ThreadEp* ep = nullptr;
        std::uint32_t number = 0;
    };
    struct Inbox {
        std::vector<Last> last;
        std::mutex guard;
        std::deque<Kept> kept;
        std::deque<Receive> receives;
        std::atomic<int> open{0};  // of them
    };

    void send(TrafficThread& self, unsigned worker);
    static void on_message(void* arg, tw_am_t* am);
    void handle(unsigned worker, tw_am_t& am);
    /// The message that was sent with this label; null after a complaint.
    Sent* find(const tw_am_t& am);
    void check_order(unsigned worker, const ThreadOp& sent);
    bool is_its_data(const ThreadOp& sent, const void* data);
    tw_status_t receive(unsigned worker, tw_message_h message, const ThreadOp& sent);
    static void on_received(const tw_completion_t* done);
    void take(TrafficThread& self, unsigned worker);
    bool must_come(const Sent& sent);

    ThreadTraffic& traffic_;
    std::deque<Inbox> inboxes_;                   // by worker
    std::vector<std::unique_ptr<Sent[]>> sent_;   // by thread
    std::deque<std::atomic<std::size_t>> count_;  // of them
};

}  // namespace tagwire::test
