// SPDX-License-Identifier: BSD-3-Clause
// What a thread sleeps on: one descriptor, readable when one of some workers has something to
// progress, or when wake() was called.
//
// 1. arm() answers true only if there was nothing to do; the descriptor then reports what comes.
// 2. A ring is a level that arm() takes away, so it stays until every thread that it found asleep
//    is awake: each looks for what it waits for itself. Nobody else falls asleep meanwhile.
// 3. What a worker rings is the worker's to repeat for those whom another arming covers.
// 4. All is called with the domain's lock, Sleep's wait() without.
#pragma once

#include <cstddef>
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
    bool is_open() const { return epoll_ >= 0; }
    int fd() const { return epoll_; }
    int add(tw_worker_h worker);
    void remove(tw_worker_h worker);
    bool arm();
    /// Something has come that no worker will tell of.
    void wake() {
        if (is_armed_) [[unlikely]]
            ring();
    }
    /// The same, armed or not.
    void ring();

  private:
    friend class Sleep;

    int epoll_ = -1;
    int event_ = -1;
    bool is_armed_ = false;
    bool is_rung_ = false;    ///< All who sleep are to wake up; only with asleep_.
    std::size_t asleep_ = 0;  ///< Threads.
    std::vector<tw_worker_h> workers_;
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
