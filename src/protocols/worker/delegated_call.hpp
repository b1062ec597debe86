// SPDX-License-Identifier: BSD-3-Clause
// A plain call on a worker of many threads whose lock another thread has: all that this one needs
// to carry it out. The caller has its answer already, so nothing may fail for want of memory: the
// lock is open only while there is enough.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "ucs/sys/delegation_lock.hpp"
#include "ucs/sys/spin_pause.hpp"
#include "ucs/sys/step_aside.hpp"

namespace tagwire::proto {

class Endpoint;
class WorkerCore;

/// Data of a message that is delegated: as much as a slot of shared memory takes.
inline constexpr std::size_t kDelegatedBytesMax = 104;

struct DelegatedReceive {
    void* buffer;
    std::uint64_t mask;
    tw_complete_cb_t complete;
    void* context;
    std::uint32_t flags;  // TW_OP_x
};

struct DelegatedCall {
    Endpoint* ep;  // nullptr: it receives
    std::uint64_t tag;
    std::uint32_t is_tagged;
    std::uint32_t data_bytes;  // of a send
    std::uint64_t length;      // of a receive: its buffer
    union {
        std::byte data[kDelegatedBytesMax];
        DelegatedReceive receive;
    };
};

/// To be called with the lock. Progress reports ends.
void carry_out(WorkerCore& worker, const DelegatedCall& call);

struct WorkerLockEnv {
    template <class T>
    using Atom = std::atomic<T>;
    using Job = DelegatedCall;
    static constexpr std::uint64_t kRoom = 32;
    // SYNC delegation_lock: as delegation_lock.hpp says.
    static constexpr std::memory_order kLeave = std::memory_order_release;
    static constexpr unsigned kPatience = 8;
    static void pause(unsigned spins) {
        constexpr unsigned kSpins = 24, kPauses = 64;
        if (spins >= kSpins)
            yield();
        for (unsigned i = 0; i < kPauses; ++i)
            ucs::spin_pause();
    }
    static void yield() { ucs::step_aside(); }
};

using WorkerLock = ucs::DelegationLock<WorkerLockEnv>;

}  // namespace tagwire::proto
