// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations of this side on memory of peers. An endpoint has one.
//
//     begin() -- kAtomicAsk --> the peer carries it out -- kAtomicTell --> finish()
//        '-- refused: nothing has happened                                   ^
//        '-- the peer fails, or is left: drop() -----------------------------'
//
// 1. An operation is a slot from its call until it ends, once; the id that the peer repeats has the
//    number of the slot and that of its use, so that a late reply finds nothing.
// 2. Every operation ends with its reply, so that each has the strongest level of completion and
//    reports what the owner refuses. An operation with FI_FENCE begins when those before it to the
//    same peer have ended.
// 3. Operands are copied by the call. Results come with the reply.
// 4. At most kAtomicsOfPeerMax requests to one peer have no reply, so that its replies take no more
//    memory of it than it allows (letters.hpp). One that was cancelled counts until its reply.
// 5. All of this runs with the domain's lock.
#pragma once

#include <rdma/fi_atomic.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "atomic_messages.hpp"
#include "provider.hpp"

namespace tagwire::fi {

class Ep;

/// Most operations of an endpoint that are under way.
inline constexpr std::size_t kAtomicsMax = 65536;

/// Elements of local memory, in their order.
using AtomicList = std::span<const fi_ioc>;

struct AtomicCall {
    AtomicKind kind;
    unsigned op;
    unsigned datatype;
    AtomicList operands;
    AtomicList compares;
    AtomicList results;
    std::span<const fi_rma_ioc> targets;
    fi_addr_t to;
    void* context;
    std::uint64_t flags;  ///< FI_x of the operation.
    bool is_reported;     ///< Success gets an entry.
};

class AtomicCaller {
  public:
    explicit AtomicCaller(Ep& owner) : owner_(owner) {}
    AtomicCaller(const AtomicCaller&) = delete;
    AtomicCaller& operator=(const AtomicCaller&) = delete;

    /// Prepares the endpoint's worker for replies.
    tw_status_t listen();
    /// 0: it has begun, and ends once. Else a negative errno: nothing has happened.
    ssize_t begin(const AtomicCall& call);
    bool is_idle() const { return under_way_ == 0; }
    /// An operation on memory of that peer has not ended. Looks at all that have not.
    bool is_pending(tw_ep_h ep) const;
    /// Ends all operations on memory of that peer; `error` is positive.
    void drop(tw_ep_h ep, int error);
    /// Ends one operation of that context, which the peer may carry out all the same. 0, or
    /// -FI_ENOENT: there is none.
    int cancel(const void* context);

  private:
    struct Slot {
        std::uint32_t use = 0;
        bool is_reported = false;
        bool reads = false;
        tw_ep_h ep = nullptr;  ///< nullptr: it is free.
        Slot* next_free = nullptr;
        void* context = nullptr;
        std::size_t result_bytes = 0;
        std::unique_ptr<tw_iov_t[]> more;  ///< The list of results, if they are not one.
        tw_iov_t result{};
        std::size_t result_count = 0;
        std::uint32_t number = 0;
    };
    /// An operation whose arguments were checked.
    struct Checked {
        std::size_t count = 0;
        std::size_t bytes = 0;
        std::size_t element_bytes = 0;
    };

    int check(const AtomicCall& call, Checked* checked) const;
    std::size_t write_data(const AtomicCall& call, const Checked& checked, std::byte* to) const;
    int take(const AtomicCall& call, const Checked& checked, tw_ep_h ep, Slot** slot_p);
    void put(Slot& slot);
    Slot* find(std::uint64_t id, tw_ep_h ep);
    /// An operation had this id, which has ended: it was cancelled, or its peer was left.
    bool was_used(std::uint64_t id) const {
        const auto number = static_cast<std::uint32_t>(id);
        return number < slots_.size() && id >> 32 < slots_[number].use;
    }
    static void on_reply(void* arg, tw_am_t* am);
    void finish(Slot& slot, int error);

    Ep& owner_;
    std::deque<Slot> slots_;
    Slot* free_ = nullptr;
    std::size_t under_way_ = 0;
};

}  // namespace tagwire::fi
