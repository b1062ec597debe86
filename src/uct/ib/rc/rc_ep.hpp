// SPDX-License-Identifier: BSD-3-Clause
// An endpoint of reliable connections: its queue pairs, and the state known of the peer.
//
// On a device that matches tags an endpoint has two queue pairs, each connected to the other kind
// of its peer, because the send queue of one on a tag-matching SRQ belongs to the device: there it
// reads the data of a rendezvous and tells its end.
//
//   ours, on the SRQ of ends  ---- all messages ---->  the device's, on the tag-matching SRQ
//                             <--- reads, ends (FIN) -
//
// Threads: owner thread of the worker.
#pragma once

#include "uct/ib/message_ops.hpp"

namespace tagwire::rc {

class RcIface;
struct RcEpAddress;

class RcEp : public ib::MessageOps {
  public:
    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy();
    ucs_status_t get_address(uct_ep_addr_t* addr);
    ucs_status_t connect_to_ep(const uct_device_addr_t* dev_addr, const uct_ep_addr_t* ep_addr);

    // ---- State of its credits (RcCredits)
    std::uint64_t lasting_id = 0;  // messages are kept for as long as the user likes
    std::uint32_t held = 0;        // messages of the peer that the user keeps
    bool owes_credit = false;      // in the list of those that owe

  private:
    friend class RcIface;

    explicit RcEp(RcIface& owner);
    ~RcEp();

    [[nodiscard]] RcIface& owner() const;
    ucs_status_t make_queue_pairs();
    ucs_status_t make_queue_pair(unsigned depth, ibv_srq* srq, ibv_qp** qp_p);
    ucs_status_t to_rts(ibv_qp* qp, std::uint32_t peer_qp, const RcEpAddress& peer,
                        const ibv_ah_attr& path, ibv_mtu mtu);
    ucs_status_t to_init(ibv_qp* qp);
    void to_created();
    void to_error();
    void destroy_queue_pairs();

    /// The eager message whose first part came, when more follow.
    struct Partial {
        ib::SoftReceive* receive;
        void* context;
        uct_tag_t tag;
        std::uint64_t imm;
        std::uint32_t bytes;
    };

    ib::WorkQueue own_queue_;  // without a queue pair once its requests were given up
    ibv_qp* device_qp_ = nullptr;
    std::uint32_t message_qp_num_ = 0;  // of the one that takes the peer's messages
    bool has_partial_ = false;
    bool has_spoken_ = false;         // either side has, so the peer is connected too
    std::uint8_t silent_rounds_ = 0;  // of keepalive, before that
    std::uint8_t last_requests_ = 0;  // "last WQE reached" events still to come
    Partial partial_{};
};

static_assert(sizeof(RcEp) <= 256 + sizeof(uct::BaseEp));

}  // namespace tagwire::rc
