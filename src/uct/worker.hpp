// SPDX-License-Identifier: BSD-3-Clause
// The progress engine: the object that uct_worker_h points to. The C base is the callback queue
// that uct_worker_progress() calls.
//
// Threads: the owner's (UCS_THREAD_MODE_SINGLE), or the thread that holds the program's lock.
// add_progress_safe() and remove_progress_safe() may be called from any thread.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "uct/describe.hpp"
#include "uct/politeness.hpp"
#include "uct/thread_mates.hpp"

namespace tagwire::uct {

class BaseIface;

// On lines of its own: dispatching reads the queue each time.
class alignas(64) Worker : public uct_worker_t {
  public:
    /// UCS_OK or UCS_ERR_NO_MEMORY. `async` outlives the worker.
    static ucs_status_t create(ucs_async_context_t* async, ucs_thread_mode_t mode,
                               Worker** worker_p);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    [[nodiscard]] ucs_async_context_t* async() const { return async_; }
    [[nodiscard]] ucs_thread_mode_t thread_mode() const { return mode_; }
    [[nodiscard]] unsigned iface_count() const { return iface_count_; }

    /// Returns the identifier for removal. A callback may add and remove.
    int add_progress(ucs_callback_t callback, void* arg) {
        return ucs_callbackq_add(&progress_q, callback, arg, UCS_CALLBACKQ_FLAG_FAST);
    }
    void remove_progress(int id) { ucs_callbackq_remove(&progress_q, id); }
    int add_progress_safe(ucs_callback_t callback, void* arg) {
        return ucs_callbackq_add_safe(&progress_q, callback, arg, UCS_CALLBACKQ_FLAG_FAST);
    }
    void remove_progress_safe(int id) { ucs_callbackq_remove_safe(&progress_q, id); }

    // ---- Politeness

    /// The last `calls` calls of its progress found nothing. May yield the core, or nap.
    void found_nothing(BaseIface& iface, unsigned calls) {
        if (&iface == counting_ && politeness_.add_empty(calls)) [[unlikely]]
            look();
    }
    /// As tagwire_uct_worker_set_away_handler().
    void set_away_handler(tagwire_uct_away_cb_t callback, void* arg) {
        away_ = callback;
        away_arg_ = arg;
    }
    /// As tagwire_uct_worker_set_awaited_handler().
    void set_awaited_handler(tagwire_uct_awaited_cb_t callback, void* arg) {
        awaited_cb_ = callback;
        awaited_arg_ = arg;
    }
    /// The core was given away so long; times of clock_now_ns().
    void was_away(tagwire_uct_away_t how, std::uint64_t begin, std::uint64_t end);
    /// As tagwire_uct_worker_prepare_nap().
    ucs_status_t prepare_nap(tagwire_uct_nap_t* nap);
    /// As tagwire_uct_worker_wake_naps().
    void wake_naps();
    void set_polite(bool is_polite);
    [[nodiscard]] bool is_polite() const { return is_polite_; }
    void describe(const DescribeSink& sink) const;
    [[nodiscard]] ucs::CounterSet counters() const {
        return politeness_.counters.set(kPoliteCounterInfos);
    }

    // ---- For interfaces: their own coming and going
    void add(BaseIface& iface);
    void remove(BaseIface& iface);
    /// Chooses the interface that counts calls, when one begins or ends to be progressed.
    void choose_counting();

  private:
    Worker(ucs_async_context_t* async, ucs_thread_mode_t mode);
    void look();
    bool has_moved();
    static Politeness::Peers look_at(std::span<const uct_ep_h> eps, const Whereabouts& here);
    Politeness::Peers look_at_all(const Whereabouts& here);
    template <class Visit>
    void for_each_watch(const Visit& visit);
    void tell_wait(const Whereabouts& here, bool is_away);
    [[nodiscard]] std::size_t count_peers();
    bool had_peer_processor(std::uint64_t begin, std::uint64_t end);
    void give_away(Politeness::Act act);
    static unsigned go_away(void* arg);
    [[nodiscard]] bool may_nap() const;
    ucs_status_t arm_for_nap(tagwire_uct_nap_t* nap);
    void end_naps();

    ucs_async_context_t* async_;
    ucs_thread_mode_t mode_;
    unsigned iface_count_ = 0;
    bool is_polite_ = true;
    Politeness::Act next_act_ = Politeness::Act::kSpin;
    int away_id_ = UCS_CALLBACKQ_ID_NULL;  // of go_away(), which does it
    BaseIface* counting_ = nullptr;        // whose calls count: one of those that are progressed
    BaseIface* ifaces_ = nullptr;          // the first; each has the next
    std::uint64_t moved_ = 0;              // of all, at the last look
    unsigned napping_ = 0;                 // threads
    bool expects_naps_ = false;            // told to the interfaces
    tagwire_uct_away_cb_t away_ = nullptr;
    void* away_arg_ = nullptr;
    tagwire_uct_awaited_cb_t awaited_cb_ = nullptr;
    void* awaited_arg_ = nullptr;
    Politeness politeness_;
    ThreadMate mate_{*this};
};

/// As tagwire_uct_nap_sleep().
void sleep_on(const tagwire_uct_nap_t& nap, std::uint64_t max_ns);

inline Worker& worker_of(uct_worker_h handle) {
    return *static_cast<Worker*>(handle);
}

}  // namespace tagwire::uct
