// SPDX-License-Identifier: BSD-3-Clause
// Tagged messages that a device matches, beside those that software does. Runs over rc and dc.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kSenderMask = 0xff00;
constexpr std::uint64_t kImms[] = {0, 7, (std::uint64_t{1} << 31) - 1, std::uint64_t{1} << 31,
                                   std::uint64_t{1} << 40};

class MsgOffload : public Settings, public MsgTest {
  protected:
    MsgOffload() : Settings({{"TAGWIRE_TAG_OFFLOAD", "y"}}) {}

    void SetUp() override {
        if (transports() != "rc" && transports() != "dc")
            GTEST_SKIP() << "over rc and dc alone, so that all peers use the device";
    }
    /// Both ways: the other side knows it as well.
    void connect(Node& a, Node& b) {
        send(a, b, {}, 1);
        receive(b, 0, 1);
        run_until([&] { return a.description().find("no peer sends") == std::string::npos; });
        send(b, a, {}, 1);
        receive(a, 0, 1);
        run_some();
    }
    void exchange(Node& a, Node& b, std::size_t length, std::uint32_t flags, bool is_expected);
    tw_completion_t receive(Node& at, std::size_t length, std::uint64_t tag) {
        Bytes buffer(length);
        post(at, &buffer, tag);
        return end_of(at, &buffer);
    }
    /// Ends with the buffer as context.
    void post(Node& at, Bytes* buffer, std::uint64_t tag, std::uint64_t ignore = 0,
              tw_ep_h source = nullptr, tw_mem_h memory = nullptr) {
        tw_op_t how = op(buffer);
        how.source = source;
        how.mem = memory;
        ASSERT_EQ(
            tw_tag_recv(at.worker(), buffer->data(), buffer->size(), tag, ignore, &how, nullptr),
            TW_INPROGRESS);
    }
};

TEST_F(MsgOffload, a_device_matches_what_was_posted_before) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const std::uint64_t given = b.counter("tag_given");
    const std::uint64_t matched = b.counter("tag_matched");
    Bytes small(100), large(10000);
    tw_mem_h memory = nullptr;
    ASSERT_EQ(tw_mem_map(context_.get(), large.data(), large.size(), nullptr, &memory), TW_OK);
    const std::uint64_t bounced = b.counter("tag_bounced");
    post(b, &small, 5);
    EXPECT_EQ(b.counter("tag_bounced"), bounced + 1);
    post(b, &large, 6, 0, nullptr, memory);
    EXPECT_EQ(b.counter("tag_bounced"), bounced + 1);
    EXPECT_EQ(b.counter("tag_given"), given + 2);
    send(a, b, pattern(8000, 1), 6);
    send(a, b, pattern(100, 2), 5);
    const tw_completion_t second = end_of(b, &large);
    const tw_completion_t first = end_of(b, &small);
    EXPECT_EQ(second.length, 8000U);
    EXPECT_EQ(second.message_length, 8000U);
    EXPECT_EQ(second.source, a.id());
    EXPECT_EQ(second.tag, 6U);
    EXPECT_EQ(first.length, 100U);
    EXPECT_EQ(small, pattern(100, 2));
    large.resize(8000);
    EXPECT_EQ(large, pattern(8000, 1));
    EXPECT_EQ(b.counter("tag_matched"), matched + 2);
    EXPECT_EQ(tw_mem_unmap(context_.get(), memory), TW_OK);
}

/// A message of this kind with each immediate, in order.
void MsgOffload::exchange(Node& a, Node& b, std::size_t length, std::uint32_t flags,
                          bool is_expected) {
    std::vector<Bytes> buffers(std::size(kImms), Bytes(length));
    std::vector<int> marks(std::size(kImms));
    for (Bytes& buffer : buffers)
        if (is_expected)
            post(b, &buffer, 9);
    for (std::size_t i = 0; i < std::size(kImms); ++i) {
        Bytes data = pattern(length, i);
        tw_op_t how = op(&marks[i], flags);
        how.imm = kImms[i];
        ASSERT_EQ(tw_tag_send(a.to(b), data.data(), length, 9, &how, nullptr), TW_INPROGRESS);
        if ((flags & TW_OP_INJECT) != 0)
            std::ranges::fill(data, std::byte{0xee});
        if (!is_expected) {
            run_some();
            post(b, &buffers[i], 9);
        }
        EXPECT_EQ(end_of(a, &marks[i]).status, TW_OK);
    }
    for (std::size_t i = 0; i < std::size(kImms); ++i) {
        const tw_completion_t done = end_of(b, &buffers[i]);
        EXPECT_EQ(done.imm, kImms[i]);
        EXPECT_NE(done.flags & TW_DONE_IMM, 0U);
        EXPECT_EQ(done.length, length);
        EXPECT_EQ(done.source, a.id());
        EXPECT_EQ(buffers[i], pattern(length, i));
    }
}

TEST_F(MsgOffload, what_needs_more_than_a_tag_takes_its_place_in_the_order) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const std::uint64_t placeholders = a.counter("tx_placeholders");
    for (const std::uint32_t flag : {0U, unsigned{TW_OP_DELIVERY_COMPLETE},
                                     unsigned{TW_OP_MATCH_COMPLETE}, unsigned{TW_OP_INJECT}}) {
        for (const std::size_t length : {0UL, 10UL, 3000UL}) {
            exchange(a, b, length, TW_OP_IMM | flag, true);
            exchange(a, b, length, TW_OP_IMM | flag, false);
        }
    }
    EXPECT_GT(a.counter("tx_placeholders"), placeholders);
    EXPECT_EQ(b.counter("garbage"), 0U);
}

TEST_F(MsgOffload, a_rendezvous_is_matched_by_the_device_and_says_who_sent_it) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const std::uint64_t matched = b.counter("tag_matched");
    const Bytes data = pattern(300000, 3);
    Bytes buffer(data.size()), cut(1000);
    post(b, &buffer, 4);
    post(b, &cut, 4);
    int mark = 0, second = 0;
    const tw_op_t how = op(&mark), again = op(&second);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 4, &how, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 4, &again, nullptr), TW_INPROGRESS);
    const tw_completion_t done = end_of(b, &buffer);
    EXPECT_EQ(done.status, TW_OK);
    EXPECT_EQ(done.source, a.id());
    EXPECT_EQ(buffer, data);
    const tw_completion_t truncated = end_of(b, &cut);
    EXPECT_EQ(truncated.status, TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(truncated.length, 1000U);
    EXPECT_EQ(truncated.message_length, data.size());
    EXPECT_EQ(end_of(a, &mark).status, TW_OK);
    EXPECT_EQ(end_of(a, &second).status, TW_OK);
    EXPECT_EQ(b.counter("tag_matched"), matched + 2);
}

TEST_F(MsgOffload, a_message_that_was_on_its_way_is_found_by_a_given_receive) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    const std::uint64_t taken_back = b.counter("tag_taken_back");
    int mark = 0;
    const tw_op_t how = op(&mark, TW_OP_TRANSMIT_COMPLETE);
    const Bytes data = pattern(64, 1);
    ASSERT_EQ(tw_tag_send(a.to(b), data.data(), data.size(), 5, &how, nullptr), TW_INPROGRESS);
    // The device of b has it when that ends, and b has not looked.
    while (a.done.empty())
        a.progress();
    Bytes buffer(64);
    post(b, &buffer, 5);
    EXPECT_EQ(end_of(b, &buffer).status, TW_OK);
    EXPECT_EQ(buffer, data);
    EXPECT_EQ(b.counter("tag_taken_back"), taken_back + 1);
    // The device matches again.
    post(b, &buffer, 6);
    const std::uint64_t matched = b.counter("tag_matched");
    run_some();
    send(a, b, data, 6);
    EXPECT_EQ(end_of(b, &buffer).status, TW_OK);
    EXPECT_EQ(b.counter("tag_matched"), matched + 1);
}

TEST_F(MsgOffload, a_younger_receive_does_not_overtake_one_in_software) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    Bytes directed(10), same(10), other(10), wild(10);
    post(b, &directed, 5, 0, b.to(a));
    EXPECT_EQ(b.counter("tag_kept_kind"), 1U);
    const std::uint64_t given = b.counter("tag_given");
    post(b, &same, 5);
    EXPECT_EQ(b.counter("tag_kept_order"), 1U);
    post(b, &wild, 0, ~std::uint64_t{0});
    EXPECT_EQ(b.counter("tag_kept_order"), 2U);
    EXPECT_EQ(b.counter("tag_given"), given);
    for (std::uint64_t i = 0; i < 3; ++i)
        send(a, b, pattern(10, i), 5);
    EXPECT_EQ(end_of(b, &directed).tag, 5U);
    EXPECT_EQ(directed, pattern(10, 0));
    EXPECT_EQ(end_of(b, &same).status, TW_OK);
    EXPECT_EQ(same, pattern(10, 1));
    EXPECT_EQ(end_of(b, &wild).status, TW_OK);
    EXPECT_EQ(wild, pattern(10, 2));
    post(b, &other, 6);
    EXPECT_EQ(b.counter("tag_given"), given + 1);
    send(a, b, pattern(10, 4), 6);
    EXPECT_EQ(end_of(b, &other).status, TW_OK);
}

TEST_F(MsgOffload, a_cancelled_receive_ends_with_the_device) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    Bytes buffer(10), next(10);
    tw_op_t how = op(&buffer);
    tw_request_h request = nullptr;
    ASSERT_EQ(tw_tag_recv(b.worker(), buffer.data(), 10, 5, 0, &how, &request), TW_INPROGRESS);
    post(b, &next, 5);
    tw_request_cancel(request);
    EXPECT_EQ(end_of(b, &buffer).status, TW_ERR_CANCELED);
    send(a, b, pattern(10, 1), 5);
    EXPECT_EQ(end_of(b, &next).status, TW_OK);
    EXPECT_EQ(next, pattern(10, 1));
}

TEST_F(MsgOffload, receives_are_recalled_before_a_new_peer_can_send) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    connect(a, b);
    std::vector<Bytes> buffers(20, Bytes(10));
    const std::uint64_t given = b.counter("tag_given");
    for (Bytes& buffer : buffers)
        post(b, &buffer, 5);
    EXPECT_EQ(b.counter("tag_given"), given + buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i)
        send(i % 2 == 0 ? c : a, b, pattern(10, i), 5);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        EXPECT_EQ(end_of(b, &buffers[i]).status, TW_OK);
        EXPECT_EQ(buffers[i], pattern(10, i)) << i;
    }
    EXPECT_GT(b.counter("tag_recalled"), 0U);
    EXPECT_EQ(b.counter("garbage"), 0U);
}

TEST_F(MsgOffload, posted_receives_outlive_neither_worker_nor_program_memory) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    Bytes buffer(10);
    post(b, &buffer, 5);
    post(b, &buffer, 6, 0, b.to(a));
    b.destroy();
    run_until([&] { return !a.failures.empty(); });
}

TEST_F(MsgOffload, more_receives_than_the_device_holds_are_kept_in_software) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    std::vector<Bytes> buffers(3000, Bytes(8)), data;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        post(b, &buffers[i], i % 7);
        data.push_back(pattern(8, i));
    }
    EXPECT_GT(b.counter("tag_kept_full"), 0U);
    for (std::size_t i = 0; i < buffers.size(); ++i)
        ASSERT_GE(tw_tag_send(a.to(b), data[i].data(), 8, i % 7, nullptr, nullptr), TW_OK);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        run_until([&] { return !b.done.empty(); });
        b.done.erase(b.done.begin());
    }
    for (std::size_t i = 0; i < buffers.size(); ++i)
        ASSERT_EQ(buffers[i], data[i]) << i;
}

TEST_F(MsgOffload, the_explanation_names_the_device_s_limit) {
    Node& a = node(0);
    Node& b = node(1);
    connect(a, b);
    tw_explanation_t told{};
    ASSERT_EQ(tw_ep_explain(a.to(b), 20000, TW_BUFFER_PLAIN, &told), TW_OK);
    EXPECT_EQ(std::string(told.knob), "TAGWIRE_TAG_OFFLOAD=y");
    EXPECT_EQ(std::string(told.protocols[told.chosen].name), "rndv_copy");
    ASSERT_EQ(tw_ep_explain(a.to(b), 2000, TW_BUFFER_PLAIN, &told), TW_OK);
    EXPECT_EQ(std::string(told.protocols[told.chosen].name), "bcopy");
}

/// Workers of two sets of transports: the even ones may use shared memory among them.
class MsgOffloadMixed : public MsgOffload {
  protected:
    explicit MsgOffloadMixed(std::uint64_t sender_mask = kSenderMask) {
        const std::string both = "sm," + transports() + (transports() == "rc" ? ",ud" : "");
        tw_context_params_t params{};
        params.transports = both.c_str();
        params.tag_sender_mask = sender_mask;
        tw_context_h context = nullptr;
        EXPECT_EQ(tw_context_create(&params, &context), TW_OK);
        both_.reset(context);
    }
    Node& near(std::size_t i) {
        while (near_.size() <= i)
            near_.push_back(std::make_unique<Node>(both_.get()));
        return *near_[i];
    }
    void TearDown() override { near_.clear(); }
    void run_near_until(const std::function<bool()>& is_over) {
        run_until([&] {
            for (const auto& each : near_)
                each->progress();
            return is_over();
        });
    }
    tw_completion_t near_end_of(Node& at, const void* context) {
        tw_completion_t done{};
        run_near_until([&] {
            const auto found = std::ranges::find_if(
                at.done, [&](const auto& each) { return each.context == context; });
            if (found == at.done.end())
                return false;
            done = *found;
            at.done.erase(found);
            return true;
        });
        return done;
    }
    void near_send(Node& from, Node& to, const Bytes& data, std::uint64_t tag) {
        int mark = 0;
        const tw_op_t how = op(&mark, TW_OP_DELIVERY_COMPLETE);
        ASSERT_EQ(tw_tag_send(from.to(to), data.data(), data.size(), tag, &how, nullptr),
                  TW_INPROGRESS);
        EXPECT_EQ(near_end_of(from, &mark).status, TW_OK);
    }

    std::unique_ptr<tw_context, ContextDeleter> both_;
    std::vector<std::unique_ptr<Node>> near_;
};

TEST_F(MsgOffloadMixed, the_sender_in_the_tag_says_whether_a_device_may_match) {
    Node& home = near(0);
    Node& beside = near(1);  // over shared memory
    Node& far = node(0);     // over the device
    Bytes buffer(10);
    // Nothing is known of the senders yet.
    for (const std::uint64_t tag : {0x101UL, 0x201UL}) {
        post(home, &buffer, tag);
        near_send(tag == 0x101 ? beside : far, home, pattern(10, tag), tag);
        EXPECT_EQ(near_end_of(home, &buffer).status, TW_OK);
    }
    const std::uint64_t kept = home.counter("tag_kept_peers");
    post(home, &buffer, 0x202);
    EXPECT_EQ(home.counter("tag_given"), 1U);
    near_send(far, home, pattern(10, 1), 0x202);
    EXPECT_EQ(near_end_of(home, &buffer).source, far.id());
    EXPECT_EQ(buffer, pattern(10, 1));
    EXPECT_EQ(home.counter("tag_matched"), 1U);
    // A wildcard over the sender may be beside's, and so may its own tags.
    post(home, &buffer, 0x002, kSenderMask);
    EXPECT_EQ(home.counter("tag_kept_peers"), kept + 1);
    near_send(beside, home, pattern(10, 2), 0x102);
    EXPECT_EQ(near_end_of(home, &buffer).source, beside.id());
    EXPECT_EQ(home.counter("tag_given"), 1U);
}

}  // namespace
}  // namespace tagwire::test
