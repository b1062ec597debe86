// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_rma(3) of an endpoint: put and get of the messaging layer, with the key that
// stands for libfabric's (remote_keys.hpp).
//
//     call -- all usual, key known -----------> tw_put(), tw_get()           (rma_datapath.hpp)
//        '--- anything else --> RmaOperation --> proceed(): a piece for each remote element
//                                  |   '-- key not known: waits for it, then proceed()
//                                  |   '-- no resource: held, until a later progress
//                                  '-- all pieces have ended --> finish(): notice, entry, counter
//                                      '-- no memory for a notice: held likewise
//
// 1. An operation that ends within its call has no RmaOperation.
// 2. An operation that is refused for its address, by a key that was known before, is repeated once
//    from its beginning with keys that are asked for anew: a program may register memory again
//    under a key that peers have used.
// 3. Where somebody counts at the target, an operation ends when it is delivered, and a notice
//    follows (KeyService).
// 4. All of this runs with the domain's lock.
#pragma once

#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "mr.hpp"
#include "remote_keys.hpp"

namespace tagwire::fi {

struct Peer;
class Rma;

/// Elements of a list of remote memory.
inline constexpr std::size_t kRmaIovMax = TW_IOV_MAX;

/// Arguments of a call; those of a call that a program makes without flags are fewer.
struct Transfer {
    const iovec* iov;
    void* const* desc;
    std::size_t count;
    const fi_rma_iov* remote;
    std::size_t remote_count;
    fi_addr_t peer;
    std::uint64_t imm;
    void* context;
    std::uint64_t flags;  ///< FI_x of the operation.
    bool is_reported;     ///< Success gets an entry.
};
struct TransferArgs {
    void* buf;
    std::size_t length;
    void* desc;
    fi_addr_t peer;
    std::uint64_t address;
    std::uint64_t key;
    std::uint64_t imm;
    void* context;
};

/// An operation that has not ended within its call.
struct RmaOperation : KeyWaiter {
    Rma* rma = nullptr;
    RmaOperation* next = nullptr;  ///< In the list of free ones, or of those that are held.
    Peer* peer = nullptr;
    void* context = nullptr;
    tw_mem_h mem = nullptr;
    std::uint64_t imm = 0;
    std::uint64_t flags = 0;       ///< FI_x
    std::uint32_t op_flags = 0;    ///< TW_OP_x of each piece.
    std::uint32_t serial_max = 0;  ///< No key that was used has been learnt later.
    bool is_read = false;
    bool is_reported = false;
    bool is_repeated = false;
    bool tells = false;       ///< The target counts it.
    bool sends_data = false;  ///< Its CQ data follows by a notice.
    tw_status_t status = TW_OK;
    int error = 0;           ///< An errno of libfabric, positive.
    bool is_parked = false;  ///< It waits for a key, or is held.
    unsigned pending = 0;    ///< Pieces on their way.
    std::size_t at = 0;      ///< The next piece, an index of `remote`.
    std::size_t told = 0;    ///< Regions that have been told of.
    std::size_t count = 0;   ///< Elements of `iov`.
    std::size_t remote_count = 0;
    std::unique_ptr<std::byte[]> copy;  ///< The data, if it is injected.
    tw_request_h requests[kRmaIovMax];  ///< Pieces on their way; nullptr: none.
    iovec iov[TW_IOV_MAX];
    fi_rma_iov remote[kRmaIovMax];
};

class Rma {
  public:
    explicit Rma(Ep& owner) : owner_(owner) {}
    Rma(const Rma&) = delete;
    Rma& operator=(const Rma&) = delete;

    /// By whether the domain is locked, and whether the queue of transmits has whole entries.
    static fi_ops_rma* table(bool is_locked, bool is_whole);

    /// The default flags of transmits have changed, or the endpoint is enabled.
    void fold();
    /// Nothing waits, is held, or has a notice to send.
    bool is_idle() const { return unfinished_ == 0; }
    bool has_held() const { return held_first_ != nullptr; }
    /// Something is held for want of memory alone, which no event tells of.
    bool lacks_memory() const { return lacks_memory_; }
    /// Goes on with what is held.
    void resume();
    /// Asks one operation of that context to end early; its pieces on their way end as the
    /// messaging layer has it. 0, -FI_ENOENT: there is none, or another negative errno.
    int cancel(const void* context);
    /// The peer is left, or has failed: ends what is held for it.
    void drop(const Peer& peer, int error);

    // ---- Where the calls lead; kIsRead or a write

    /// False: the call takes the general way (rma_datapath.hpp).
    template <bool kIsRead, bool kHasImm, class Entry>
    bool try_transfer(const TransferArgs& args, ssize_t* answer_p);
    template <bool kHasImm>
    bool try_inject(const TransferArgs& args, ssize_t* answer_p);
    template <bool kIsRead>
    ssize_t transfer(const Transfer& what);

  private:
    enum class Outcome {
        kUnderWay,
        kNoResource,  ///< The next piece has not begun.
        kOver         ///< Nothing is under way any more; operation.error tells.
    };

    RmaOperation* next();
    void take(RmaOperation& taken) {
        free_ = taken.next;
        ++unfinished_;
    }
    void put(RmaOperation& done);
    void begin_usual(const TransferArgs& args, tw_request_h request, const RemoteKey& remote,
                     bool is_read, bool has_imm);
    void leave_waiting(RmaOperation& operation);
    static void fill(RmaOperation& operation, const Transfer& what, bool is_read);
    ssize_t begin(RmaOperation& operation);
    ssize_t check_fence(const RmaOperation& operation);
    static int copy_data(RmaOperation& operation);
    Outcome proceed(RmaOperation& operation);
    tw_status_t call(RmaOperation& operation, const RemoteKey& remote);
    void advance(RmaOperation& operation);
    int wait(RmaOperation& operation, std::uint64_t key);
    void hold(RmaOperation& operation);
    void hold_at(RmaOperation** link, RmaOperation& operation);
    RmaOperation& unhold(RmaOperation** link);
    bool repeat(RmaOperation& operation);
    void finish(RmaOperation& operation);
    bool tell(RmaOperation& operation);
    void fail(bool is_read, void* context, int error, tw_status_t status);

    static void on_key(KeyWaiter& waiter, const RemoteKey* remote, int error);
    static void on_piece(const tw_completion_t* done);
    static void on_inject(const tw_completion_t* done);

    Ep& owner_;
    // Parameters of usual calls, as Ep has them.
    std::uintptr_t no_writes_ = 1;
    std::uintptr_t no_reads_ = 1;
    bool injects_ = false;
    tw_op_t write_{};
    tw_op_t write_imm_{};
    tw_op_t read_{};
    tw_op_t inject_{};
    tw_op_t inject_imm_{};

    RmaOperation* free_ = nullptr;
    std::deque<RmaOperation> operations_;
    RmaOperation* held_first_ = nullptr;
    RmaOperation** held_last_ = &held_first_;
    bool lacks_memory_ = false;
    std::size_t unfinished_ = 0;
};

}  // namespace tagwire::fi
