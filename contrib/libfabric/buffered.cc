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
    fill(op, TW_OP_BUFFERED);
    op.complete = on_buffered;
    Receiving tag = what;
    tag.data = {nullptr, 0};
    return start<kTagged>(tag, op, FI_TAGGED);
}

template ssize_t Ep::receive_buffered<false>(const Receiving&);
template ssize_t Ep::receive_buffered<true>(const Receiving&);

int Ep::listen() {
    Operation* operation = operations_.next();
    if (operation == nullptr)
        return -FI_ENOMEM;
    operations_.take(*operation, OperationKind::kListen);
    tw_op_t op;
    fill(op, TW_OP_BUFFERED | TW_OP_MULTI_RECV);
    op.context = operation;
    op.complete = on_buffered;
    const tw_status_t status = tw_msg_recv(worker, nullptr, 0, &op, &operation->request);
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
        tw_op_t op;
        fill(op, TW_OP_CLAIM | TW_OP_DISCARD);
        op.message = done.message;
        tw_msg_recv(worker, nullptr, 0, &op, nullptr);
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
    const bool discards = (what.flags & FI_DISCARD) != 0;
    Receiving wanted = what;
    wanted.context = shown->shown.context;
    tw_op_t op;
    fill(op, TW_OP_CLAIM);
    op.message = shown->message;
    ssize_t status = 0;
    if (discards) {
        // Nothing is received, so nothing is reported.
        op.flags |= TW_OP_DISCARD;
        wanted.data = {nullptr, 0};
        status = -error_of(call_receive<kTagged>(wanted, op, nullptr));
    } else {
        op.complete = on_receive_end;
        op.mem = what.data.mem;
        status = start<kTagged>(wanted, op, FI_CLAIM);
    }
    if (status == 0)
        operations_.put(*shown);
    return status;
}

template ssize_t Ep::claim_shown<false>(const Receiving&);
template ssize_t Ep::claim_shown<true>(const Receiving&);

}  // namespace tagwire::fi
