// SPDX-License-Identifier: BSD-3-Clause
// The endpoint of messages that rc and dc share: its state, the room that it has, and the posting
// of requests. The operations of UCT are built on it (rma_ep.hpp, message_ops.hpp); the transport
// assigns the send queue.
//
//   state    created -> connected -> failing -> failed      destroy(): -> drained -> deleted
//
// Threads: owner thread of the worker.
// Invariants
//  (1) One place of the send queue is left for a flush.
//  (2) sent - peer_released <= window: at most `window` messages wait at the peer. Messages that
//      end a rendezvous and those that bring credit count in neither.
//  (3) Once `failure` is set nothing is posted; every operation ends with it, then the error is
//      reported once.
#pragma once

#include "uct/base_iface.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/message.hpp"
#include "uct/ib/work_queue.hpp"
#include "uct/pending.hpp"

namespace tagwire::ib {

/// Above these nothing is inlined, gathered or cut, whatever a device has.
inline constexpr std::uint32_t kInlineBytesMin = 24;  // the shortest active message
inline constexpr std::uint32_t kInlineBytesMax = 1024;
inline constexpr std::size_t kZcopyHeaderMax = 256;
inline constexpr std::size_t kEagerPartsMax = 8;
inline constexpr std::size_t kAnswerBytesMax = 64;  // of what says where answers go
static_assert(kEagerPartsMax * kTmhBytes <= kZcopyHeaderMax);

class MessageIface;
struct RndvSend;
struct SoftReceive;

class MessageEp : public uct::BaseEp {
  public:
    enum class State : std::uint8_t { kCreated, kConnected, kFailing, kFailed };

    [[nodiscard]] MessageIface& owner() const;

    // ---- Room. A refusal has changed nothing.
    [[nodiscard]] bool has_room(unsigned requests) const;
    [[nodiscard]] bool has_credit(unsigned messages) const {
        return sent - peer_released + messages <= window;
    }
    /// For sends of the user: UCS_OK, UCS_ERR_NO_RESOURCE or the failure.
    ucs_status_t room(unsigned requests, unsigned messages);
    /// For requests that are not the user's. False: what lacks was asked for.
    bool gets_room(unsigned requests);
    /// There is no room for a send of the user: counts and tells why. Its status.
    [[gnu::noinline, gnu::cold]] ucs_status_t no_room();
    [[nodiscard]] bool blocks_sends() const { return group != nullptr && group->blocks_sends(); }
    /// Passes each pending request to `callback(request)`.
    template <class Callback>
    void purge(Callback&& callback);
    /// Room for one request with an element of `pool` behind it.
    ucs_status_t take(SendPool& pool, unsigned messages, SendOp** op_p);
    /// As take(), with a segment that `pack` has filled behind `offset` bytes: its length, or an
    /// error.
    /// `what` names it where it is too long.
    ssize_t take_packed(const char* what, unsigned messages, std::size_t offset,
                        uct_pack_callback_t pack, void* arg, SendOp** op_p);

    // ---- Posting. There is room.
    /// The last request of a chain of `count` asks for a completion when `signal`, or when it is
    /// time.
    ucs_status_t post(ibv_send_wr& first, ibv_send_wr& last, unsigned count, bool signal);
    ucs_status_t post(ibv_send_wr& request, bool signal) {
        return post(request, request, 1, signal);
    }
    /// A message of `bytes` that the device has copied when this returns.
    ucs_status_t post_inline(const void* message, std::uint32_t bytes);
    /// The interface's short request with `head_bytes` of its head and `length` of data.
    ucs_status_t post_short(std::uint32_t head_bytes, const void* data, std::uint32_t length);
    ucs_status_t post_op(SendOp* op, SendOp::Kind kind, ibv_send_wr& request,
                         uct_completion_t* comp);
    /// A write of nothing: keys are not looked at, and its acknowledgement is that of all before
    /// it.
    ucs_status_t post_empty_write(SendOp* op, SendOp::Kind kind, uct_completion_t* comp);
    /// As post_empty_write(), where nobody waits: its completion is that of all before it.
    ucs_status_t post_signal();
    /// The head of a message without a tag; it tells the peer what was released.
    [[gnu::always_inline]] Prefix prefix(MessageKind kind, std::uint8_t value,
                                         std::uint8_t padding) {
        told = released;
        return Prefix::of(kind, value, padding, released);
    }

    // ---- Ends
    /// Its requests have ended, whatever became of them.
    [[nodiscard]] bool has_ended() const;
    [[nodiscard]] bool is_idle() const;

    // ---- State that the parts of the interface keep here
    WorkQueue* queue;
    std::uint32_t id = 0;             // index and generation among those of the interface
    std::uint32_t sent = 0;           // messages that took a credit, of all time
    std::uint32_t peer_released = 0;  // of them the peer is done with
    std::uint32_t window = 0;
    std::uint32_t released = 0;  // messages of the peer that we are done with
    std::uint32_t told = 0;      // what the peer knows of that
    State state = State::kCreated;
    ucs_status_t failure = UCS_OK;
    bool is_destroyed = false;
    bool was_heard = false;              // a completion came since the last look at keepalive
    std::uint32_t reads = 0;             // of rendezvous, that software carries out
    RndvSend* rndv_first = nullptr;      // rendezvous sends under way, oldest first
    SendOp* flushes = nullptr;           // their requests are done, older rendezvous are not
    uct::PendingGroup* group = nullptr;  // null: nothing was pending lately

  protected:
    MessageEp(MessageIface& owner, WorkQueue& own_queue);
    ~MessageEp() = default;

  private:
    [[gnu::noinline, gnu::cold]] ucs_status_t make_room(unsigned requests, unsigned messages);
    [[gnu::noinline, gnu::cold]] bool make_own_room(unsigned requests);
    [[gnu::noinline, gnu::cold]] ucs_status_t post_failed(const ibv_send_wr* bad, int error);
};

}  // namespace tagwire::ib
