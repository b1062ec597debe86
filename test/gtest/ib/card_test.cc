// SPDX-License-Identifier: BSD-3-Clause
// Peculiarities of cards and of their drivers, on the virtual HCA whose functions a test replaces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "entity.hpp"
#include "ib/verbs_parts.hpp"
#include "operations.hpp"
#include "uct/ib/completion_queue.hpp"
#include "uct/ib/dc/dc_verbs.hpp"

namespace tagwire::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kProgressMax = 2'000'000;

ib::IbMd& ib_md_of(uct_md_h md) {
    return static_cast<ib::IbMd&>(uct::md_of(md));
}

verbs_context& verbs_of(uct_md_h md) {
    return *verbs_get_ctx(ib_md_of(md).device().context());
}

ibv_srq* refuse_tag_matching(ibv_context*, ibv_srq_init_attr_ex*) {
    errno = EINVAL;
    return nullptr;
}

EntityOptions without_tag_matching_srq() {
    EntityOptions options;
    options.before_iface = [](uct_md_h md) { verbs_of(md).create_srq_ex = refuse_tag_matching; };
    return options;
}

void exchange(Entity& from, Entity& to) {
    const Connection connection = connect(from, to);
    Receive receive(to, 100);
    ASSERT_EQ(receive.post(7), UCS_OK);
    const Bytes bytes(100, std::byte{5});
    ASSERT_EQ(send_eager_bytes(connection.forward, 7, 0, bytes), UCS_OK);
    for (int i = 0; i < kProgressMax && receive.completed == 0; ++i) {
        from.progress();
        to.progress();
    }
    EXPECT_EQ(receive.completed, 1);
}

TEST(TagMatchingOfCards, is_done_by_software_where_the_srq_cannot_be_made) {
    Entity one(resource_of("rc"), without_tag_matching_srq());
    Entity other(resource_of("rc"), without_tag_matching_srq());
    EXPECT_EQ(text_of(one, "tag_matching"),
              "software: the device cannot make its tag-matching SRQ: Invalid argument");
    EXPECT_EQ(one.attr().cap.tag.recv.min_recv, 0U);
    exchange(one, other);
}

TEST(TagMatchingOfCards, that_differs_is_told_on_both_sides) {
    const Entity without(resource_of("rc"), without_tag_matching_srq());
    const Entity with(resource_of("rc"));
    EXPECT_THAT(why_unreachable(without, with), HasSubstr("cannot make its tag-matching SRQ"));
    EXPECT_THAT(why_unreachable(without, with), HasSubstr("TAGWIRE_RC_TAG_MATCHING=software"));
    EXPECT_THAT(why_unreachable(with, without), StartsWith("our device matches tags, the peer's "));
}

TEST(TagMatchingOfCards, that_was_asked_for_and_cannot_be_is_refused) {
    EntityOptions options = without_tag_matching_srq();
    options.iface_config = {{"RC_TAG_MATCHING", "device"}};
    testing::internal::CaptureStderr();
    EXPECT_THROW(Entity(resource_of("rc"), options), std::runtime_error);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("Invalid argument"));
}

TEST(TagMatchingOfCards, begins_though_few_receives_are_wanted) {
    EntityOptions options;
    options.iface_config = {{"RC_RX_DEPTH", "2"}};
    const Entity entity(resource_of("rc"), options);
    EXPECT_EQ(text_of(entity, "tag_matching"), "device");
    EXPECT_GE(fact_of(entity, "receive_buffers_posted"), 33);
}

// libibverbs reads the handle of the send queue's CQ of every queue pair.
TEST(TargetsOfCards, name_a_completion_queue_for_sends) {
    const VhcaMd md;
    std::string reason;
    const dc::DcVerbs* dc = dc::dc_verbs_of(md->device(), &reason);
    ASSERT_NE(dc, nullptr) << reason;
    static ibv_qp_init_attr_ex asked;
    static decltype(dc->create_qp) create = nullptr;
    create = dc->create_qp;
    dc::DcVerbs spy = *dc;
    spy.create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                       mlx5dv_qp_init_attr* extra) {
        asked = *attr;
        return create(context, attr, extra);
    };
    ib::Port port;
    ASSERT_EQ(md->device().port(1, -1, &port, &reason), UCS_OK) << reason;
    ib::CompletionQueue cq;
    ASSERT_EQ(cq.open(*md, 16, nullptr, false), UCS_OK);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
    const ib::OwnedSrq srq =
        ib::owned(md->verbs().create_srq(md->pd(), &srq_attr), md->verbs().destroy_srq);
    ib::OwnedQp target{nullptr, nullptr};
    ASSERT_EQ(
        dc::make_target(
            *md, spy, port,
            {.key = 1, .srq = srq.get(), .cq = cq.get(), .context = nullptr, .rnr_timer_code = 1},
            &target),
        UCS_OK);
    EXPECT_EQ(asked.send_cq, cq.get());
    EXPECT_EQ(asked.recv_cq, cq.get());
}

class PausedPeers : public testing::TestWithParam<const char*> {};

// Its device answers that there is no receive buffer, many more times than can be counted to.
TEST_P(PausedPeers, are_waited_for_though_they_have_no_receive_buffer) {
    const std::string prefix = GetParam() == std::string("rc") ? "RC" : "DC";
    EntityOptions options;
    options.iface_config = {{prefix + "_RX_DEPTH", "2"},
                            {prefix + "_RNDV_MAX", "1"},
                            {prefix + "_RNR_TIMER", "10us"},
                            {prefix + "_TAG_MATCHING", "software"}};
    Entity receiver(resource_of(GetParam()), options);
    Entity sender(resource_of(GetParam()), options);
    const Connection connection = connect(sender, receiver);
    std::uint64_t sent = 0;  // as many as a channel of dc holds
    while (sent < 100 &&
           uct_ep_am_short(connection.forward, Entity::kAmId, sent, nullptr, 0) == UCS_OK)
        ++sent;
    ASSERT_GT(sent, 8U);
    for (int i = 0; i < 100'000; ++i)
        sender.progress();
    EXPECT_TRUE(sender.errors.empty());
    for (int i = 0; i < kProgressMax && receiver.am_count < sent; ++i) {
        receiver.progress();
        sender.progress();
    }
    EXPECT_EQ(receiver.am_count, sent);
    EXPECT_TRUE(sender.errors.empty());
}

INSTANTIATE_TEST_SUITE_P(Transports, PausedPeers, testing::Values("rc", "dc"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
