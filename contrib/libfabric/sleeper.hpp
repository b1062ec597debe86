// SPDX-License-Identifier: BSD-3-Clause
// A descriptor that threads sleep on, readable when one of several workers has something to
// progress, or when wake() was called.
//
//   fd(), for programs                      Sleep, within a call
//      |            \                          |          /
//    outer_        workers_fd_ (each worker's descriptor)  inner_
//
// 1. Arming succeeds only if there was nothing to do; the descriptors then report what comes.
// 2. A ring is a level of both events, and stays until every thread that it found asleep is awake:
//    each looks for what it waits for itself. Meanwhile no other thread falls asleep within a call;
//    a thread that polls the descriptor is awake when it asks again (try_arm()). A thread that does
//    not ask again is not waited for any longer than kAwayNs: it left its poll().
// 3. Threads that sleep within a call and threads that poll take no events from each other.
// 4. A worker's own ring is repeated by the worker, for threads that another arming covers.
// 5. All is called with the domain's lock, Sleep's wait() without.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "provider.hpp"

namespace tagwire::fi {

class Sleeper {
  public:
    Sleeper() = default;
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper();

    /// 0, or a negative errno.
    int open();
    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    bool has(tw_worker_h worker) const {
        return std::ranges::find(workers_, worker, &Watched::worker) != workers_.end();
    }
    /// 0, or a negative error of libfabric: nothing has changed. While *is_restless, nobody falls
    /// asleep: what waits to be done there comes from no worker.
    int add(tw_worker_h worker, const bool* is_restless = nullptr);
    void remove(tw_worker_h worker);
    /// For a thread that polls fd() next; it is asleep until it calls this again, or waits here.
    /// False: there is something to do.
    bool try_arm();
    /// Something has come that no worker will tell of.
    void wake() {
        if (is_armed_) [[unlikely]]
            ring();
    }
    /// The same, armed or not.
    void ring();

  private:
    friend class Sleep;

    static constexpr std::uint64_t kAwayNs = 1'000'000'000;
    static constexpr std::size_t kPollersMax = 256;  ///< Remembered; the oldest is forgotten.

    struct Watched {
        tw_worker_h worker;
        const bool* is_restless;
    };
    struct Poller {
        std::thread::id thread;
        std::uint64_t rung_ns;  ///< Since when it is to wake up; 0: it is not.
    };

    bool arm_workers();
    void poller_calls();
    bool others_are_to_wake() const;

    int fd_ = -1;          ///< epoll: workers_fd_ and outer_
    int workers_fd_ = -1;  ///< epoll
    int outer_ = -1;       ///< events
    int inner_ = -1;
    bool is_armed_ = false;
    bool is_rung_ = false;    ///< All who sleep within a call are to wake up; only with asleep_.
    std::size_t asleep_ = 0;  ///< Threads within a call.
    std::vector<Poller> pollers_;
    std::vector<Watched> workers_;
};

/// One thread that sleeps, again and again, until it has found what it waits for.
class Sleep {
  public:
    explicit Sleep(Sleeper& sleeper) : sleeper_(sleeper) {}
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;

    /// To be called after each wait().
    void awake();
    /// False: there is something to do, or there is nothing to sleep on.
    bool fall_asleep();
    /// Until something may have come; `timeout_ms` below 0: no limit. It only yields where
    /// fall_asleep() was not called or answered false.
    void wait(int timeout_ms) const;

  private:
    Sleeper& sleeper_;
    bool is_asleep_ = false;
};

}  // namespace tagwire::fi
