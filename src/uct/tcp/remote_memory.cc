// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/remote_memory.hpp"

#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/checked_copy.hpp"
#include "uct/tcp/limits.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

bool is_get(const Op& op) {
    return op.kind == OpKind::kGetZcopy || op.kind == OpKind::kGetBcopy ||
           op.kind == OpKind::kReceive;
}

ucs_status_t status_of(std::int32_t wire) {
    return wire <= UCS_OK && wire > UCS_ERR_LAST ? static_cast<ucs_status_t>(wire)
                                                 : UCS_ERR_IO_ERROR;
}

}  // namespace

void RemoteMemory::take_put(Connection& connection, const Message& message) {
    const auto put = message.as<PutBody>();
    ucs_status_t status = UCS_ERR_INVALID_ADDR;
    {
        const Registrations::Pin pin = iface_.registrations().pin(
            put.key, put.address, message.bytes, UCT_MD_MEM_ACCESS_REMOTE_PUT);
        if (pin.address() != nullptr)
            status = ucs::write_checked(pin.address(), message.data, message.bytes);
    }
    finish_placed(connection, message.head, put, 0, status);
}

void RemoteMemory::take_get_data(Connection& connection, const Message& message) {
    const std::uint64_t id = message.as<GetDataBody>().op;
    Op* op = iface_.ops.find(connection, id);
    if (op == nullptr)
        return;  // ended meanwhile
    if (!is_get(*op) || message.bytes > op->left) {
        iface_.failures.violation(connection, "reply that is longer than what was asked for");
        return;
    }
    op->cursor.scatter(message.data, message.bytes);
    op->left -= message.bytes;
    if (op->left == 0 && message.head.value != kDoneFollows)
        finish_get(*op, UCS_OK);
}

void RemoteMemory::find_place(Connection& connection, Incoming& in, Registrations::Pin* pin) {
    if (in.posted != nullptr || in.place_left == 0)
        return;
    if (in.head.kind == Kind::kPut) {
        *pin = iface_.registrations().pin(in.put.key, in.put.address, in.place_left,
                                          UCT_MD_MEM_ACCESS_REMOTE_PUT);
        if (pin->address() == nullptr) {
            in.waste(UCS_ERR_INVALID_ADDR);
            return;
        }
        const uct_iov_t one{pin->address(), in.place_left, nullptr, 0, 1};
        in.iov.assign(&one, 1);
        in.cursor = in.iov.cursor();
        return;
    }
    Op* op = in.head.kind == Kind::kGetData ? iface_.ops.find(connection, in.op) : nullptr;
    if (op == nullptr) {
        in.waste(UCS_OK);
    } else if (!is_get(*op) || in.place_left > op->left) {
        iface_.failures.violation(connection, "reply that is longer than what was asked for");
        in.waste(UCS_OK);
    } else {
        in.cursor = op->cursor;
    }
}

void RemoteMemory::lose_place(Connection& connection, Incoming& in) {
    TW_LOG_DEBUG("tcp: %llu bytes of a peer have no place: the memory cannot be written",
                 static_cast<unsigned long long>(in.place_left));
    in.waste(UCS_ERR_INVALID_ADDR);
    Op* op = in.head.kind == Kind::kGetData ? iface_.ops.find(connection, in.op) : nullptr;
    if (op == nullptr)
        return;
    if (op->kind == OpKind::kReceive)
        iface_.rendezvous.finish_receive(*op, UCS_ERR_INVALID_ADDR);
    else
        iface_.ops.abandon(*op, UCS_ERR_INVALID_ADDR);
}

void RemoteMemory::count_placed(Connection& connection, const Incoming& in, std::size_t bytes) {
    Op* op =
        in.head.kind == Kind::kGetData && bytes > 0 ? iface_.ops.find(connection, in.op) : nullptr;
    if (op == nullptr)
        return;
    op->cursor.skip(bytes);
    op->left -= bytes;
}

void RemoteMemory::finish_placed(Connection& connection, const FrameHead& head, const PutBody& put,
                                 std::uint64_t op, ucs_status_t status) {
    if (head.kind == Kind::kGetData) {
        Op* get = iface_.ops.find(connection, op);
        if (get != nullptr && get->left == 0 && head.value != kDoneFollows)
            finish_get(*get, UCS_OK);
    } else if (head.kind == Kind::kPut) {
        finish_put(connection, head, put, status);
    }
}

void RemoteMemory::finish_put(Connection& connection, const FrameHead& head, const PutBody& put,
                              ucs_status_t status) {
    if (status != UCS_OK)
        TW_LOG_DEBUG("tcp: a put by key %u, which is not good (any more), was dropped",
                     put.key.index);
    if (head.value == kMoreFollows) {
        if (status != UCS_OK)
            connection.failed_put = put.key.part;
        return;
    }
    if (put.key.part != 0 && std::exchange(connection.failed_put, 0) == put.key.part)
        status = UCS_ERR_INVALID_ADDR;
    if (put.op != 0)
        iface_.sender.send_done(connection, put.op, status);
    else if (status != UCS_OK)
        iface_.sender.report_failed_put(connection, status);
}

void RemoteMemory::finish_get(Op& op, ucs_status_t status) {
    if (op.kind == OpKind::kReceive) {
        iface_.rendezvous.finish_receive(op, status);
        return;
    }
    if (op.kind == OpKind::kGetBcopy && status == UCS_OK) {
        unpack(op);
        return;
    }
    iface_.ops.finish(op, status);
}

/// The callback may destroy the endpoint, which ends the operation; the data stays until it has
/// returned.
void RemoteMemory::unpack(Op& op) {
    Connection& connection = *op.connection;
    const std::uint64_t id = op.id;
    std::byte* const staging = std::exchange(op.staging, nullptr);
    op.unpack(op.unpack_arg, staging, op.length);
    iface_.staging.put(staging);
    if (Op* still = iface_.ops.find(connection, id))
        iface_.ops.finish(*still, UCS_OK);
}

// ---- The owner of the memory

ucs_status_t RemoteMemory::serve(Connection& connection, const GetRequestBody& request) {
    Op* rts = request.rts == 0 ? nullptr : iface_.ops.find(connection, request.rts);
    if (request.rts != 0 && (rts == nullptr || rts->kind != OpKind::kRndvSend))
        return UCS_ERR_CANCELED;
    const bool is_copied =
        request.length <= kCopiedGetMax && connection.tx.copied_bytes() <= kCopiedRepliesMax;
    ucs_status_t status = UCS_OK;
    if (request.length > 0 && !is_copied)
        return start_stream(connection, request);
    if (request.length > 0) {
        const Registrations::Pin pin = iface_.registrations().pin(
            request.key, request.address, request.length, UCT_MD_MEM_ACCESS_REMOTE_GET);
        status = pin.address() == nullptr
                     ? UCS_ERR_INVALID_ADDR
                     : iface_.sender.send_get_data(connection, request.op, pin.address(),
                                                   static_cast<std::size_t>(request.length));
    } else {
        iface_.sender.send_done(connection, request.op, UCS_OK);
    }
    if (rts != nullptr)
        iface_.ops.finish(*rts, status);
    return status;
}

ucs_status_t RemoteMemory::start_stream(Connection& connection, const GetRequestBody& request) {
    // Checked at once, so that a bad request is answered before anything is sent.
    if (iface_.registrations()
            .pin(request.key, request.address, request.length, UCT_MD_MEM_ACCESS_REMOTE_GET)
            .address() == nullptr)
        return UCS_ERR_INVALID_ADDR;
    TxStream* stream = iface_.pools.streams.create();
    if (stream == nullptr)
        return UCS_ERR_NO_MEMORY;
    stream->is_put = false;
    stream->op = request.op;
    stream->owner_op = request.rts;
    stream->address = request.address;
    stream->key = request.key;
    stream->left = request.length;
    connection.tx.push(*stream);
    iface_.add_work(connection);
    return UCS_OK;
}

void RemoteMemory::take_get_request(Connection& connection, const GetRequestBody& request) {
    if ((request.length == 0 && request.rts == 0) || connection.tx.gets() >= kGetsServedMax) {
        iface_.failures.violation(connection, "request for no bytes, or one request too many");
        return;
    }
    const ucs_status_t status = serve(connection, request);
    if (status != UCS_OK)
        iface_.sender.send_done(connection, request.op, status);
}

void RemoteMemory::take_done(Connection& connection, const DoneBody& done) {
    const ucs_status_t status = status_of(done.status);
    if (done.op == 0) {
        connection.put_failure = status;
        return;
    }
    if (done.op == kRecallOp) {
        iface_.ops.end_recall(connection);
        return;
    }
    Op* op = iface_.ops.find(connection, done.op);
    if (op == nullptr)
        return;  // ended meanwhile
    if (is_local_flush(op->kind) || (is_get(*op) && status == UCS_OK && op->left > 0)) {
        iface_.failures.violation(connection, "end of an operation that the peer cannot end");
        return;
    }
    if (is_get(*op)) {
        finish_get(*op, status);
        return;
    }
    if (op->kind == OpKind::kFlushRemote) {
        connection.puts_placed = static_cast<std::uint32_t>(op->mark);
        // It still waits for rendezvous before it, as a local flush does.
        op->kind = OpKind::kFlush;
        op->mark = 0;
        iface_.ops.settle_flushes(connection);
        return;
    }
    iface_.sender.let_go(*op);
    iface_.ops.finish(*op, status);
}

}  // namespace tagwire::tcp
