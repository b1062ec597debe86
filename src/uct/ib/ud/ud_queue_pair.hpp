// SPDX-License-Identifier: BSD-3-Clause
// The queue pair of ud and its sending half: places in the send queue, packets that are posted, and
// the buffers that the device still reads.
//
// Threads: owner thread of the worker.
// Invariants
//  (1) Requests posted - requests completed + free places = depth; some places are reserved for
//      packets other than DATA.
//  (2) A buffer is free again when its packet is acknowledged and no request under way reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct/ib/completion_queue.hpp"
#include "uct/ib/ib_iface.hpp"
#include "uct/ib/send_pool.hpp"
#include "uct/ib/ud/ud_options.hpp"
#include "uct/ib/ud/ud_packet.hpp"
#include "uct/ib/ud/ud_peers.hpp"

namespace tagwire::ud {

inline constexpr std::uint32_t kQkey = 0x1a67d1e5;  // of all our queue pairs
inline constexpr std::size_t kShortBytes = 160;     // the longest am_short

class UdQueuePair : public ib::IbIface {
  public:
    // ---- Requests of the node
    [[nodiscard]] bool can_send(bool is_control) const {
        return sq_free_ > (is_control ? 0 : sq_reserve_);
    }
    void send_control(UdPeer& peer, const Header& header);
    void release(void* packet);

  protected:
    UdQueuePair(ib::IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table,
                ucs_callback_t progress_call, const UdOptions& options)
        : IbIface(md, worker, table, progress_call), options_(options) {}

    /// Send queue, its completions and buffers, for datagrams of so many bytes.
    /// UCS_ERR_EXCEEDS_LIMIT (logged): TAGWIRE_UD_TX_DEPTH is more than the device has.
    ucs_status_t open_send_queue(std::size_t datagram_bytes);
    /// Ready to send, receives go to `srq`.
    ucs_status_t open_queue_pair(ibv_cq* receive_cq, ibv_srq* srq);
    ucs_status_t to_rts();

    void post(UdPeer& peer, ibv_sge sge);
    unsigned poll_sends();
    void free_zombies();
    [[nodiscard]] bool is_read(const ib::SendOp& op) const { return is_before(acked_, op.sn); }
    /// Nothing that we post may be refused: without its queue pair the interface is of no use.
    virtual void break_down(const char* what, const char* why) = 0;

    // The data path's.
    UdOptions options_;
    ReturnAddress own_address_{};
    ib::CompletionQueue send_cq_;
    ib::OwnedQp qp_{nullptr, nullptr};  // goes before the queues that it uses
    std::uint32_t sq_free_ = 0;
    std::uint32_t sq_reserve_ = 1;
    std::uint32_t posted_ = 0;  // requests, of all time
    std::uint32_t acked_ = 0;
    std::uint32_t unsignaled_ = 0;
    std::uint32_t signal_every_ = 1;
    std::uint32_t inline_max_ = 0;
    ib::SendPool long_;
    ib::SendPool short_;
    ib::SendOp* zombies_ = nullptr;  // acknowledged, but a request under way may read them
    ib::SendOp* zombies_last_ = nullptr;
};

}  // namespace tagwire::ud
