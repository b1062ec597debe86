// SPDX-License-Identifier: BSD-3-Clause
// A request: one operation of the program from its call to the report of its end.
//
//     made --- ended in the call ---------------------------------------> answered
//       |
//       +--- queued (sends) --- outstanding --- ended --- reported (callback, queue, test)
//       +--- posted (receives) -- outstanding -----^
//
// 1. It ends once (Worker::finish) and is reported once.
// 2. While it is in an endpoint's list of outstanding requests, that endpoint ends it if it fails.
// 3. Memory is the pool's, or the program's (is_foreign) for as long as the operation lasts.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>

#include "protocols/api/tw_def.h"
#include "protocols/source_matcher.hpp"
#include "ucs/datastruct/queue.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name of the C API
struct tw_request {};

namespace tagwire::proto {

class Endpoint;
class Memory;
class Worker;
struct Request;

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
    std::byte* base = nullptr;
    std::size_t length = 0;  // of all of it
    tw_iov_t* list = nullptr;
    std::size_t count = 0;
    Memory* memory = nullptr;

    /// Copies bytes [offset, offset + bytes), which are inside, from it or to it.
    void gather(void* to, std::size_t offset, std::size_t bytes) const;
    void scatter(std::size_t offset, const void* from, std::size_t bytes) const;
    /// The address of byte `offset` and how many follow it in one piece.
    std::byte* piece(std::size_t offset, std::size_t* bytes_p) const;
};

struct IovBlock {
    tw_iov_t elements[TW_IOV_MAX];
};

enum class RequestKind : std::uint8_t { kSend, kReceive, kFlush, kClose };

/// A read of a rendezvous: made when needed.
struct RndvRead;

/// What the transport counts down when it has transmitted a message. It may do so long after the
/// endpoint has failed, so this lives as long as that takes, and forgets a request that has ended.
struct Transmission : uct_completion_t {
    Worker* worker = nullptr;
    Request* request = nullptr;
};

struct alignas(64) Request : tw_request, PostedReceive {
    Worker* worker = nullptr;
    Endpoint* ep = nullptr;  // where it goes; of a receive, where what matched comes from
    Buffer buffer;
    tw_complete_cb_t complete = nullptr;
    std::uint32_t flags = 0;  // TW_OP_x
    std::uint32_t id = 0;     // by which peers name it; 0: none
    RequestKind kind = RequestKind::kSend;
    bool is_tagged = false;
    bool is_foreign = false;   // memory of the program
    bool has_handle = false;   // the program tests it
    bool is_given_up = false;  // ... and does so no more
    bool in_call = false;      // the call that made it has not returned
    bool has_ended = false;
    bool is_outstanding = false;
    bool is_queued = false;
    bool is_posted = false;
    bool has_gone = false;     // an eager message: all of it is with the transport
    bool is_answered = false;  // a flush: the peer has taken everything before it
    std::uint64_t offset = 0;  // bytes that have gone, or come
    std::uint64_t order = 0;   // among the sends of its endpoint
    void* copy = nullptr;      // of an injected message that waits
    RndvRead* read = nullptr;
    std::uint64_t wanted = 0;               // of a message under way: bytes that go into the buffer
    std::uint32_t peer_id = 0;              // how the peer names its request
    std::uint32_t acks = 0;                 // a receive: HeaderFlag that the sender asked for
    Request* parent = nullptr;              // the multi-receive that this is a part of
    std::uint32_t children = 0;             // of a multi-receive: parts that have not ended
    ucs_status_t closing = UCS_INPROGRESS;  // ... how it ends when they have
    uct_mem_h registration = nullptr;       // made for this rendezvous, in `registered_in`
    std::uint32_t registered_in = 0;
    ucs::QueueLink<Request> queue_link;  // in a send queue, or among ended ones
    ucs::ListLink<Request> list_link;    // outstanding
    Transmission* transmission = nullptr;
    tw_completion_t done{};
};

using RequestQueue = ucs::Queue<Request, &Request::queue_link>;
using RequestList = ucs::List<Request, &Request::list_link>;

/// Lets go of what reading a rendezvous needs; pieces under way end by themselves. (rndv.cc)
void end_read(Request& request);

inline Request& request_of(tw_request_h handle) {
    return *static_cast<Request*>(handle);
}

}  // namespace tagwire::proto
