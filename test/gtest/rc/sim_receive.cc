// SPDX-License-Identifier: BSD-3-Clause
// The simulation's nodes: receives that they post, and their callbacks.
#include <algorithm>
#include <cstring>

#include "rc/sim.hpp"

namespace tagwire::test {

void Sim::listen(SimNode& node) {
    Entity& entity = *node.entity;
    entity.on_am = [this, &node](const AmMessage& message) { return on_am(node, message); };
    entity.on_eager = [this, &node](const EagerFragment& part) { return on_eager(node, part); };
    entity.on_rndv = [this, &node](const RndvMessage& message) { return on_rndv(node, message); };
    entity.on_error = [this](const PeerError& error) { on_error(error); };
}

/// The message that a tag names: one that was sent to this node and not taken yet.
SimMessage* Sim::message_of(SimNode& node, uct_tag_t tag, SimLink** link_p) {
    const std::size_t id = tag >> 16 & 0xffff, number = tag >> 32;
    if (id >= links_.size() || links_[id]->to != &node || number >= links_[id]->tagged.size() ||
        links_[id]->tagged[number].tag != tag) {
        ADD_FAILURE() << "tag " << std::hex << tag << " was never sent to node " << node.id;
        return nullptr;
    }
    SimMessage& message = links_[id]->tagged[number];
    EXPECT_EQ(0U, message.position) << "message " << number << " of link " << id << " came twice";
    if (link_p != nullptr)
        *link_p = links_[id].get();
    return &message;
}

// ---- Without a receive

ucs_status_t Sim::on_am(SimNode& node, const AmMessage& message) {
    std::uint64_t header = 0;
    if (message.bytes.size() < sizeof header) {
        ADD_FAILURE() << "an active message without its header";
        return UCS_OK;
    }
    std::memcpy(&header, message.bytes.data(), sizeof header);
    const std::size_t id = header & 0xffffffff, number = header >> 32;
    if (id >= links_.size() || links_[id]->to != &node) {
        ADD_FAILURE() << "an active message of link " << id << " came to node " << node.id;
        return UCS_OK;
    }
    SimLink& link = *links_[id];
    EXPECT_EQ(link.ams_seen, number) << "link " << id;
    if (number >= link.ams.size())
        return UCS_OK;
    ++link.ams_seen;
    const SimMessage& sent = link.ams[number];
    EXPECT_EQ(sent.bytes, message.bytes.size() - sizeof header) << "link " << id;
    EXPECT_TRUE(has_pattern(std::span(message.bytes).subspan(sizeof header), sent.seed));
    if ((message.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || is_settling_ || !chance(4) ||
        node.held.size() >= node.held_max)
        return UCS_OK;
    hold(node, message.data, sizeof header, sent.bytes, sent.seed);
    return UCS_INPROGRESS;
}

void Sim::see_unexpected(SimNode& node, uct_tag_t tag, SimMessage& message) {
    message.position = ++node.positions;
    if (options_.has_device_tags)
        return;  // the device had looked before the receive was there
    for (const SimReceive* receive : node.posted) {
        EXPECT_FALSE(receive->matches(tag) && !receive->is_cancelled && receive->consumed == 0)
            << "unexpected, although a receive matches";
    }
}

ucs_status_t Sim::on_eager(SimNode& node, const EagerFragment& fragment) {
    const bool is_first = (fragment.flags & UCT_CB_PARAM_FLAG_FIRST) != 0;
    const bool has_more = (fragment.flags & UCT_CB_PARAM_FLAG_MORE) != 0;
    SimMessage* message = nullptr;
    std::size_t offset = 0;
    if (is_first) {
        message = message_of(node, fragment.tag);
        if (message == nullptr)
            return UCS_OK;
        see_unexpected(node, fragment.tag, *message);
        EXPECT_EQ(message->imm, fragment.imm);
        if (has_more) {
            partials_.push_back({message, fragment.length});
            *fragment.context = &partials_.back();
        }
    } else {
        auto& partial = *static_cast<Partial*>(*fragment.context);
        message = partial.message;
        offset = partial.bytes;
        partial.bytes += fragment.length;
        EXPECT_EQ(message->tag, fragment.tag);
    }
    EXPECT_EQ(SimMessage::Kind::kEager, message->kind);
    const bool fits = offset + fragment.length <= message->bytes;
    EXPECT_TRUE(has_more ? fits : offset + fragment.length == message->bytes);
    const Bytes whole = pattern(message->bytes, message->seed);
    if (fits && fragment.length > 0) {
        EXPECT_EQ(0, std::memcmp(fragment.data, whole.data() + offset, fragment.length));
    }
    if ((fragment.flags & UCT_CB_PARAM_FLAG_DESC) == 0 || is_settling_ || !chance(4) || !is_first ||
        has_more || node.held.size() >= node.held_max)
        return UCS_OK;
    hold(node, fragment.data, 0, message->bytes, message->seed);
    return UCS_INPROGRESS;
}

ucs_status_t Sim::on_rndv(SimNode& node, const RndvMessage& message) {
    SimLink* link = nullptr;
    SimMessage* sent = message_of(node, message.tag, &link);
    if (sent == nullptr)
        return UCS_OK;
    see_unexpected(node, message.tag, *sent);
    if (sent->kind == SimMessage::Kind::kRequest) {
        EXPECT_EQ(sent->bytes, message.header.size());
        EXPECT_TRUE(has_pattern(message.header, sent->seed));
        EXPECT_TRUE(message.rkey.empty());
        return UCS_OK;
    }
    EXPECT_EQ(SimMessage::Kind::kRndv, sent->kind);
    EXPECT_EQ(sent->bytes, message.length);
    if (!message.header.empty()) {
        EXPECT_EQ(0, std::memcmp(message.header.data(), &sent->tag, sizeof sent->tag));
    }
    node.fetches.push_back({link, sent, message.remote_addr, message.rkey});
    return UCS_OK;
}

void Sim::hold(SimNode& node, void* data, std::size_t skip, std::size_t bytes, std::uint64_t seed) {
    node.held.push_back({data, static_cast<const std::byte*>(data) + skip, bytes, seed});
}

void Sim::release(SimNode& node) {
    if (node.held.empty())
        return;
    const std::size_t which = pick(node.held.size());
    const SimHeld held = node.held[which];
    node.held.erase(node.held.begin() + static_cast<std::ptrdiff_t>(which));
    EXPECT_TRUE(has_pattern({held.data, held.bytes}, held.seed)) << "a kept message changed";
    uct_iface_release_desc(held.descriptor);
}

// ---- Receives

void Sim::post(SimNode& node) {
    auto receive = std::make_unique<SimReceive>();
    receive->sim = this;
    receive->node = &node;
    receive->tag = pick(4) | pick(links_.size()) << 16;
    constexpr uct_tag_t kMasks[] = {0xff, 0xff, 0xffff00ff, 0, 1};
    receive->mask = kMasks[pick(std::size(kMasks))];
    const std::size_t least = node.entity->attr().cap.tag.recv.min_recv;
    const std::size_t bytes = std::max<std::size_t>(least, chance(3) ? pick(3000) : 20000);
    receive->buffer = std::make_unique<Buffer>(*node.entity, bytes, Backing::kRegistered);
    receive->tag_consumed_cb = [](uct_tag_context_t* self) {
        auto& mine = *static_cast<SimReceive*>(self);
        mine.sim->on_consumed(mine);
    };
    receive->completed_cb = [](uct_tag_context_t* self, uct_tag_t tag, std::uint64_t imm,
                               std::size_t length, void* inline_data, ucs_status_t status) {
        auto& mine = *static_cast<SimReceive*>(self);
        if (inline_data != nullptr)
            std::memcpy(mine.buffer->data(), inline_data, length);
        mine.sim->on_received(mine, tag, imm, length, status);
    };
    receive->rndv_cb = [](uct_tag_context_t* self, uct_tag_t tag, const void* header,
                          unsigned header_length, ucs_status_t status, unsigned) {
        auto& mine = *static_cast<SimReceive*>(self);
        EXPECT_EQ(UCS_OK, status);
        mine.sim->on_requested(mine, tag, header, header_length);
    };
    const uct_iov_t iov = receive->buffer->iov();
    const ucs_status_t status = uct_iface_tag_recv_zcopy(node.entity->iface(), receive->tag,
                                                         receive->mask, &iov, 1, receive.get());
    if (status == UCS_OK) {
        node.posted.push_back(receive.get());
        receives_.push_back(std::move(receive));
    } else {
        EXPECT_TRUE(status == UCS_ERR_EXCEEDS_LIMIT || status == UCS_ERR_NO_RESOURCE)
            << ucs_status_string(status);
    }
}

void Sim::cancel(SimNode& node) {
    if (receives_.empty())
        return;
    SimReceive& receive = *receives_[pick(receives_.size())];
    if (receive.node != &node || receive.ended > 0 || receive.is_cancelled)
        return;
    const bool is_forced = chance(2);
    const ucs_status_t status =
        uct_iface_tag_recv_cancel(node.entity->iface(), &receive, is_forced ? 1 : 0);
    if (status == UCS_ERR_NO_RESOURCE)
        return;
    // A receive whose message is being written still gets its real end, forced or not.
    const bool is_silent = is_forced && status != UCS_ERR_BUSY;
    EXPECT_EQ(is_silent || !is_forced ? UCS_OK : UCS_ERR_BUSY, status);
    receive.is_cancelled = true;
    receive.is_forced = is_silent;
    if (!is_silent)
        return;
    // A matched message is gone with it; where the device matches, that may not be known yet.
    if (receive.consumed > 0 || options_.has_device_tags)
        node.may_be_lost.emplace_back(receive.tag, receive.mask);
    std::erase(node.posted, &receive);
}

void Sim::on_consumed(SimReceive& receive) {
    EXPECT_EQ(1, ++receive.consumed);
    EXPECT_EQ(0, receive.ended);
    EXPECT_FALSE(receive.is_forced);
    receive.position = ++receive.node->positions;
    for (const SimReceive* other : receive.node->posted) {
        if (other == &receive)
            break;
        if (!other->is_cancelled && other->consumed == 0)
            receive.older.emplace_back(other->tag, other->mask);
    }
}

void Sim::end(SimReceive& receive) {
    EXPECT_EQ(1, ++receive.ended);
    EXPECT_FALSE(receive.is_forced) << "called back after it was cancelled by force";
    std::erase(receive.node->posted, &receive);
}

void Sim::on_requested(SimReceive& receive, uct_tag_t tag, const void* header, unsigned bytes) {
    end(receive);
    SimMessage* message = message_of(*receive.node, tag);
    if (message == nullptr)
        return;
    message->position = receive.position;
    EXPECT_EQ(SimMessage::Kind::kRequest, message->kind);
    EXPECT_EQ(1, receive.consumed);
    EXPECT_TRUE(receive.matches(tag));
    EXPECT_EQ(message->bytes, bytes);
    EXPECT_TRUE(has_pattern({static_cast<const std::byte*>(header), bytes}, message->seed));
    for (const auto& [older, mask] : receive.older)
        EXPECT_NE(0U, (older ^ tag) & mask) << "an older receive matches, too";
}

void Sim::on_received(SimReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
                      ucs_status_t status) {
    end(receive);
    if (status == UCS_ERR_CANCELED && receive.is_cancelled && receive.consumed == 0)
        return;
    take(receive, tag, imm, bytes, status);
}

void Sim::take(SimReceive& receive, uct_tag_t tag, std::uint64_t imm, std::size_t bytes,
               ucs_status_t status) {
    EXPECT_EQ(1, receive.consumed) << ucs_status_string(status);
    SimLink* link = nullptr;
    SimMessage* message = message_of(*receive.node, tag, &link);
    if (message == nullptr)
        return;
    message->position = receive.position;
    EXPECT_TRUE(receive.matches(tag));
    for (const auto& [older, mask] : receive.older)
        EXPECT_NE(0U, (older ^ tag) & mask) << "an older receive matches, too";
    EXPECT_NE(SimMessage::Kind::kRequest, message->kind);
    if (message->bytes > receive.buffer->size()) {
        EXPECT_TRUE(status == UCS_ERR_MESSAGE_TRUNCATED || link->may_fail)
            << ucs_status_string(status);
        return;
    }
    if (status != UCS_OK) {
        EXPECT_TRUE(link->may_fail) << ucs_status_string(status);
        return;
    }
    EXPECT_EQ(message->bytes, bytes);
    EXPECT_EQ(message->imm, imm);
    EXPECT_TRUE(has_pattern({receive.buffer->data(), std::min(bytes, receive.buffer->size())},
                            message->seed))
        << "message " << (tag >> 32) << " of link " << link->id;
}

}  // namespace tagwire::test
