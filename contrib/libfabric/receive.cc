// SPDX-License-Identifier: BSD-3-Clause
// What all receives come to; peeks, claims and buffered receives go their own way.
#include "ep.hpp"
#include "flags.hpp"
#include "info.hpp"

namespace tagwire::fi {

namespace {

constexpr std::uint64_t kReceiveFlags = FI_COMPLETION | FI_MORE | FI_TRANSMIT_COMPLETE |
                                        FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;

}  // namespace

template <bool kTagged>
ssize_t Ep::receive(const Receiving& what) {
    constexpr std::uint64_t kSpecial = FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD;
    if ((what.flags & kSpecial) == 0 && !is_buffered) [[likely]] {
        if ((what.flags & ~kReceiveFlags) != 0) [[unlikely]]
            return -FI_EBADFLAGS;
        tw_op_t op;
        fill(op, 0);
        op.complete = on_receive_end;
        op.mem = what.data.mem;
        return start<kTagged>(what, op, 0);
    }
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

template ssize_t Ep::receive<false>(const Receiving& what);
template ssize_t Ep::receive<true>(const Receiving& what);

template <bool kTagged>
tw_status_t Ep::call_receive(const Receiving& what, const tw_op_t& op, tw_request_h* request_p) {
    const Data& data = what.data;
    if (data.iov != nullptr) [[unlikely]] {
        const auto* iov = reinterpret_cast<const tw_iov_t*>(data.iov);
        return kTagged
                   ? tw_tag_recvv(worker, iov, data.count, what.tag, what.ignore, &op, request_p)
                   : tw_msg_recvv(worker, iov, data.count, &op, request_p);
    }
    return kTagged
               ? tw_tag_recv(worker, data.base, data.length, what.tag, what.ignore, &op, request_p)
               : tw_msg_recv(worker, data.base, data.length, &op, request_p);
}

template tw_status_t Ep::call_receive<false>(const Receiving&, const tw_op_t&, tw_request_h*);
template tw_status_t Ep::call_receive<true>(const Receiving&, const tw_op_t&, tw_request_h*);

/// A receive that may end in the call, or later. `op` has everything but source, context and done;
/// `flags` are those of its entry besides the kind of the message.
template <bool kTagged>
ssize_t Ep::start(const Receiving& what, tw_op_t& op, std::uint64_t flags) {
    if ((caps & FI_DIRECTED_RECV) != 0 && what.from != FI_ADDR_UNSPEC) {
        ssize_t error = 0;
        op.source = peer(what.from, &error);
        if (op.source == nullptr)
            return error;
    }
    Operation* operation = operations_.next();
    if (operation == nullptr) [[unlikely]]
        return try_again();
    tw_completion_t done;
    done.flags = 0;
    op.context = operation;
    op.done = &done;
    tw_request_h request = nullptr;
    const tw_status_t status = call_receive<kTagged>(what, op, &request);
    if (status == TW_INPROGRESS) [[likely]] {
        operations_.take(OperationKind::kReceive);
        operation->context = what.context;
        operation->flags = flags;
        operation->is_reported = what.is_reported;
        operation->request = request;
        return 0;
    }
    if ((done.flags & TW_DONE_BUFFERED) != 0) {
        show(done, what.context);
        return 0;
    }
    if ((done.flags & TW_DONE_RECV) != 0) {
        end_receive(done, what.context, flags, what.is_reported);
        return 0;
    }
    return status == TW_ERR_NO_RESOURCE ? try_again() : -error_of(status);
}

template ssize_t Ep::start<false>(const Receiving&, tw_op_t&, std::uint64_t);
template ssize_t Ep::start<true>(const Receiving&, tw_op_t&, std::uint64_t);

/// A buffer for many messages.
template <bool kTagged>
ssize_t Ep::receive_many(const Receiving& what) {
    if (kTagged || what.data.iov != nullptr)
        return -FI_EINVAL;
    tw_op_t op;
    fill(op, TW_OP_MULTI_RECV);
    op.complete = on_multi_receive;
    op.mem = what.data.mem;
    return start<kTagged>(what, op, 0);
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
        const fi_addr_t source = source_of(done);
        rx.cq->push() = {{user_context, flags | receive_flags_of(done), done.length, done.buffer,
                          done.imm, done.tag},
                         source};
    }
}

/// One of the messages, or the end of the buffer: that has an entry of its own.
void Ep::on_multi_receive(const tw_completion_t* done) {
    auto& operation = *static_cast<Operation*>(done->context);
    Ep& ep = *operation.ep;
    if ((done->flags & TW_DONE_MULTI_RECV) == 0)
        return ep.end_receive(*done, operation.context, 0, operation.is_reported);
    if (done->status != TW_OK) {
        ep.fail(ep.rx, *done, operation.context, FI_RECV | FI_MSG | FI_MULTI_RECV);
    } else if (ep.rx.cq != nullptr) {
        ep.rx.cq->push() = {{operation.context, FI_MULTI_RECV, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL};
    }
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

fi_addr_t Ep::source_of(const tw_completion_t& done) const {
    if ((caps & FI_SOURCE) == 0)
        return FI_ADDR_NOTAVAIL;
    // Endpoints that we made know their address: its number, plus one.
    const auto known =
        done.ep == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(tw_ep_user_data(done.ep));
    return known != 0 ? known - 1 : av_->addr_of(done.source);
}

}  // namespace tagwire::fi
