// SPDX-License-Identifier: BSD-3-Clause
// Many processes, each of which sends to all, itself included: active messages, tagged messages,
// rendezvous, puts and atomics. Each byte that arrives is compared with the one that was sent.
//
// The number of a process is its rank. Its streams of active messages are numbered by it, and the
// tags of its messages begin with it. Its memory has a slot for the puts of each peer, and one
// counter that all add to.
#include <algorithm>
#include <deque>
#include <memory>

#include "harness.hpp"
#include "ledger.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr int kLongMs = 300'000;
constexpr std::size_t kSlotBytes = 3000;

struct Plan {
    const char* name;
    unsigned processes;
    std::uint32_t rounds;
    std::vector<std::pair<std::string, std::string>> config;
};

void PrintTo(const Plan& plan, std::ostream* out) {
    *out << plan.name;
}

enum class Kind : std::uint64_t { kEager, kRndv };

std::uint64_t seed_of(std::uint64_t from, std::uint64_t to, std::uint64_t round, Kind kind) {
    return from << 48 | to << 32 | round << 8 | static_cast<std::uint64_t>(kind);
}

std::size_t bytes_of(std::uint64_t seed, Kind kind) {
    return kind == Kind::kEager ? seed * 131 % 2000 : 8000 + seed * 7919 % 30'000;
}

class Member {
  public:
    Member(const Plan& plan, std::uint32_t rank)
        : plan_(plan),
          rank_(rank),
          self_(resource_of("dc"), {.iface_config = plan.config}),
          memory_(self_, plan.processes * kSlotBytes + sizeof(std::uint64_t),
                  Backing::kRegistered) {
        std::ranges::fill(memory_.span(), std::byte{0});
        self_.keep_record = false;
        self_.on_am = [this](const AmMessage& message) {
            ledger_.take(message.bytes);
            return UCS_OK;
        };
        post_receives();
    }

    [[nodiscard]] Bytes address() const {
        const std::uint64_t where = memory_.address();
        const auto* first = reinterpret_cast<const std::byte*>(&where);
        return pack({address_of(self_), memory_.packed_rkey(), Bytes(first, first + sizeof where)});
    }

    void connect(const std::vector<Bytes>& members) {
        for (const Bytes& member : members) {
            const std::vector<Bytes> words = unpack(member);
            auto peer = std::make_unique<Peer>();
            peer->rank = static_cast<std::uint32_t>(peers_.size());
            peer->ep = connect_to(self_, words.at(0));
            peer->key = std::make_unique<RemoteKey>(self_, words.at(1));
            std::memcpy(&peer->memory, words.at(2).data(), sizeof peer->memory);
            peers_.push_back(std::move(peer));
        }
    }

    /// All sends of all rounds; who has no room waits while the others go on.
    void run() {
        EXPECT_TRUE(progress_until(
            self_,
            [this] {
                bool is_done = true;
                for (const auto& peer : peers_) {
                    while (peer->next < kSteps * plan_.rounds && step(*peer)) {
                    }
                    is_done = is_done && peer->next == kSteps * plan_.rounds;
                }
                return is_done;
            },
            kLongMs));
        const std::uint64_t wanted = std::uint64_t{plan_.processes} * plan_.rounds;
        EXPECT_TRUE(progress_until(
            self_,
            [&] {
                return ledger_.total() == wanted && received_ == receives_.size() && has_sent() &&
                       uct_iface_flush(self_.iface(), 0, nullptr) == UCS_OK;
            },
            kLongMs))
            << ledger_.total() << " messages, " << received_ << " receives";
    }

    /// Everybody is done.
    void check() {
        for (const auto& peer : peers_) {
            const auto slot = memory_.span().subspan(peer->rank * kSlotBytes, kSlotBytes);
            EXPECT_TRUE(has_pattern(slot, seed_of(peer->rank, rank_, plan_.rounds, Kind::kRndv)));
            for (const auto& done : peer->completions)
                EXPECT_EQ(UCS_OK, done->ended);
        }
        std::uint64_t counter = 0;
        std::memcpy(&counter, memory_.data() + plan_.processes * kSlotBytes, sizeof counter);
        EXPECT_EQ(std::uint64_t{plan_.processes} * plan_.rounds, counter);
        EXPECT_TRUE(self_.errors.empty());
        EXPECT_EQ(0U, self_.eager_count + self_.rndv_count);
        EXPECT_EQ(0, fact_of(self_, "rendezvous_under_way"));
    }

    Entity& self() { return self_; }

  private:
    static constexpr std::uint32_t kSteps = 5;  // of a round

    struct Peer {
        std::uint32_t rank = 0;
        Endpoint ep;
        std::unique_ptr<RemoteKey> key;
        std::uint64_t memory = 0;
        std::uint32_t next = 0;  // step
        std::deque<std::unique_ptr<Completion>> completions;
        std::deque<Buffer> payloads;
    };

    void post_receives() {
        for (std::uint64_t from = 0; from < plan_.processes; ++from) {
            for (std::uint64_t round = 0; round < plan_.rounds; ++round) {
                for (const Kind kind : {Kind::kEager, Kind::kRndv}) {
                    const std::uint64_t seed = seed_of(from, rank_, round, kind);
                    const std::size_t bytes = bytes_of(seed, kind);
                    receives_.push_back(std::make_unique<Receive>(
                        self_, std::max(bytes, self_.attr().cap.tag.recv.min_recv)));
                    receives_.back()->on_done = [this, seed, bytes](Receive& done) {
                        ++received_;
                        EXPECT_EQ(UCS_OK, done.status);
                        EXPECT_EQ(bytes, done.length);
                        EXPECT_TRUE(has_pattern(done.received(), seed));
                    };
                    ASSERT_EQ(UCS_OK, receives_.back()->post(seed));
                }
            }
        }
    }

    /// False: no room.
    bool step(Peer& peer) {
        const std::uint32_t round = peer.next / kSteps;
        ucs_status_t status = UCS_OK;
        switch (peer.next % kSteps) {
            case 0:
                status = send_am_bytes(peer.ep, Entity::kAmId, message_at({rank_, round}));
                break;
            case 1:
                status = send_eager(peer, round);
                break;
            case 2:
                status = send_rndv(peer, round);
                break;
            case 3:
                status = put(peer, round);
                break;
            default:
                status = uct_ep_atomic64_post(peer.ep, UCT_ATOMIC_OP_ADD, 1,
                                              peer.memory + plan_.processes * kSlotBytes,
                                              peer.key->get());
                break;
        }
        EXPECT_TRUE(status >= UCS_OK || status == UCS_ERR_NO_RESOURCE) << ucs_status_string(status);
        peer.next += status >= UCS_OK ? 1 : 0;
        return status >= UCS_OK;
    }

    ucs_status_t send_eager(Peer& peer, std::uint32_t round) {
        const std::uint64_t seed = seed_of(rank_, peer.rank, round, Kind::kEager);
        return send_eager_bytes(peer.ep, seed, 0, pattern(bytes_of(seed, Kind::kEager), seed));
    }

    template <class Operation>
    ucs_status_t start(Peer& peer, std::uint64_t seed, std::size_t bytes, Operation&& operation) {
        peer.payloads.push_back(make_payload(self_, bytes, seed));
        peer.completions.push_back(std::make_unique<Completion>());
        const uct_iov_t iov = peer.payloads.back().iov();
        const ucs_status_t status = operation(iov, peer.completions.back().get());
        if (status != UCS_INPROGRESS) {
            EXPECT_NE(UCS_OK, status);
            peer.payloads.pop_back();
            peer.completions.pop_back();
        }
        return status;
    }

    ucs_status_t send_rndv(Peer& peer, std::uint32_t round) {
        const std::uint64_t seed = seed_of(rank_, peer.rank, round, Kind::kRndv);
        return start(
            peer, seed, bytes_of(seed, Kind::kRndv), [&](const uct_iov_t& iov, auto* done) {
                const auto handle =
                    uct_ep_tag_rndv_zcopy(peer.ep, seed, nullptr, 0, &iov, 1, 0, done);
                return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_INPROGRESS;
            });
    }

    /// The last one is what remains.
    ucs_status_t put(Peer& peer, std::uint32_t round) {
        const std::uint64_t seed = seed_of(rank_, peer.rank, round + 1, Kind::kRndv);
        return start(peer, seed, kSlotBytes, [&](const uct_iov_t& iov, auto* done) {
            return uct_ep_put_zcopy(peer.ep, &iov, 1, peer.memory + rank_ * kSlotBytes,
                                    peer.key->get(), done);
        });
    }

    [[nodiscard]] bool has_sent() const {
        return std::ranges::all_of(peers_, [](const auto& peer) {
            return std::ranges::all_of(peer->completions,
                                       [](const auto& done) { return done->calls == 1; });
        });
    }

    const Plan& plan_;
    std::uint32_t rank_;
    Entity self_;
    Buffer memory_;
    Ledger ledger_;
    std::vector<std::unique_ptr<Receive>> receives_;
    std::size_t received_ = 0;
    std::vector<std::unique_ptr<Peer>> peers_;
};

void be_member(Channel& control, const Plan& plan, std::uint32_t rank) {
    Member member(plan, rank);
    control.send(member.address());
    member.connect(unpack(control.receive(kLongMs).value()));
    member.run();
    control.signal();
    EXPECT_TRUE(progress_until(
        member.self(), [&] { return control.has_message(); }, kLongMs));
    EXPECT_TRUE(control.receive().has_value());
    member.check();
    control.signal();  // nobody goes before all have looked
    EXPECT_TRUE(progress_until(
        member.self(), [&] { return control.has_message(); }, kLongMs));
}

class AllToAll : public ProcessTest, public ::testing::WithParamInterface<Plan> {};

TEST_P(AllToAll, every_byte_arrives) {
    const Plan& plan = GetParam();
    std::vector<std::unique_ptr<Child>> members;
    for (std::uint32_t rank = 0; rank < plan.processes; ++rank)
        members.push_back(std::make_unique<Child>(
            [&plan, rank](Channel& control) { be_member(control, plan, rank); }));
    std::vector<Bytes> addresses;
    for (const auto& member : members) {
        const auto address = member->channel().receive(kLongMs);
        ASSERT_TRUE(address.has_value());
        addresses.push_back(*address);
    }
    for (const auto& member : members)
        member->channel().send(pack(addresses));
    for (int phase = 0; phase < 2; ++phase) {  // all is done; all have looked
        for (const auto& member : members)
            ASSERT_TRUE(member->channel().receive(kLongMs).has_value()) << member->join();
        for (const auto& member : members)
            member->channel().signal();
    }
    for (const auto& member : members)
        EXPECT_EQ(0, member->join(kLongMs));
}

const Plan kPlans[] = {
    {"default_pool", 16, 30, {}},
    {"one_dci", 16, 10, {{"DC_DCIS", "1"}}},
    {"two_dcis_dcs", 16, 10, {{"DC_DCIS", "2"}, {"DC_POLICY", "dcs"}}},
    {"few_credits", 16, 10, {{"DC_DCIS", "1"}, {"DC_CREDITS", "2"}, {"DC_QUOTA", "1"}}},
};

INSTANTIATE_TEST_SUITE_P(Process, AllToAll, ::testing::ValuesIn(kPlans),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

}  // namespace
}  // namespace tagwire::test
