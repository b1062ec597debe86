// SPDX-License-Identifier: BSD-3-Clause
// The completion ring: places, owner bits, overrun, events, other memory.
#include <sys/mman.h>

#include <cerrno>

#include "ucs/sys/fd.hpp"
#include "vhca/engine/fault_handler.hpp"
#include "vhca/test/core/world.hpp"
#include "vhca/test/driver/program.hpp"

namespace tagwire::vhca::driver {

namespace {

constexpr std::uint64_t kUser = 0x1122334455667788;

class VhcaCqRing : public testing::Test {
  protected:
    explicit VhcaCqRing(std::uint32_t entry_bytes = 64, bool ignores_overrun = false,
                        std::uint32_t first = 0)
        : program(4, entry_bytes),
          channel(EventPipe::create(sizeof kUser)),
          events(channel->program_fd()),
          ring(config(ignores_overrun, first)) {
        program.begin_at(first);
        EXPECT_EQ(world.a.device.create_cq({.cqe = 4, .consumer = &ring}, &cq), 0);
        EXPECT_TRUE(ucs::make_nonblocking(events.get()));
    }
    CqRing::Config config(bool ignores_overrun, std::uint32_t first = 0) {
        return {
            .ring = program.ring(),
            .record = program.record.address(),
            .number = 5,
            .ignores_overrun = ignores_overrun,
            .channel = channel.get(),
            .user_handle = kUser,
            .owner_of =
                [](const Completion& completion) { return CqeOwner{.qpn = completion.wc.qp_num}; },
            .first = first};
    }
    bool complete(std::uint16_t counter, bool is_solicited = false) {
        Completion completion;
        completion.wc.opcode = IBV_WC_RECV;
        completion.wc.wr_id = EntryName{counter, 0}.pack();
        completion.is_solicited = is_solicited;
        return ring.take(*cq, completion);
    }
    std::optional<std::uint16_t> poll() {
        const auto cqe = program.poll();
        return cqe ? std::optional(be16toh(cqe->wqe_counter)) : std::nullopt;
    }
    unsigned read_events() {
        unsigned count = 0;
        for (std::uint64_t handle = 0;
             ::read(events.get(), &handle, sizeof handle) == sizeof handle; ++count) {
            EXPECT_EQ(handle, kUser);
        }
        return count;
    }

    World world;
    PolledCompletions program;
    std::unique_ptr<EventPipe> channel;
    ucs::UniqueFd events;
    CqRing ring;
    Cq* cq = nullptr;
};

class VhcaWideCqRing : public VhcaCqRing {
  protected:
    VhcaWideCqRing() : VhcaCqRing(128) {}
};

/// Eight entries before the program's index of 24 bits wraps.
class VhcaOldCqRing : public VhcaCqRing {
  protected:
    static constexpr std::uint32_t kWrap = 1 << 24;
    VhcaOldCqRing() : VhcaCqRing(64, false, kWrap - 8) {}
};

class VhcaCarelessCqRing : public VhcaCqRing {
  protected:
    VhcaCarelessCqRing() : VhcaCqRing(64, true) {}
};

TEST_F(VhcaCqRing, entries_are_polled_in_their_order_round_after_round) {
    EXPECT_FALSE(poll().has_value());
    for (std::uint16_t i = 0; i != 51; i += 3) {
        for (std::uint16_t j = i; j != i + 3; ++j)
            ASSERT_TRUE(complete(j));
        for (std::uint16_t j = i; j != i + 3; ++j)
            ASSERT_EQ(poll(), j);
        ASSERT_FALSE(poll().has_value());
    }
}

TEST_F(VhcaWideCqRing, an_entry_is_the_second_half_of_its_place) {
    for (std::uint16_t i = 0; i != 9; ++i) {
        ASSERT_TRUE(complete(i));
        ASSERT_EQ(poll(), i);
    }
    EXPECT_EQ(ring.entries(), 4U);
    EXPECT_EQ(ring.number(), 5U);
}

TEST_F(VhcaCqRing, overruns_when_the_program_consumed_too_little) {
    for (std::uint16_t i = 0; i != 4; ++i)
        ASSERT_TRUE(complete(i));
    EXPECT_FALSE(complete(4));
    EXPECT_EQ(poll(), 0);
    EXPECT_TRUE(complete(4));
    for (std::uint16_t i = 1; i != 5; ++i)
        EXPECT_EQ(poll(), i);
}

TEST_F(VhcaCqRing, a_consumer_index_from_the_future_is_an_overrun) {
    program.record.set(0, 1);
    EXPECT_FALSE(complete(0));
    EXPECT_FALSE(ring.is_gone());
}

TEST_F(VhcaOldCqRing, a_consumer_index_wraps_at_24_bits) {
    for (std::uint16_t i = 0; i != 16; ++i) {  // each is announced, also that at the wrap
        program.arm();
        EXPECT_FALSE(ring.poll()) << i;
        ASSERT_TRUE(complete(i)) << i;
        EXPECT_EQ(read_events(), 1U) << i;
        EXPECT_EQ(poll(), i);
        EXPECT_EQ(poll(), std::nullopt) << i;
    }
    EXPECT_EQ(program.consumed(), kWrap + 8);
    EXPECT_EQ(program.record.get(0), 8U);
}

TEST_F(VhcaOldCqRing, it_overruns_across_the_wrap) {
    for (std::uint16_t i = 0; i != 6; ++i) {
        ASSERT_TRUE(complete(i));
        EXPECT_EQ(poll(), i);
    }
    for (std::uint16_t i = 6; i != 10; ++i)  // two before the wrap, two behind it
        ASSERT_TRUE(complete(i)) << i;
    EXPECT_FALSE(complete(10));
    EXPECT_EQ(poll(), 6);
    EXPECT_TRUE(complete(11));
}

TEST_F(VhcaCarelessCqRing, overwrites_if_it_was_told_to) {
    for (std::uint16_t i = 0; i != 9; ++i)
        ASSERT_TRUE(complete(i));
    const auto newest = program.entry(0);
    EXPECT_EQ(be16toh(newest.wqe_counter), 8);
}

TEST_F(VhcaCqRing, is_not_armed_at_first) {
    EXPECT_FALSE(program.is_armed());
    complete(0);
    EXPECT_FALSE(ring.poll());
    EXPECT_EQ(read_events(), 0U);
}

TEST_F(VhcaCqRing, announces_what_comes_after_it_was_armed) {
    program.arm();
    EXPECT_FALSE(ring.poll());
    complete(0);
    EXPECT_FALSE(program.is_armed());
    complete(1);
    EXPECT_EQ(read_events(), 1U);
}

TEST_F(VhcaCqRing, announces_at_the_next_poll_what_came_before_it_was_armed) {
    complete(0);
    program.arm();
    EXPECT_TRUE(ring.poll());
    EXPECT_EQ(read_events(), 1U);
}

TEST_F(VhcaCqRing, announces_nothing_twice_and_nothing_that_was_consumed) {
    complete(0);
    program.arm();
    EXPECT_TRUE(ring.poll());
    program.arm();
    EXPECT_FALSE(ring.poll());
    EXPECT_TRUE(program.is_armed());
    complete(1);
    EXPECT_EQ(read_events(), 2U);
    complete(2);
    while (poll()) {
    }
    program.arm();
    EXPECT_FALSE(ring.poll());
    EXPECT_EQ(read_events(), 0U);
}

TEST_F(VhcaCqRing, armed_for_solicited_ones_it_announces_those) {
    program.arm(true);
    complete(0);
    EXPECT_TRUE(program.is_armed());
    complete(1, true);
    EXPECT_FALSE(program.is_armed());
    EXPECT_EQ(read_events(), 1U);
    while (poll()) {
    }
    complete(2);
    program.arm(true);
    EXPECT_FALSE(ring.poll());
    program.arm();
    EXPECT_TRUE(ring.poll());
}

TEST_F(VhcaCqRing, reports_at_its_end_the_events_that_were_read) {
    for (std::uint16_t i = 0; i != 3; ++i) {
        program.arm();
        complete(i);
        if (i == 0) {
            EXPECT_EQ(read_events(), 1U);
        }
    }
    const std::uint64_t other = 9;
    channel->push(bytes_of(other));
    EXPECT_EQ(ring.retire(), 1U);
    std::uint64_t handle = 0;
    EXPECT_EQ(::read(events.get(), &handle, sizeof handle), std::int64_t{sizeof handle});
    EXPECT_EQ(handle, other);
}

TEST_F(VhcaCqRing, moves_to_other_memory_with_what_was_not_consumed) {
    for (std::uint16_t i = 0; i != 6; ++i) {
        complete(i);
        if (i < 3)
            poll();
    }
    for (const std::uint32_t entries : {8U, 4U}) {
        Memory next = PolledCompletions::new_ring(entries, 64);
        ASSERT_EQ(ring.resize(next.ring()), 0);
        program.move_to(std::move(next));
        EXPECT_EQ(ring.entries(), entries);
    }
    for (std::uint16_t i = 3; i != 20; ++i) {
        ASSERT_EQ(poll(), i);
        ASSERT_TRUE(complete(static_cast<std::uint16_t>(i + 3)));
    }
}

TEST_F(VhcaCqRing, refuses_memory_with_too_little_room) {
    for (std::uint16_t i = 0; i != 3; ++i)
        complete(i);
    Memory small = PolledCompletions::new_ring(2, 64);
    EXPECT_EQ(ring.resize(small.ring()), EINVAL);
    EXPECT_EQ(ring.entries(), 4U);
    complete(3);  // no room for the entry that ends the old ring
    Memory big = PolledCompletions::new_ring(64, 64);
    EXPECT_EQ(ring.resize(big.ring()), EINVAL);
    EXPECT_EQ(poll(), 0);
}

TEST_F(VhcaCqRing, events_are_about_completions_also_when_it_moves) {
    complete(0);
    complete(1);
    poll();
    poll();
    program.arm();
    Memory next = PolledCompletions::new_ring(8, 64);
    ASSERT_EQ(ring.resize(next.ring()), 0);
    program.move_to(std::move(next));
    EXPECT_FALSE(ring.poll());
    EXPECT_TRUE(program.is_armed());
    complete(2);
    EXPECT_EQ(read_events(), 1U);
    // Not announced before it moved: announced when it is armed.
    poll();
    complete(3);
    Memory other = PolledCompletions::new_ring(4, 64);
    ASSERT_EQ(ring.resize(other.ring()), 0);
    program.move_to(std::move(other));
    program.arm();
    EXPECT_TRUE(ring.poll());
}

TEST_F(VhcaCqRing, an_overrun_breaks_the_core_s_queue_and_its_queue_pairs) {
    Qp& qp = world.a.create_qp({.send_cq = cq, .recv_cq = cq, .cap = world.options.cap});
    world.connect(qp, world.b.route(), world.qb->number(), 1, 2);
    for (std::uint64_t i = 0; i != 8; ++i) {
        const ibv_sge sge = world.a.sge(0, 8);
        ASSERT_EQ(qp.post_recv({i, {&sge, 1}}), 0);
    }
    EXPECT_EQ(world.to_state(qp, IBV_QPS_ERR), 0);
    world.settle();
    EXPECT_EQ(world.a.events.broken.size(), 1U);
    for (unsigned i = 0; i != 4; ++i)
        EXPECT_TRUE(program.poll().has_value());
    EXPECT_FALSE(program.poll().has_value());
}

TEST(VhcaRings, records_at_odd_addresses_are_gone) {
    bool is_gone = false;
    EXPECT_EQ(Record(0x1002).load(0, &is_gone), 0U);
    EXPECT_TRUE(is_gone);
    EXPECT_FALSE(Record().store(0, 1));
    EXPECT_FALSE(Record(0x1002).exchange(0, 1, 2));
}

/// A page that was there.
class Unmapped {
  public:
    Unmapped() : page_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        install_fault_handler();
    }
    ~Unmapped() { munmap(page_, kBytes); }
    Unmapped(const Unmapped&) = delete;
    Unmapped& operator=(const Unmapped&) = delete;
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(page_); }

  private:
    static constexpr std::size_t kBytes = 4096;
    void* page_;
};

TEST_F(VhcaCqRing, memory_that_is_gone_is_no_fault) {
    const Unmapped page;
    EXPECT_EQ(ring.resize({page.address(), 16, 64}), EFAULT);
    EXPECT_TRUE(complete(0));
    CqRing::Config there = config(false);
    there.ring.address = page.address();
    CqRing lost(there);
    EXPECT_FALSE(lost.is_gone());
    EXPECT_FALSE(lost.take(*cq, {}));
    EXPECT_TRUE(lost.is_gone());
    there.record = page.address();
    EXPECT_TRUE(CqRing(there).is_gone());

    ReceiveRing receives({page.address(), 4, 16}, program.record.address());
    ReceiveList list({page.address(), 4, 32}, program.record.address());
    program.record.set(0, 1);
    RecvWork work;
    EXPECT_TRUE(receives.has_more());
    EXPECT_FALSE(receives.next(&work));
    EXPECT_TRUE(receives.is_gone());
    EXPECT_FALSE(list.next(&work));
    EXPECT_TRUE(list.is_gone());
    program.record.set(1, 1);
    SendRing sends({.ring = {page.address(), 4, kBlockBytes}, .record = program.record.address()});
    EXPECT_FALSE(sends.poll(*world.qa, 0));
    EXPECT_TRUE(sends.is_gone());
}

}  // namespace

}  // namespace tagwire::vhca::driver
