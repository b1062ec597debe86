// SPDX-License-Identifier: BSD-3-Clause
// FI_PEEK, FI_CLAIM and FI_DISCARD of unexpected messages. The program's fi_context carries the
// claimed message from the peek to the claim.
#include <bit>

#include "datapath.hpp"

namespace tagwire::fi {

namespace {

/// The message, its length and its tag, from the peek to the claim.
void carry(fi_context& carrier, tw_message_h message, const tw_message_info_t& info) {
    static_assert(sizeof(void*) >= sizeof info.tag);
    carrier.internal[0] = message;
    carrier.internal[1] = std::bit_cast<void*>(info.length);
    carrier.internal[2] = std::bit_cast<void*>(info.tag);
}

tw_message_info_t carried(const fi_context& carrier, bool is_tagged) {
    tw_message_info_t info{};
    info.flags = TW_DONE_RECV | flag_if(is_tagged, TW_DONE_TAGGED);
    info.length = std::bit_cast<std::size_t>(carrier.internal[1]);
    info.tag = std::bit_cast<std::uint64_t>(carrier.internal[2]);
    return info;
}

}  // namespace

/// Its outcome is always reported, but not counted: nothing was received.
template <bool kTagged>
ssize_t Ep::peek(const Receiving& what) {
    const bool claims = (what.flags & FI_CLAIM) != 0;
    const bool discards = (what.flags & FI_DISCARD) != 0;
    if ((claims && (discards || what.context == nullptr)) || (what.flags & FI_MULTI_RECV) != 0)
        return -FI_EINVAL;
    progress();
    tw_ep_h from = nullptr;
    if ((caps & FI_DIRECTED_RECV) != 0 && what.from != FI_ADDR_UNSPEC) {
        ssize_t error = 0;
        from = peer(what.from, &error);
        if (from == nullptr)
            return error;
    }
    tw_message_info_t info{};
    tw_message_h message = nullptr;
    tw_message_h* const message_p = claims || discards ? &message : nullptr;
    const tw_status_t status =
        kTagged ? tw_tag_probe(worker, what.tag, what.ignore, from, &info, message_p)
                : tw_msg_probe(worker, from, &info, message_p);
    if (is_refusal(status))
        return not_taken(status);
    if (discards && status == TW_OK)
        (void)tw_message_drop(worker, message);
    if (claims && status == TW_OK)
        carry(*static_cast<fi_context*>(what.context), message, info);
    if (rx.cq == nullptr)
        return 0;
    if (status == TW_OK) {
        const tw_completion_t done = completion_of(TW_OK, info, info.length, kTagged);
        rx.cq->push(
            {what.context, receive_flags_of(done), info.length, nullptr, info.imm, info.tag},
            [&] { return source_of(done); });
        return 0;
    }
    fi_cq_err_entry entry{};
    entry.op_context = what.context;
    entry.flags = FI_RECV | (kTagged ? FI_TAGGED : FI_MSG);
    entry.tag = what.tag;
    entry.err = error_of(status);
    entry.prov_errno = status;
    rx.cq->push_error(entry);
    return 0;
}

template ssize_t Ep::peek<false>(const Receiving&);
template ssize_t Ep::peek<true>(const Receiving&);

/// Claims a message that was peeked at.
template <bool kTagged>
ssize_t Ep::claim(const Receiving& what) {
    if ((what.flags & FI_CLAIM) == 0 || what.context == nullptr)
        return -FI_EINVAL;
    auto* const carrier = static_cast<fi_context*>(what.context);
    auto* const message = static_cast<tw_message_h>(carrier->internal[0]);
    if (message == nullptr)
        return -FI_EINVAL;
    if ((what.flags & FI_DISCARD) == 0)
        return start_message(what, kTagged, message, 0);
    const tw_status_t status = tw_message_drop(worker, message);
    if (status != TW_OK)
        return not_taken(status);
    const tw_message_info_t info = carried(*carrier, kTagged);
    end_receive(completion_of(status, info, info.length, kTagged), what.context, 0,
                what.is_reported);
    return 0;
}

ssize_t Ep::start_message(const Receiving& what, bool is_tagged, tw_message_h message,
                          std::uint64_t flags) {
    tw_op_t op;
    fill(op, 0);
    op.complete = on_receive_end;
    op.mem = what.data.mem;
    Receiving named = what;
    named.from = FI_ADDR_UNSPEC;
    return start(named, is_tagged, op, flags, [&](const tw_op_t& wanted, tw_request_h* request_p) {
        const Data& data = what.data;
        return data.iov == nullptr
                   ? tw_message_recv(worker, message, data.base, data.length, &wanted, request_p)
                   : tw_message_recvv(worker, message, reinterpret_cast<const tw_iov_t*>(data.iov),
                                      data.count, &wanted, request_p);
    });
}

template ssize_t Ep::claim<false>(const Receiving&);
template ssize_t Ep::claim<true>(const Receiving&);

}  // namespace tagwire::fi
