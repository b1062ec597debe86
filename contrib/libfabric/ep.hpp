// SPDX-License-Identifier: BSD-3-Clause
// Endpoint: a worker of the messaging layer, so that it has a name and a matching space of its own.
// Set-up is in ep.cc, its connections in ep_peers.cc, the calls of fi_msg(3) and fi_tagged(3) in
// msg.cc and tagged.cc; both lead to send() and receive() (datapath.hpp; the rest in send.cc,
// receive.cc, peek.cc, buffered.cc).
//
// 1. An operation that ends within its call is reported from there; any other has an Operation,
//    from the call to the callback of the messaging layer.
// 2. All of this runs with the domain's lock.
// 3. A usual call has data in one piece without a descriptor; its success has an entry (or it
//    injects, and has none) and no counter; nothing is buffered; and no thread runs that could call
//    as well. It goes the fast way if its queue does (Cq::is_fast()). Every other call goes the
//    general way, which looks at everything again. Parameters of usual calls are made when the
//    endpoint is enabled, and when its default flags change (fold()).
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "atomic_caller.hpp"
#include "atomic_server.hpp"
#include "av.hpp"
#include "cntr.hpp"
#include "cq.hpp"
#include "fabric.hpp"
#include "key_service.hpp"
#include "letters.hpp"
#include "mr.hpp"
#include "operation.hpp"
#include "remote_keys.hpp"
#include "rma.hpp"
#include "service.hpp"

namespace tagwire::fi {

/// Where the ends of sends, or of receives, go.
struct Direction {
    Cq* cq = nullptr;
    Cntr* cntr = nullptr;
    bool is_selective = false;
    std::uint64_t op_flags = 0;

    bool reports(std::uint64_t flags) const {
        return cq != nullptr && (!is_selective || (flags & FI_COMPLETION) != 0);
    }
};

/// Counters of one-sided operations: those of this side, and those of peers on its memory.
struct Counters {
    Cntr* reads = nullptr;
    Cntr* writes = nullptr;
    Cntr* remote_reads = nullptr;
    Cntr* remote_writes = nullptr;
};

/// Data of a call: contiguous, or with `iov` a list.
struct Data {
    void* base;
    std::size_t length;
    const iovec* iov = nullptr;
    std::size_t count = 0;
    tw_mem_h mem = nullptr;
};

struct Sending {
    Data data;
    fi_addr_t to;
    std::uint64_t tag;
    std::uint64_t imm;
    void* context;
    std::uint64_t flags;  ///< FI_x of the operation.
    bool is_reported;     ///< Success gets an entry.
};

struct Receiving {
    Data data;
    fi_addr_t from;
    std::uint64_t tag;
    std::uint64_t ignore;
    void* context;
    std::uint64_t flags;
    bool is_reported;
};

/// Arguments of calls without flags.
struct SendArgs {
    const void* buf;
    std::size_t length;
    void* desc;
    fi_addr_t to;
    std::uint64_t tag;
    std::uint64_t imm;
    void* context;
};
struct ReceiveArgs {
    void* buf;
    std::size_t length;
    void* desc;
    fi_addr_t from;
    std::uint64_t tag;
    std::uint64_t ignore;
    void* context;
};

struct CallTables {
    fi_ops_msg msg;
    fi_ops_tagged tagged;
    fi_ops_rma rma;
};

/// A worker that an endpoint sends to, whatever numbers the address vector has for it.
struct Peer {
    Peer(Ep& its_owner, std::uint64_t id, fi_addr_t number)
        : owner(its_owner), worker_id(id), source(number) {}

    Ep& owner;
    const std::uint64_t worker_id;
    fi_addr_t source;  ///< The number that its messages are reported with.
    tw_ep_h ep = nullptr;
    bool is_closing = false;
    bool is_lost = false;  ///< It is to be closed by force and forgotten (Ep::lose()).
    unsigned waiting = 0;  ///< One-sided operations that have not begun.
    unsigned atomics = 0;  ///< Atomics that it has not replied to.
};

class Ep : public fid_ep {
  public:
    Ep(Domain& parent, const fi_info& info, void* user_context);
    Ep(const Ep&) = delete;
    Ep& operator=(const Ep&) = delete;
    ~Ep();

    static int open(fid_domain* domain, fi_info* info, fid_ep** ep_p, void* user_context);
    /// By whether the domain is locked, and whether the queue of sends has whole entries.
    static fi_ops_msg* msg_table(bool is_locked, bool is_whole);
    static fi_ops_tagged* tagged_table(bool is_locked, bool is_whole);

    int bind(fid_t other, std::uint64_t flags);
    int enable();
    /// Waits for messages on their way, within bounds. Nothing is called on it any more.
    void close();
    /// 0: nothing happened.
    unsigned progress() {
        away.reset();
        const unsigned count = tw_worker_progress(worker);
        if (count != 0)
            domain.moved = this;
        return has_backlog_ ? count | clear_backlog() : count;
    }
    /// Letters or one-sided operations wait for resources, or do no more.
    void backlog_changed();
    ssize_t cancel(void* operation_context);
    /// Nothing: the messaging layer gives none, which *status_p tells.
    std::optional<Name> name(tw_status_t* status_p) const;

    /// nullptr: *error_p says why; -FI_EAGAIN while an earlier connection to that peer is closing.
    tw_ep_h peer(fi_addr_t addr, ssize_t* error_p) {
        tw_ep_h const known = known_peer(addr);
        return known != nullptr ? known : connect(addr, error_p);
    }
    /// nullptr: there is no connection yet.
    tw_ep_h known_peer(fi_addr_t addr) const {
        return addr < peers_.size() ? peers_[addr] : nullptr;
    }
    static Peer& peer_of(tw_ep_h ep) { return *static_cast<Peer*>(tw_ep_user_data(ep)); }
    /// nullptr: there is no connection to that worker.
    Peer* find_peer(std::uint64_t worker_id);
    /// The connection to a worker that has sent something, whether or not the program has its
    /// address. nullptr: *status_p says why.
    tw_ep_h reply_to(std::uint64_t worker_id, tw_status_t* status_p);
    /// Operations wait for a key of this peer: sends look whether they still do, and are not taken
    /// until then. A program may rely on a message behind a write though the write has no entry.
    void hold_sends(const Peer& peer);
    bool holds_sends(fi_addr_t addr, tw_ep_h to) const {
        return known_peer(addr) == nullptr && peer_of(to).waiting != 0;
    }
    /// The connection to that worker is of no more use: it is closed by force in a later progress,
    /// and both sides end what they wait for. Needs no memory.
    void lose(std::uint64_t worker_id);
    /// The address vector has removed this number.
    void forget(fi_addr_t addr);
    /// Messages of that worker are reported with this number from now on. FI_ADDR_NOTAVAIL: none of
    /// its numbers is left, and the connection to it is closed.
    void renumber(std::uint64_t worker_id, fi_addr_t source);

    /// The default flags of `tx` or `rx` have changed.
    void fold();

    // ---- Where the calls lead (datapath.hpp)

    /// False: the call takes the general way. Only with `desc` null, and without threads where the
    /// domain is locked. Entry is that of the queue of sends.
    template <bool kTagged, bool kHasImm, class Entry>
    bool try_send(const SendArgs& args, ssize_t* answer_p);
    template <bool kTagged, bool kHasImm>
    bool try_inject(const SendArgs& args, ssize_t* answer_p);
    template <bool kTagged>
    bool try_receive(const ReceiveArgs& args, ssize_t* answer_p);

    template <bool kTagged>
    ssize_t send(const Sending& what);
    template <bool kTagged>
    ssize_t receive(const Receiving& what);

    // ---- For one-sided operations

    /// A call that was refused.
    ssize_t not_taken(tw_status_t status);
    ssize_t try_again() {
        progress();
        return -FI_EAGAIN;
    }
    /// An operation of this side has failed.
    void fail(const Direction& direction, const tw_completion_t& done, void* context,
              std::uint64_t flags);
    /// FI_REMOTE_CQ_DATA of a peer's write.
    void push_remote_data(std::uint64_t data, std::size_t length, tw_ep_h from,
                          std::uint64_t worker_id);

    Domain& domain;
    const std::uint64_t caps;
    std::uint64_t tx_caps;        ///< Those of calls that begin operations (ways.hpp).
    const std::uint64_t rx_caps;  ///< Those of receives, and of operations of peers.
    const bool is_buffered;
    const std::size_t inject_bytes_max;
    Direction tx;
    Direction rx;
    Counters counters;
    Outbox outbox;
    Refusals refusals;
    RemoteKeys keys;
    KeyService key_service;
    Rma one_sided;
    AtomicCaller atomics;
    AtomicServer atomic_server;
    tw_worker_h worker = nullptr;
    bool is_enabled = false;
    /// Something is to be done in progress that no event tells of: nobody falls asleep meanwhile.
    bool is_restless = false;
    /// The worker would give the processor away: nothing has come, and a peer does not run.
    std::optional<tw_away_t> away;
    CallTables tables{};  ///< Its own: calls that its capabilities do not have are refused.

  private:
    /// Lost strangers that there is room for in any case.
    static constexpr std::size_t kStrangersSpare = 64;

    /// Parameters of usual calls. Fields that change with each call are named.
    struct Usual {
        std::uintptr_t no_sends = 1;     ///< 0: sends are usual.
        std::uintptr_t no_receives = 1;  ///< 0: receives are usual.
        bool injects = false;
        bool is_directed = false;  ///< Receives may name their source.
        tw_request_h sent = nullptr;
        tw_op_t send{};      ///< Its context is an operation that is free to begin.
        tw_op_t send_imm{};  ///< The same, and imm.
        tw_op_t inject{};
        tw_op_t inject_imm{};      ///< imm
        tw_op_t tagged_receive{};  ///< context, source
        tw_op_t msg_receive{};     ///< The same.
        tw_message_info_t info{};  ///< For a receive that ends in its call.
    };

    tw_ep_h connect(fi_addr_t addr, ssize_t* error_p);
    tw_status_t open_peer(const Name& name, Peer& peer);
    /// True: it is closed. False: it will be, and leaves known_ then.
    bool close_peer(Peer& peer);
    static void on_closed(const tw_completion_t* done);
    int bind_cq(Cq& cq, std::uint64_t flags);
    int bind_cntr(Cntr& cntr, std::uint64_t flags);
    int bind_av(Av& vector);
    int listen();
    [[gnu::noinline]] fi_addr_t source_of(const tw_completion_t& done) const {
        return source_of(done.ep, done.source);
    }
    fi_addr_t source_of(tw_ep_h from, std::uint64_t worker_id) const;
    static void on_failed(void* arg, tw_ep_h ep, tw_status_t status);
    static void on_remote_put(void* arg, const tw_completion_t* done);
    static void on_away(void* arg, tw_away_t how);
    static void on_peer_event(void* arg, std::uint64_t worker_id, tw_peer_event_t event,
                              tw_status_t status);
    void drop_lost_peers();
    bool drop_stranger(std::uint64_t worker_id);
    void connected();
    void disconnected(std::uint64_t worker_id);
    unsigned clear_backlog();
    void set_backlog(bool has_backlog);
    /// The connection is left or has failed: ends what has not begun.
    void left_peer(Peer& peer, int error);
    bool is_settled();

    // ---- Ends of operations

    static void on_send_end(const tw_completion_t* done);
    static void on_receive_end(const tw_completion_t* done);
    static void on_usual_send(const tw_completion_t* done);
    static void on_usual_inject(const tw_completion_t* done);
    /// kIsWhole: the queue has whole entries, else contexts only.
    template <bool kTagged, bool kIsWhole>
    static void on_usual_receive(const tw_completion_t* done);
    template <bool kTagged>
    static void on_slow_receive(const tw_completion_t* done);
    void begin_usual_send(void* context, std::uint64_t flags);
    /// An operation for the next usual send that does not end in its call.
    void prepare_usual_send();
    static void on_multi_receive(const tw_completion_t* done);
    static void on_buffered(const tw_completion_t* done);
    void end_send(const tw_completion_t& done, void* context, std::uint64_t flags,
                  bool is_reported);
    void end_receive(const tw_completion_t& done, void* context, std::uint64_t flags,
                     bool is_reported);
    /// A message for a buffered receive.
    void show(const tw_completion_t& done, void* tag_context);

    // ---- Kinds of receives

    template <bool kTagged>
    tw_status_t call_receive(const Receiving& what, const tw_op_t& op, tw_request_h* request_p);
    template <bool kTagged>
    ssize_t receive_otherwise(const Receiving& what);
    template <bool kTagged>
    ssize_t receive_many(const Receiving& what);
    template <bool kTagged>
    ssize_t peek(const Receiving& what);
    template <bool kTagged>
    ssize_t claim(const Receiving& what);
    template <bool kTagged>
    ssize_t receive_buffered(const Receiving& what);
    template <bool kTagged>
    ssize_t claim_shown(const Receiving& what);
    template <class Call>
    ssize_t start(const Receiving& what, bool is_tagged, tw_op_t& op, std::uint64_t flags,
                  const Call& call);
    /// As start(), of a message that was taken.
    ssize_t start_message(const Receiving& what, bool is_tagged, tw_message_h message,
                          std::uint64_t flags);

    ssize_t usual_ended_in_call(tw_status_t status, void* context, std::size_t room,
                                bool is_tagged);

    /// Answers for who looks for this endpoint by a service. `address`: fi_info's src_addr.
    int open_door(const void* address);

    bool has_backlog_ = false;
    bool has_lost_peers_ = false;
    /// Connected workers that lose() was called for and that have no Peer, or one that is closing.
    /// There is room for all that are connected (connected()), and for a few more.
    std::vector<std::uint64_t> lost_strangers_;
    std::size_t connected_ = 0;
    bool is_left_ = false;  ///< By the program: connections are only closed from now on.
    std::unique_ptr<Door> door_;
    Av* av_ = nullptr;
    Usual usual_;
    std::span<tw_ep_h> peers_;  ///< By fi_addr_t; nullptr: not yet.
    std::vector<tw_ep_h> peer_room_;
    /// By worker id, each once; those that are closing too. Elements do not move: the user data of
    /// their endpoints points to them.
    std::unordered_map<std::uint64_t, Peer> known_;
    OperationPool operations_;
};

inline Ep& ep_of(fid_ep* handle) {
    return static_cast<Ep&>(*handle);
}

/// The handle of a list, if it is one and the same for all elements.
inline tw_mem_h mem_of_list(void* const* desc, std::size_t count) {
    if (desc == nullptr || count == 0)
        return nullptr;
    for (std::size_t i = 1; i < count; ++i)
        if (desc[i] != desc[0])
            return nullptr;
    return mem_of(desc[0], SIZE_MAX);
}

/// An entry in the queue's format; `whole` has that of FI_CQ_FORMAT_TAGGED.
inline fi_cq_entry entry_of(const fi_cq_entry*, const fi_cq_tagged_entry& whole) {
    return {whole.op_context};
}
inline fi_cq_tagged_entry entry_of(const fi_cq_tagged_entry*, const fi_cq_tagged_entry& whole) {
    return whole;
}

inline Data one_piece(const void* buf, std::size_t length, void* desc = nullptr) {
    return {const_cast<void*>(buf), length, nullptr, 0, mem_of(desc, length)};
}

inline Data list_of(const iovec* iov, void* const* desc, std::size_t count) {
    if (count == 1)
        return {iov->iov_base, iov->iov_len, nullptr, 0,
                desc == nullptr ? nullptr : mem_of(*desc, iov->iov_len)};
    return {nullptr, 0, iov, count, mem_of_list(desc, count)};
}

}  // namespace tagwire::fi
