// SPDX-License-Identifier: BSD-3-Clause
// Endpoints: from opening to closing; their connections are in ep_peers.cc.
#include "ep.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "datapath.hpp"
#include "deadline.hpp"
#include "ep_tables.hpp"
#include "info.hpp"
#include "name.hpp"
#include "ways.hpp"

namespace tagwire::fi {

Ep::Ep(Domain& parent, const fi_info& info, void* user_context)
    : fid_ep{},
      domain(parent),
      caps(info.caps),
      tx_caps(tx_caps_of(caps, info.tx_attr == nullptr ? 0 : info.tx_attr->caps & ~kDomainCaps)),
      rx_caps(rx_caps_of(caps, info.rx_attr == nullptr ? 0 : info.rx_attr->caps & ~kDomainCaps)),
      is_buffered((info.mode & kBufferedRecv) != 0 || (info.caps & FI_VARIABLE_MSG) != 0),
      inject_bytes_max(fi::inject_bytes_max().value_or(0)),
      outbox(*this),
      keys(*this),
      key_service(*this),
      one_sided(*this),
      atomics(*this),
      atomic_server(*this),
      operations_(*this) {
    fid.fclass = FI_CLASS_EP;
    fid.context = user_context;
    set_tables(*this);
    if (info.tx_attr != nullptr)
        tx.op_flags = info.tx_attr->op_flags;
    if (info.rx_attr != nullptr)
        rx.op_flags = info.rx_attr->op_flags;
    ++domain.children;
}

Ep::~Ep() {
    const Guard guard(domain);
    set_backlog(false);
    for (Cq* cq : {tx.cq, rx.cq})
        if (cq != nullptr)
            cq->remove(*this);
    for (Cntr* cntr : {tx.cntr, rx.cntr, counters.reads, counters.writes, counters.remote_reads,
                       counters.remote_writes})
        if (cntr != nullptr)
            cntr->remove_endpoint(*this);
    if (av_ != nullptr)
        std::erase(av_->eps, this);
    std::erase(domain.eps, this);
    for (Cntr* cntr : domain.region_cntrs)
        cntr->unwatch(*this);
    if (domain.auto_progress != nullptr)
        domain.auto_progress->remove(worker);
    keys.clear();
    tw_worker_destroy(worker);
    --domain.children;
}

int Ep::open(fid_domain* handle, fi_info* info, fid_ep** ep_p, void* user_context) {
    auto& domain = static_cast<Domain&>(*handle);
    if (info == nullptr || info->ep_attr == nullptr || info->ep_attr->type != FI_EP_RDM)
        return -FI_EINVAL;
    if ((info->caps & ~kCaps) != 0)
        return -FI_EINVAL;
    return without_exceptions([&] {
        auto ep = std::make_unique<Ep>(domain, *info, user_context);
        ep->lost_strangers_.reserve(kStrangersSpare);
        const Guard guard(domain);
        const tw_worker_params_t params = {.thread_mode = TW_THREAD_SERIALIZED,
                                           .ep_failed = on_failed,
                                           .ep_failed_arg = nullptr,
                                           .peer_event = on_peer_event,
                                           .peer_event_arg = ep.get(),
                                           .rma_event = on_remote_put,
                                           .rma_event_arg = ep.get(),
                                           .away = domain.is_locked ? on_away : nullptr,
                                           .away_arg = ep.get()};
        tw_status_t status = tw_worker_create(domain.context, &params, &ep->worker);
        if (status == TW_OK)
            status = ep->key_service.listen();
        if (status == TW_OK)
            status = ep->atomics.listen();
        if (status == TW_OK)
            status = ep->atomic_server.listen();
        if (status != TW_OK) {
            FI_WARN(&provider, FI_LOG_EP_CTRL, "cannot create a worker: %s\n",
                    tw_status_string(status));
            return -error_of(status);
        }
        if (info->src_addr != nullptr && info->src_addrlen == kNameBytes) {
            if (const int error = ep->open_door(info->src_addr); error != 0)
                return error;
        }
        domain.eps.push_back(ep.get());
        for (Cntr* cntr : domain.region_cntrs)
            if (const int error = cntr->watch(*ep); error != 0)
                return error;
        if (domain.auto_progress != nullptr) {
            if (const int error = domain.auto_progress->add(*ep); error != 0)
                return error;
        }
        *ep_p = ep.release();
        return 0;
    });
}

int Ep::open_door(const void* address) {
    Name wanted;
    std::memcpy(&wanted, address, sizeof wanted);
    const auto place = Place::of(wanted);
    if (!place || place->port() == 0)
        return 0;
    tw_status_t status = TW_OK;
    const auto own = name(&status);
    return own ? Door::open(*place, *own, &door_) : -error_of(status);
}

std::optional<Name> Ep::name(tw_status_t* status_p) const {
    std::byte address[kNameBytes - 1];  // that of the farthest reach, if not all have room
    std::size_t address_bytes = sizeof address;
    *status_p = tw_worker_address(worker, address, &address_bytes);
    if (*status_p != TW_OK)
        return std::nullopt;
    const auto name = Name::of({address, address_bytes});
    *status_p = name ? TW_OK : TW_ERR_INVALID_ADDR;
    return name;
}

int Ep::bind(fid_t other, std::uint64_t flags) {
    const Guard guard(domain);
    // Counters only look on, so that they may come at any time. Sandia OpenSHMEM binds its own to
    // an endpoint that is enabled, as the providers tcp, verbs and opx let it.
    if (is_enabled && other->fclass != FI_CLASS_CNTR)
        return -FI_EOPBADSTATE;
    switch (other->fclass) {
        case FI_CLASS_CQ:
            return bind_cq(object_of<Cq, fid_cq>(other), flags);
        case FI_CLASS_CNTR:
            return bind_cntr(object_of<Cntr, fid_cntr>(other), flags);
        case FI_CLASS_AV:
            return flags == 0 ? bind_av(object_of<Av, fid_av>(other)) : -FI_EINVAL;
        // Endpoints without connections have nothing to say there.
        case FI_CLASS_EQ:
            return 0;
        default:
            return -FI_EINVAL;
    }
}

int Ep::bind_cq(Cq& cq, std::uint64_t flags) {
    constexpr std::uint64_t kWays = FI_TRANSMIT | FI_RECV;
    if ((flags & kWays) == 0 || (flags & ~(kWays | FI_SELECTIVE_COMPLETION)) != 0)
        return -FI_EBADFLAGS;
    if (&cq.domain != &domain)
        return -FI_EDOMAIN;
    const bool sends = (flags & FI_TRANSMIT) != 0;
    const bool receives = (flags & FI_RECV) != 0;
    if ((sends && tx.cq != nullptr) || (receives && rx.cq != nullptr))
        return -FI_EINVAL;
    const bool is_known = tx.cq == &cq || rx.cq == &cq;
    if (const int error = cq.add(*this); error != 0)
        return error;
    for (Direction* direction : {sends ? &tx : nullptr, receives ? &rx : nullptr}) {
        if (direction == nullptr)
            continue;
        direction->cq = &cq;
        direction->is_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    }
    if (has_backlog_ && !is_known)
        cq.add_backlogs(1);
    return 0;
}

int Ep::bind_cntr(Cntr& cntr, std::uint64_t flags) {
    const std::pair<std::uint64_t, Cntr**> ways[] = {{FI_SEND, &tx.cntr},
                                                     {FI_RECV, &rx.cntr},
                                                     {FI_READ, &counters.reads},
                                                     {FI_WRITE, &counters.writes},
                                                     {FI_REMOTE_READ, &counters.remote_reads},
                                                     {FI_REMOTE_WRITE, &counters.remote_writes}};
    std::uint64_t left = flags;
    for (const auto& [way, cntr_p] : ways) {
        if ((flags & way) != 0 && *cntr_p != nullptr)
            return -FI_EINVAL;
        left &= ~way;
    }
    if (flags == 0 || left != 0)
        return -FI_EBADFLAGS;
    if (&cntr.domain != &domain)
        return -FI_EDOMAIN;
    // Without that capability nobody asks for them to be counted.
    if ((caps & FI_RMA_EVENT) == 0)
        flags &= ~std::uint64_t{FI_REMOTE_READ | FI_REMOTE_WRITE};
    if (flags == 0)
        return 0;
    const int error = without_exceptions([&] { return cntr.add_endpoint(*this); });
    if (error != 0)
        return error;
    for (const auto& [way, cntr_p] : ways)
        if ((flags & way) != 0)
            *cntr_p = &cntr;
    if (is_enabled)
        fold();
    if ((flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
        key_service.revoke_all();
    return 0;
}

int Ep::bind_av(Av& vector) {
    if (&vector.domain != &domain)
        return -FI_EDOMAIN;
    if (av_ != nullptr)
        return -FI_EINVAL;
    vector.eps.push_back(this);
    av_ = &vector;
    return 0;
}

int Ep::enable() {
    const Guard guard(domain);
    if (is_enabled)
        return 0;
    if (av_ == nullptr)
        return -FI_ENOAV;
    const bool sends = (caps & FI_SEND) != 0;
    const bool receives = (caps & FI_RECV) != 0;
    const bool has_cntr = counters.reads != nullptr || counters.writes != nullptr;
    if ((sends && tx.cq == nullptr && tx.cntr == nullptr) ||
        (receives && rx.cq == nullptr && rx.cntr == nullptr) ||
        ((caps & (FI_READ | FI_WRITE)) != 0 && tx.cq == nullptr && tx.cntr == nullptr && !has_cntr))
        return -FI_ENOCQ;
    if (is_buffered && (caps & FI_MSG) != 0 && receives) {
        if (const int status = listen(); status != 0)
            return status;
    }
    // Ways of the initiator that nobody has asked for, without a place where operations end.
    if ((caps & kTxWays) == 0 && tx.cq == nullptr && tx.cntr == nullptr && !has_cntr)
        tx_caps &= ~kTxWays;
    is_enabled = true;
    fold();
    set_tables(*this);
    return 0;
}

void Ep::fold() {
    const std::uint64_t tx_flags = tx.op_flags;
    const std::uint64_t rx_flags = rx.op_flags;
    const bool sends = tx.reports(tx_flags) && tx.cntr == nullptr && (tx_flags & FI_INJECT) == 0;
    const bool receives = rx.reports(rx_flags) && rx.cntr == nullptr && !is_buffered &&
                          (rx_flags & FI_MULTI_RECV) == 0;
    usual_.no_sends = sends ? 0 : 1;
    usual_.no_receives = receives ? 0 : 1;
    usual_.injects = tx.cntr == nullptr;
    usual_.is_directed = (caps & FI_DIRECTED_RECV) != 0;
    usual_.send.flags = op_flags_of(tx_flags);
    usual_.send_imm.flags = usual_.send.flags | TW_OP_IMM;
    usual_.send.complete = usual_.send_imm.complete = on_usual_send;
    if (usual_.send.context == nullptr)
        prepare_usual_send();
    usual_.inject.flags = TW_OP_INJECT;
    usual_.inject_imm.flags = TW_OP_INJECT | TW_OP_IMM;
    for (tw_op_t* inject : {&usual_.inject, &usual_.inject_imm}) {
        inject->context = this;
        inject->complete = on_usual_inject;
    }
    const bool is_whole = rx.cq != nullptr && rx.cq->format == FI_CQ_FORMAT_TAGGED;
    usual_.tagged_receive.complete =
        is_whole ? on_usual_receive<true, true> : on_usual_receive<true, false>;
    usual_.msg_receive.complete =
        is_whole ? on_usual_receive<false, true> : on_usual_receive<false, false>;
    usual_.tagged_receive.info = usual_.msg_receive.info = &usual_.info;
    one_sided.fold();
}

void Ep::close() {
    const Deadline deadline(settings().linger_ms);
    std::size_t left = 0;
    // One-sided operations that have not begun, or have to tell the peer something.
    while (!is_settled() && !deadline.is_over())
        domain.progress_politely();
    {
        const Guard guard(domain);
        is_left_ = true;
        peers_ = {};
        peer_room_.clear();
        for (auto it = known_.begin(); it != known_.end();)
            it = close_peer(it->second) ? known_.erase(it) : std::next(it);
        left = known_.size();
    }
    // Peers in this process may have nobody else who lets them answer.
    while (left > 0 && !deadline.is_over()) {
        domain.progress_politely();
        const Guard guard(domain);
        left = known_.size();
    }
    if (left > 0)
        FI_INFO(&provider, FI_LOG_EP_CTRL,
                "messages to %zu peers were not delivered within FI_TAGWIRE_LINGER: dropped\n",
                left);
}

ssize_t Ep::cancel(void* operation_context) {
    const Guard guard(domain);
    return without_exceptions([&] {
        for (const OperationKind kind : {OperationKind::kReceive, OperationKind::kSend}) {
            Operation* operation = operations_.find(kind, operation_context);
            if (operation != nullptr)
                return -error_of(tw_request_cancel(operation->request));
        }
        const int error = one_sided.cancel(operation_context);
        return error == -FI_ENOENT ? atomics.cancel(operation_context) : error;
    });
}

bool Ep::is_settled() {
    const Guard guard(domain);
    return one_sided.is_idle() && outbox.is_empty() && atomics.is_idle();
}

void Ep::backlog_changed() {
    const bool has_lost = has_lost_peers_ || !lost_strangers_.empty();
    set_backlog(!outbox.is_empty() || one_sided.has_held() || has_lost);
    const bool was_restless = is_restless;
    is_restless = has_lost || outbox.lacks_memory() || one_sided.lacks_memory();
    if (is_restless && !was_restless)
        tw_worker_signal(worker);
}

void Ep::set_backlog(bool has_backlog) {
    if (has_backlog == has_backlog_)
        return;
    has_backlog_ = has_backlog;
    for (Cq* cq : {tx.cq, rx.cq == tx.cq ? nullptr : rx.cq})
        if (cq != nullptr)
            cq->add_backlogs(has_backlog ? 1 : -1);
}

unsigned Ep::clear_backlog() {
    drop_lost_peers();
    outbox.flush();
    one_sided.resume();
    backlog_changed();
    return has_backlog_ ? 0 : 1;
}

void Ep::push_remote_data(std::uint64_t data, std::size_t length, tw_ep_h from,
                          std::uint64_t worker_id) {
    if (rx.cq == nullptr)
        return;
    rx.cq->push({nullptr, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, length, nullptr, data, 0},
                [&] { return source_of(from, worker_id); });
}

/// Not while another endpoint of the domain is busy: the program may poll them in one loop.
void Ep::on_away(void* arg, tw_away_t how) {
    Ep& self = *static_cast<Ep*>(arg);
    const Ep* moved = std::exchange(self.domain.moved, nullptr);
    if (moved == nullptr || moved == &self)
        self.away = how;
}

void Ep::on_remote_put(void* arg, const tw_completion_t* done) {
    static_cast<Ep*>(arg)->push_remote_data(done->imm, done->length, done->ep, done->source);
}

}  // namespace tagwire::fi
