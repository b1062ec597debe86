// SPDX-License-Identifier: BSD-3-Clause
// Senders at host a, a tag-matching SRQ at host b with a queue pair for each of them.
#pragma once

#include "vhca/core/tm_header.hpp"
#include "vhca/test/core/world.hpp"

namespace tagwire::vhca {

constexpr std::uint64_t kExact = ~std::uint64_t{0};
constexpr unsigned kMatch = IBV_WC_TM_MATCH, kValid = IBV_WC_TM_DATA_VALID;
constexpr std::uint32_t kContext = 0x12345678;

struct TagOptions {
    WorldOptions world{};
    std::size_t senders = 1;
    std::uint32_t tags_max = 16, ops_max = 64;
    std::uint32_t untagged = 16;  // receives that are posted at the beginning
};

/// Two senders; a message of more than two packets takes more than one round trip.
inline TagOptions slow() {
    TagOptions options;
    options.senders = 2;
    options.world.node.device.packets_ahead = 2;
    return options;
}

class TagWorld : public World {
  public:
    // Memory of b: slots of untagged receives, then tagged ones; a has messages, then data to be
    // read, and its last bytes take what b sends.
    static constexpr std::size_t kSlotBytes = 4096, kSlots = 64;
    static constexpr std::size_t kTaggedAt = kSlotBytes * kSlots;
    static constexpr std::size_t kMessagesBytes = 1 << 18;
    static constexpr std::size_t kMemoryBytes = 1 << 20;
    static constexpr std::size_t kFinsAt = kMemoryBytes - kSlotBytes;

    explicit TagWorld(const TagOptions& given = {}) : World(with_tags(given.world)) {
        EXPECT_EQ(b.device.create_cq({.cqe = 1024}, &cq), 0);
        const SrqConfig config{
            .pd = b.pd, .wr_max = kSlots, .sge_max = 1, .tm = {given.tags_max, given.ops_max, cq}};
        EXPECT_EQ(b.device.create_srq(config, &tm), 0);
        for (std::uint32_t i = 0; i < given.untagged; ++i)
            EXPECT_EQ(post_untagged(i), 0);
        for (std::size_t i = 0; i < given.senders; ++i)
            add_sender();
    }

    void add_sender() {
        senders.push_back(&a.create_qp({.cap = options.cap}));
        receivers.push_back(&b.create_qp({.srq = tm, .cap = options.cap}));
        connect(*senders.back(), b.route(), receivers.back()->number(), 7, 0xfffff0);
        connect(*receivers.back(), a.route(), senders.back()->number(), 0xfffff0, 7);
        for (std::uint64_t i = 0; i < 16; ++i)
            post_fin(*senders.back());
    }
    void post_fin(Qp& sender) {
        const ibv_sge sge = a.sge(kFinsAt, kRendezvousBytes);
        EXPECT_EQ(sender.post_recv({0, {&sge, 1}}), 0);
    }

    int post_untagged(std::uint64_t slot) {
        const ibv_sge sge = b.sge(slot * kSlotBytes, kSlotBytes);
        return tm->post({slot, {&sge, 1}});
    }
    /// The bytes of an untagged receive.
    [[nodiscard]] std::string untagged(std::uint64_t slot, std::size_t bytes) const {
        return b.text(slot * kSlotBytes, bytes);
    }
    [[nodiscard]] std::string tagged(std::size_t offset, std::size_t bytes) const {
        return b.text(kTaggedAt + offset, bytes);
    }

    int operate(TagWork& work) {
        std::size_t failed = 0;
        return tm->post_ops({&work, 1}, &failed, fabric.now());
    }
    /// The handle.
    std::uint32_t add(std::uint64_t tag, std::uint64_t recv_wr_id, std::size_t offset,
                      std::size_t bytes, TagWork work = {}) {
        const ibv_sge sge = b.sge(kTaggedAt + offset, bytes);
        work.opcode = IBV_WR_TAG_ADD;
        work.tag = tag;
        work.mask = work.mask == 0 ? kExact : work.mask;
        work.recv_wr_id = recv_wr_id;
        work.sges = {&sge, bytes == 0 ? 0U : 1U};
        EXPECT_EQ(operate(work), 0);
        return work.handle;
    }
    int remove(std::uint32_t handle, TagWork work = {}) {
        work.opcode = IBV_WR_TAG_DEL;
        work.handle = handle;
        return operate(work);
    }
    int sync(std::uint32_t count, unsigned flags = 0) {
        TagWork work{.flags = flags | IBV_OPS_TM_SYNC, .unexpected_count = count};
        return operate(work);
    }

    // Not inline: g++ 12 warns of what its own strings do.
    [[nodiscard, gnu::noinline]] static std::string header(TagOpcode opcode, std::uint64_t tag) {
        const TagHeader header{opcode, {}, htobe32(kContext), htobe64(tag)};
        return {reinterpret_cast<const char*>(&header), sizeof header};
    }
    int send_message(const std::string& message, SendWork work = {}, std::size_t sender = 0) {
        next_ = next_ + message.size() > kMessagesBytes ? 0 : next_;
        a.write(next_, message);
        const ibv_sge sge = a.sge(next_, message.size());
        next_ += message.size();
        work.flags |= IBV_SEND_SIGNALED;
        work.sges = {&sge, 1};
        return senders[sender]->post_send(work, fabric.now());
    }
    int send_eager(std::uint64_t tag, const std::string& text, std::size_t sender = 0) {
        return send_message(header(TagOpcode::kEager, tag) + text, {}, sender);
    }
    [[nodiscard]] std::string rendezvous(std::uint64_t tag, std::size_t offset,
                                         std::size_t bytes) const {
        const ReadHeader source{htobe64(a.address(kMessagesBytes + offset)), htobe32(a.mr->key),
                                htobe32(static_cast<std::uint32_t>(bytes))};
        return header(TagOpcode::kRendezvous, tag) +
               std::string(reinterpret_cast<const char*>(&source), sizeof source);
    }
    int send_rendezvous(std::uint64_t tag, std::size_t offset, const std::string& data,
                        std::size_t sender = 0) {
        a.write(kMessagesBytes + offset, data);
        return send_message(rendezvous(tag, offset, data.size()), {}, sender);
    }

    std::optional<Completion> poll_tags() {
        Completion completion;
        return cq->poll(&completion) ? std::optional(completion) : std::nullopt;
    }
    Completion wait_tags() {
        EXPECT_TRUE(fabric.run([this] { return !cq->is_empty(); })) << "no completion";
        return poll_tags().value_or(Completion{});
    }

    Cq* cq = nullptr;  // of the SRQ
    Srq* tm = nullptr;
    std::vector<Qp*> senders, receivers;

  private:
    static WorldOptions with_tags(WorldOptions world) {
        world.node.memory_bytes = kMemoryBytes;
        if (world.node.device.tm_tags_max == 0)
            world.node.device.tm_tags_max = 1024;
        return world;
    }

    std::size_t next_ = 0;
};

/// One line per completion: its opcode, wr_id, flags and so on are what the table says.
inline void expect_tagged(const Completion& completion, std::uint64_t wr_id, unsigned flags,
                          std::size_t bytes) {
    EXPECT_EQ(completion.wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(completion.wc.opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(completion.wc.wr_id, wr_id);
    EXPECT_EQ(completion.wc.wc_flags, flags);
    EXPECT_EQ(completion.wc.byte_len, bytes);
}

}  // namespace tagwire::vhca
