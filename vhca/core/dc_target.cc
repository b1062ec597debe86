// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/dc_target.hpp"

#include <algorithm>
#include <new>

#include "vhca/core/device_impl.hpp"
#include "vhca/core/sequence.hpp"

namespace tagwire::vhca {

namespace {

/// Sessions of one device are counted. One that is a little older came late; what is far away is
/// that of another life of the node.
bool is_stale(std::uint32_t session, std::uint32_t current) {
    constexpr std::uint32_t kRecently = 1 << 16;
    return session != current && current - session < kRecently;
}

}  // namespace

DcTarget::DcTarget(QueuePair& dct) : dct_(dct) {}

DcTarget::~DcTarget() {
    delete_readers();
}

void DcTarget::delete_readers() {
    for (QueuePair* reader : readers_) {
        dct_.device.qps.remove(reader->table_number());
        delete reader;
    }
    readers_.clear();
}

void DcTarget::close_all() {
    while (!open_.empty())
        close(*open_.front());
    for (QueuePair* reader : readers_)
        reader->retire();
    delete_readers();
}

void DcTarget::receive(Route from, Packet& packet) {
    from.service = dct_.context().route().service;  // of responses, and of reads for tag matching
    const Key key{from.node, packet.source_qpn | std::uint32_t{packet.stream} << 24};
    Context* context = newest_;
    if (context == nullptr || !(context->key == key)) {
        const auto found = contexts_.find(key);
        context = found == contexts_.end() ? nullptr : &found->second;
    }
    const bool is_same = context != nullptr && context->session == packet.qkey;
    if (is_same && context->qp != nullptr) {
        context->asked_since = 0;
        move_to(open_, *context);
    }
    if (packet.opcode == Opcode::kDcConnect) {
        connect(from, packet, context);
    } else if (packet.opcode == Opcode::kDcDisconnect) {
        if (is_same && context->qp != nullptr)
            close(*context);
    } else if (packet.has(kIsResponse)) {
        ++dct_.device.counters.misaddressed;
    } else {
        request(from, packet, context);
    }
}

void DcTarget::request(Route from, Packet& packet, Context* context) {
    if (context == nullptr ||
        (context->session != packet.qkey && !is_stale(packet.qkey, context->session))) {
        const bool is_full = open_.size() >= dct_.device.config.dc_contexts_max;
        refuse(from, packet, is_full ? busy() : std::uint8_t{kNakSyndrome | kNakSequence});
        return;
    }
    const bool is_served = context->session == packet.qkey && context->qp != nullptr &&
                           context->qp->state() == IBV_QPS_RTR;
    if (!is_served) {
        ++dct_.device.counters.misaddressed;
        return;
    }
    packet.opcode = static_cast<Opcode>(static_cast<unsigned>(packet.opcode) & ~kTransportMask);
    newest_ = context;
    context->qp->responder().receive_reliable(packet, from);
}

void DcTarget::connect(Route from, const Packet& packet, Context* context) {
    if (context != nullptr &&
        (context->session == packet.qkey || is_stale(packet.qkey, context->session))) {
        return;
    }
    Device::Impl& device = dct_.device;
    if (packet.address != dct_.config.dc.key) {
        ++device.counters.misaddressed;
        if (device.config.tells_dc_key_violation) {
            refuse(from, packet, kNakSyndrome | kNakRemoteAccess);
            dct_.report(IBV_EVENT_QP_ACCESS_ERR);
        }
        return;
    }
    const unsigned mtu = packet.length >> 24, reads = packet.length >> 16 & 0xff;
    if (mtu < IBV_MTU_256 || mtu > dct_.context().attr().path_mtu ||
        reads > device.config.rd_atom_max) {
        refuse(from, packet, kNakSyndrome | kNakInvalidRequest);
        return;
    }
    if ((context == nullptr || context->qp == nullptr) && !make_room()) {
        refuse(from, packet, busy());  // first: the wire may have room for one packet only
        ask_for_room();
        return;
    }
    // Making room may have erased the context that was found: it is looked up again.
    const Key key{from.node, packet.source_qpn | std::uint32_t{packet.stream} << 24};
    Context& opened = contexts_[key];
    opened.key = key;
    open(from, packet, opened);
}

void DcTarget::open(Route from, const Packet& packet, Context& context) {
    if (context.qp != nullptr)
        context.qp->close_session();
    else
        context.qp = new_queue_pair();
    QueuePair* qp = context.qp.get();
    context.session = packet.qkey;
    const auto reads = static_cast<std::uint8_t>(packet.length >> 16 & 0xff);
    if (qp == nullptr || qp->responder().replies().set_requests_max(reads) != 0) {
        context.qp = nullptr;
        move_to(closed_, context);
        return;
    }
    ibv_qp_attr attr = dct_.context().attr();
    attr.path_mtu = static_cast<ibv_mtu>(packet.length >> 24);
    qp->adopt(dct_.number(), IBV_QPS_RTR, attr);
    qp->context().set_peer(from, packet.source_qpn, {packet.qkey, packet.stream});
    qp->responder().start(packet.psn);
    context.asked_since = 0;
    move_to(open_, context);
}

void DcTarget::close(Context& context) {
    context.qp->close_session();
    unused_.push_back(std::move(context.qp));
    newest_ = nullptr;
    move_to(closed_, context);
    if (closed_.size() > kClosedMax) {
        Context& oldest = *closed_.front();
        closed_.erase(oldest);
        contexts_.erase(Key(oldest.key));
    }
}

void DcTarget::move_to(Contexts& to, Context& context) {
    if (context.in == &to && context.link.next == nullptr)
        return;  // is the last one there already
    if (context.in != nullptr)
        context.in->erase(context);
    context.in = &to;
    to.push_back(context);
}

std::unique_ptr<QueuePair> DcTarget::new_queue_pair() {
    if (!unused_.empty()) {
        auto qp = std::move(unused_.back());
        unused_.pop_back();
        return qp;
    }
    QpConfig config = dct_.config;
    config.cap = {};
    config.dc.kind = DcKind::kNone;
    std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair(dct_.device, config, &dct_));
    return qp == nullptr || qp->allocate() != 0 ? nullptr : std::move(qp);
}

/// Closes the longest silent one, if it did not answer for long enough.
bool DcTarget::make_room() {
    if (open_.size() >= dct_.device.config.dc_contexts_max) {
        Context& oldest = *open_.front();
        if (oldest.asked_since == 0 || dct_.device.now - oldest.asked_since < kSilence)
            return false;
        close(oldest);
    }
    return true;
}

void DcTarget::ask_for_room() {
    constexpr int kAskedAtOnce = 8;
    Context* context = open_.front();
    for (int count = 0; context != nullptr && count < kAskedAtOnce; ++count) {
        inquire(*context);
        context = Contexts::next(*context);
    }
}

void DcTarget::inquire(Context& context) {
    context.asked_since = context.asked_since == 0 ? dct_.device.now : context.asked_since;
    Packet packet;
    packet.opcode = Opcode::kDcInquire;
    context.qp->context().address(packet);
    send(context.qp->context().route(), packet);
}

std::uint8_t DcTarget::busy() const {
    return kRnrSyndrome | dct_.context().attr().min_rnr_timer;
}

void DcTarget::refuse(Route to, const Packet& packet, std::uint8_t syndrome) {
    Packet answer;
    answer.opcode = Opcode::kDcRefuse;
    answer.qpn = packet.source_qpn;
    answer.source_qpn = dct_.number();
    answer.stream = packet.stream;
    answer.qkey = packet.qkey;
    answer.psn = packet.psn;
    answer.syndrome = syndrome;
    send(to, answer);
}

void DcTarget::send(Route to, Packet& packet) {
    dct_.device.send_short(to, packet);
}

void DcTarget::enter_error() {
    for (Context* context = open_.front(); context != nullptr; context = Contexts::next(*context))
        context->qp->enter_error(false);
    for (QueuePair* reader : readers_)
        reader->enter_error(false);
}

// ---- Rendezvous --------------------------------------------------------------------------------

/// One that reads from there already; else one that is idle, or a new one.
QueuePair* DcTarget::find_reader(Route route, std::uint32_t qpn) {
    QueuePair* idle = nullptr;
    for (QueuePair* reader : readers_) {
        const bool is_usable =
            reader->state() == IBV_QPS_RTS && reader->requester().queue().has_room_for_rendezvous();
        if (is_usable && reader->requester().goes_to(route, qpn))
            return reader;
        if (reader->requester().queue().used() == 0)
            idle = reader;
    }
    if (idle == nullptr)
        idle = readers_.size() == kReadersMax ? nullptr : new_reader();
    if (idle != nullptr && idle->state() != IBV_QPS_RTS) {
        constexpr std::uint8_t kTimeout = 14, kRetries = 7;
        ibv_qp_attr attr = dct_.context().attr();
        attr.timeout = kTimeout;
        attr.retry_cnt = attr.rnr_retry = kRetries;
        attr.max_rd_atomic = dct_.device.config.rd_atom_max;
        idle->adopt(idle->table_number(), IBV_QPS_RTS, attr);
        idle->requester().start(0);
    }
    return idle != nullptr && idle->requester().queue().has_room_for_rendezvous() ? idle : nullptr;
}

QueuePair* DcTarget::new_reader() {
    QpConfig config = dct_.config;
    config.cap = {};
    config.dc = {.kind = DcKind::kInitiator};
    std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair(dct_.device, config, &dct_));
    if (qp == nullptr || qp->allocate() != 0)
        return nullptr;
    qp->set_number(dct_.device.qps.add(qp.get()));
    readers_.push_back(qp.get());
    return qp.release();
}

}  // namespace tagwire::vhca
