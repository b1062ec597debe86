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
    Receive receive(to, 10'000);
    ASSERT_EQ(receive.post(7), UCS_OK);
    const Bytes bytes(8000, std::byte{5});  // more than a packet
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
              "software: the device cannot create a tag-matching SRQ: Invalid argument");
    EXPECT_EQ(one.attr().cap.tag.recv.min_recv, 0U);
    exchange(one, other);
}

TEST(TagMatchingOfCards, that_differs_is_told_on_both_sides) {
    const Entity without(resource_of("rc"), without_tag_matching_srq());
    const Entity with(resource_of("rc"));
    EXPECT_THAT(why_unreachable(without, with), HasSubstr("cannot create a tag-matching SRQ"));
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
    ASSERT_EQ(md->device().port(1, {}, &port, &reason), UCS_OK) << reason;
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

// The longest that a device with room for 64 bytes of headers carries out.
TEST(RendezvousOfCards, have_headers_as_long_as_programs_of_ucx_send) {
    EXPECT_EQ(Entity(resource_of("rc")).attr().cap.tag.rndv.max_hdr, 34U);
    EXPECT_EQ(Entity(resource_of("dc")).attr().cap.tag.rndv.max_hdr, 18U);
}

/// Reports each whole eager message of a queue as libmlx5 does one that was broken off.
decltype(verbs_context::create_cq_ex) create_cq = nullptr;
decltype(ibv_cq_ex::start_poll) start_poll = nullptr;
decltype(ibv_cq_ex::next_poll) next_poll = nullptr;

int broken(ibv_cq_ex* cq, int error) {
    if (error == 0 && cq->status == IBV_WC_SUCCESS &&
        (ibv_wc_read_wc_flags(cq) & IBV_WC_TM_DATA_VALID) != 0)
        cq->status = IBV_WC_TM_RNDV_INCOMPLETE;
    return error;
}

ibv_cq_ex* cq_of_broken_messages(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    ibv_cq_ex* cq = create_cq(context, attr);
    start_poll = cq->start_poll;
    next_poll = cq->next_poll;
    cq->start_poll = [](ibv_cq_ex* polled, ibv_poll_cq_attr* how) {
        return broken(polled, start_poll(polled, how));
    };
    cq->next_poll = [](ibv_cq_ex* polled) { return broken(polled, next_poll(polled)); };
    return cq;
}

// They look like a rendezvous that does not fit, but the buffer has data in place of its headers.
TEST(MessagesBrokenOff, end_their_receive_and_are_not_read_as_a_rendezvous) {
    Entity sender(resource_of("rc"));
    EntityOptions options;
    options.before_iface = [](uct_md_h md) {
        create_cq = verbs_of(md).create_cq_ex;
        verbs_of(md).create_cq_ex = cq_of_broken_messages;
    };
    Entity receiver(resource_of("rc"), options);
    const Connection connection = connect(sender, receiver);
    Receive receive(receiver, 10'000);
    ASSERT_EQ(receive.post(7), UCS_OK);
    ASSERT_EQ(send_eager_bytes(connection.forward, 7, 0, Bytes(8000, std::byte{5})), UCS_OK);
    for (int i = 0; i < kProgressMax && receive.completed == 0; ++i) {
        sender.progress();
        receiver.progress();
    }
    EXPECT_EQ(receive.completed, 1);
    EXPECT_EQ(receive.status, UCS_ERR_IO_ERROR);
    EXPECT_TRUE(receiver.errors.empty()) << "the endpoint is well";
}

class MtusOfCards : public testing::TestWithParam<const char*> {};

TEST_P(MtusOfCards, are_agreed_on_or_refused) {
    EntityOptions small;
    small.md_config = {{"IB_MTU", "1024"}};
    Entity one(resource_of(GetParam()), small);
    Entity other(resource_of(GetParam()));
    if (GetParam() == std::string("dc")) {
        EXPECT_EQ(why_unreachable(one, other),
                  "the peer's packets have up to 4096 bytes, ours 1024: set TAGWIRE_IB_MTU=1024 on "
                  "both sides");
        EXPECT_THAT(why_unreachable(other, one), HasSubstr("set TAGWIRE_IB_MTU=1024"));
        Entity third(resource_of("dc"), small);
        exchange(one, third);
    } else {
        exchange(one, other);
        exchange(other, one);
    }
}

// Messages that are longer than a packet of the peer arrive whole and in order, both ways.
TEST(DatagramsOfCards, may_differ_in_length) {
    for (const char* mtu : {"256", "1024", "2048"}) {
        EntityOptions small;
        small.md_config = {{"IB_MTU", mtu}};
        Entity one(resource_of("ud"), small);
        Entity other(resource_of("ud"));
        EXPECT_EQ(why_unreachable(one, other), "");
        EXPECT_EQ(why_unreachable(other, one), "");
        for (Entity* from : {&one, &other}) {
            Entity& to = from == &one ? other : one;
            const Connection link = connect(*from, to);
            std::vector<Bytes> sent;
            const std::size_t longest = from->attr().cap.am.max_bcopy;
            for (const std::size_t bytes : {longest, std::size_t{0}, longest / 2, std::size_t{223},
                                            std::size_t{224}, std::size_t{225}, longest}) {
                sent.push_back(Bytes(std::min(bytes, longest), std::byte{1}));
                for (std::size_t at = 0; at < sent.back().size(); ++at)
                    sent.back()[at] = pattern(at, static_cast<unsigned>(sent.size()));
                ucs_status_t status = UCS_ERR_NO_RESOURCE;
                for (int i = 0; i < kProgressMax && status == UCS_ERR_NO_RESOURCE; ++i) {
                    status = send_am_bytes(link.forward, Entity::kAmId, sent.back());
                    from->progress();
                    to.progress();
                }
                ASSERT_EQ(UCS_OK, status);
            }
            for (int i = 0; i < kProgressMax && to.am.size() < sent.size(); ++i) {
                from->progress();
                to.progress();
            }
            ASSERT_EQ(sent.size(), to.am.size()) << mtu;
            for (std::size_t i = 0; i < sent.size(); ++i)
                EXPECT_EQ(sent[i], to.am[i].bytes) << mtu << " " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Transports, MtusOfCards, testing::Values("rc", "dc"),
                         [](const auto& parameter) { return std::string(parameter.param); });

class RefusedRequests : public testing::TestWithParam<const char*> {};

TEST_P(RefusedRequests, reset_the_connection_and_say_why) {
    Entity one(resource_of(GetParam()));
    Entity other(resource_of(GetParam()));
    const Connection connection = connect(one, other);
    const Buffer there(other, 64, Backing::kRegistered);
    constexpr uct_rkey_t kNoKey = 0xdead;
    testing::internal::CaptureStderr();
    ASSERT_EQ(uct_ep_put_short(connection.forward, "12345678", 8,
                               reinterpret_cast<std::uint64_t>(there.data()), kNoKey),
              UCS_OK);
    uct_ep_flush(connection.forward, 0, nullptr);
    for (int i = 0; i < kProgressMax && one.errors.empty(); ++i) {
        one.progress();
        other.progress();
    }
    const std::string log = testing::internal::GetCapturedStderr();
    ASSERT_EQ(one.errors.size(), 1U);
    EXPECT_EQ(one.errors[0].status, UCS_ERR_CONNECTION_RESET);
    EXPECT_THAT(log, HasSubstr("warn"));
    EXPECT_THAT(log,
                HasSubstr("an endpoint failed (Connection was reset by the peer): remote access"));
}

INSTANTIATE_TEST_SUITE_P(Transports, RefusedRequests, testing::Values("rc", "dc"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// Each costs an address handle, so not all are given up when one more asks.
TEST(WaysBack, that_were_used_lately_stay_when_one_more_peer_asks) {
    EntityOptions options;
    options.iface_config = {{"DC_CREDITS", "2"},    {"DC_RX_DEPTH", "64"}, {"DC_DCIS", "1"},
                            {"DC_TX_DEPTH", "16"},  {"DC_STREAMS", "1"},   {"DC_TAG_DEPTH", "1"},
                            {"DC_TX_BUFFERS", "16"}};
    Entity server(resource_of("dc"), options);
    std::vector<std::unique_ptr<Entity>> clients;
    std::vector<Connection> connections;
    for (std::uint64_t i = 0; i < 65; ++i) {  // one more than are kept
        clients.push_back(std::make_unique<Entity>(resource_of("dc"), options));
        Entity& client = *clients.back();
        connections.push_back(connect(client, server));
        const std::uint64_t wanted = server.am_count + 4;  // with 2 credits each must ask
        for (int step = 0; step < kProgressMax && server.am_count < wanted; ++step) {
            uct_ep_am_short(connections.back().forward, Entity::kAmId, i, nullptr, 0);
            client.progress();
            server.progress();
        }
        ASSERT_GE(server.am_count, wanted);
    }
    EXPECT_GE(fact_of(server, "ways_back"), 32);
    EXPECT_LE(fact_of(server, "ways_back"), 64);
    connections.clear();
}

// Requests of many pieces: fewer fit a ring than the device says.
TEST(SendQueuesOfCards, that_are_too_deep_are_refused_with_the_cause) {
    static int tries;
    tries = 0;
    ib::VerbsTable* verbs = nullptr;
    decltype(verbs->create_qp) create_qp = nullptr;
    EntityOptions options;
    options.before_iface = [&](uct_md_h md) {
        verbs = const_cast<ib::VerbsTable*>(&ib_md_of(md).verbs());  // NOLINT: of this process
        create_qp = verbs->create_qp;
        verbs->create_qp = [](ibv_pd*, ibv_qp_init_attr*) -> ibv_qp* {
            ++tries;
            errno = EINVAL;
            return nullptr;
        };
    };
    testing::internal::CaptureStderr();
    EXPECT_THROW(Entity(resource_of("rc"), options), std::runtime_error);
    verbs->create_qp = create_qp;
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("TAGWIRE_RC_TX_DEPTH=256 requests of 8 gather elements"));
    EXPECT_EQ(tries, 2);
}

/// Limits of a device that refuses larger DCIs, with one error code for every cause.
struct DciLimits {
    const char* name;
    unsigned depth, sges, inline_bytes, streams_log;
    const char* cause;
};

void PrintTo(const DciLimits& limits, std::ostream* out) {
    *out << limits.name;
}

class DcisOfCards : public testing::TestWithParam<DciLimits> {};

TEST_P(DcisOfCards, that_ask_for_too_much_are_refused_with_the_limit) {
    static DciLimits limits;
    static decltype(dc::DcVerbs::create_qp) create = nullptr;
    limits = GetParam();
    const VhcaMd md;
    std::string reason;
    auto* verbs = const_cast<dc::DcVerbs*>(  // NOLINT: of this process
        dc::dc_verbs_of(md->device(), &reason));
    ASSERT_NE(verbs, nullptr) << reason;
    create = verbs->create_qp;
    verbs->create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* extra) -> ibv_qp* {
        const bool has_streams = (extra->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0;
        const unsigned log = has_streams ? extra->dc_init_attr.dci_streams.log_num_concurent : 0U;
        const ibv_qp_cap& cap = attr->cap;
        const bool is_target = extra->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
        if (is_target || (cap.max_send_wr <= limits.depth && cap.max_send_sge <= limits.sges &&
                          cap.max_inline_data <= limits.inline_bytes && log <= limits.streams_log))
            return create(context, attr, extra);
        errno = EINVAL;
        return nullptr;
    };
    testing::internal::CaptureStderr();
    EXPECT_THROW(Entity(resource_of("dc")), std::runtime_error);
    verbs->create_qp = create;
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("mlx5dv_create_qp of a DCI failed: Invalid argument: "));
    EXPECT_THAT(log, HasSubstr(GetParam().cause));
}

const DciLimits kDciLimits[] = {
    {"depth", 500, 16, 256, 6,
     "the send queue has 512 requests (TAGWIRE_DC_TX_DEPTH, twice that with streams); the device "
     "reports at most 32768 (max_qp_wr)"},
    {"pieces", 512, 7, 256, 6,
     "8 gather elements per request (TAGWIRE_IB_TX_SGES); the device reports 30 (max_sge)"},
    {"inline_bytes", 512, 16, 127, 6,
     "128 inline bytes per request (TAGWIRE_DC_INLINE_BYTES) are more than the device allows"},
    {"streams", 512, 16, 256, 3, "16 streams per DCI; the device reports 64"},
    {"several", 500, 16, 127, 6, "but does not allow all of them together"},
    {"queue_pairs", 0, 16, 256, 6, "the device reports at most 262144 queue pairs (max_qp)"}};

INSTANTIATE_TEST_SUITE_P(Limits, DcisOfCards, testing::ValuesIn(kDciLimits),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

// libmlx5's answer where the kernel gives no DEVX.
TEST(StreamsOfCards, are_not_used_where_none_that_failed_can_be_reset) {
    EXPECT_GT(fact_of(Entity(resource_of("dc")), "streams_per_dci"), 1);
    const VhcaMd md;
    std::string reason;
    auto* verbs = const_cast<dc::DcVerbs*>(  // NOLINT: of this process
        dc::dc_verbs_of(md->device(), &reason));
    ASSERT_NE(verbs, nullptr) << reason;
    const auto reset = verbs->reset_stream;
    verbs->reset_stream = [](ibv_qp*, std::uint16_t) { return EOPNOTSUPP; };
    Entity one(resource_of("dc"));
    Entity other(resource_of("dc"));
    verbs->reset_stream = reset;
    EXPECT_EQ(fact_of(one, "streams_per_dci"), 1);
    exchange(one, other);
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
