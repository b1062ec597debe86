// SPDX-License-Identifier: BSD-3-Clause
// Fabric and domain. A domain is a context of the messaging layer with the memory that was
// registered; its endpoints are that context's workers.
//
// Threads: with FI_THREAD_DOMAIN nothing is locked. With every other model, and with automatic
// progress, each call takes the domain's lock, unless the process has one thread.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <sys/single_threaded.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "progress.hpp"
#include "provider.hpp"
#include "regions.hpp"

namespace tagwire::fi {

class Cntr;
class Ep;

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric_p, void* context);

class Fabric : public fid_fabric {
  public:
    explicit Fabric(void* user_context);

    std::atomic<int> children = 0;
};

/// glibc's word for "no thread but this one" (single_threaded(3)) becomes false before a second one
/// runs.
inline bool has_threads() {
    return __libc_single_threaded == 0;
}

class Domain : public fid_domain {
  public:
    Domain(Fabric& parent, const fi_info& info, void* user_context);
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;
    ~Domain();

    static int open(fid_fabric* fabric, fi_info* info, fid_domain** domain_p, void* user_context);

    /// Progresses all endpoints. The lock is held. False: nothing happened.
    bool progress();
    /// The same, without the lock, in a loop that waits for peers.
    void progress_politely();
    /// Takes completions that have no callback from the workers. The lock is held.
    void drop_reports();
    bool needs_lock() const { return is_locked && has_threads(); }
    /// A thread has polled in vain. True: so has another one before, and the caller gives its
    /// processor away behind the lock: who they wait for may have none. The lock is held.
    bool polls_beside_others() {
        const std::thread::id me = std::this_thread::get_id();
        const std::thread::id before = std::exchange(idle_poller_, me);
        return is_locked && before != me && before != std::thread::id();
    }

    Fabric& fabric;
    const bool is_locked;
    const fi_av_type av_type;
    const bool is_mr_basic;  ///< Regions have addresses and keys of the provider (FI_MR_BASIC).
    std::mutex lock;
    tw_context_h context = nullptr;
    std::vector<Ep*> eps;
    Regions regions;
    std::vector<Cntr*> region_cntrs;  ///< Counters of regions, each once.
    std::atomic<int> children = 0;
    const Ep* moved = nullptr;   ///< The endpoint whose progress has found something last.
    bool is_progressed = false;  ///< By the program, since auto_progress has looked.
    std::unique_ptr<AutoProgress> auto_progress;  ///< Where the program has asked for it.

  private:
    std::thread::id idle_poller_;  ///< The thread of the last poll that was in vain.
};

/// Held by every call on a domain or on what belongs to it. It locks nothing while the process has
/// one thread: another can then only be made inside the call, and the threads made there (of a
/// Door, of transports) take no domain's lock. AutoProgress has made its thread before there is
/// anything to call.
class Guard {
  public:
    explicit Guard(Domain& domain) : lock_(domain.needs_lock() ? &domain.lock : nullptr) {
        if (lock_ != nullptr) [[unlikely]]
            lock_->lock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() {
        if (lock_ != nullptr) [[unlikely]]
            lock_->unlock();
    }

  private:
    std::mutex* lock_;
};

/// The object behind a fid that is its first member.
template <class Object, class Base>
Object& object_of(fid* handle) {
    return *static_cast<Object*>(reinterpret_cast<Base*>(handle));
}

}  // namespace tagwire::fi
