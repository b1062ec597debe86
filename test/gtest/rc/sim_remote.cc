// SPDX-License-Identifier: BSD-3-Clause
// The simulation's links reach into the memory of their peers.
#include <algorithm>
#include <cstring>

#include "rc/sim.hpp"

namespace tagwire::test {

std::byte* Sim::slot_at(SimLink& link, unsigned slot) const {
    return link.to->memory->data() + kFixedBytes + link.id * kLinkBytes + slot * kSlotBytes;
}

std::uint64_t Sim::slot_address(SimLink& link, unsigned slot) const {
    return reinterpret_cast<std::uintptr_t>(slot_at(link, slot));
}

std::uint64_t* Sim::counter_of(SimLink& link) const {
    return reinterpret_cast<std::uint64_t*>(slot_at(link, kSlots));
}

void Sim::completed_put(SimOp& op) {
    SimLink& link = *op.link;
    if (link.to->is_alive) {
        EXPECT_TRUE(has_pattern({slot_at(link, op.slot), kSlotBytes}, op.seed));
    }
    link.is_slot_used[op.slot] = false;
}

void Sim::completed_get(SimOp& op) {
    EXPECT_TRUE(has_pattern(op.buffer->span(), op.seed)) << "op " << op.number;
    if (op.fetched == nullptr || op.fetched_of->ep == nullptr)
        return;
    SimOp& sent = *op.fetched->op;
    if (sent.is_over())
        return;
    // A layer above would learn by a message that the data was fetched.
    sent.is_dead = true;
    EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(op.fetched_of->ep, sent.handle));
}

void Sim::put(SimLink& link, unsigned how) {
    const auto slot = static_cast<unsigned>(pick(kSlots));
    if (link.is_slot_used[slot])
        return;
    const std::uint64_t seed = next_seed_++;
    const std::size_t bcopy_max = link.from->entity->attr().cap.put.max_bcopy;
    ucs_status_t status = UCS_OK;
    if (how == 2 || bcopy_max < kSlotBytes) {
        SimOp& op = new_op(link, SimOp::Kind::kPut);
        op.slot = slot;
        op.seed = seed;
        op.buffer = payload(*link.from, kSlotBytes, seed);
        const uct_iov_t iov = op.buffer->iov();
        status = uct_ep_put_zcopy(link.ep, &iov, 1, slot_address(link, slot), link.key->get(), &op);
        if (status != UCS_INPROGRESS)
            drop_last_op(link);
        link.is_slot_used[slot] = was_taken(link, status, "put");
        return;
    }
    SimPacked packed{0, false, kSlotBytes, seed};
    status = status_of_packed(uct_ep_put_bcopy(link.ep, SimPacked::pack, &packed,
                                               slot_address(link, slot), link.key->get()));
    if (was_taken(link, status, "put")) {
        link.is_slot_used[slot] = true;
        link.puts.push_back({next_number_++, seed, slot});
    }
}

void Sim::get(SimLink& link, bool by_zcopy) {
    SimOp& op = new_op(link, SimOp::Kind::kGet);
    const std::size_t limit = std::min<std::size_t>(
        kFixedBytes, by_zcopy ? kFixedBytes : link.from->entity->attr().cap.get.max_bcopy);
    const std::size_t bytes = 1 + pick(limit);
    op.seed = link.to->id;
    op.buffer = payload(*link.from, bytes, op.seed + 1);
    const std::uint64_t from = link.to->memory->address();
    ucs_status_t status = UCS_OK;
    if (by_zcopy) {
        const uct_iov_t iov = op.buffer->iov();
        status = uct_ep_get_zcopy(link.ep, &iov, 1, from, link.key->get(), &op);
    } else {
        const auto unpack = [](void* arg, const void* data, std::size_t length) {
            const auto& buffer = *static_cast<SimOp*>(arg)->buffer;
            EXPECT_EQ(buffer.size(), length);
            std::memcpy(buffer.data(), data, std::min(length, buffer.size()));
        };
        status = uct_ep_get_bcopy(link.ep, unpack, &op, bytes, from, link.key->get(), &op);
    }
    if (!was_taken(link, status, "get"))
        drop_last_op(link);
}

void Sim::atomic(SimLink& link, unsigned how) {
    if ((link.from->entity->attr().cap.flags & UCT_IFACE_FLAG_ATOMIC_DEVICE) == 0)
        return;
    const std::uint64_t at = reinterpret_cast<std::uintptr_t>(counter_of(link));
    const std::uint64_t value = random_();
    if (how == 0) {
        const ucs_status_t status =
            uct_ep_atomic64_post(link.ep, UCT_ATOMIC_OP_ADD, value, at, link.key->get());
        if (was_taken(link, status, "atomic"))
            link.counter += value;
        return;
    }
    SimOp& op = new_op(link, SimOp::Kind::kAtomic);
    op.expected = link.counter;
    const std::uint64_t compare = chance(4) ? ~link.counter : link.counter;
    const ucs_status_t status =
        how == 1
            ? uct_ep_atomic64_fetch(link.ep, UCT_ATOMIC_OP_ADD, value, &op.result, at,
                                    link.key->get(), &op)
            : uct_ep_atomic_cswap64(link.ep, compare, value, at, link.key->get(), &op.result, &op);
    if (!was_taken(link, status, "atomic"))
        return drop_last_op(link);
    if (how == 1)
        link.counter += value;
    else if (compare == link.counter)
        link.counter = value;
}

/// The data of an unexpected rendezvous is read by its receiver.
void Sim::fetch(SimNode& node) {
    if (node.fetches.empty())
        return;
    const SimFetch task = node.fetches.front();
    SimLink& back = *task.link->back;
    if (back.ep == nullptr || back.has_failed || task.message->op->is_over() ||
        task.message->bytes == 0) {
        // Nobody waits for it any more, or nothing is to be read.
        SimOp& sent = *task.message->op;
        if (!sent.is_over() && task.link->ep != nullptr) {
            sent.is_dead = true;
            EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(task.link->ep, sent.handle));
        }
        node.fetches.erase(node.fetches.begin());
        return;
    }
    const RemoteKey key(*node.entity, task.rkey);
    SimOp& op = new_op(back, SimOp::Kind::kGet);
    op.seed = task.message->seed;
    op.fetched = task.message;
    op.fetched_of = task.link;
    op.buffer = payload(node, task.message->bytes, op.seed + 1);
    const uct_iov_t iov = op.buffer->iov();
    const ucs_status_t status =
        uct_ep_get_zcopy(back.ep, &iov, 1, task.remote_addr, key.get(), &op);
    if (!was_taken(back, status, "get of a rendezvous"))
        return drop_last_op(back);
    node.fetches.erase(node.fetches.begin());
}

}  // namespace tagwire::test
