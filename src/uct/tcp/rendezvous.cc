// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/rendezvous.hpp"

#include <algorithm>

#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

bool Rendezvous::take_rts(Connection& connection, const Message& message) {
    if (!iface_.tags.takes_tags(connection))
        return false;
    const auto rts = message.as<RtsBody>();
    if (rts.op == 0 || rts.address + rts.length < rts.address) {
        iface_.failures.violation(connection, "rendezvous of an impossible operation or range");
        return false;
    }
    if (Posted* posted = iface_.tags.consume(rts.tag)) {
        start_receive(connection, rts, *posted);
        return false;
    }
    iface_.count(TcpCounter::kUnexpected);
    const PackedRkey rkey{kRkeyMagic, rts.key.index, rts.key.generation, rts.address, rts.length};
    const unsigned flags = message.is_desc ? unsigned{UCT_CB_PARAM_FLAG_DESC} : 0U;
    const ucs_status_t status = iface_.invoke_unexpected_rndv(flags, rts.tag, message.data,
                                                              static_cast<unsigned>(message.bytes),
                                                              rts.address, rts.length, &rkey);
    return status == UCS_INPROGRESS && message.is_desc;
}

bool Rendezvous::take_request(Connection& connection, const Message& message) {
    if (!iface_.tags.takes_tags(connection))
        return false;
    const auto tag = message.as<TagRequestBody>().tag;
    const auto bytes = static_cast<unsigned>(message.bytes);
    if (iface_.tags.give_rndv(tag, message.data, bytes))
        return false;
    iface_.count(TcpCounter::kUnexpected);
    const unsigned flags = message.is_desc ? unsigned{UCT_CB_PARAM_FLAG_DESC} : 0U;
    const ucs_status_t status =
        iface_.invoke_unexpected_rndv(flags, tag, message.data, bytes, 0, 0, nullptr);
    return status == UCS_INPROGRESS && message.is_desc;
}

void Rendezvous::start_receive(Connection& connection, const RtsBody& rts, Posted& posted) {
    Op* op = iface_.ops.create(connection, OpKind::kReceive, nullptr, nullptr);
    if (op == nullptr) {
        iface_.sender.send_done(connection, rts.op, UCS_ERR_NO_MEMORY);
        iface_.tags.complete(posted, rts.tag, 0, rts.length, UCS_ERR_NO_MEMORY);
        return;
    }
    op->posted = &posted;
    op->tag = rts.tag;
    op->length = rts.length;
    op->left = std::min<std::uint64_t>(rts.length, posted.capacity());
    op->cursor = posted.cursor(&op->iov);
    iface_.sender.send_control(connection, Kind::kGetRequest,
                               GetRequestBody{op->id, rts.op, rts.address, op->left, rts.key});
}

void Rendezvous::finish_receive(Op& op, ucs_status_t status) {
    Posted& posted = *op.posted;
    const std::uint64_t tag = op.tag;
    const std::uint64_t length = op.length;
    iface_.ops.end_receive(op);
    iface_.tags.complete(posted, tag, 0, length, status);
}

bool Rendezvous::abandon(Posted& posted) {
    for (const auto& connection : iface_.connections.all()) {
        for (Op* op = connection->receives.front(); op != nullptr; op = op->next) {
            if (op->posted != &posted)
                continue;
            finish_receive(*op, UCS_ERR_CANCELED);
            return true;
        }
    }
    return false;
}

}  // namespace tagwire::tcp
