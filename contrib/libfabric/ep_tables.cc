// SPDX-License-Identifier: BSD-3-Clause
#include "ep_tables.hpp"

#include <rdma/fi_collective.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstring>

#include "atomic.hpp"
#include "info.hpp"
#include "name.hpp"

namespace tagwire::fi {

namespace {

int close_ep(fid* handle) {
    auto& ep = object_of<Ep, fid_ep>(handle);
    ep.close();
    delete &ep;
    return 0;
}

int bind_ep(fid* handle, fid* other, std::uint64_t flags) {
    return without_exceptions([&] { return object_of<Ep, fid_ep>(handle).bind(other, flags); });
}

/// Whose flags: FI_TRANSMIT or FI_RECV among them says.
int change_op_flags(Ep& ep, std::uint64_t flags) {
    constexpr std::uint64_t kWays = FI_TRANSMIT | FI_RECV;
    const bool is_tx = (flags & kWays) == FI_TRANSMIT;
    if (!is_tx && (flags & kWays) != FI_RECV)
        return -FI_EINVAL;
    if ((flags & ~(kWays | (is_tx ? kTxOpFlags : kRxOpFlags))) != 0)
        return -FI_EBADFLAGS;
    const Guard guard(ep.domain);
    (is_tx ? ep.tx : ep.rx).op_flags = flags & ~kWays;
    ep.fold();
    return 0;
}

int tell_op_flags(const Ep& ep, std::uint64_t* flags) {
    constexpr std::uint64_t kWays = FI_TRANSMIT | FI_RECV;
    const std::uint64_t way = *flags & kWays;
    if (way != FI_TRANSMIT && way != FI_RECV)
        return -FI_EINVAL;
    *flags = way == FI_TRANSMIT ? ep.tx.op_flags : ep.rx.op_flags;
    return 0;
}

int control_ep(fid* handle, int command, void* arg) {
    auto& ep = object_of<Ep, fid_ep>(handle);
    switch (command) {
        case FI_ENABLE:
            return ep.enable();
        case FI_GETOPSFLAG:
            return tell_op_flags(ep, static_cast<std::uint64_t*>(arg));
        case FI_SETOPSFLAG:
            return change_op_flags(ep, *static_cast<const std::uint64_t*>(arg));
        default:
            return -FI_ENOSYS;
    }
}

ssize_t cancel_ep(fid* handle, void* context) {
    return object_of<Ep, fid_ep>(handle).cancel(context);
}

std::size_t* option_of(tw_worker_limits_t& limits, int level, int name) {
    if (level != FI_OPT_ENDPOINT)
        return nullptr;
    switch (name) {
        case FI_OPT_MIN_MULTI_RECV:
            return &limits.multi_recv_bytes_min;
        case FI_OPT_BUFFERED_MIN:
            return &limits.buffered_bytes_min;
        case FI_OPT_BUFFERED_LIMIT:
            return &limits.buffered_bytes_limit;
        default:
            return nullptr;
    }
}

int get_option(fid* handle, int level, int name, void* value, std::size_t* length) {
    auto& ep = object_of<Ep, fid_ep>(handle);
    const Guard guard(ep.domain);
    tw_worker_attr_t attr;
    tw_worker_query(ep.worker, &attr);
    tw_worker_limits_t limits = {.multi_recv_bytes_min = attr.multi_recv_bytes_min,
                                 .buffered_bytes_limit = attr.buffered_bytes_limit,
                                 .buffered_bytes_min = attr.buffered_bytes_min};
    const std::size_t* option = option_of(limits, level, name);
    if (option == nullptr)
        return -FI_ENOPROTOOPT;
    if (*length < sizeof *option)
        return -FI_ETOOSMALL;
    std::memcpy(value, option, sizeof *option);
    *length = sizeof *option;
    return 0;
}

int set_option(fid* handle, int level, int name, const void* value, std::size_t length) {
    auto& ep = object_of<Ep, fid_ep>(handle);
    const Guard guard(ep.domain);
    tw_worker_limits_t limits{};
    std::size_t* option = option_of(limits, level, name);
    if (option == nullptr)
        return -FI_ENOPROTOOPT;
    if (length != sizeof *option)
        return -FI_EINVAL;
    if (ep.is_enabled && name != FI_OPT_MIN_MULTI_RECV)
        return -FI_EOPBADSTATE;
    std::memcpy(option, value, sizeof *option);
    if (*option == SIZE_MAX)
        *option = TW_WORKER_LIMIT_MAX;
    // 0 would leave the limit as it is.
    *option = std::max<std::size_t>(*option, 1);
    if (name == FI_OPT_BUFFERED_LIMIT) {
        tw_worker_attr_t attr;
        tw_worker_query(ep.worker, &attr);
        limits.buffered_bytes_min = std::min(attr.buffered_bytes_min, *option);
    }
    const tw_status_t status = tw_worker_set_limits(ep.worker, &limits);
    return status == TW_ERR_EXCEEDS_LIMIT ? -FI_EMSGSIZE : -error_of(status);
}

int get_name(fid* handle, void* bytes, std::size_t* length) {
    auto& ep = object_of<Ep, fid_ep>(handle);
    const Guard guard(ep.domain);
    tw_status_t status = TW_OK;
    const auto name = ep.name(&status);
    if (!name)
        return -error_of(status);
    const std::size_t room = bytes == nullptr ? 0 : *length;
    if (room > 0)
        std::memcpy(bytes, &*name, std::min(room, sizeof *name));
    *length = sizeof *name;
    return room < sizeof *name ? -FI_ETOOSMALL : 0;
}

fi_ops ep_fid_ops = {sizeof(fi_ops), close_ep, bind_ep, control_ep, kAbsent, kAbsent, kAbsent};
fi_ops_ep ep_ops = with_later_calls(
    fi_ops_ep{
        .size = sizeof(fi_ops_ep),
        .cancel = cancel_ep,
        .getopt = get_option,
        .setopt = set_option,
        .tx_ctx = kAbsent,
        .rx_ctx = kAbsent,
        .rx_size_left = kAbsent,
        .tx_size_left = kAbsent,
    },
    kAbsent);
fi_ops_cm cm_ops = {
    .size = sizeof(fi_ops_cm),
    .setname = kAbsent,
    .getname = get_name,
    .getpeer = kAbsent,
    .connect = kAbsent,
    .listen = kAbsent,
    .accept = kAbsent,
    .reject = kAbsent,
    .shutdown = kAbsent,
    .join = kAbsent,
};
fi_ops_collective no_collective = {sizeof(fi_ops_collective),
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent,
                                   kAbsent};

template <int kError>
fi_ops_msg refusing_msg = {sizeof(fi_ops_msg), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>(), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>(), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>()};
template <int kError>
fi_ops_rma refusing_rma = {sizeof(fi_ops_rma), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>(), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>(), Refusing<kError>(), Refusing<kError>(),
                           Refusing<kError>()};
template <int kError>
fi_ops_tagged refusing_tagged = {sizeof(fi_ops_tagged), Refusing<kError>(), Refusing<kError>(),
                                 Refusing<kError>(),    Refusing<kError>(), Refusing<kError>(),
                                 Refusing<kError>(),    Refusing<kError>(), Refusing<kError>(),
                                 Refusing<kError>()};

/// The calls that begin operations of messages, or those that receive them, have the same names in
/// both tables.
template <class Table>
void refuse_sends(Table* table) {
    constexpr Refusing<FI_EOPNOTSUPP> kRefused;
    table->send = kRefused;
    table->sendv = kRefused;
    table->sendmsg = kRefused;
    table->inject = kRefused;
    table->senddata = kRefused;
    table->injectdata = kRefused;
}
template <class Table>
void refuse_receives(Table* table) {
    constexpr Refusing<FI_EOPNOTSUPP> kRefused;
    table->recv = kRefused;
    table->recvv = kRefused;
    table->recvmsg = kRefused;
}

void refuse_writes(fi_ops_rma* table) {
    constexpr Refusing<FI_EOPNOTSUPP> kRefused;
    table->write = kRefused;
    table->writev = kRefused;
    table->writemsg = kRefused;
    table->inject = kRefused;
    table->writedata = kRefused;
    table->injectdata = kRefused;
}
void refuse_reads(fi_ops_rma* table) {
    constexpr Refusing<FI_EOPNOTSUPP> kRefused;
    table->read = kRefused;
    table->readv = kRefused;
    table->readmsg = kRefused;
}

/// Refuses calls that the endpoint's capabilities do not have. Those of atomics depend on their
/// operation (AtomicCaller).
void limit(const Ep& ep, CallTables* tables) {
    const auto has = [](std::uint64_t caps, std::uint64_t all) { return (caps & all) == all; };
    if (!has(ep.tx_caps, FI_MSG | FI_SEND))
        refuse_sends(&tables->msg);
    if (!has(ep.rx_caps, FI_MSG | FI_RECV))
        refuse_receives(&tables->msg);
    if (!has(ep.tx_caps, FI_TAGGED | FI_SEND))
        refuse_sends(&tables->tagged);
    if (!has(ep.rx_caps, FI_TAGGED | FI_RECV))
        refuse_receives(&tables->tagged);
    if (!has(ep.tx_caps, FI_RMA | FI_READ))
        refuse_reads(&tables->rma);
    if (!has(ep.tx_caps, FI_RMA | FI_WRITE))
        refuse_writes(&tables->rma);
}

}  // namespace

void set_tables(Ep& ep) {
    ep.fid.ops = &ep_fid_ops;
    ep.ops = &ep_ops;
    ep.cm = &cm_ops;
    set_atomic_table(ep);
    ep.collective = &no_collective;
    const bool is_locked = ep.domain.is_locked;
    const bool is_whole = ep.tx.cq != nullptr && ep.tx.cq->format == FI_CQ_FORMAT_TAGGED;
    CallTables& own = ep.tables;
    own = ep.is_enabled
              ? CallTables{*Ep::msg_table(is_locked, is_whole),
                           *Ep::tagged_table(is_locked, is_whole), *Rma::table(is_locked, is_whole)}
              : CallTables{refusing_msg<FI_EOPBADSTATE>, refusing_tagged<FI_EOPBADSTATE>,
                           refusing_rma<FI_EOPBADSTATE>};
    limit(ep, &own);
    ep.msg = &own.msg;
    ep.tagged = &own.tagged;
    ep.rma = &own.rma;
}

}  // namespace tagwire::fi
