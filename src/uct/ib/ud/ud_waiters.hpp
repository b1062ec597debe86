// SPDX-License-Identifier: BSD-3-Clause
// Operations of endpoints that wait for an acknowledgement: flushes, checks, cancels. An endpoint
// has a list of them, oldest first; the memory is the interface's.
//
// Threads: owner thread of the worker.
#pragma once

#include <ucs/type/status.h>
#include <uct/api/uct.h>

#include <cstdint>

#include "ucs/memory/mpool.hpp"
#include "uct/completion.hpp"

namespace tagwire::ud {

enum class Waits : std::uint8_t { kFlush, kCheck, kCancel };

struct Waiter {
    Waiter* next;
    uct_completion_t* comp;
    std::uint32_t mark;  // packet number, or that of a probe
    Waits kind;
};

class Waiters {
  public:
    ucs_status_t init() { return pool_.init({.name = "ud waiters", .elements_per_chunk = 64}); }

    /// UCS_INPROGRESS: it is the last of the list; UCS_ERR_NO_MEMORY.
    ucs_status_t add(Waiter*& first, uct_completion_t* comp, std::uint32_t mark, Waits kind) {
        Waiter* waiter = pool_.create(Waiter{nullptr, comp, mark, kind});
        if (waiter == nullptr)
            return UCS_ERR_NO_MEMORY;
        Waiter** at = &first;
        while (*at != nullptr)
            at = &(*at)->next;
        *at = waiter;
        return UCS_INPROGRESS;
    }
    /// The oldest end, as far as `has_ended(waiter)`.
    template <class HasEnded>
    void settle(Waiter*& first, HasEnded&& has_ended) {
        while (first != nullptr && has_ended(*first))
            uct::invoke_completion(take(first).comp, UCS_OK);
    }
    /// All end; the flush that cancelled the others succeeds.
    void end_all(Waiter*& first, ucs_status_t status) {
        while (first != nullptr) {
            const Waiter waiter = take(first);
            const bool is_well = status == UCS_ERR_CANCELED && waiter.kind == Waits::kCancel;
            uct::invoke_completion(waiter.comp, is_well ? UCS_OK : status);
        }
    }

  private:
    Waiter take(Waiter*& first) {
        Waiter* waiter = first;
        const Waiter taken = *waiter;
        first = waiter->next;
        pool_.destroy(waiter);
        return taken;
    }

    ucs::ObjectPool<Waiter> pool_;
};

}  // namespace tagwire::ud
