// SPDX-License-Identifier: BSD-3-Clause
// The objects that work is posted to and completions come from. They live in a Device and share its
// thread; see device.hpp for the conventions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "vhca/core/device.hpp"

namespace tagwire::vhca {

/// A completion with what the extended CQ interface can ask for beyond ibv_wc.
struct Completion {
    ibv_wc wc{};  // qp_num is the number of the QP that it belongs to
    Time time = 0;
    Route from;  // node that a received message came from
    std::uint64_t tm_tag = 0;
    std::uint32_t tm_priv = 0;
    std::uint16_t tm_count = 0;  // list operations: unexpected messages that the device counted
    bool is_solicited = false;   // an event is wanted; errors are
    // ---- For a CompletionConsumer; Cq::poll() leaves them as they are
    void* qp_user = nullptr;       // of the queue pair that it belongs to, a tagged message's too
    void* tag_srq_user = nullptr;  // of the tag-matching SRQ that it comes from
    /// In place of what would be in the buffer (QpConfig); valid in take().
    std::span<const std::byte> data{};
};

class Cq {
  public:
    /// The oldest completion, removed. False: empty. Polling the completion of a send request gives
    /// its place in the send queue back, and those of all requests before it.
    virtual bool poll(Completion* completion_p) = 0;
    /// ibv_req_notify_cq(3). Fires at once if there are completions that were neither polled nor
    /// announced; a later arming for solicited ones only does not weaken an earlier one for all.
    virtual void arm(bool solicited_only) = 0;
    virtual int resize(std::uint32_t cqe) = 0;  // EINVAL: fewer than are in it
    [[nodiscard]] virtual std::uint32_t cqe() const = 0;
    [[nodiscard]] virtual bool is_empty() const = 0;
    [[nodiscard]] void* user() const { return user_; }

  protected:
    explicit Cq(void* user) : user_(user) {}
    ~Cq() = default;

  private:
    void* user_;
};

class Srq {
  public:
    /// ENOMEM: full. EINVAL: too many sges.
    virtual int post(const RecvWork& work) = 0;
    /// ibv_modify_srq(3): IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT.
    virtual int modify(const ibv_srq_attr& attr, int mask) = 0;
    virtual void query(ibv_srq_attr* attr) const = 0;
    /// ibv_post_srq_ops(3). On failure `*failed_p` is the index of the one that failed; those
    /// before it were carried out. EINVAL: not a tag-matching SRQ, more than one sge, no such
    /// operation. ENOMEM: the list is full, or so many operations were not polled.
    virtual int post_ops(std::span<TagWork> works, std::size_t* failed_p, Time now) = 0;
    [[nodiscard]] virtual std::uint32_t number() const = 0;
    [[nodiscard]] void* user() const { return user_; }

  protected:
    explicit Srq(void* user) : user_(user) {}
    ~Srq() = default;

  private:
    void* user_;
};

class Qp {
  public:
    /// `route` is where attr.ah_attr leads (the face knows the fabric); used with IBV_QP_AV only.
    /// EINVAL: not a legal transition, a required bit is missing, one is there that must not be, or
    /// a value is out of range; nothing changed.
    virtual int modify(const ibv_qp_attr& attr, int mask, Route route, Time now) = 0;
    virtual void query(ibv_qp_attr* attr) const = 0;
    /// A stream of a DCI that failed works again. EINVAL: the QP has no streams, or is not in RTS.
    virtual int reset_stream(std::uint16_t stream) = 0;

    /// ENOMEM: the queue is full, or inline data is too long. EINVAL: wrong state, opcode or sge
    /// count, or the QP has a tag-matching SRQ, which sends in its place. The request is on its way
    /// when this returns; progress() continues it.
    virtual int post_send(const SendWork& work, Time now) = 0;
    /// As post_send, but held back until ring(): the requests of one list leave together.
    virtual int enqueue_send(const SendWork& work) = 0;
    virtual void ring(Time now) = 0;
    /// Takes back what was enqueued and not rung for, as if it had never been.
    virtual void cancel_enqueued() = 0;
    /// ENOMEM: full. EINVAL: RESET state, too many sges, or the QP has an SRQ.
    virtual int post_recv(const RecvWork& work) = 0;
    /// In ERR: what its ReceiveSource has now is flushed. Else nothing: messages ask for it.
    virtual void flush_source(Time now) = 0;

    /// A DCT has one in RTR only, 0 before.
    [[nodiscard]] virtual std::uint32_t number() const = 0;
    [[nodiscard]] virtual ibv_qp_state state() const = 0;
    [[nodiscard]] virtual ibv_qp_type type() const = 0;
    [[nodiscard]] virtual const ibv_qp_cap& cap() const = 0;
    [[nodiscard]] void* user() const { return user_; }

  protected:
    explicit Qp(void* user) : user_(user) {}
    ~Qp() = default;

  private:
    void* user_;
};

}  // namespace tagwire::vhca
