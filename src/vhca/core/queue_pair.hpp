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
// DC is made of the same two machines. A DCI is a Requester that changes its peer; see
// initiator_session.hpp. One with streams owns a queue pair per stream (dc_initiator.hpp). A DCT
// owns one per session of an initiator, of which only the Responder works, and some whose Requester
// reads the data of rendezvous (dc_target.hpp). Completions and events of an owned queue pair are
// its owner's.
#pragma once

#include <cstdint>
#include <memory>

#include "ucs/datastruct/queue.hpp"
#include "vhca/core/dc_initiator.hpp"
#include "vhca/core/dc_target.hpp"
#include "vhca/core/objects.hpp"
#include "vhca/core/packet.hpp"
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
    [[nodiscard]] std::uint32_t number() const override { return number_; }
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
        if (owner_ != this) [[unlikely]]
            note_stream_polled(place);
        requester_.queue().reclaim(place);
    }
    /// UC and UD: a send failed, later ones are flushed.
    void enter_send_error();
    /// SQD: nothing is on its way any more.
    void note_drained();

    // ---- DC
    /// Itself, unless another one owns it.
    [[nodiscard]] QueuePair& owner() const { return *owner_; }
    [[nodiscard]] bool is_dci() const { return config.dc.kind == DcKind::kInitiator; }
    [[nodiscard]] bool is_dct() const { return config.dc.kind == DcKind::kTarget; }
    [[nodiscard]] DcTarget* target() const { return target_.get(); }
    [[nodiscard]] const DcPeer& peer() const { return peer_; }
    /// Packets go there from now on, and come from there.
    void set_peer(Route route, std::uint32_t qpn, const DcPeer& peer);
    /// For an owned queue pair: the owner sets its number, state and attributes.
    void adopt(std::uint32_t number, ibv_qp_state state, const ibv_qp_attr& attr);
    /// The queue pair to read the data of a rendezvous request that came here (over DC, from the
    /// DCT with that number); nullptr if there is no room.
    [[nodiscard]] QueuePair* find_reader(std::uint32_t dctn);
    /// A session of a DCT ends: what it was receiving goes back, nobody is answered.
    void close_session();

    [[nodiscard]] Requester& requester() { return requester_; }
    [[nodiscard]] Responder& responder() { return responder_; }
    /// The tag matching of its SRQ, or nullptr. If there is one, the device sends, not the program.
    [[nodiscard]] TagMatching* matching() const { return matching_; }
    [[nodiscard]] bool uses(const CompletionQueue& cq) const;
    [[nodiscard]] const ibv_qp_attr& attr() const { return attr_; }
    [[nodiscard]] Route route() const { return route_; }
    [[nodiscard]] std::uint32_t mtu() const { return mtu_bytes_; }
    [[nodiscard]] bool is_reliable() const { return is_reliable_; }
    /// The opcode of this transport for one that is given for RC.
    [[nodiscard]] Opcode opcode(Opcode rc) const {
        return static_cast<Opcode>(transport_ | static_cast<unsigned>(rc));
    }
    /// From us to the peer.
    void address(Packet& packet) const {
        packet.qpn = attr_.dest_qp_num;
        packet.source_qpn = number_;
        packet.qkey = peer_.session;
        packet.stream = peer_.stream;
    }

    Device::Impl& device;
    QpConfig config;  // cap: what was granted
    ucs::ListLink<QueuePair> working_link, waiting_link;

  private:
    [[nodiscard]] bool is_for_us(Route from, const Packet& packet) const;
    [[nodiscard]] int check_values(const ibv_qp_attr& attr, int mask) const;
    void take_values(const ibv_qp_attr& attr, int mask, Route route);
    void change_state(ibv_qp_state next, const ibv_qp_attr& attr, int mask);
    void reset();
    void receive_dc(Route from, Packet& packet);
    void receive_as_initiator(Route from, Packet& packet);
    void enter_dc_error();
    void note_stream_polled(std::uint32_t place);
    [[nodiscard]] bool has_streams() const { return initiator_ != nullptr; }

    std::uint32_t number_ = 0, table_number_ = 0;
    std::uint32_t mtu_bytes_ = 256;
    DcPeer peer_;
    std::uint8_t transport_;
    bool is_reliable_;
    ibv_qp_state state_ = IBV_QPS_RESET;
    bool communicates_ = false;   // COMM_EST was reported
    bool tells_drained_ = false;  // SQD: IBV_EVENT_SQ_DRAINED is wanted
    Route route_;
    TagMatching* matching_ = nullptr;
    QueuePair* owner_;
    std::unique_ptr<DcInitiator> initiator_;  // of a DCI with streams
    std::unique_ptr<DcTarget> target_;        // of a DCT
    ibv_qp_attr attr_{};
    Requester requester_;
    Responder responder_;
};

}  // namespace tagwire::vhca
