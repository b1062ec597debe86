// SPDX-License-Identifier: BSD-3-Clause
// The common path of one-sided calls, inlined into those of fi_rma(3): as datapath.hpp for sends.
#pragma once

#include "datapath.hpp"
#include "rma.hpp"

namespace tagwire::fi {

/// Flags that calls accept. FI_INJECT and the levels have no meaning for reads, which are complete
/// when the data is there.
inline constexpr std::uint64_t kWriteFlags = kSendFlags;
inline constexpr std::uint64_t kReadFlags = kLevels | FI_MORE | FI_FENCE | FI_COMPLETION;

/// Somebody counts such operations at the target, or there is nothing to move.
inline constexpr std::uint32_t kUnusualReads = kCountsReads | kEndpointCountsReads | kHasNoBytes;
inline constexpr std::uint32_t kUnusualWrites = kCountsWrites | kEndpointCountsWrites | kHasNoBytes;

template <bool kIsRead, bool kHasImm, class Entry>
[[gnu::always_inline]] inline bool Rma::try_transfer(const TransferArgs& args, ssize_t* answer_p) {
    constexpr std::uint64_t kKind = FI_RMA | (kIsRead ? FI_READ : FI_WRITE);
    constexpr std::uint32_t kUnusual = kIsRead ? kUnusualReads : kUnusualWrites;
    constexpr RegionFlag kRight = kIsRead ? kGivesReads : kGivesWrites;
    if ((reinterpret_cast<std::uintptr_t>(args.desc) | (kIsRead ? no_reads_ : no_writes_)) != 0)
        [[unlikely]]
        return false;
    tw_ep_h const ep = owner_.known_peer(args.peer);
    Cq& cq = *owner_.tx.cq;
    if (ep == nullptr || free_ == nullptr || !cq.has_fast_room()) [[unlikely]]
        return false;
    const RemoteKey* const remote = owner_.keys.find(ep, args.key);
    if (remote == nullptr || (remote->flags & kUnusual) != 0 ||
        remote->check(args.address, args.length, kRight) != 0) [[unlikely]]
        return false;
    tw_op_t& op = kIsRead ? read_ : kHasImm ? write_imm_ : write_;
    if constexpr (kHasImm)
        op.imm = args.imm;
    op.context = free_;
    const std::uint64_t address = remote->origin + args.address;
    tw_request_h request = nullptr;
    const tw_status_t status =
        kIsRead ? tw_get(ep, args.buf, args.length, address, remote->key, &op, &request)
                : tw_put(ep, args.buf, args.length, address, remote->key, &op, &request);
    *answer_p = 0;
    if (status == TW_OK) [[likely]]
        cq.push_fast(
            entry_of(static_cast<const Entry*>(nullptr), {args.context, kKind, 0, nullptr, 0, 0}));
    else if (status == TW_INPROGRESS)
        begin_usual(args, request, *remote, kIsRead, kHasImm);
    else
        *answer_p = owner_.not_taken(status);
    return true;
}

template <bool kHasImm>
[[gnu::always_inline]] inline bool Rma::try_inject(const TransferArgs& args, ssize_t* answer_p) {
    tw_ep_h const ep = owner_.known_peer(args.peer);
    if (ep == nullptr || !injects_ || args.length > owner_.inject_bytes_max) [[unlikely]]
        return false;
    const RemoteKey* const remote = owner_.keys.find(ep, args.key);
    if (remote == nullptr || (remote->flags & kUnusualWrites) != 0 ||
        remote->check(args.address, args.length, kGivesWrites) != 0) [[unlikely]]
        return false;
    tw_op_t& op = kHasImm ? inject_imm_ : inject_;
    if constexpr (kHasImm)
        op.imm = args.imm;
    const tw_status_t status =
        tw_put(ep, args.buf, args.length, remote->origin + args.address, remote->key, &op, nullptr);
    *answer_p = status == TW_OK || status == TW_INPROGRESS ? 0 : owner_.not_taken(status);
    return true;
}

}  // namespace tagwire::fi
