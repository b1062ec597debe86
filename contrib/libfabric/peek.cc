// SPDX-License-Identifier: BSD-3-Clause
// FI_PEEK, FI_CLAIM and FI_DISCARD of unexpected messages. The program's fi_context carries the
// claimed message from the peek to the claim.
#include "datapath.hpp"

namespace tagwire::fi {

/// Its outcome is always reported, but not counted: nothing was received.
template <bool kTagged>
ssize_t Ep::peek(const Receiving& what) {
    const bool claims = (what.flags & FI_CLAIM) != 0;
    const bool discards = (what.flags & FI_DISCARD) != 0;
    if ((claims && (discards || what.context == nullptr)) || (what.flags & FI_MULTI_RECV) != 0)
        return -FI_EINVAL;
    progress();
    tw_completion_t done{};
    tw_op_t op;
    fill(op, TW_OP_PEEK | flag_if(claims, TW_OP_CLAIM) | flag_if(discards, TW_OP_DISCARD));
    op.done = &done;
    if ((caps & FI_DIRECTED_RECV) != 0 && what.from != FI_ADDR_UNSPEC) {
        ssize_t error = 0;
        op.source = peer(what.from, &error);
        if (op.source == nullptr)
            return error;
    }
    const tw_status_t status = call_receive<kTagged>(what, op, nullptr);
    if (status == TW_ERR_NO_RESOURCE)
        return -FI_EAGAIN;
    if ((done.flags & TW_DONE_PEEK) == 0)
        return -error_of(status);
    if (rx.cq == nullptr)
        return 0;
    if (status == TW_OK) {
        if (claims)
            static_cast<fi_context*>(what.context)->internal[0] = done.message;
        rx.cq->push({what.context, receive_flags_of(done), done.message_length, done.buffer,
                     done.imm, done.tag},
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
    tw_op_t op;
    fill(op, TW_OP_CLAIM | flag_if((what.flags & FI_DISCARD) != 0, TW_OP_DISCARD));
    op.complete = on_receive_end;
    op.mem = what.data.mem;
    auto* const carrier = static_cast<fi_context*>(what.context);
    op.message = static_cast<tw_message_h>(carrier->internal[0]);
    return op.message == nullptr ? -FI_EINVAL : start<kTagged>(what, op, 0);
}

template ssize_t Ep::claim<false>(const Receiving&);
template ssize_t Ep::claim<true>(const Receiving&);

}  // namespace tagwire::fi
