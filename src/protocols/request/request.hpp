// SPDX-License-Identifier: BSD-3-Clause
// A request: one operation of the program from its call to the report of its end.
//
//     made --- ended in the call ---------------------------------------> answered
//       |
//       +--- queued (sends) --- outstanding --- ended --- reported (callback, queue, test)
//       +--- posted (receives) -- outstanding -----^
//
// 1. It ends once (WorkerCore::finish) and is reported once.
// 2. While it is in an endpoint's list of outstanding requests, that endpoint ends it if it fails.
// 3. Memory is a pool's, or the program's (is_foreign) for as long as the operation lasts.
// 4. Whoever takes a request out of a matcher makes it whole, or ends it at once (fast_path.hpp).
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/completion/completion_queue.hpp"
#include "protocols/index/source_matcher.hpp"
#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/copy.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_request {};

namespace tagwire::proto {

struct RegLease;
struct DeviceReceive;
struct RmaOp;
class Endpoint;
class Memory;
class CompletionCounter;
class RequestTable;
class WorkerCore;
struct Domain;
struct Request;

/// The tw_op_t of a call that passes none.
inline constexpr tw_op_t kPlainOp{};

// Kinds of receives, beside the flags of the program in Request::flags.
inline constexpr std::uint32_t kMultiReceive = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kBufferedReceive = std::uint32_t{1} << 31;

/// `flag` if `is_set`, else nothing.
constexpr std::uint32_t flag_if(bool is_set, std::uint32_t flag) {
    return is_set ? flag : 0;
}

/// A record of the transport that finds its owner again in a callback.
template <class Record, class Owner>
struct OwnedBy : Record {
    Owner* owner = nullptr;
};

/// A buffer of the program: contiguous (`list` is null), or the elements of a list.
struct Buffer {
    std::byte* base;
    std::size_t length;  // of all of it
    tw_iov_t* list;
    std::size_t count;
    Memory* memory;

    /// Copies bytes [offset, offset + bytes), which are inside, from it or to it: by plain copies
    /// where no kind is named.
    void gather(void* to, std::size_t offset, std::size_t bytes, ucs::CopyKind kind) const;
    void gather(void* to, std::size_t offset, std::size_t bytes) const {
        gather(to, offset, bytes, ucs::plain_kind_for(bytes));
    }
    void scatter(std::size_t offset, const void* from, std::size_t bytes, ucs::CopyKind kind) const;
    void scatter(std::size_t offset, const void* from, std::size_t bytes) const {
        scatter(offset, from, bytes, ucs::plain_kind_for(bytes));
    }
    /// The address of byte `offset` and how many follow it in one piece.
    std::byte* piece(std::size_t offset, std::size_t* bytes_p) const;
};

struct IovBlock {
    tw_iov_t elements[TW_IOV_MAX];
};

enum class RequestKind : std::uint8_t { kSend, kReceive, kFlush, kClose, kRma };

/// The lines of a send queue (send_queue.hpp). Operations wait in the first three until they begin,
/// in the order of their calls.
enum class Line : std::uint8_t {
    kUrgent,    // messages that pass others and a pause (TW_OP_URGENT)
    kMessages,  // messages, flushes, closes, and puts that the target is told of
    kDirect,    // other one-sided operations
    kAsked,     // one-sided operations that the owner is asked to carry out
    kSteps,     // next steps of one-sided operations that have begun
    kReplies,   // next steps that send a message; offers to the sender of a rendezvous
    kData,      // data of rendezvous, in messages
    kMoves,     // reads and writes of transfers
};
inline constexpr std::size_t kOperationLines = 4;
inline constexpr std::size_t kLines = 8;

/// A rendezvous that is read or written: made when needed.
struct Transfer;

/// The completion that the transport counts down when it has transmitted a message. It may do so
/// long after the endpoint has failed: this lives until then, without a request that has ended.
struct Transmission : uct_completion_t {
    RequestTable* table = nullptr;
    Request* request = nullptr;
};

struct alignas(4) RequestState {  // one word to write
    RequestKind kind : 3 = RequestKind::kSend;
    bool is_whole : 1 = false;  // all of it is valid
    bool is_tagged : 1 = false;
    bool is_foreign : 1 = false;  // memory of the program
    // The call gave its handle to the program, and no queue was named.
    bool is_tested : 1 = false;
    bool is_abandoned : 1 = false;  // the program has released the handle
    bool in_call : 1 = false;       // the call that made it has not returned
    bool has_ended : 1 = false;
    bool is_outstanding : 1 = false;
    bool is_queued : 1 = false;
    bool is_posted : 1 = false;
    bool has_gone : 1 = false;     // an eager message: all of it is with the transport
    bool is_offered : 1 = false;   // a receive: the sender may write into its buffer
    bool is_start : 1 = false;     // a receive: only the start of a rendezvous, which goes on
    bool is_internal : 1 = false;  // of the library, from its pool of parts
    // A flush: the peer has taken all before it. A send: its acknowledgement is here.
    bool is_answered : 1 = false;
    bool is_held : 1 = false;           // a tagged receive that no device has (device_tags.hpp)
    bool is_rndv : 1 = false;           // a send: it was announced as a rendezvous
    bool is_announced : 1 = false;      // a send: its placeholder is to follow
    bool wants_cancel : 1 = false;      // a send: its cancel is to follow the placeholder
    bool is_am : 1 = false;             // a send: an active message
    bool is_sent_level : 1 = false;     // a flush or close: at TW_FLUSH_SENT
    bool is_extra : 1 = false;          // kept by TW_OP_QUEUE (request_table.hpp)
    bool has_extra_memory : 1 = false;  // from the pool of such requests
    Line line : 3 = Line::kMessages;    // where it is queued
    Line stream : 3 = Line::kMessages;  // an operation: the line from which it begins
};

/// A posted receive that nothing unusual was asked for uses the first two cache lines alone, from
/// its call to its callback. For everything else it is made whole first. Memory of the program may
/// begin elsewhere in a line.
struct alignas(16) Request : tw_request, PostedReceive, RequestState {
    Buffer buffer;  // base and length; the rest when it is whole
    WorkerCore* worker;
    tw_complete_cb_t complete;
    void* context;
    std::uint32_t flags;  // TW_OP_x, and kinds of receives

    // Valid when it is whole.
    std::uint32_t id;        // by which peers name it; 0: none
    Endpoint* ep;            // where it goes; of a receive, where what matched comes from
    std::uint64_t offset;    // bytes that have gone, or come
    std::uint64_t order;     // among the sends of its endpoint
    void* copy;              // of an injected message that waits
    Transfer* transfer;      // a rendezvous that is read or written
    std::uint64_t wanted;    // of a message under way: bytes that go into the buffer
    std::uint32_t peer_id;   // how the peer names its request
    std::uint32_t acks;      // a receive: HeaderFlag that the sender asked for
    Request* parent;         // the multi-receive that this is a part of
    std::uint32_t children;  // of a multi-receive: parts that have not ended
    ucs_status_t closing;    // status when the parts have ended
    uct_mem_h registration;  // made for this rendezvous, in `registered_in`
    std::uint32_t registered_in;
    RegLease* cached;  // a registration that is kept beyond it
    union {
        ucs::ListLink<Request> queue_link;  // in a send queue, or among ended ones
    };
    union {
        ucs::ListLink<Request> list_link;  // outstanding, or a fence that waits
    };
    Transmission* transmission;
    DeviceReceive* on_device;
    RmaOp* rma;                     // kRma
    CompletionQueue* cq;            // of tw_op_t
    CompletionCounter* counter;     // of tw_op_t
    std::byte* am_header;           // the program's, of an active message; a copy
    std::uint32_t am_header_bytes;  // at most TW_AM_HEADER_MAX
    bool has_extra_header;          // the header and the copy are from the pools of
    bool has_extra_copy;            // extra requests
    KeptCompletion kept;            // when it has ended and `cq` was full
    tw_completion_t done;

    /// Nothing has happened to it yet, and it is not whole.
    Request(WorkerCore* owner, const tw_op_t& op, RequestState state)
        : RequestState(state),
          worker(owner),
          complete(op.complete),
          context(op.context),
          flags(op.flags) {}
    void make_whole();
    /// TW_INPROGRESS, or how it has ended; `*to` (or null) is the completion then.
    tw_status_t test(tw_completion_t* to) const;
    /// The request holds the queue and the counter of its operation; request_table.cc releases
    /// both.
    void name(CompletionQueue* queue, CompletionCounter* count);
    /// The end of a matched receive reads two lines, and its callback reads the context.
    static constexpr bool kHasTwoLines = true;
    const void* companion() const { return context; }
    /// The program tests it.
    bool is_for_test() const {
        return is_tested && complete == nullptr && (flags & TW_OP_COMPLETION) == 0;
    }
};

/// The alignment of pools, by which those two cache lines are two.
inline constexpr std::size_t kRequestAlignment = 64;
static_assert(sizeof(Request) <= TW_REQUEST_BYTES);

using RequestQueue = ucs::List<Request, &Request::queue_link>;
using RequestList = ucs::List<Request, &Request::list_link>;

/// Lets go of what moving its data needs; pieces under way end by themselves. (transfer.cc)
void end_transfer(Request& request);
/// Whether the lane's transport can write from the buffer of this send. (rndv_sender.cc)
bool can_put_from(const Request& request, const Domain& domain);

inline Request& request_of(tw_request_h handle) {
    return *static_cast<Request*>(handle);
}

}  // namespace tagwire::proto
