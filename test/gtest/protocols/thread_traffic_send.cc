// SPDX-License-Identifier: BSD-3-Clause
// Sends and cancels.
#include <algorithm>
#include <iterator>
#include <utility>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

/// Where one way of sending ends and another begins.
constexpr std::size_t kThreadLengths[] = {0, 8, 96, 112, 1024, 4096, 8192, 16384, 32768, 65536};
constexpr std::size_t kThreadInjectMax = 4096;
constexpr std::uint32_t kThreadPlain =
    TW_OP_MORE | TW_OP_INJECT | TW_OP_INJECT_COMPLETE | TW_OP_IMM;

}  // namespace

std::size_t ThreadTraffic::pick_length(TrafficThread& self) {
    switch (pick(self, 8)) {
        case 0:
            return pick(self, options_.bytes_max);
        case 1:
        case 2:
            return pick(self, 200);
        default: {
            const std::size_t about = kThreadLengths[pick(self, std::size(kThreadLengths))];
            const std::size_t near = about + pick(self, 33);
            return near < 24 ? near : near - 24;
        }
    }
}

/// The bytes of a message: its number, as much as there is room for, and a pattern.
Bytes ThreadTraffic::content(std::size_t length, std::uint32_t number) {
    Bytes bytes = pattern(length, number);
    for (std::size_t i = 0; i < std::min(length, sizeof number); ++i)
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    return bytes;
}

void ThreadTraffic::draw_message(TrafficThread& self, ThreadOp& op) {
    op.is_tagged = !chance(self, 4);
    op.tag = op.is_tagged ? pick(self, 3) << 40 | pick(self, 4) : 0;
    op.length = pick_length(self);
    constexpr std::uint32_t kEnds[] = {TW_OP_INJECT_COMPLETE, TW_OP_TRANSMIT_COMPLETE,
                                       TW_OP_DELIVERY_COMPLETE, TW_OP_MATCH_COMPLETE};
    if (chance(self, 3))
        op.flags |= kEnds[pick(self, std::size(kEnds))];
    // Where some are lost each must tell which it is.
    if (options_.has_breaks || options_.has_death || chance(self, 4))
        op.flags |= TW_OP_IMM;
    op.imm = (op.flags & TW_OP_IMM) != 0 ? (op.number + std::uint64_t{1}) * kImm : 0;
    if (chance(self, 16))
        op.flags |= TW_OP_FENCE;
    if (chance(self, 5) && op.length <= kThreadInjectMax)
        op.flags |= TW_OP_INJECT;
}

tw_status_t ThreadTraffic::call_send(ThreadOp& op, tw_ep_h ep, const Bytes& data,
                                     const tw_op_t* what, tw_request_h* request_p) {
    if (op.list.empty()) {
        return op.is_tagged ? tw_tag_send(ep, data.data(), op.length, op.tag, what, request_p)
                            : tw_msg_send(ep, data.data(), op.length, what, request_p);
    }
    return op.is_tagged ? tw_tag_sendv(ep, op.list.data(), op.list.size(), op.tag, what, request_p)
                        : tw_msg_sendv(ep, op.list.data(), op.list.size(), what, request_p);
}

void ThreadTraffic::send(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    if (self.sent == options_.steps * 4U)
        return;
    const std::shared_lock use = use_ep(worker, to);
    if (!use)
        return;
    ThreadOp& op = new_op(self, Kind::kSend, worker);
    op.number = static_cast<std::uint32_t>(self.number * kSendsMax + self.sent - 1);
    op.peer = to;
    op.ep = way(worker, to).ep;
    draw_message(self, op);
    draw_report(self, op);
    if (op.is_plain)
        op.flags &= kThreadPlain;
    Bytes data = content(op.length, op.number);
    const bool is_injected = (op.flags & TW_OP_INJECT) != 0;
    draw_list(self, op, data);
    Bytes& stays = is_injected ? data : op.bytes;  // a move leaves the memory where it is
    if (!is_injected)
        op.bytes = std::move(data);
    // SYNC thread_op_drawn: pairs with the acquire in match_of(): what is to be sent.
    op.is_drawn.store(true, std::memory_order_release);
    post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        const tw_status_t status = call_send(op, op.ep->handle, stays, what, request_p);
        if (is_injected)
            std::ranges::fill(stays, std::byte{0xdd});
        return status;
    });
}

/// One of any thread: its handle is valid while the table names it, and the guard is held.
void ThreadTraffic::cancel(TrafficThread& self) {
    ThreadOp* const op = cancellable_.at(pick(self, kCancellable)).load(std::memory_order_acquire);
    if (op == nullptr)
        return;
    const std::lock_guard guard(op->guard);
    if (op->request == nullptr)
        return;
    Tick never = kNever;
    op->cancelled.compare_exchange_strong(never, tick(), std::memory_order_relaxed);
    if (tw_request_cancel(op->request) != TW_OK)
        wrong("a cancel is refused", op);
}

}  // namespace tagwire::test
