// SPDX-License-Identifier: BSD-3-Clause
// One process of a job: its worker, and an endpoint to each other rank. One thread uses it; while
// it waits for the bootstrap, which blocks, that runs in a thread of its own and messages go on.
#pragma once

#include <sched.h>

#include <atomic>
#include <exception>
#include <optional>
#include <tagwire_bootstrap.hpp>
#include <tagwire_msg.hpp>
#include <thread>
#include <vector>

#include "tools/job.hpp"

namespace tagwire::tools {

class ManyRank {
  public:
    ManyRank(tagwire::Bootstrap job, const Setup& setup);
    ManyRank(const ManyRank&) = delete;
    ManyRank& operator=(const ManyRank&) = delete;

    std::size_t rank() const { return job_.rank(); }
    std::size_t size() const { return job_.size(); }
    const msg::Context& context() const { return context_; }
    const msg::Worker& worker() const { return *worker_; }
    /// To another rank than this.
    const msg::Endpoint& to(std::size_t peer) const { return *eps_[peer]; }
    /// Which rank a receive's completion is from; its own for a message of any other sender.
    std::size_t source_of(const tw_completion_t& done) const {
        if (done.ep == nullptr)
            return rank();
        return *static_cast<const std::size_t*>(tw_ep_user_data(done.ep));
    }

    /// Makes progress until the predicate holds. Throws Failure when a rank was lost.
    template <class Predicate>
    void wait_until(Predicate done) {
        while (!done()) {
            if (worker_->progress() == 0) [[unlikely]]
                idle();
            if (lost_) [[unlikely]]
                tell_lost();
        }
    }

    /// Throws Failure.
    [[noreturn]] static void tell_lost(std::size_t rank, tw_status_t status);

    /// All ranks are here; messages go on meanwhile.
    void meet();
    /// Closes the endpoints in order. All ranks call it at their end, and none leaves before all
    /// have: a peer that finds one gone takes it for lost.
    void part();
    /// One value of each rank; the same.
    template <class T>
    std::vector<T> gather(const T& mine) {
        std::vector<T> all;
        beside([&] { all = job_.allgather(mine); });
        return all;
    }

  private:
    struct Lost {
        std::size_t rank;
        tw_status_t status;
    };

    template <class Body>
    void beside(Body body) {
        std::atomic<bool> done = false;
        std::exception_ptr failure;
        std::thread thread([&] {
            try {
                body();
            } catch (...) {
                failure = std::current_exception();
            }
            done = true;
        });
        // Not before it has ended, which the bootstrap's time limit sees to. The thread may be
        // bound to this CPU, and under SCHED_FIFO it runs only while this one yields.
        while (!done)
            if (worker_->progress() == 0)
                sched_yield();
        thread.join();
        if (failure) {
            if (lost_)
                tell_lost();
            std::rethrow_exception(failure);
        }
    }

    void idle() const {
        if (yields_)
            sched_yield();
    }
    [[noreturn]] void tell_lost() const { tell_lost(lost_->rank, lost_->status); }

    tagwire::Bootstrap job_;
    const bool yields_;
    msg::Context context_;
    std::optional<Lost> lost_;
    std::vector<std::size_t> ranks_;  // what user data of endpoints points to
    struct Failed {
        ManyRank* self;
        void operator()(tw_ep_h ep, tw_status_t status);
    } failed_{this};
    std::optional<msg::Worker> worker_;
    std::vector<std::optional<msg::Endpoint>> eps_;
};

}  // namespace tagwire::tools
