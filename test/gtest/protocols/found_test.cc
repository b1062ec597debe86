// SPDX-License-Identifier: BSD-3-Clause
// Receives that find their message: the call is over when it returns, on the fast path of a plain
// receive as on the others, and says the same.
#include <cstring>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kFoundTag = 0x1234, kOtherFound = 0x9999;
constexpr std::uint64_t kFoundImm = 0xabcdef;

class MsgFound : public MsgTest {
  protected:
    /// The call that sent it.
    struct Kind {
        bool is_tagged = true;
        bool has_imm = false;
    };
    /// The call that receives it.
    enum class By { kBuffer, kSource, kMask, kList };
    struct Found {
        tw_status_t status = TW_INPROGRESS;
        tw_message_info_t info{};
        Bytes data;
    };

    /// It waits at node 0.
    void keep(Kind kind, const Bytes& data, std::uint64_t tag = kFoundTag) {
        tw_op_t how{};
        how.flags = kind.has_imm ? std::uint32_t{TW_OP_IMM} : 0U;
        how.imm = kFoundImm;
        const std::uint64_t before = node(0).counter("rx_unexpected");
        tw_ep_h const ep = node(1).to(node(0));
        tw_request_h request = nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        run_until([&] {
            status = kind.is_tagged ? tw_tag_send(ep, data.data(), data.size(), tag, &how, &request)
                                    : tw_msg_send(ep, data.data(), data.size(), &how, &request);
            return status != TW_ERR_NO_RESOURCE;
        });
        ASSERT_TRUE(status == TW_OK || status == TW_INPROGRESS) << tw_status_string(status);
        run_until([&] { return node(0).counter("rx_unexpected") > before; });
        if (status == TW_INPROGRESS)
            requests_.push_back(request);
    }
    void SetUp() override { node(0).to(node(1)); }
    void TearDown() override { end_sends(); }
    void end_sends() {
        for (tw_request_h request : requests_) {
            run_until([&] { return tw_request_test(request, nullptr) != TW_INPROGRESS; });
            tw_request_free(request);
        }
        requests_.clear();
    }
    /// It is there, so no callback is called.
    Found find(Kind kind, By by, std::size_t room, std::uint64_t tag = kFoundTag) {
        Found found;
        found.data.resize(room);
        tw_op_t how{};
        how.context = this;
        how.info = &found.info;
        how.complete = [](const tw_completion_t*) { ADD_FAILURE() << "a callback was called"; };
        if (by == By::kSource)
            how.source = node(0).to(node(1));
        const std::uint64_t ignore = by == By::kMask ? 0xff : 0;
        tw_worker_h const worker = node(0).worker();
        const tw_iov_t list[] = {{found.data.data(), found.data.size()}};
        if (by == By::kList && kind.is_tagged)
            found.status = tw_tag_recvv(worker, list, 1, tag, 0, &how, nullptr);
        else if (by == By::kList)
            found.status = tw_msg_recvv(worker, list, 1, &how, nullptr);
        else if (kind.is_tagged)
            found.status = tw_tag_recv(worker, found.data.data(), room, tag, ignore, &how, nullptr);
        else
            found.status = tw_msg_recv(worker, found.data.data(), room, &how, nullptr);
        return found;
    }
    void expect(const Found& found, Kind kind, const Bytes& data) {
        EXPECT_EQ(found.status, TW_OK);
        EXPECT_EQ(Bytes(found.data.begin(),
                        found.data.begin() + static_cast<std::ptrdiff_t>(data.size())),
                  data);
        const tw_message_info_t& info = found.info;
        EXPECT_EQ(info.struct_bytes, sizeof info);
        EXPECT_EQ(info.flags, TW_DONE_RECV | (kind.is_tagged ? std::uint32_t{TW_DONE_TAGGED} : 0U) |
                                  (kind.has_imm ? std::uint32_t{TW_DONE_IMM} : 0U));
        EXPECT_EQ(info.length, data.size());
        EXPECT_EQ(info.tag, kind.is_tagged ? kFoundTag : 0U);
        EXPECT_EQ(info.imm, kind.has_imm ? kFoundImm : 0U);
        EXPECT_EQ(info.source, node(1).id());
        EXPECT_EQ(info.ep, node(0).to(node(1)));
    }

  private:
    std::vector<tw_request_h> requests_;
};

TEST_F(MsgFound, every_way_of_receiving_says_the_same) {
    for (const Kind kind :
         {Kind{true, false}, Kind{true, true}, Kind{false, false}, Kind{false, true}}) {
        for (const By by : {By::kBuffer, By::kSource, By::kMask, By::kList}) {
            for (const std::size_t length : {0U, 1U, 8U, 17U, 56U, 57U, 300U, 5000U}) {
                SCOPED_TRACE(testing::Message()
                             << length << " bytes, tagged " << kind.is_tagged << ", immediate "
                             << kind.has_imm << ", by " << static_cast<int>(by));
                const Bytes data = pattern(length, length);
                keep(kind, data);
                expect(find(kind, by, length + 3), kind, data);
            }
        }
    }
}

TEST_F(MsgFound, the_earliest_that_matches_is_taken) {
    for (std::uint64_t i = 0; i < 200; ++i)
        keep({}, pattern(8, i), i % 3 == 0 ? kOtherFound : kFoundTag);
    for (std::uint64_t i = 0; i < 200; ++i) {
        if (i % 3 != 0) {
            EXPECT_EQ(find({}, By::kBuffer, 8).data, pattern(8, i)) << i;
        }
    }
    for (std::uint64_t i = 0; i < 200; ++i) {
        if (i % 3 == 0) {
            EXPECT_EQ(find({}, By::kBuffer, 8, kOtherFound).data, pattern(8, i)) << i;
        }
    }
    EXPECT_NE(node(0).description().find("unexpected: 0 messages in 0 bytes"), std::string::npos)
        << node(0).description();
}

TEST_F(MsgFound, a_buffer_that_is_too_short_gets_its_part) {
    keep({}, pattern(64, 1));
    const Found found = find({}, By::kBuffer, 10);
    EXPECT_EQ(found.status, TW_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(found.info.length, 64U);
    const Bytes data = pattern(64, 1);
    EXPECT_EQ(std::memcmp(found.data.data(), data.data(), 10), 0);
}

// Its sender has gone meanwhile.
TEST_F(MsgFound, a_message_outlives_its_sender) {
    keep({}, pattern(8, 7));
    const std::uint64_t id = node(1).id();
    end_sends();
    forget_last_node();
    run_some();
    const Found found = find({}, By::kBuffer, 8);
    EXPECT_EQ(found.status, TW_OK);
    EXPECT_EQ(found.data, pattern(8, 7));
    EXPECT_EQ(found.info.source, id);
    EXPECT_EQ(found.info.ep, nullptr);
}

// As many as are kept at a time, again and again.
TEST_F(MsgFound, floods_of_short_messages_come_and_go) {
    constexpr std::uint64_t kEach = 300;
    for (int round = 0; round < 5; ++round) {
        for (std::uint64_t i = 0; i < kEach; ++i)
            keep({}, pattern(i % 110, i), i);
        for (std::uint64_t i = 0; i < kEach; ++i) {
            const std::uint64_t tag = round % 2 == 0 ? i : kEach - 1 - i;
            ASSERT_EQ(find({}, By::kBuffer, tag % 110, tag).data, pattern(tag % 110, tag)) << tag;
        }
    }
}

}  // namespace
}  // namespace tagwire::test
