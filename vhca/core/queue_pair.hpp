// SPDX-License-Identifier: BSD-3-Clause
// A queue pair: its state, and its two state machines, Requester and Responder.
//
//   post_send -> Requester ==requests==> Responder of the peer -> receives, memory
//                Requester <=responses== Responder of the peer            (RC only)
//
//   RESET -> INIT -> RTR -> RTS <-> SQD         any but RESET -> ERR; any -> RESET
//                           RTS  -> SQE -> RTS  (UC, UD: a send failed)
//
// In ERR (and SQE for sends) whatever is posted completes at once with WR_FLUSH_ERR.
//
// DC is made of the same two machines, see dc_role.hpp.
#pragma once

#include <cstdint>
#include <memory>

#include "ucs/datastruct/queue.hpp"
#include "vhca/core/dc_role.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/core/qp_context.hpp"
#include "vhca/core/requester.hpp"
#include "vhca/core/responder.hpp"

namespace tagwire::vhca {

class CompletionQueue;

class QueuePair final : public Qp {
  public:
    /// `owner`: nullptr if nobody owns it but the program.
    QueuePair(Device::Impl& device_, const QpConfig& config_, QueuePair* owner = nullptr);
    ~QueuePair();
    int allocate();

    int modify(const ibv_qp_attr& attr, int mask, Route route, Time now) override;
    void query(ibv_qp_attr* attr) const override;
    int post_send(const SendWork& work, Time now) override;
    int enqueue_send(const SendWork& work) override;
    void ring(Time now) override;
    void cancel_enqueued() override;
    int post_recv(const RecvWork& work) override;
    void flush_source(Time now) override;
    int reset_stream(std::uint16_t stream) override;
    [[nodiscard]] std::uint32_t number() const override { return context_.number(); }
    [[nodiscard]] ibv_qp_state state() const override { return state_; }
    [[nodiscard]] ibv_qp_type type() const override { return config.type; }
    [[nodiscard]] const ibv_qp_cap& cap() const override { return config.cap; }

    // ---- The device's side
    void set_number(std::uint32_t number);
    /// The number in the device's table, even while the program is not told.
    [[nodiscard]] std::uint32_t table_number() const { return table_number_; }
    /// A packet whose destination number is ours. Anything else may be wrong with it.
    void receive(Route from, Packet& packet);
    /// Sends what may be sent. False: more is to be sent as soon as the wire takes it.
    bool run();
    /// Returns when it wants to be called again, kNever if it does not.
    Time run_timer();
    /// Before it is destroyed: its completions and what it holds of an SRQ go.
    void retire();

    // ---- For the two machines
    /// To ERR. `keep_replies`: the responder still tells the peer why.
    void enter_error(bool keep_replies);
    void report(ibv_event_type type);
    /// Polled was the completion of the send before `place`.
    void note_polled(std::uint32_t place) {
        if (dc_.is_owned()) [[unlikely]]
            dc_.note_polled(place);
        requester_.queue().reclaim(place);
    }
    /// UC and UD: a send failed, later ones are flushed.
    void enter_send_error();
    /// SQD: nothing is on its way any more.
    void note_drained();

    // ---- DC
    [[nodiscard]] DcRole& dc() { return dc_; }
    /// For an owned queue pair: the owner sets its number, state and attributes.
    void adopt(std::uint32_t number, ibv_qp_state state, const ibv_qp_attr& attr);
    /// A session of a DCT ends: what it was receiving goes back, nobody is answered.
    void close_session();

    [[nodiscard]] QpContext& context() { return context_; }
    [[nodiscard]] Requester& requester() { return requester_; }
    [[nodiscard]] Responder& responder() { return responder_; }
    /// The tag matching of its SRQ, or nullptr. If there is one, the device sends, not the program.
    [[nodiscard]] TagMatching* matching() const { return matching_; }
    [[nodiscard]] bool uses(const CompletionQueue& cq) const;

    Device::Impl& device;
    QpConfig config;  // cap: what was granted
    ucs::ListLink<QueuePair> working_link, waiting_link;

  private:
    [[nodiscard]] bool is_for_us(Route from, const Packet& packet) const;
    void change_state(ibv_qp_state next, const ibv_qp_attr& attr, int mask);
    void reset();

    std::uint32_t table_number_ = 0;
    ibv_qp_state state_ = IBV_QPS_RESET;
    bool communicates_ = false;   // COMM_EST was reported
    bool tells_drained_ = false;  // SQD: IBV_EVENT_SQ_DRAINED is wanted
    TagMatching* matching_ = nullptr;
    QpContext context_;
    DcRole dc_;
    Requester requester_;
    Responder responder_;
};

}  // namespace tagwire::vhca
