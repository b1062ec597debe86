// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/ib/gather.hpp"

namespace tagwire::ud {

using ib::SendOp;

namespace {

constexpr std::uint32_t kInlineBytesMax = 1024;
constexpr std::uint64_t kSignalEvery = 32;  // one request of so many asks for a completion

}  // namespace

// ---- Set-up

ucs_status_t UdQueuePair::open_send_queue(std::size_t datagram_bytes) {
    constexpr unsigned kCompletionsSpare = 64;
    const ibv_device_attr& device = ib_md().device().attr().orig_attr;
    if (options_.tx_depth > static_cast<std::uint64_t>(std::max(device.max_qp_wr, 0))) {
        TW_LOG_ERROR("TAGWIRE_UD_TX_DEPTH=%llu: %s has at most %d requests in a send queue",
                     static_cast<unsigned long long>(options_.tx_depth),
                     ib_md().device().name().c_str(), device.max_qp_wr);
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    sq_free_ = static_cast<std::uint32_t>(options_.tx_depth);
    sq_reserve_ = std::clamp<std::uint32_t>(sq_free_ / 8, 1, 32);
    // Buffers that wait for a completion must never be all that there are.
    signal_every_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(
        1, std::min({kSignalEvery, options_.tx_depth / 4, options_.tx_buffers / 4})));
    const auto buffers = static_cast<unsigned>(options_.tx_buffers);
    long_.init(ib_md(), datagram_bytes, buffers);
    short_.init(ib_md(), kHeaderBytes + kShortBytes, buffers);
    return send_cq_.open(ib_md(), sq_free_ + kCompletionsSpare, channel(), false, &mailbox());
}

ucs_status_t UdQueuePair::open_queue_pair(ibv_cq* receive_cq, ibv_srq* srq) {
    std::uint32_t wanted =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.inline_bytes, kInlineBytesMax));
    while (true) {
        ibv_qp_init_attr init{};
        init.qp_context = &mailbox();
        init.send_cq = send_cq_.get();
        init.recv_cq = receive_cq;
        init.srq = srq;
        init.qp_type = IBV_QPT_UD;
        init.cap.max_send_wr = sq_free_;
        init.cap.max_send_sge = 1;
        init.cap.max_inline_data = wanted;
        errno = 0;
        if (ibv_qp* qp = verbs().create_qp(ib_md().pd(), &init); qp != nullptr) {
            qp_ = ib::owned(qp, verbs().destroy_qp);
            inline_max_ = std::min(init.cap.max_inline_data, kInlineBytesMax);
            return to_rts();
        }
        if (wanted == 0)
            return ib::call_failed(ib_md().device(), "ibv_create_qp", errno);
        wanted /= 2;
    }
}

ucs_status_t UdQueuePair::to_rts() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = port().pkey_index;
    attr.port_num = port().number;
    attr.qkey = kQkey;
    int error = verbs().modify_qp(qp_.get(), &attr,
                                  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    if (error != 0)
        return ib::call_failed(ib_md().device(), "ibv_modify_qp to INIT", error);
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    error = verbs().modify_qp(qp_.get(), &attr, IBV_QP_STATE);
    if (error != 0)
        return ib::call_failed(ib_md().device(), "ibv_modify_qp to RTR", error);
    attr.qp_state = IBV_QPS_RTS;
    error = verbs().modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return error == 0 ? UCS_OK : ib::call_failed(ib_md().device(), "ibv_modify_qp to RTS", error);
}

// ---- Into the send queue

void UdQueuePair::post(UdPeer& peer, ibv_sge sge) {
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = sge.length <= inline_max_ ? unsigned{IBV_SEND_INLINE} : 0U;
    request.wr.ud.ah = peer.path;
    request.wr.ud.remote_qpn = peer.qp_num;
    request.wr.ud.remote_qkey = kQkey;
    request.wr_id = ++posted_;
    --sq_free_;
    if (++unsignaled_ >= signal_every_) {
        request.send_flags |= IBV_SEND_SIGNALED;
        unsignaled_ = 0;
    }
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp_.get(), &request, &bad);
    if (error != 0) [[unlikely]]
        break_down("ibv_post_send", std::strerror(error));
}

void UdQueuePair::send_control(UdPeer& peer, const Header& header) {
    struct [[gnu::packed]] {
        Header header;
        ReturnAddress from;
    } message{pack(header), own_address_};
    static_assert(sizeof message == kControlBytesMax);
    const std::uint32_t bytes = has_return_address(header.kind) ? sizeof message : sizeof header;
    if (bytes <= inline_max_) [[likely]]
        return post(peer, {ib::address_of(&message), bytes, 0});
    SendOp* op = short_.get();
    if (op == nullptr)
        return;  // as if it had been lost on the way
    std::memcpy(op->data(), &message, bytes);
    post(peer, {ib::address_of(op->data()), bytes, op->lkey});
    op->sn = posted_;
    release(op);
}

void UdQueuePair::release(void* packet) {
    auto* op = static_cast<SendOp*>(packet);
    if (!is_read(*op)) [[likely]]
        return op->pool->put(op);
    op->next = nullptr;
    (zombies_ == nullptr ? zombies_ : zombies_last_->next) = op;
    zombies_last_ = op;
}

// ---- Completions

unsigned UdQueuePair::poll_sends() {
    const ib::Completion* completions = nullptr;
    const unsigned count = send_cq_.poll(&completions);
    if (count == 0)
        return 0;
    for (unsigned i = 0; i < count; ++i) {
        const auto sn = static_cast<std::uint32_t>(completions[i].wr_id);
        sq_free_ += sn - acked_;
        acked_ = sn;
        if (completions[i].status != IBV_WC_SUCCESS) [[unlikely]]
            break_down("a send", verbs().wc_status_str(completions[i].status));
    }
    free_zombies();
    return count;
}

void UdQueuePair::free_zombies() {
    while (zombies_ != nullptr && !is_read(*zombies_)) {
        SendOp* op = zombies_;
        zombies_ = op->next;
        op->pool->put(op);
    }
}

}  // namespace tagwire::ud
