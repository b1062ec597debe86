// SPDX-License-Identifier: BSD-3-Clause
// Data of one rendezvous over several rails: where it is asked for, and when rails or endpoints go
// away midway. TAGWIRE_TEST_TRANSPORTS must have two rails that can read and write.
#include <algorithm>
#include <array>
#include <span>
#include <thread>

#include "protocols/fixture.hpp"
#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/endpoint.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kBytes = (std::size_t{3} << 20) + 1001;

class MsgStripe : private Settings, public MsgTest {
  protected:
    explicit MsgStripe(const char* scheme = "auto", const char* rails = "2")
        : Settings({{"TAGWIRE_RNDV_SCHEME", scheme},
                    {"TAGWIRE_RNDV_THRESHOLD", "16k"},
                    {"TAGWIRE_RNDV_RAILS", rails},
                    {"TAGWIRE_RNDV_RAIL_MIN", "8k"},
                    {"TAGWIRE_REG_CACHE", "0"}}) {}

    /// Memory with a handle.
    struct Mapped {
        Mapped(tw_context_h in, Bytes contents) : context(in), bytes(std::move(contents)) {
            EXPECT_EQ(tw_mem_map(context, bytes.data(), bytes.size(), nullptr, &mem), TW_OK);
        }
        Mapped(const Mapped&) = delete;
        Mapped& operator=(const Mapped&) = delete;
        ~Mapped() { EXPECT_EQ(tw_mem_unmap(context, mem), TW_OK); }
        tw_context_h context;
        Bytes bytes;
        tw_mem_h mem = nullptr;
    };

    void post(Mapped& to, int* mark) {
        tw_op_t how = op(mark);
        how.mem = to.mem;
        ASSERT_EQ(
            tw_tag_recv(node(1).worker(), to.bytes.data(), to.bytes.size(), 1, 0, &how, nullptr),
            TW_INPROGRESS);
    }
    void send_from(Mapped& from, int* mark, tw_request_h* request_p = nullptr) {
        tw_op_t how = op(mark);
        how.mem = from.mem;
        ASSERT_EQ(tw_tag_send(node(0).to(node(1)), from.bytes.data(), from.bytes.size(), 1, &how,
                              request_p),
                  TW_INPROGRESS);
    }
    void pass(std::size_t length, std::uint64_t seed) {
        int sent = 0, got = 0;
        Mapped from(context_.get(), pattern(length, seed)), to(context_.get(), Bytes(length));
        post(to, &got);
        send_from(from, &sent);
        EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
        EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
        EXPECT_EQ(from.bytes, to.bytes);
    }
    /// The first long message connects the rails.
    void connect() {
        pass(kBytes, 1);
        run_until([&] { return both("more rails") || mover().counter("rndv_striped") > 0; });
        run_some();
    }
    bool both(const char* text) {
        return node(0).description().find(text) != std::string::npos &&
               node(1).description().find(text) != std::string::npos;
    }
    /// The node that reads or writes.
    Node& mover() { return node(is_put_ ? 0 : 1); }
    proto::Endpoint& endpoint(std::size_t of) {
        return proto::endpoint_of(node(of).to(node(1 - of)));
    }
    /// A transfer that is under way on all its rails.
    void begin(Mapped& from, Mapped& to, int* sent, int* got) {
        const std::uint64_t before = mover().counter("rndv_striped");
        post(to, got);
        send_from(from, sent);
        run_until([&] { return mover().counter("rndv_striped") > before; });
    }

    bool is_put_ = false;
};

struct MsgStripePut : MsgStripe {
    MsgStripePut() : MsgStripe("put") { is_put_ = true; }
};

void expect_divided(Node& mover, std::uint64_t messages) {
    EXPECT_GE(mover.counter("rndv_striped"), messages);
    EXPECT_GE(mover.counter("rndv_rail_bytes"), messages * 8192);
    EXPECT_EQ(mover.counter("rndv_rail_lost"), 0U);
}

TEST_F(MsgStripe, the_receiver_reads_over_all_rails) {
    connect();
    const std::uint64_t before = mover().counter("rndv_striped");
    for (const std::size_t length :
         {std::size_t{16384}, std::size_t{16385}, std::size_t{300000}, kBytes, 8 * kBytes})
        pass(length, length);
    EXPECT_EQ(mover().counter("rndv_striped"), before + 5);
    EXPECT_EQ(mover().counter("rndv_get"), 6U);
    expect_divided(mover(), 5);
}

TEST_F(MsgStripePut, the_sender_writes_over_all_rails) {
    connect();
    for (const std::size_t length : {std::size_t{20000}, kBytes, 4 * kBytes})
        pass(length, length);
    EXPECT_EQ(node(1).counter("rndv_put"), 4U);
    expect_divided(mover(), 3);
}

TEST_F(MsgStripe, short_rendezvous_and_buffers_without_handles_go_by_the_lane) {
    connect();
    const std::uint64_t before = mover().counter("rndv_striped");
    pass(16383, 1);
    Bytes data = pattern(kBytes, 2);
    send_unexpected(node(0), node(1), data, 9, op(nullptr));
    expect_message(node(1), data, 9);
    EXPECT_EQ(mover().counter("rndv_striped"), before);
}

TEST_F(MsgStripe, truncation_is_of_the_end_and_nothing_is_written_behind_it) {
    connect();
    int sent = 0, got = 0;
    constexpr std::size_t kRoom = kBytes - 70001;
    Mapped from(context_.get(), pattern(kBytes, 5));
    Mapped to(context_.get(), Bytes(kBytes, std::byte{7}));
    tw_op_t how = op(&got);
    how.mem = to.mem;
    ASSERT_EQ(tw_tag_recv(node(1).worker(), to.bytes.data(), kRoom, 1, 0, &how, nullptr),
              TW_INPROGRESS);
    send_from(from, &sent);
    EXPECT_EQ(end_of(node(1), &got).status, TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    const auto end = to.bytes.begin() + kRoom;
    EXPECT_TRUE(std::equal(to.bytes.begin(), end, from.bytes.begin()));
    EXPECT_EQ(std::count(end, to.bytes.end(), std::byte{7}), to.bytes.end() - end);
}

TEST_F(MsgStripe, many_messages_at_a_time_in_both_directions) {
    connect();
    constexpr int kMessages = 12;
    std::vector<std::unique_ptr<Mapped>> from, to;
    std::vector<int> marks(std::size_t{4} * kMessages);
    for (int i = 0; i < 2 * kMessages; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::size_t length = 16384 + at * 50001;
        from.push_back(std::make_unique<Mapped>(context_.get(), pattern(length, at)));
        to.push_back(std::make_unique<Mapped>(context_.get(), Bytes(length)));
        Node& sender = node(at % 2);
        Node& receiver = node(1 - at % 2);
        tw_op_t how = op(&marks[2 * at]);
        how.mem = to[at]->mem;
        ASSERT_EQ(
            tw_tag_recv(receiver.worker(), to[at]->bytes.data(), length, at, 0, &how, nullptr),
            TW_INPROGRESS);
        how = op(&marks[2 * at + 1]);
        how.mem = from[at]->mem;
        ASSERT_EQ(
            tw_tag_send(sender.to(receiver), from[at]->bytes.data(), length, at, &how, nullptr),
            TW_INPROGRESS);
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(end_of(node(1 - i % 2), &marks[2 * i]).status, TW_OK);
        EXPECT_EQ(end_of(node(i % 2), &marks[2 * i + 1]).status, TW_OK);
        EXPECT_EQ(from[i]->bytes, to[i]->bytes);
    }
}

TEST_F(MsgStripe, the_explanation_has_it_with_the_setting) {
    connect();
    tw_explanation_t told{};
    ASSERT_EQ(tw_ep_explain(node(1).to(node(0)), kBytes, TW_BUFFER_MAPPED, &told), TW_OK);
    EXPECT_EQ(std::string(told.protocols[told.chosen].name), "rndv_striped");
    EXPECT_EQ(std::string(told.knob), "TAGWIRE_RNDV_RAILS=2");
    EXPECT_EQ(told.striped_from, 16384U);
    EXPECT_GT(told.protocols[told.chosen].ns, 0);
    ASSERT_EQ(tw_ep_explain(node(1).to(node(0)), kBytes, TW_BUFFER_PLAIN, &told), TW_OK);
    EXPECT_NE(told.protocols[6].obstacle, nullptr);
    EXPECT_NE(std::string(told.protocols[told.chosen].name), "rndv_striped");
}

struct MsgStripeAuto : MsgStripe {
    MsgStripeAuto() : MsgStripe("auto", "auto") {}
};

TEST_F(MsgStripeAuto, rails_that_this_machine_s_processors_move_are_not_used_together) {
    pass(kBytes, 1);
    pass(kBytes, 2);
    EXPECT_EQ(mover().counter("rndv_striped"), 0U);
    tw_explanation_t told{};
    ASSERT_EQ(tw_ep_explain(node(1).to(node(0)), kBytes, TW_BUFFER_MAPPED, &told), TW_OK);
    EXPECT_EQ(told.striped_from, SIZE_MAX);
    EXPECT_NE(told.protocols[6].obstacle, nullptr);
}

struct MsgStripeMany : MsgStripe {
    MsgStripeMany() : MsgStripe("auto", "4") {}
};

TEST_F(MsgStripeMany, more_rails_than_there_are_is_refused) {
    tw_context_params_t params{};
    params.transports = "sm";
    tw_context_h context = nullptr;
    ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context, nullptr, &worker), TW_ERR_UNSUPPORTED);
    tw_context_destroy(context);
}

// ---- Ends in the middle

TEST_F(MsgStripe, a_send_that_was_matched_is_not_cancelled) {
    connect();
    int sent = 0, got = 0;
    tw_request_h request = nullptr;
    Mapped from(context_.get(), pattern(4 * kBytes, 5)), to(context_.get(), Bytes(4 * kBytes));
    post(to, &got);
    send_from(from, &sent, &request);
    EXPECT_EQ(tw_request_cancel(request), TW_OK);
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(from.bytes, to.bytes);
}

template <class Test>
void close_by_force(Test& test, std::size_t closes) {
    test.connect();
    int sent = 0, got = 0;
    {
        typename Test::Mapped from(test.context(), pattern(16 * kBytes, 5));
        typename Test::Mapped to(test.context(), Bytes(16 * kBytes));
        test.begin(from, to, &sent, &got);
        Node& closing = test.node(closes);
        Node& other = test.node(1 - closes);
        EXPECT_EQ(tw_ep_close(closing.to(other), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        test.send(closing, other, {}, 9);
        test.end_of(test.node(0), &sent);
        const tw_completion_t done = test.end_of(test.node(1), &got);
        if (done.status == TW_OK) {
            EXPECT_EQ(from.bytes, to.bytes);
        }
        test.expect_message(other, {}, 9);
        for (const auto& [ep, status] : other.failures)
            EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
        other.failures.clear();
    }
    test.connect();
}

template <class Base>
struct Opened : Base {
    using Base::Base;
    using Base::begin, Base::connect, Base::end_of, Base::expect_message, Base::node, Base::send;
    using typename Base::Mapped;
    tw_context_h context() { return this->context_.get(); }
};
using MsgStripeClose = Opened<MsgStripe>;
using MsgStripePutClose = Opened<MsgStripePut>;

TEST_F(MsgStripeClose, by_the_reader_ends_both_sides) {
    close_by_force(*this, 1);
}
TEST_F(MsgStripeClose, by_the_side_that_is_read_ends_both_sides) {
    close_by_force(*this, 0);
}
TEST_F(MsgStripePutClose, by_the_writer_ends_both_sides) {
    close_by_force(*this, 0);
}
TEST_F(MsgStripePutClose, by_the_side_that_is_written_ends_both_sides) {
    close_by_force(*this, 1);
}

TEST_F(MsgStripe, nothing_lands_in_a_buffer_after_a_forced_close_of_its_endpoint) {
    connect();
    int sent = 0, got = 0;
    Mapped from(context_.get(), pattern(16 * kBytes, 5)), to(context_.get(), Bytes(16 * kBytes));
    begin(from, to, &sent, &got);
    EXPECT_EQ(tw_ep_close(node(1).to(node(0)), TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
    EXPECT_LT(end_of(node(1), &got).status, TW_OK);
    std::ranges::fill(to.bytes, std::byte{7});
    run_some();
    EXPECT_EQ(std::ranges::count(to.bytes, std::byte{7}), 16 * kBytes);
    send(node(1), node(0), {}, 9);  // which tells the other
    end_of(node(0), &sent);
}

TEST_F(MsgStripe, what_a_lost_rail_had_is_read_over_the_lane) {
    connect();
    int sent = 0, got = 0;
    Mapped from(context_.get(), pattern(16 * kBytes, 5)), to(context_.get(), Bytes(16 * kBytes));
    begin(from, to, &sent, &got);
    endpoint(0).stripes().disconnect();  // the side that is read, which says nothing
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(from.bytes, to.bytes);
    pass(kBytes, 6);
}

TEST_F(MsgStripePut, what_a_lost_rail_had_is_written_over_the_lane) {
    connect();
    int sent = 0, got = 0;
    Mapped from(context_.get(), pattern(16 * kBytes, 5)), to(context_.get(), Bytes(16 * kBytes));
    begin(from, to, &sent, &got);
    endpoint(1).stripes().disconnect();
    EXPECT_EQ(end_of(node(1), &got).status, TW_OK);
    EXPECT_EQ(end_of(node(0), &sent).status, TW_OK);
    EXPECT_EQ(from.bytes, to.bytes);
    pass(kBytes, 6);
}

TEST_F(MsgStripePut, a_put_that_lost_a_rail_ends_when_the_target_has_ended_its_side) {
    if (!transports().ends_with("rc"))
        GTEST_SKIP() << "a rail that leads to an interface stays when an endpoint of the peer goes";
    connect();
    Mapped from(context_.get(), pattern(16 * kBytes, 5)), to(context_.get(), Bytes(16 * kBytes));
    Node& writer = node(0);
    const tw_ep_h ep = writer.to(node(1));
    std::array<char, TW_KEY_BYTES_MAX> packed{};
    std::size_t packed_bytes = packed.size();
    ASSERT_EQ(tw_mem_pack(to.mem, packed.data(), &packed_bytes), TW_OK);
    tw_key_h key = nullptr;
    ASSERT_EQ(tw_key_unpack(writer.worker(), packed.data(), packed_bytes, &key), TW_OK);
    run_some();  // the owner may be asked for more keys
    int mark = 0;
    tw_op_t how = op(&mark);
    how.mem = from.mem;
    const std::uint64_t before = writer.counter("rndv_striped");
    ASSERT_EQ(tw_put(ep, from.bytes.data(), from.bytes.size(),
                     reinterpret_cast<std::uintptr_t>(to.bytes.data()), key, &how, nullptr),
              TW_INPROGRESS);
    ASSERT_GT(writer.counter("rndv_striped"), before);
    endpoint(1).stripes().disconnect();
    // The target, which does not progress, has all of the data.
    for (int i = 0;
         i < 100'000 && (writer.counter("rndv_rail_lost") == 0 || from.bytes != to.bytes); ++i) {
        for (int j = 0; j < 100; ++j)
            writer.progress();
        std::this_thread::yield();
    }
    ASSERT_EQ(writer.counter("rndv_rail_lost"), 1U);
    ASSERT_EQ(from.bytes, to.bytes);
    for (int i = 0; i < 10'000; ++i)
        writer.progress();
    EXPECT_TRUE(writer.done.empty());
    EXPECT_EQ(end_of(writer, &mark).status, TW_OK);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
