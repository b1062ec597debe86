// SPDX-License-Identifier: BSD-3-Clause
// Polite progress of a worker: UCT says when (tagwire_uct_worker_set_away_handler()), and the
// thread gives its processor away where it has no lock: behind a call of progress that has found
// nothing, the same one if threads share the worker, else the next one. The next call may come
// late, behind a computation of the program, and find what the wish was for.
//
// Threads: with the worker's lock, but for go_away().
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstdint>
#include <span>

#include "protocols/api/tw_worker.h"
#include "protocols/cost/given_options.hpp"
#include "protocols/port/worker_counters.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/worker/waiters.hpp"

namespace tagwire::proto {

/// The functions of a worker for its politeness; the first argument of each is the worker.
struct PolitenessCalls {
    /// The worker's threads send by transmit contexts.
    bool (*has_contexts)(const void* owner);
    /// Operations of those that have ended.
    std::uint64_t (*ends_of_contexts)(const void* owner);
    /// As Awaited::lanes_of().
    unsigned (*awaited_lanes)(void* owner, std::span<uct_ep_h> lanes);
    void (*enter)(void* owner);
    void (*leave)(void* owner);

    // ---- As Waiting has them

    /// There is something to progress, to poll, or to tell the calling thread.
    bool (*has_news)(void* owner);
    ucs_status_t (*arm_nap)(void* owner, int* fd_p);
    const WakeEvent* (*event_for_nap)(void* owner);
    void (*begin_nap)(void* owner, const NapWord* word);
    void (*end_nap)(void* owner);
};

/// The world of politeness.
struct PolitenessPorts {
    Attention& attention;
    WorkerCounters& counters;
    const bool is_multi;
    const bool is_context;  // the worker is a transmit context
    void* const owner;
    const PolitenessCalls& calls;
};

class Politeness {
  public:
    enum class Away : std::uint8_t { kNo, kYield, kNap };
    struct Leave {
        Away how = Away::kNo;
        bool is_own = false;        // a yield by choose(), which has counted it
        std::uint64_t took_ns = 0;  // time of the last yield by choose(), which counts it later
        tagwire_uct_nap_t nap;      // kNap: what it sleeps on
        /// The event among them by which other threads wake the nap.
        const WakeEvent* event = nullptr;
    };

    explicit Politeness(const PolitenessPorts& ports) : to_(ports) {}
    Politeness(const Politeness&) = delete;
    Politeness& operator=(const Politeness&) = delete;

    /// `uct` is the worker's, and has no interfaces yet. `given`: options of the program, for
    /// workers that ask for no mode of progress.
    void begin(uct_worker_h uct, const tw_worker_params_t& params, const GivenOptions& given);
    /// If it is wanted: how the thread gives its processor away once it has released the lock.
    /// `found`: by this call of progress.
    void take(unsigned found, Leave* leave) { take(found, take_wish(), leave); }
    /// As take() above, of a wish that was taken before that call.
    void take(unsigned found, Away wish, Leave* leave);
    Away take_wish();
    /// As take(), for a thread that gives its processor away again and again, whatever its peers
    /// do.
    void choose(Leave* leave);
    /// Without the lock: yields, or sleeps on what was armed. Takes the lock behind that, but for a
    /// yield that choose() has counted.
    void go_away(Leave& leave, std::uint64_t nap_ns_max = UINT64_MAX);
    /// For a worker without a lock, or that nobody else has.
    void go_away_if_wanted();
    /// The processor was given away; times of clock_now_ns().
    void note(Away how, std::uint64_t begin, std::uint64_t end);

  private:
    [[nodiscard]] bool arm_nap(Leave* leave);
    bool has_contexts() const { return to_.calls.has_contexts(to_.owner); }

    const PolitenessPorts to_;
    uct_worker_h uct_ = nullptr;
    NapWord word_;
    tw_away_cb_t told_ = nullptr;  // in place of going away
    void* told_arg_ = nullptr;
    std::uint64_t ends_of_contexts_ = 0;  // at the last wish to give the processor away
};

}  // namespace tagwire::proto
