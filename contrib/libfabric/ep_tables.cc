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

}  // namespace

void set_tables(Ep& ep) {
    ep.fid.ops = &ep_fid_ops;
    ep.ops = &ep_ops;
    ep.cm = &cm_ops;
    set_atomic_table(ep);
    ep.collective = &no_collective;
    const bool is_locked = ep.domain.is_locked;
    const bool is_whole = ep.tx.cq != nullptr && ep.tx.cq->format == FI_CQ_FORMAT_TAGGED;
    ep.msg = ep.is_enabled ? Ep::msg_table(is_locked, is_whole) : &refusing_msg<FI_EOPBADSTATE>;
    ep.tagged =
        ep.is_enabled ? Ep::tagged_table(is_locked, is_whole) : &refusing_tagged<FI_EOPBADSTATE>;
    ep.rma = ep.is_enabled ? Rma::table(is_locked, is_whole) : &refusing_rma<FI_EOPBADSTATE>;
    if ((ep.caps & FI_RMA) == 0)
        ep.rma = &refusing_rma<FI_EOPNOTSUPP>;
    if ((ep.caps & FI_MSG) == 0)
        ep.msg = &refusing_msg<FI_EOPNOTSUPP>;
    if ((ep.caps & FI_TAGGED) == 0)
        ep.tagged = &refusing_tagged<FI_EOPNOTSUPP>;
}

}  // namespace tagwire::fi
