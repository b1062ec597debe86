// SPDX-License-Identifier: BSD-3-Clause
// rc against a program that is none of ours: plain queue pairs that are connected to an endpoint
// and send what they like. The other endpoint of the interface, and its buffers, are as before.
#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>

#include <cstring>
#include <random>

#include "common/seeds.hpp"
#include "ib/stranger.hpp"
#include "operations.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kSegBytes = 512;
constexpr int kStepsMax = 2'000'000;
constexpr uct_tag_t kGoodTag = 1ULL << 40;
constexpr std::size_t kGoodBytes = 3000;

EntityOptions options_of(const char* matching) {
    EntityOptions options;
    options.md_config = {{"IB_MTU", "1024"}};  // as the stranger's queue pairs have it
    // So few receive buffers that a lost one is noticed: each is posted again at once.
    options.iface_config = {{"RC_TAG_MATCHING", matching}, {"RC_SEG_BYTES", "512"},
                            {"RC_RX_DEPTH", "2"},          {"RC_RNDV_MAX", "1"},
                            {"RC_RNR_TIMER", "10us"},      {"RC_KEEPALIVE_INTERVAL", "0"}};
    return options;
}

/// What travels, and how.
struct Message {
    std::vector<std::byte> bytes;
    Stranger::Way way = {};
};

/// A victim, a good peer of it, and a stranger that is replaced when its endpoint failed.
class World {
  public:
    explicit World(const char* matching, std::uint64_t seed = 1)
        : random(seed),
          victim(resource_of("rc"), options_of(matching)),
          good(resource_of("rc"), options_of(matching)),
          exposed(victim, 100'000, Backing::kRegistered),
          link_(connect(good, victim)) {
        posted_ = fact_of(victim, "receive_buffers_posted");
        for (uct_tag_t tag = 0; tag < 4; ++tag) {
            receives_.push_back(std::make_unique<Receive>(victim, kSegBytes));
            receives_.back()->on_done = [this, tag](Receive& done) { post(done, tag); };
            post(*receives_.back(), tag);
        }
        victim.on_am = [this](const AmMessage& message) { return look_at(message.data); };
        victim.on_eager = [this](const EagerFragment& part) { return look_at(part.data); };
        invite();
    }

    ~World() {
        expel();
        for (const auto& receive : receives_)
            receive->cancel(true);
    }

    /// Sends, and makes a new connection when the endpoint did not survive it.
    void send(Message message, bool to_other = false) {
        until([&] { return !stranger->is_full() || has_failed(); });
        if (!has_failed()) {
            const std::size_t bytes = std::min(message.bytes.size(), Stranger::kMessageBytesMax);
            std::copy_n(message.bytes.data(), bytes, stranger->place());
            message.way.to_other = to_other;
            stranger->send(bytes, message.way);
        }
        for (std::uint64_t i = random() % 4; i > 0; --i)
            step();
        if (has_failed())
            replace();
    }

    /// What was sent was handled, or the endpoint failed.
    void settle() {
        until([&] { return stranger->is_idle() || has_failed(); });
        for (int i = 0; i < 100; ++i)
            step();
    }

    [[nodiscard]] bool has_failed() const {
        for (const PeerError& error : victim.errors) {
            if (error.ep == ep_)
                return true;
        }
        return false;
    }

    void replace() {
        expel();
        victim.errors.clear();
        ++replaced;
        invite();
    }

    /// Messages, a receive and rendezvous of both directions with the good peer.
    void check_good_peer() {
        release_kept();
        victim.am.clear();
        victim.eager.clear();
        victim.rndv.clear();
        const uct_ep_h there = link_.forward;
        const uct_ep_h back = link_.backward;
        Bytes bytes(300);
        fill_pattern(bytes, 1);
        send_until_taken([&] { return send_am_bytes(there, Entity::kAmId, bytes); });
        until([&] { return seen_good_; });
        EXPECT_TRUE(std::exchange(seen_good_, false)) << "the message of a good peer is lost";
        exchange(good, there, victim, false);
        exchange(good, there, victim, true);
        exchange(victim, back, good, true);
    }

    /// Endpoints go, and every buffer of the interface is posted.
    void check_nothing_is_lost() {
        settle();
        expel();
        release_kept();
        until([&] { return fact_of(victim, "endpoints") == 1; });
        EXPECT_EQ(1, fact_of(victim, "endpoints"));
        check_good_peer();
        until([&] { return fact_of(victim, "receive_buffers_posted") == posted_; });
        EXPECT_EQ(posted_, fact_of(victim, "receive_buffers_posted"));
        EXPECT_EQ(0, fact_of(victim, "receive_buffers_held"));
        EXPECT_EQ(0, fact_of(victim, "rendezvous_under_way"));
        EXPECT_TRUE(good.errors.empty());
    }

    void step() {
        victim.progress();
        good.progress();
        if (stranger != nullptr)
            stranger->progress();
    }

    void until(const std::function<bool()>& done) {
        for (int i = 0; i < kStepsMax && !done(); ++i)
            step();
    }

    std::mt19937_64 random;
    Entity victim;
    Entity good;
    Buffer exposed;
    std::unique_ptr<Stranger> stranger;
    int replaced = 0;

  private:
    void invite() {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = victim.iface();
        uct_ep_h ep = nullptr;
        require_ok(uct_ep_create(&params, &ep), "uct_ep_create");
        ep_ = Endpoint(ep);
        stranger = std::make_unique<Stranger>(*md_);
        stranger->connect(victim, ep, 512);
    }

    void expel() {
        stranger.reset();
        ep_.reset();
    }

    void post(Receive& receive, uct_tag_t tag) {
        // Exactly its tag, or any tag of strangers.
        EXPECT_EQ(UCS_OK, receive.post(tag, tag == 0 ? ~uct_tag_t{255} : ~uct_tag_t{0}));
    }

    ucs_status_t look_at(void* data) {
        if (has_pattern({static_cast<const std::byte*>(data), 300}, 1)) {
            seen_good_ = true;
            return UCS_OK;
        }
        if (kept_.size() > 1 || random() % 4 != 0)
            return UCS_OK;
        kept_.push_back(data);
        return UCS_INPROGRESS;
    }

    void release_kept() {
        for (void* data : std::exchange(kept_, {}))
            uct_iface_release_desc(data);
    }

    void send_until_taken(const std::function<ucs_status_t()>& send) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        until([&] { return (status = send()) != UCS_ERR_NO_RESOURCE; });
        EXPECT_EQ(UCS_OK, status);
    }

    void exchange(Entity& from, uct_ep_h ep, Entity& to, bool is_rndv) {
        Receive receive(to, kGoodBytes);
        EXPECT_EQ(UCS_OK, receive.post(kGoodTag));
        const Buffer payload = make_payload(from, is_rndv ? kGoodBytes : 200, 2);
        const uct_iov_t iov = payload.iov();
        Completion sent;
        send_until_taken([&] {
            if (!is_rndv) {
                const ucs_status_t status =
                    uct_ep_tag_eager_zcopy(ep, kGoodTag, 0, &iov, 1, 0, &sent);
                return status == UCS_INPROGRESS ? UCS_OK : status;
            }
            const auto handle = uct_ep_tag_rndv_zcopy(ep, kGoodTag, nullptr, 0, &iov, 1, 0, &sent);
            return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
        });
        until([&] { return receive.completed == 1 && sent.calls == 1; });
        EXPECT_EQ(1, receive.completed);
        EXPECT_EQ(UCS_OK, receive.status);
        EXPECT_TRUE(has_pattern(receive.received(), 2));
        EXPECT_EQ(1, sent.calls);
        if (receive.completed == 0)
            receive.cancel(true);
    }

    VhcaMd md_;
    Endpoint ep_;  // the one that the stranger is connected to
    std::vector<std::unique_ptr<Receive>> receives_;
    std::vector<void*> kept_;
    bool seen_good_ = false;
    long posted_ = 0;
    Connection link_;
};

// ---- Nonsense

class Nonsense {
  public:
    Nonsense(World& world) : world_(world), random_(world.random) {}

    Message next() {
        Message message;
        switch (random_() % 8) {
            case 0:
                message.bytes.resize(random_() % 48);
                scribble(message.bytes, 0);
                break;
            case 1:
            case 2:
                message = untagged();
                break;
            case 3:
                message = tagged(IBV_TMH_FIN, 16 + (random_() % 4 == 0 ? random_() % 100 : 0));
                break;
            case 4:
                message = rendezvous();
                break;
            case 5:
                message = write();
                break;
            default:
                message =
                    tagged(random_() % 8 == 0 ? static_cast<ibv_tmh_op>(random_()) : IBV_TMH_EAGER,
                           16 + random_() % (kSegBytes + 1));
                break;
        }
        if (random_() % 4 == 0)
            message.way.imm = random_() % 2 == 0 ? 0 : static_cast<std::uint32_t>(random_());
        if (random_() % 200 == 0)
            message.bytes.resize(kSegBytes + 17 + random_() % 100);  // longer than a buffer
        return message;
    }

  private:
    void scribble(std::vector<std::byte>& bytes, std::size_t from) {
        for (std::size_t i = from; i < bytes.size(); ++i)
            bytes[i] = static_cast<std::byte>(random_());
    }

    Message untagged() {
        Message message;
        message.bytes.resize(8 + random_() % (kSegBytes + 9));
        scribble(message.bytes, 8);
        const ib::Prefix head{IBV_TMH_NO_TAG, static_cast<ib::MessageKind>(random_() % 5),
                              static_cast<std::uint8_t>(random_() % 40),
                              static_cast<std::uint8_t>(random_() % 3 == 0 ? random_() : 0),
                              htobe32(static_cast<std::uint32_t>(random_() % 4 - 1))};
        std::memcpy(message.bytes.data(), &head, sizeof head);
        return message;
    }

    Message tagged(ibv_tmh_op opcode, std::size_t bytes) {
        Message message;
        message.bytes.resize(bytes);
        scribble(message.bytes, 0);
        ibv_tmh head{};
        head.opcode = static_cast<std::uint8_t>(opcode);
        head.reserved[0] = static_cast<std::uint8_t>(random_() % 3);
        head.app_ctx = htobe32(static_cast<std::uint32_t>(
            random_() % 2 == 0 ? random_() % 4 + (random_() % 4 << 16) : random_()));
        head.tag = htobe64(std::uint64_t{random_() % 8 + (random_() % 4 == 0 ? 1U << 20 : 0)});
        std::memcpy(message.bytes.data(), &head, sizeof head);
        return message;
    }

    Message rendezvous() {
        Message message = tagged(IBV_TMH_RNDV, 16 + random_() % 100);
        const bool is_right = random_() % 2 == 0;
        ibv_rvh from{};
        from.va = htobe64(is_right ? world_.stranger->memory_address() : random_());
        from.rkey =
            htobe32(is_right ? world_.stranger->rkey() : static_cast<std::uint32_t>(random_()));
        from.len = htobe32(static_cast<std::uint32_t>(
            random_() % 3 == 0 ? random_() : random_() % (2 * kSegBytes)));
        std::memcpy(message.bytes.data() + 16, &from,
                    std::min(sizeof from, message.bytes.size() - 16));
        return message;
    }

    /// Takes a receive buffer, and writes nothing to it.
    Message write() {
        Message message =
            tagged(IBV_TMH_EAGER, random_() % 2 == 0 ? 16 : Stranger::kMessageBytesMax);
        message.way.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        message.way.imm = 0;
        message.way.remote_addr = world_.exposed.address();
        uct_rkey_bundle_t bundle{};
        require_ok(uct_rkey_unpack(world_.victim.component(), world_.exposed.packed_rkey().data(),
                                   &bundle),
                   "uct_rkey_unpack");
        message.way.rkey = static_cast<std::uint32_t>(bundle.rkey);
        uct_rkey_release(world_.victim.component(), &bundle);
        return message;
    }

    World& world_;
    std::mt19937_64& random_;
};

Message am_of(std::size_t bytes) {
    Message am;
    const ib::Prefix head{IBV_TMH_NO_TAG, ib::MessageKind::kAm, Entity::kAmId, 0, 0};
    am.bytes.resize(bytes);
    std::memcpy(am.bytes.data(), &head, sizeof head);
    return am;
}

class RcHostile : public ::testing::TestWithParam<const char*> {};

TEST_P(RcHostile, nonsense_harms_nobody_else) {
    for_each_seed(4, [](std::uint64_t seed) {
        World world(GetParam(), seed);
        Nonsense nonsense(world);
        for (int i = 0; i < 1500; ++i) {
            world.send(nonsense.next(), world.random() % 4 == 0);
            if (i % 100 == 0) {
                world.check_good_peer();
                if (HasFailure())
                    return;
            }
        }
        world.check_nothing_is_lost();
        EXPECT_GT(world.replaced, 0);
    });
}

// The endpoint's other queue pair gets ends of rendezvous only, into buffers that nobody may keep.
TEST_P(RcHostile, no_message_comes_where_ends_of_rendezvous_are_told) {
    World world(GetParam());
    for (int i = 0; i < 8; ++i) {
        world.send(am_of(64), true);
        world.send(am_of(64), true);
    }
    world.settle();
    EXPECT_EQ(world.stranger->has_two() ? 0U : 16U, world.victim.am_count);
    world.check_nothing_is_lost();
}

// A write with an immediate takes a receive buffer, and tells the length of what went elsewhere.
TEST_P(RcHostile, a_write_with_an_immediate_is_no_message) {
    World world(GetParam());
    for (int i = 0; i < 8; ++i)  // each buffer has held a message
        world.send(am_of(64));
    world.settle();
    const std::uint64_t seen = world.victim.am_count;
    Message write;
    write.bytes.resize(Stranger::kMessageBytesMax);
    write.way.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.way.imm = 7;
    write.way.remote_addr = world.exposed.address();
    const RemoteKey key(world.victim, world.exposed.packed_rkey());
    write.way.rkey = static_cast<std::uint32_t>(key.get());
    for (int i = 0; i < 8; ++i)
        world.send(write);
    world.settle();
    EXPECT_EQ(seen, world.victim.am_count);
    world.check_nothing_is_lost();
}

INSTANTIATE_TEST_SUITE_P(Rc, RcHostile, ::testing::Values("device", "software"),
                         [](const auto& parameter) { return std::string(parameter.param); });

}  // namespace
}  // namespace tagwire::test
