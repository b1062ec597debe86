// SPDX-License-Identifier: BSD-3-Clause
// The simulation's links: their operations, and the checks of each completion.
#include <algorithm>
#include <cstring>
#include <utility>

#include "rc/sim.hpp"

namespace tagwire::test {

std::size_t SimPacked::pack(void* dest, void* arg) {
    const auto& packed = *static_cast<const SimPacked*>(arg);
    auto* at = static_cast<std::byte*>(dest);
    if (packed.has_header) {
        std::memcpy(at, &packed.header, sizeof packed.header);
        at += sizeof packed.header;
    }
    fill_pattern({at, packed.bytes}, packed.seed);
    return packed.bytes + (packed.has_header ? sizeof packed.header : 0);
}

std::unique_ptr<Buffer> Sim::payload(SimNode& node, std::size_t bytes, std::uint64_t seed) {
    auto buffer = std::make_unique<Buffer>(*node.entity, bytes, Backing::kRegistered);
    fill_pattern(buffer->span(), seed);
    return buffer;
}

// ---- Operations

SimOp& Sim::new_op(SimLink& link, SimOp::Kind kind) {
    auto op = std::make_unique<SimOp>();
    op->count = 1;
    op->status = UCS_OK;
    op->func = [](uct_completion_t* self) {
        auto& done = *static_cast<SimOp*>(self);
        done.sim->completed(done);
    };
    op->kind = kind;
    op->sim = this;
    op->link = &link;
    op->number = next_number_++;
    ops_.push_back(std::move(op));
    link.ops.push_back(ops_.back().get());
    return *ops_.back();
}

void Sim::drop_last_op(SimLink& link) {
    ASSERT_EQ(ops_.back().get(), link.ops.back());
    ASSERT_EQ(0, ops_.back()->calls) << "completed, although it was not taken";
    link.ops.pop_back();
    ops_.pop_back();
}

bool Sim::was_taken(SimLink& link, ucs_status_t status, const char* what) {
    if (status >= UCS_OK)
        return true;
    if (link.has_failed) {
        EXPECT_NE(UCS_ERR_NO_RESOURCE, status) << what << " on an endpoint that failed";
    } else if (status != UCS_ERR_NO_RESOURCE) {
        EXPECT_TRUE(link.may_fail)
            << what << " on link " << link.id << ": " << ucs_status_string(status);
    }
    return false;
}

void Sim::completed(SimOp& op) {
    SimLink& link = *op.link;
    ++op.calls;
    EXPECT_EQ(1, op.calls) << "op " << op.number << " completed again";
    EXPECT_FALSE(op.is_dead) << "op " << op.number << " completed, although it was cancelled";
    if (op.status != UCS_OK) {
        EXPECT_TRUE(link.may_fail) << "op " << op.number << " of kind " << static_cast<int>(op.kind)
                                   << ": " << ucs_status_string(op.status);
        return;
    }
    switch (op.kind) {
        case SimOp::Kind::kPut:
            return completed_put(op);
        case SimOp::Kind::kGet:
            return completed_get(op);
        case SimOp::Kind::kAtomic:
            EXPECT_EQ(op.expected, op.result) << "op " << op.number;
            return;
        case SimOp::Kind::kFlush:
            return completed_flush(op);
        default:
            return;
    }
}

// A flush of an endpoint that was destroyed succeeds when nothing is under way any more.
void Sim::completed_flush(SimOp& op) {
    SimLink& link = *op.link;
    for (const SimOp* other : link.ops) {
        EXPECT_TRUE(other->number >= op.number || other->is_over())
            << "op " << other->number << " of kind " << static_cast<int>(other->kind)
            << " was under way after flush " << op.number;
    }
    std::erase_if(link.puts, [&](const SimPut& put) {
        if (put.number > op.number)
            return false;
        if (!link.may_fail) {
            EXPECT_TRUE(has_pattern({slot_at(link, put.slot), kSlotBytes}, put.seed));
        }
        link.is_slot_used[put.slot] = false;
        return true;
    });
}

// ---- Operations to choose from

void Sim::act() {
    SimLink& link = pick_link();
    if (link.ep == nullptr)
        return;
    std::erase_if(link.ops, [](const SimOp* op) { return op->is_over(); });
    const auto how = static_cast<unsigned>(pick(3));
    switch (pick(14)) {
        case 0:
        case 1:
        case 2:
            return send_am(link, how);
        case 3:
        case 4:
        case 5:
            return send_eager(link, how);
        case 6:
        case 7:
            return send_rndv(link);
        case 8:
            return chance(2) ? send_request(link) : cancel_rndv(link);
        case 9:
            return put(link, how);
        case 10:
            return get(link, chance(2));
        case 11:
            return atomic(link, how);
        case 12:
            return flush(link);
        default:
            return add_pending(link);
    }
}

void Sim::send_am(SimLink& link, unsigned how) {
    was_taken(link, send_am_now(link, how), "am");
}

ucs_status_t Sim::send_am_now(SimLink& link, unsigned how) {
    SimNode& node = *link.from;
    const auto& limits = node.entity->attr().cap.am;
    SimPacked message{link.ams.size() << 32 | link.id, true, 0, next_seed_++};
    const std::size_t limit = how == 0   ? limits.max_short
                              : how == 1 ? limits.max_bcopy
                                         : limits.max_zcopy;
    message.bytes = chance(4) ? limit - 8 : pick(std::min<std::size_t>(limit - 8, 200) + 1);
    ucs_status_t status = UCS_OK;
    if (how == 0) {
        const Bytes bytes = pattern(message.bytes, message.seed);
        status = uct_ep_am_short(link.ep, Entity::kAmId, message.header, bytes.data(),
                                 static_cast<unsigned>(bytes.size()));
    } else if (how == 1) {
        status =
            status_of_packed(uct_ep_am_bcopy(link.ep, Entity::kAmId, SimPacked::pack, &message, 0));
    } else {
        SimOp& op = new_op(link, SimOp::Kind::kZcopy);
        op.buffer = payload(node, message.bytes, message.seed);
        const uct_iov_t iov = op.buffer->iov();
        status = uct_ep_am_zcopy(link.ep, Entity::kAmId, &message.header, sizeof message.header,
                                 &iov, 1, 0, &op);
        if (status != UCS_INPROGRESS)
            drop_last_op(link);
    }
    if (status >= UCS_OK)
        link.ams.push_back({.bytes = message.bytes, .seed = message.seed});
    return status;
}

void Sim::send_eager(SimLink& link, unsigned how) {
    SimNode& node = *link.from;
    const auto& limits = node.entity->attr().cap.tag.eager;
    SimMessage message{.kind = SimMessage::Kind::kEager,
                       .tag = std::uint64_t{link.tagged.size()} << 32 | link.id << 16 | pick(4),
                       .seed = next_seed_++};
    const std::size_t limit = how == 0   ? limits.max_short
                              : how == 1 ? limits.max_bcopy
                                         : limits.max_zcopy;
    message.bytes = chance(4) ? limit : pick(std::min<std::size_t>(limit, 200) + 1);
    if (how > 0)
        message.imm = chance(3) ? 0 : random_() | 1;
    ucs_status_t status = UCS_OK;
    if (how == 0) {
        const Bytes bytes = pattern(message.bytes, message.seed);
        status = uct_ep_tag_eager_short(link.ep, message.tag, bytes.data(), bytes.size());
    } else if (how == 1) {
        SimPacked packed{0, false, message.bytes, message.seed};
        status = status_of_packed(
            uct_ep_tag_eager_bcopy(link.ep, message.tag, message.imm, SimPacked::pack, &packed, 0));
    } else {
        SimOp& op = new_op(link, SimOp::Kind::kZcopy);
        op.buffer = payload(node, message.bytes, message.seed);
        const uct_iov_t iov = op.buffer->iov();
        status = uct_ep_tag_eager_zcopy(link.ep, message.tag, message.imm, &iov, 1, 0, &op);
        if (status != UCS_INPROGRESS)
            drop_last_op(link);
    }
    if (was_taken(link, status, "eager"))
        link.tagged.push_back(message);
}

void Sim::send_rndv(SimLink& link) {
    SimNode& node = *link.from;
    SimOp& op = new_op(link, SimOp::Kind::kRndv);
    SimMessage message{.kind = SimMessage::Kind::kRndv,
                       .tag = std::uint64_t{link.tagged.size()} << 32 | link.id << 16 | pick(4),
                       .bytes = chance(8) ? 0 : pick(chance(3) ? 20000 : 3000),
                       .seed = next_seed_++,
                       .op = &op};
    op.buffer = payload(node, message.bytes, message.seed);
    const uct_iov_t iov = op.buffer->iov();
    const std::uint64_t header = message.tag;
    const unsigned header_bytes = chance(2) ? sizeof header : 0;
    const ucs_status_ptr_t handle =
        uct_ep_tag_rndv_zcopy(link.ep, message.tag, &header, header_bytes, &iov, 1, 0, &op);
    if (UCS_PTR_IS_ERR(handle)) {
        was_taken(link, UCS_PTR_RAW_STATUS(handle), "rendezvous");
        return drop_last_op(link);
    }
    EXPECT_NE(nullptr, handle);
    op.handle = handle;
    link.tagged.push_back(message);
}

void Sim::send_request(SimLink& link) {
    SimMessage message{.kind = SimMessage::Kind::kRequest,
                       .tag = std::uint64_t{link.tagged.size()} << 32 | link.id << 16 | pick(4),
                       .bytes = 8 + pick(40),
                       .seed = next_seed_++};
    message.bytes =
        std::min<std::size_t>(message.bytes, link.from->entity->attr().cap.tag.rndv.max_hdr);
    const Bytes header = pattern(message.bytes, message.seed);
    const ucs_status_t status = uct_ep_tag_rndv_request(link.ep, message.tag, header.data(),
                                                        static_cast<unsigned>(header.size()), 0);
    if (was_taken(link, status, "request"))
        link.tagged.push_back(message);
}

void Sim::cancel_rndv(SimLink& link) {
    for (SimOp* op : link.ops) {
        if (op->kind != SimOp::Kind::kRndv || op->is_over() || !chance(2))
            continue;
        op->is_dead = true;
        EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(link.ep, op->handle));
        return;
    }
}

void Sim::flush(SimLink& link) {
    if (chance(4)) {
        // The peer may hold it up, and then it says so.
        const ucs_status_t status = uct_ep_flush(link.ep, UCT_FLUSH_FLAG_LOCAL, nullptr);
        was_taken(link, status, "flush");
        return;
    }
    SimOp& op = new_op(link, SimOp::Kind::kFlush);
    const ucs_status_t status = uct_ep_flush(link.ep, UCT_FLUSH_FLAG_LOCAL, &op);
    if (status == UCS_INPROGRESS)
        return;
    if (status == UCS_OK)
        completed_flush(op);
    was_taken(link, status, "flush");
    drop_last_op(link);
}

void Sim::add_pending(SimLink& link) {
    auto request = std::make_unique<SimRequest>();
    request->sim = this;
    request->link = &link;
    request->func = [](uct_pending_req_t* self) {
        auto& mine = *static_cast<SimRequest*>(self);
        EXPECT_FALSE(mine.is_done);
        const ucs_status_t status = mine.sim->send_am_now(*mine.link, 1);
        mine.is_done = status >= UCS_OK;
        return status < UCS_OK ? status : UCS_OK;
    };
    const ucs_status_t status = uct_ep_pending_add(link.ep, request.get(), 0);
    if (status == UCS_OK)
        link.requests.push_back(std::move(request));
    else if (status != UCS_ERR_BUSY)
        was_taken(link, status, "pending request");
}

}  // namespace tagwire::test
