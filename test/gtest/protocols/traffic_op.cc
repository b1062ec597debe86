// SPDX-License-Identifier: BSD-3-Clause
// Any operation: how it is told about, and its end.
#include <algorithm>
#include <cstdlib>

#include "protocols/traffic.hpp"

namespace tagwire::test {

TrafficOp& Traffic::new_op(TrafficNode& node, Kind kind) {
    ops_.push_back(std::make_unique<TrafficOp>());
    TrafficOp& op = *ops_.back();
    op.traffic = this;
    op.node = &node;
    op.kind = kind;
    with_memory_.push_back(&op);
    return op;
}

void Traffic::draw_report(TrafficOp& op) {
    op.report = static_cast<Report>(pick(4));
    // Nobody would learn of the message, or that the buffer may go.
    if (op.report == Report::kNobody && op.kind != Kind::kSend && op.kind != Kind::kPeek)
        op.report = Report::kPolled;
    if (op.report == Report::kTested && op.kind == Kind::kMany)
        op.report = Report::kCalled;
    if (op.report == Report::kPolled || (op.report == Report::kCalled && chance(2)))
        op.flags |= TW_OP_COMPLETION;
    if (chance(8))
        op.flags |= TW_OP_MORE;
    if (chance(6) && (op.report == Report::kPolled || op.report == Report::kCalled))
        op.memory.reset(std::aligned_alloc(64, (tw_request_bytes() + 63) / 64 * 64));
}

/// Sometimes a list instead of one buffer, and sometimes memory that is mapped.
void Traffic::draw_list(TrafficOp& op) {
    if (chance(4)) {
        std::size_t at = 0;
        for (std::size_t left = 1 + pick(TW_IOV_MAX); left > 0; --left) {
            const std::size_t rest = op.length - at;
            const std::size_t now = left == 1 ? rest : chance(4) ? 0 : pick(rest + 1);
            op.list.push_back({now == 0 && chance(2) ? nullptr : op.bytes.data() + at, now});
            at += now;
        }
    }
    const auto has_null = [](const tw_iov_t& element) { return element.base == nullptr; };
    if (chance(10) && op.length > 0 && std::ranges::none_of(op.list, has_null)) {
        const tw_context_h context = context_of(op.node->index);
        const tw_status_t status =
            tw_mem_map(context, op.bytes.data(), op.bytes.size(), nullptr, &op.mapped);
        EXPECT_TRUE(status == TW_OK || is_for_lack_of_memory(status)) << tw_status_string(status);
    }
}

tw_op_t Traffic::how(TrafficOp& op, tw_completion_t* done) {
    tw_op_t what{};
    what.flags = op.flags;
    what.context = &op;
    what.complete = op.report == Report::kCalled ? on_complete : nullptr;
    what.request = op.memory.get();
    what.imm = op.imm;
    what.mem = op.mapped;
    what.message = op.message;
    // A plain send, which may take the fast path, has none.
    what.done = op.kind == Kind::kSend && chance(2) ? nullptr : done;
    const bool is_receive =
        op.kind == Kind::kReceive || op.kind == Kind::kMany || op.kind == Kind::kPeek;
    if (is_receive && op.peer != kAnybody)
        what.source = op.node->eps[op.peer];
    return what;
}

tw_status_t Traffic::post(TrafficOp& op, const Call& call) {
    tw_completion_t done{};
    const tw_op_t what = how(op, &done);
    tw_request_h request = nullptr;
    ++op.node->open;
    op.is_open = true;
    const tw_status_t status = call(&what, op.report == Report::kNobody ? nullptr : &request);
    if (status == TW_INPROGRESS) {
        if (op.report == Report::kNobody) {
            --op.node->open;  // nobody will tell
            op.is_open = false;
        } else if (!op.is_over()) {
            EXPECT_NE(request, nullptr);
            op.request = request;
            if (op.report == Report::kTested)
                tested_.push_back(&op);
        }
        return status;
    }
    EXPECT_EQ(op.ends, 0) << "it was reported and answered";
    if (what.done == nullptr && status == TW_OK) {
        done.context = &op;
        done.flags = TW_DONE_SEND | (op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U) |
                     (op.imm != 0 ? unsigned{TW_DONE_IMM} : 0U);
        done.tag = op.tag;
        done.length = done.message_length = op.length;
        done.ep = op.node->eps[op.peer];
    }
    if (status == TW_ERR_NO_RESOURCE || (status < TW_OK && done.context == nullptr)) {
        EXPECT_TRUE(status == TW_ERR_NO_RESOURCE || is_anything_broken() ||
                    is_for_lack_of_memory(status))
            << tw_status_string(status);
        --op.node->open;
        op.is_open = false;
        op.ends = 1;
        return TW_ERR_NO_RESOURCE;
    }
    EXPECT_EQ(done.context, &op) << "op->done was not filled";
    EXPECT_EQ(done.status, status);
    EXPECT_FALSE((op.flags & TW_OP_COMPLETION) != 0) << "answered, not reported";
    if (done.context == &op)
        ended(op, done);
    return status;
}

void Traffic::on_complete(const tw_completion_t* done) {
    TrafficOp& op = *static_cast<TrafficOp*>(done->context);
    Traffic& traffic = *op.traffic;
    EXPECT_EQ(op.report, Report::kCalled);
    traffic.ended(op, *done);
    if (!traffic.is_settling_ && traffic.depth_ < 2 && traffic.chance(6) && ok()) {
        ++traffic.depth_;
        traffic.act(*op.node);
        --traffic.depth_;
    }
}

void Traffic::ended(TrafficOp& op, const tw_completion_t& done) {
    ++clock_;
    EXPECT_TRUE(op.node->is_alive()) << "it ended when its worker was destroyed";
    EXPECT_FALSE(op.is_over()) << "it ended twice: " << text(op);
    const bool is_buffered = (op.flags & TW_OP_BUFFERED) != 0;
    if (op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) == 0)
        return is_buffered ? end_buffered(op, done) : end_many(op, done);
    ++op.ends;
    if (op.is_open)
        --op.node->open;
    op.is_open = false;
    op.request = nullptr;
    switch (op.kind) {
        case Kind::kSend:
            return end_send(op, done);
        case Kind::kReceive:
        case Kind::kClaim:
            return is_buffered ? end_buffered(op, done) : end_receive(op, done);
        case Kind::kMany:
            return is_buffered ? end_buffered(op, done) : end_many(op, done);
        case Kind::kPeek:
            return end_peek(op, done);
        case Kind::kFlush:
            return end_flush(op, done);
        case Kind::kClose:
            return end_close(op, done);
        case Kind::kPut:
        case Kind::kGet:
        case Kind::kAtomic:
            return memory_.end(op, done);
        case Kind::kAm:
            return ams_.end_send(op, done);
        case Kind::kAmReceive:
            return ams_.end_receive(op, done);
    }
}

RefReceive& Traffic::record_of(TrafficOp& op) {
    return op.node->spaces[op.is_tagged ? 1 : 0].receive(op.record);
}

RefMessage& Traffic::message_of(TrafficOp& op) {
    return nodes_[op.peer]->spaces[op.is_tagged ? 1 : 0].message(op.record);
}

}  // namespace tagwire::test
