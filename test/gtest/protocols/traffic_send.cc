// SPDX-License-Identifier: BSD-3-Clause
// Sends and cancels.
#include <algorithm>
#include <iterator>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

/// Where one way of sending ends and another begins.
constexpr std::size_t kTrafficLengths[] = {0, 8, 96, 112, 1024, 4096, 8192, 16384, 32768, 65536};
constexpr std::size_t kTrafficInjectMax = 4096;
constexpr std::uint32_t kTrafficPlain = TW_OP_MORE | TW_OP_INJECT | TW_OP_IMM;

}  // namespace

std::size_t Traffic::pick_length(TrafficThread& self) {
    switch (pick(self, 8)) {
        case 0:
            return pick(self, options_.bytes_max);
        case 1:
            return pick(self, is_alone() ? 2000 : 200);
        default: {
            const std::size_t about = kTrafficLengths[pick(self, std::size(kTrafficLengths))];
            const std::size_t near = about + pick(self, 33);
            return near < 24 ? near : near - 24;
        }
    }
}

/// The bytes of a message: its number, as much as there is room for, and a pattern.
Bytes Traffic::content(std::size_t length, std::uint32_t number) {
    Bytes bytes = pattern(length, number);
    for (std::size_t i = 0; i < std::min(length, sizeof number); ++i)
        bytes[i] = static_cast<std::byte>(number >> (8 * i));
    return bytes;
}

/// When a message has ended for its sender, and what it waits for.
void Traffic::draw_end(TrafficThread& self, TrafficOp& op, std::size_t inject_max) {
    constexpr std::uint32_t kEnds[] = {TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE,
                                       TW_OP_MATCH_COMPLETE, TW_OP_SENT_COMPLETE};
    if (chance(self, 3))
        op.flags |= kEnds[pick(self, std::size(kEnds))];
    if (chance(self, 16))
        op.flags |= TW_OP_FENCE;
    if (chance(self, 5) && op.length <= inject_max)
        op.flags |= TW_OP_INJECT;
}

void Traffic::draw_message(TrafficThread& self, TrafficOp& op) {
    op.is_tagged = !chance(self, 4);
    op.tag = op.is_tagged ? pick(self, 3) << 40 | pick(self, 4) : 0;
    op.length = pick_length(self);
    draw_end(self, op, kTrafficInjectMax);
    // Where some are lost each must tell which it is.
    const bool must_tell =
        is_alone() ? way(op.worker, op.peer).broken > 0 : options_.has_breaks || options_.has_death;
    if (must_tell || chance(self, 4))
        op.flags |= TW_OP_IMM;
    op.imm = op.has(TW_OP_IMM) ? (op.number + std::uint64_t{1}) * kImm : 0;
}

tw_status_t Traffic::call_send(TrafficOp& op, tw_ep_h ep, const Bytes& data, const tw_op_t* what,
                               tw_request_h* request_p) {
    if (op.list.empty()) {
        return op.is_tagged ? tw_tag_send(ep, data.data(), op.length, op.tag, what, request_p)
                            : tw_msg_send(ep, data.data(), op.length, what, request_p);
    }
    return op.is_tagged ? tw_tag_sendv(ep, op.list.data(), op.list.size(), op.tag, what, request_p)
                        : tw_msg_sendv(ep, op.list.data(), op.list.size(), what, request_p);
}

void Traffic::send(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    if (self.sent == ops_max())
        return;
    const std::shared_lock use = use_ep(worker, to);
    if (!use)
        return;
    TrafficOp& op = new_op(self, Kind::kSend, worker);
    op.number = static_cast<std::uint32_t>(self.number * kSendsMax + self.sent - 1);
    op.peer = to;
    op.ep = way(worker, to).ep;
    draw_message(self, op);
    draw_report(self, op);
    if (op.is_plain)
        op.flags &= kTrafficPlain;
    Bytes data = content(op.length, op.number);
    const bool is_injected = op.has(TW_OP_INJECT);
    draw_list(self, op, data);
    Bytes& stays = is_injected ? data : op.bytes;  // a move leaves the memory where it is
    if (!is_injected)
        op.bytes = std::move(data);
    if (is_alone())
        way(worker, to).sent.push_back(&op);
    // SYNC traffic_op_drawn: pairs with the acquire in match_of(): what is to be sent.
    op.is_drawn.store(true, std::memory_order_release);
    const bool is_posted = post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        const tw_status_t status = call_send(op, op.ep->handle, stays, what, request_p);
        if (is_injected)
            std::ranges::fill(stays, std::byte{0xdd});
        return status;
    });
    if (is_alone() && !is_posted)
        std::erase(way(worker, to).sent, &op);
}

void Traffic::end_send(TrafficOp& op, const tw_completion_t& done) {
    if (done.tag != op.tag || done.message_length != op.length ||
        (done.status == TW_OK && done.length != op.length))
        wrong("a send ends as another one: " + std::to_string(done.length) + " of " +
                  std::to_string(done.message_length) + " bytes",
              &op);
    const TrafficEp* const ep = is_alone() ? way(op.worker, op.peer).ep : nullptr;
    if (ep != nullptr && done.ep != ep->handle && !is_anything_broken(op.worker))
        wrong("a send ends at another endpoint", &op);
}

/// One of any thread: its handle is valid while the table names it, and the guard is held.
void Traffic::cancel(TrafficThread& self) {
    TrafficOp* const op = cancellable_.at(pick(self, kCancellable)).load(std::memory_order_acquire);
    if (op == nullptr)
        return;
    std::unique_lock guard(op->guard, std::defer_lock);
    if (!is_alone())  // else the cancel may end it
        guard.lock();
    if (op->request == nullptr)
        return;
    Tick never = kNever;
    op->cancelled.compare_exchange_strong(never, tick(), std::memory_order_relaxed);
    if (tw_request_cancel(op->request) != TW_OK)
        wrong("a cancel is refused", op);
}

}  // namespace tagwire::test
