// SPDX-License-Identifier: BSD-3-Clause
// What a thread sleeps on: one descriptor, readable when one of some workers has something to
// progress, or when wake() was called.
//
// 1. arm() answers true only if there was nothing to do; the descriptor then reports what comes.
// 2. arm() is called with the domain's lock, wait() without.
#pragma once

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
    /// `timeout_ms` below 0: no limit.
    void wait(int timeout_ms) const;

  private:
    int epoll_ = -1;
    int event_ = -1;
    bool is_armed_ = false;
    std::vector<tw_worker_h> workers_;
};

}  // namespace tagwire::fi
