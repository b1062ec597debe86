// SPDX-License-Identifier: BSD-3-Clause
// Base of rc and dc endpoints: messages and one-sided operations as requests of a send queue,
// rendezvous, pending requests, flush. The transport assigns the send queue.
//
//   state    created -> connected -> failing -> failed      destroy(): -> drained -> deleted
//
// Threads: owner thread of the worker.
// Invariants
//  (1) One place of the send queue is left for a flush.
//  (2) sent_ - peer_released_ <= window_: at most window_ messages wait at the peer. Messages that
//      end a rendezvous and those that bring credit count in neither.
//  (3) Once failure_ is set nothing is posted; every operation ends with it, then the error is
//      reported once.
#pragma once

#include "uct/base_iface.hpp"
#include "uct/ib/gather.hpp"
#include "uct/ib/message.hpp"
#include "uct/ib/send_queue.hpp"
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
    ucs_status_t am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                          unsigned length);
    ucs_status_t am_short_iov(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt);
    ssize_t am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned flags);
    ucs_status_t am_zcopy(std::uint8_t id, const void* header, unsigned header_length,
                          const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                          uct_completion_t* comp);

    ucs_status_t put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                           uct_rkey_t rkey);
    ssize_t put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                      uct_rkey_t rkey);
    ucs_status_t put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                           std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                                uct_completion_t* comp);
    ucs_status_t atomic64_post(unsigned opcode, std::uint64_t value, std::uint64_t remote_addr,
                               uct_rkey_t rkey);
    ucs_status_t atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);

    ucs_status_t tag_eager_short(uct_tag_t tag, const void* data, std::size_t length);
    ssize_t tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack, void* arg,
                            unsigned flags);
    ucs_status_t tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                 std::size_t iovcnt, unsigned flags, uct_completion_t* comp);
    ucs_status_ptr_t tag_rndv_zcopy(uct_tag_t tag, const void* header, unsigned header_length,
                                    const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                                    uct_completion_t* comp);
    ucs_status_t tag_rndv_cancel(void* handle);
    ucs_status_t tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                  unsigned flags);

    ucs_status_t pending_add(uct_pending_req_t* request, unsigned flags);
    void pending_purge(uct_pending_purge_callback_t callback, void* arg);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);

    /// Index and generation among those of the interface.
    [[nodiscard]] std::uint32_t id() const { return id_; }
    /// UCS_OK, or what it failed with.
    [[nodiscard]] ucs_status_t failure() const { return failure_; }

  protected:
    friend class MessageIface;
    enum class State : std::uint8_t { kCreated, kConnected, kFailing, kFailed };

    MessageEp(MessageIface& owner, SendQueue& queue);
    ~MessageEp() = default;

    [[nodiscard]] MessageIface& owner() const;

    // ---- Room. A refusal has changed nothing.
    [[nodiscard]] bool has_room(unsigned requests) const;
    [[nodiscard]] bool has_credit(unsigned messages) const {
        return sent_ - peer_released_ + messages <= window_;
    }
    /// For sends of the user: UCS_OK, UCS_ERR_NO_RESOURCE or the failure.
    ucs_status_t room(unsigned requests, unsigned messages);
    [[gnu::noinline, gnu::cold]] ucs_status_t make_room(unsigned requests, unsigned messages);
    [[gnu::noinline, gnu::cold]] ucs_status_t no_room();
    [[nodiscard]] bool blocks_sends() const { return group_ != nullptr && group_->blocks_sends(); }
    /// Passes each pending request to `callback(request)`.
    template <class Callback>
    void purge(Callback&& callback);
    /// Room for one request with an element of `pool` behind it.
    ucs_status_t take(SendPool& pool, unsigned messages, SendOp** op_p);
    /// The same, a segment that `pack` has filled behind `offset` bytes: its length, or an error.
    /// `what` names it where it is too long.
    ssize_t take_packed(const char* what, unsigned messages, std::size_t offset,
                        uct_pack_callback_t pack, void* arg, SendOp** op_p);

    // ---- Posting. There is room.
    unsigned take_places(unsigned count, bool signal);
    /// The last request of a chain of `count` asks for a completion when `signal`, or when it is
    /// time.
    ucs_status_t post(ibv_send_wr& first, ibv_send_wr& last, unsigned count, bool signal);
    ucs_status_t post(ibv_send_wr& request, bool signal) {
        return post(request, request, 1, signal);
    }
    /// The interface's short request with `head_bytes` of its head and `length` of data.
    ucs_status_t post_short(std::uint32_t head_bytes, const void* data, std::uint32_t length);
    [[gnu::noinline, gnu::cold]] ucs_status_t post_failed(const ibv_send_wr* bad, int error);
    ucs_status_t post_op(SendOp* op, SendOp::Kind kind, ibv_send_wr& request,
                         uct_completion_t* comp);
    ucs_status_t post_empty_write(SendOp* op, SendOp::Kind kind, uct_completion_t* comp);
    /// The same where nobody waits: its completion is that of all before it.
    ucs_status_t post_signal();
    ucs_status_t move_zcopy(const char* call, ibv_wr_opcode opcode, const uct_iov_t* iov,
                            std::size_t iovcnt, std::uint64_t remote_addr, uct_rkey_t rkey,
                            uct_completion_t* comp);
    ucs_status_t flush_cancel(uct_completion_t* comp);
    Prefix prefix(MessageKind kind, std::uint8_t value, std::uint8_t padding);
    /// Puts the head before `bytes` at message + kPrefixBytes: the bytes on the wire.
    std::uint32_t frame_am(std::byte* message, std::uint8_t id, std::size_t bytes);
    ucs_status_t send_eager_parts(uct_tag_t tag, std::uint64_t imm, const Gather& gather,
                                  uct_completion_t* comp);
    ucs_status_t post_atomic(ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap,
                             std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                             uct_completion_t* comp);

    // ---- Ends
    /// Its requests have ended, whatever became of them.
    [[nodiscard]] bool has_ended() const;
    [[nodiscard]] bool is_idle() const;
    void end_rendezvous(ucs_status_t status);

    SendQueue* queue_;
    std::uint32_t id_ = 0;
    std::uint32_t sent_ = 0;           // messages that took a credit, of all time
    std::uint32_t peer_released_ = 0;  // of them the peer is done with
    std::uint32_t window_ = 0;
    std::uint32_t released_ = 0;  // messages of the peer that we are done with
    std::uint32_t told_ = 0;      // what the peer knows of that
    State state_ = State::kCreated;
    ucs_status_t failure_ = UCS_OK;
    bool is_destroyed_ = false;
    bool was_heard_ = false;              // a completion came since the last look at keepalive
    std::uint32_t reads_ = 0;             // of rendezvous, that software carries out
    RndvSend* rndv_first_ = nullptr;      // rendezvous sends under way, oldest first
    SendOp* flushes_ = nullptr;           // their requests are done, older rendezvous are not
    uct::PendingGroup* group_ = nullptr;  // null: nothing was pending lately
};

}  // namespace tagwire::ib
