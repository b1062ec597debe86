// SPDX-License-Identifier: BSD-3-Clause
// Threads call everything on shared workers, from callbacks too, while endpoints are flushed,
// closed and created again. Every operation ends once, every byte is checked, and an operation
// with a handle ends at the latest after its cancel.
//
//   multi        TW_THREAD_MULTI: any thread calls at any time
//   serialized   TW_THREAD_SERIALIZED: each worker has a lock of the program's
//   single       TW_THREAD_SINGLE: a worker for each thread
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "party.hpp"
#include "trial.hpp"

namespace tagwire::torture {

/// A worker that threads share.
struct Shared {
    std::unique_ptr<Party> party;  // its context is its own
    Address address;
    std::recursive_mutex lock;  // of mode serialized
    std::atomic<int> sends = 0;
    std::array<std::atomic<int>, 2> receives = {};  // tagged, untagged
};

/// The endpoint from one worker to another. Whoever closes it excludes those who use it.
struct Way {
    std::shared_mutex lock;
    tw_ep_h ep = nullptr;
};

class Threads;

struct Operation {
    Operation(Threads* threads, std::size_t of_worker, bool sends, bool untagged,
              std::size_t length)
        : owner(threads),
          worker(of_worker),
          is_send(sends),
          is_untagged(untagged),
          buffer(length) {}

    Threads* owner;
    std::size_t worker;
    bool is_send;
    bool is_untagged;
    std::vector<std::byte> buffer;
    std::atomic<int> ends = 0;
};

struct Held {
    Operation* operation;
    tw_request_h request;
};

/// The way in which the end of an operation is reported.
enum class Told { kCallback, kQueue, kHandle };

/// With the status of a call: how its end is reported, and its handle.
struct Answer {
    Told told;
    tw_request_h request;
};

class Threads {
  public:
    explicit Threads(Trial& trial);

    void run();

  private:
    /// State of one thread.
    struct Self {
        std::size_t number;
        Random random;
        std::vector<Held> held;
    };
    using Lock = std::unique_lock<std::recursive_mutex>;

    static thread_local Self* t_self;
    static thread_local int t_depth;  // 1: inside a callback that calls

    bool is_single() const { return mode_ == TW_THREAD_SINGLE; }
    std::size_t some_worker(Self& self) const {
        return is_single() ? self.number : self.random.below(workers_.size());
    }
    Way& way(std::size_t from, std::size_t to) { return ways_[from * workers_.size() + to]; }
    tw_worker_h handle(std::size_t worker) const { return workers_[worker]->party->worker(); }
    Lock lock(std::size_t worker) {
        return mode_ == TW_THREAD_SERIALIZED ? Lock(workers_[worker]->lock) : Lock();
    }

    void live(std::size_t number);
    void step(Self& self);
    void call(std::size_t worker, Self& self);
    void look(std::size_t worker, Self& self);
    void progress(std::size_t worker, unsigned times);
    void poll(std::size_t worker);
    void send(std::size_t from, Self& self);
    void flush(std::size_t from, Self& self);
    void begun_send(Operation* operation, Self& self, tw_status_t status, const Answer& answer);
    void receive(std::size_t at, Self& self);
    void test_held(Self& self, bool cancels_receives, std::uint64_t one_in);
    void reopen(std::size_t from, Self& self);
    void open(std::size_t from, std::size_t to, Way& way);
    void drain(Self& self);
    void drain_sends();
    void lose_held(const Self& self);
    void discard(std::size_t worker);

    Told choose(Self& self, tw_op_t* op);
    static void called_back(const tw_completion_t* done);
    void ended(Operation* operation, const tw_completion_t& done);
    void dropped(Operation* operation);
    Operation* begun(std::size_t worker, bool is_send, bool is_untagged, std::size_t length);
    void remove(Operation* operation);

    Trial& trial_;
    tw_thread_mode_t mode_;
    std::deque<std::unique_ptr<Shared>> workers_;
    std::deque<Way> ways_;
    std::atomic<std::size_t> busy_;
    std::mutex live_lock_;
    std::unordered_map<Operation*, std::unique_ptr<Operation>> live_;
    std::atomic<std::uint64_t> operations_ = 0;
    std::atomic<std::uint64_t> calls_in_callbacks_ = 0;
    std::atomic<std::uint64_t> reopened_ = 0;
    std::atomic<bool> is_ending_ = false;
};

}  // namespace tagwire::torture
