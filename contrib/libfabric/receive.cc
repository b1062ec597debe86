// SPDX-License-Identifier: BSD-3-Clause
// Receives of the less common kinds, and completion of receives; posting is in datapath.hpp.
#include <type_traits>
#include <utility>

#include "datapath.hpp"

namespace tagwire::fi {

/// Anything but a receive of one message into the buffer of the program.
template <bool kTagged>
ssize_t Ep::receive_otherwise(const Receiving& what) {
    if ((what.flags & ~kReceiveFlags) != 0)
        return -FI_EBADFLAGS;
    if ((what.flags & FI_PEEK) != 0)
        return peek<kTagged>(what);
    if ((what.flags & (FI_CLAIM | FI_DISCARD)) != 0)
        return is_buffered && operations_.find_shown(what.context) != nullptr
                   ? claim_shown<kTagged>(what)
                   : claim<kTagged>(what);
    return is_buffered ? receive_buffered<kTagged>(what) : receive_many<kTagged>(what);
}

template ssize_t Ep::receive_otherwise<false>(const Receiving& what);
template ssize_t Ep::receive_otherwise<true>(const Receiving& what);

/// A buffer for many messages.
template <bool kTagged>
ssize_t Ep::receive_many(const Receiving& what) {
    if (kTagged || what.data.iov != nullptr)
        return -FI_EINVAL;
    tw_op_t op;
    fill(op, 0);
    op.complete = on_multi_receive;
    op.mem = what.data.mem;
    return start(what, kTagged, op, 0, [&](const tw_op_t& wanted, tw_request_h* request_p) {
        return tw_msg_recv_multi(worker, what.data.base, what.data.length, &wanted, request_p);
    });
}

void Ep::on_receive_end(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    ep.end_receive(*done, operation.context, operation.flags, operation.is_reported);
    ep.operations_.put(operation);
}

void Ep::end_receive(const tw_completion_t& done, void* user_context, std::uint64_t flags,
                     bool is_reported) {
    if (done.status != TW_OK) [[unlikely]]
        return fail(rx, done, user_context, flags | receive_flags_of(done));
    if (rx.cntr != nullptr)
        rx.cntr->count_success();
    if (is_reported) {
        rx.cq->push({user_context, flags | receive_flags_of(done), done.length, done.buffer,
                     done.imm, done.tag},
                    [&] { return source_of(done); });
    }
}

template <bool kTagged>
[[gnu::noinline]] void Ep::on_slow_receive(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    ep.end_receive(*done, operation.context, 0, true);
    ep.operations_.put(operation);
}

template <bool kTagged, bool kIsWhole>
void Ep::on_usual_receive(const tw_completion_t* done) {
    using Entry = std::conditional_t<kIsWhole, fi_cq_tagged_entry, fi_cq_entry>;
    constexpr std::uint64_t kKind = FI_RECV | (kTagged ? FI_TAGGED : FI_MSG);
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    Cq& cq = *ep.rx.cq;
    // It may have been posted before there was a counter.
    if (done->status != TW_OK || ep.rx.cntr != nullptr || !cq.has_fast_room()) [[unlikely]]
        return on_slow_receive<kTagged>(done);
    const std::uint64_t imm = (done->flags & TW_DONE_IMM) != 0 ? FI_REMOTE_CQ_DATA : 0;
    cq.push_fast(entry_of(
        static_cast<const Entry*>(nullptr),
        {operation.context, kKind | imm, done->length, done->buffer, done->imm, done->tag}));
    ep.operations_.put(operation);
}

template void Ep::on_usual_receive<false, false>(const tw_completion_t* done);
template void Ep::on_usual_receive<false, true>(const tw_completion_t* done);
template void Ep::on_usual_receive<true, false>(const tw_completion_t* done);
template void Ep::on_usual_receive<true, true>(const tw_completion_t* done);

ssize_t Ep::usual_ended_in_call(tw_status_t status, void* user_context, std::size_t room,
                                bool is_tagged) {
    if (is_refusal(status))
        return not_taken(status);
    const tw_message_info_t info = std::exchange(usual_.info, {});
    end_receive(completion_of(status, info, room, is_tagged), user_context, 0, true);
    return 0;
}

/// One of the messages, or the end of the buffer: that has an entry of its own.
void Ep::on_multi_receive(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    if ((done->flags & TW_DONE_MULTI_RECV) == 0)
        return ep.end_receive(*done, operation.context, 0, operation.is_reported);
    if (done->status != TW_OK)
        ep.fail(ep.rx, *done, operation.context, FI_RECV | FI_MSG | FI_MULTI_RECV);
    else if (ep.rx.cq != nullptr)
        ep.rx.cq->push({operation.context, FI_MULTI_RECV, 0, nullptr, 0, 0});
    ep.operations_.put(operation);
}

void Ep::fail(const Direction& direction, const tw_completion_t& done, void* user_context,
              std::uint64_t flags) {
    if (direction.cntr != nullptr)
        direction.cntr->count_error();
    if (direction.cq == nullptr)
        return;
    fi_cq_err_entry entry{};
    entry.op_context = user_context;
    entry.flags = flags;
    entry.len = done.length;
    entry.buf = done.buffer;
    entry.data = done.imm;
    entry.tag = done.tag;
    entry.olen = done.message_length > done.length ? done.message_length - done.length : 0;
    entry.err = error_of(done.status);
    entry.prov_errno = done.status;
    direction.cq->push_error(entry);
}

/// The numbers of a peer that this side has sent to are kept with its endpoint; those of another
/// have to be looked up.
fi_addr_t Ep::source_of(tw_ep_h from, std::uint64_t worker_id) const {
    if ((caps & FI_SOURCE) == 0)
        return FI_ADDR_NOTAVAIL;
    const auto* peer = static_cast<const Peer*>(tw_ep_user_data(from));
    return peer != nullptr && peer->source != FI_ADDR_NOTAVAIL ? peer->source
                                                               : av_->addr_of(worker_id);
}

}  // namespace tagwire::fi
