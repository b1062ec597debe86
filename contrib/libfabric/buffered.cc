// SPDX-License-Identifier: BSD-3-Clause
// Buffered receives and variable messages: the messaging layer keeps a message, the program is
// shown it (fi_recv_context) and claims or discards it.
#include "datapath.hpp"

namespace tagwire::fi {

/// Tags are posted. Messages without one need no receive: listen() has posted one for all.
template <bool kTagged>
ssize_t Ep::receive_buffered(const Receiving& what) {
    if (!kTagged || (what.flags & FI_MULTI_RECV) != 0)
        return -FI_EINVAL;
    tw_op_t op;
    fill(op, 0);
    op.complete = on_buffered;
    Receiving tag = what;
    tag.data = {nullptr, 0};
    return start(tag, true, op, FI_TAGGED, [&](const tw_op_t& wanted, tw_request_h* request_p) {
        return tw_tag_recv_buffered(worker, what.tag, what.ignore, &wanted, request_p);
    });
}

template ssize_t Ep::receive_buffered<false>(const Receiving&);
template ssize_t Ep::receive_buffered<true>(const Receiving&);

int Ep::listen() {
    Operation* operation = operations_.next();
    if (operation == nullptr)
        return -FI_ENOMEM;
    operations_.take(*operation, OperationKind::kListen);
    tw_op_t op;
    fill(op, 0);
    op.context = operation;
    op.complete = on_buffered;
    const tw_status_t status = tw_msg_recv_buffered_multi(worker, &op, &operation->request);
    if (status != TW_INPROGRESS)
        operations_.put(*operation);
    return status == TW_INPROGRESS ? 0 : -error_of(status);
}

void Ep::on_buffered(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    const bool stays = operation.kind == OperationKind::kListen;
    void* const user_context = operation.context;
    if (!stays)
        ep.operations_.put(operation);
    if ((done->flags & TW_DONE_MULTI_RECV) != 0)
        return ep.operations_.put(operation);
    ep.show(*done, user_context);
}

void Ep::show(const tw_completion_t& done, void* tag_context) {
    if (done.status != TW_OK)
        return fail(rx, done, tag_context, receive_flags_of(done));
    Operation* shown = operations_.next();
    if (shown == nullptr || rx.cq == nullptr) {
        // Nobody can claim it.
        (void)tw_message_drop(worker, done.message);
        if (shown != nullptr)
            return;
        tw_completion_t lost = done;
        lost.status = TW_ERR_NO_MEMORY;
        lost.length = 0;
        lost.buffer = nullptr;
        return fail(rx, lost, tag_context, receive_flags_of(done));
    }
    operations_.take(*shown, OperationKind::kShown);
    const bool is_tagged = (done.flags & TW_DONE_TAGGED) != 0;
    shown->shown = {is_tagged ? nullptr : this, tag_context};
    shown->message = done.message;
    if (rx.cntr != nullptr)
        rx.cntr->count_success();
    const std::uint64_t more = (done.flags & TW_DONE_MORE) != 0 ? FI_MORE : 0;
    rx.cq->push({&shown->shown, receive_flags_of(done) | more, done.message_length, done.buffer,
                 done.imm, done.tag},
                [&] { return source_of(done); });
}

/// The context of `what` is that of a shown message.
template <bool kTagged>
ssize_t Ep::claim_shown(const Receiving& what) {
    Operation* shown = operations_.find_shown(what.context);
    Receiving wanted = what;
    wanted.context = shown->shown.context;
    // Nothing is received of one that is discarded, so nothing is reported.
    const ssize_t status = (what.flags & FI_DISCARD) != 0
                               ? -error_of(tw_message_drop(worker, shown->message))
                               : start_message(wanted, kTagged, shown->message, FI_CLAIM);
    if (status == 0)
        operations_.put(*shown);
    return status;
}

template ssize_t Ep::claim_shown<false>(const Receiving&);
template ssize_t Ep::claim_shown<true>(const Receiving&);

}  // namespace tagwire::fi
