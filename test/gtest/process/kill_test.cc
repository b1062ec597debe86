// SPDX-License-Identifier: BSD-3-Clause
// kill -9 at random points, again and again. One survivor talks to a row of victims, each of which
// dies, and all the while to a bystander that must not notice anything.
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "buffer.hpp"
#include "harness.hpp"
#include "operations.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kHello = 1;   // victim -> survivor: who I am, where my memory is
constexpr std::uint8_t kNumber = 2;  // victim -> survivor: {victim, number, pattern}
constexpr std::uint8_t kPing = 3;    // bystander <-> survivor
constexpr std::uint8_t kNoise = 4;   // survivor -> victim
constexpr std::size_t kMemoryBytes = 100000;
constexpr std::size_t kRndvBytes = 50000;

struct Numbered {
    std::uint64_t victim;
    std::uint64_t number;
};

template <class T>
T value_at(const Bytes& bytes) {
    T value{};
    if (bytes.size() >= sizeof value)
        std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

/// Operations that the survivor has under way to one victim.
class Relation {
  public:
    Relation(Entity& self, Endpoint&& ep, const std::vector<Bytes>& hello)
        : local_(self, kMemoryBytes, Backing::kRegistered),
          ep_(std::move(ep)),
          arena_(self, hello.at(3)),
          registered_(self, hello.at(4)),
          arena_address_(value_at<std::uint64_t>(hello.at(5))),
          registered_address_(value_at<std::uint64_t>(hello.at(6))) {}

    uct_ep_h ep() const { return ep_; }

    void operate(std::mt19937_64& random) {
        if (has_failed || operations_.size() > 3000)
            return;
        const bool in_arena = random() % 2 == 0;
        const std::uint64_t at = in_arena ? arena_address_ : registered_address_;
        const uct_rkey_t key = in_arena ? arena_.get() : registered_.get();
        const uct_iov_t iov = local_.iov(0, 1 + random() % kMemoryBytes);
        switch (random() % 6) {
            case 0:
                uct_ep_am_short(ep_, kNoise, 0, nullptr, 0);
                return;
            case 1:
                return start([&](uct_completion_t* completion) {
                    return uct_ep_get_zcopy(ep_, &iov, 1, at, key, completion);
                });
            case 2:
                return start([&](uct_completion_t* completion) {
                    return uct_ep_put_zcopy(ep_, &iov, 1, at, key, completion);
                });
            case 3:
                return start([&](uct_completion_t* completion) {
                    const uct_iov_t part = local_.iov(0, 1 + random() % kRndvBytes);
                    const auto handle = uct_ep_tag_rndv_zcopy(ep_, random() % 3, nullptr, 0, &part,
                                                              1, 0, completion);
                    return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_INPROGRESS;
                });
            case 4:
                return start([&](uct_completion_t* completion) {
                    return uct_ep_atomic64_fetch(ep_, UCT_ATOMIC_OP_ADD, 1, &fetched_, at, key,
                                                 completion);
                });
            default:
                return start([&](uct_completion_t* completion) {
                    const uct_iov_t part = local_.iov(0, 1 + random() % 20000);
                    return uct_ep_tag_eager_zcopy(ep_, 77, 0, &part, 1, 0, completion);
                });
        }
    }

    std::size_t incomplete() const {
        std::size_t count = 0;
        for (const auto& operation : operations_) {
            EXPECT_LE(operation->calls, 1) << "an operation completed twice";
            count += operation->calls == 0 ? 1 : 0;
        }
        return count;
    }

  private:
    void start(const std::function<ucs_status_t(uct_completion_t*)>& operation) {
        operations_.push_back(std::make_unique<Completion>());
        if (operation(operations_.back().get()) != UCS_INPROGRESS) {
            EXPECT_EQ(0, operations_.back()->calls);
            operations_.pop_back();
        }
    }

    std::vector<std::unique_ptr<Completion>> operations_;  // outlives the endpoint
    std::uint64_t fetched_ = 0;
    Buffer local_;
    Endpoint ep_;
    RemoteKey arena_;
    RemoteKey registered_;
    std::uint64_t arena_address_;
    std::uint64_t registered_address_;

  public:
    bool has_failed = false;
};

struct Report {
    std::uint64_t hellos;
    std::uint64_t connections;
    std::uint64_t errors;
    std::uint64_t numbers;
    std::uint64_t receives;
};

class Survivor {
  public:
    explicit Survivor(std::uint64_t seed) : self_(resource_of("sm")), random_(seed) {
        self_.keep_record = false;
        for (const std::uint8_t id : {kHello, kNumber, kPing})
            self_.record_am(id);
        self_.on_am = [this](const AmMessage& message) { return take(message); };
        self_.on_error = [this](const PeerError& error) { fail(error); };
        for (int i = 0; i < 8; ++i)
            post(std::make_unique<Receive>(self_, kRndvBytes));
    }

    ~Survivor() {
        for (const auto& receive : receives_)
            receive->cancel(true);
    }

    Bytes address() const { return address_of(self_); }

    void run_until_asked(const Channel& control) {
        unsigned turns = 0;
        while (++turns % 1024 != 0 || !control.has_message())
            turn();
        control.await_signal();
        // Whoever died has been noticed when everything settled: the last ones get their time.
        progress_until(
            self_, [&] { return report_.errors >= report_.connections; }, 2000);
    }

    Report report() const { return report_; }

  private:
    void turn() {
        self_.progress();
        for (const Bytes& hello : std::exchange(hellos_, {}))
            greet(unpack(hello));
        for (const auto& relation : relations_)
            relation->operate(random_);
        std::erase_if(relations_, [](const auto& relation) { return relation->has_failed; });
        while (!pongs_.empty() && bystander_.get() != nullptr &&
               uct_ep_am_short(bystander_, kPing, pongs_.front(), nullptr, 0) == UCS_OK) {
            pongs_.erase(pongs_.begin());
        }
    }

    void greet(const std::vector<Bytes>& hello) {
        ++report_.hellos;
        ucs_status_t status = UCS_OK;
        Endpoint ep = connect_to_address(self_, hello.at(1), hello.at(2), &status);
        if (status == UCS_OK) {
            ++report_.connections;
            relations_.push_back(std::make_unique<Relation>(self_, std::move(ep), hello));
        } else {
            EXPECT_EQ(UCS_ERR_UNREACHABLE, status);  // dead by now
        }
    }

    ucs_status_t take(const AmMessage& message) {
        if (message.id == kHello) {
            hellos_.push_back(message.bytes);
        } else if (message.id == kNumber) {
            const auto numbered = value_at<Numbered>(message.bytes);
            std::uint64_t& last = last_number_[numbered.victim];
            EXPECT_EQ(last + 1, numbered.number) << "victim " << numbered.victim;
            last = numbered.number;
            const std::span<const std::byte> rest =
                std::span(message.bytes).subspan(sizeof numbered);
            EXPECT_TRUE(has_pattern(rest, numbered.number)) << "victim " << numbered.victim;
            ++report_.numbers;
        } else if (message.bytes.size() > 8) {
            const auto parts = unpack(message.bytes);
            bystander_ = connect_to_address(self_, parts.at(0), parts.at(1));
        } else {
            pongs_.push_back(value_at<std::uint64_t>(message.bytes));
        }
        return UCS_OK;
    }

    void fail(const PeerError& error) {
        ++report_.errors;
        EXPECT_NE(error.ep, bystander_.get()) << "the bystander was taken for dead";
        for (const auto& relation : relations_) {
            if (relation->ep() == error.ep) {
                EXPECT_EQ(0u, relation->incomplete()) << "reported before its operations completed";
                EXPECT_FALSE(relation->has_failed) << "reported twice";
                relation->has_failed = true;
            }
        }
    }

    void post(std::unique_ptr<Receive> receive) {
        receive->on_done = [this](Receive& done) {
            EXPECT_EQ(1, done.completed);
            ++report_.receives;
            if (done.status == UCS_OK) {
                EXPECT_TRUE(has_pattern(done.received(), done.sender_tag)) << done.sender_tag;
            }
            EXPECT_EQ(UCS_OK, done.post(0, 0));
        };
        EXPECT_EQ(UCS_OK, receive->post(0, 0));
        receives_.push_back(std::move(receive));
    }

    Entity self_;
    std::mt19937_64 random_;
    std::vector<std::unique_ptr<Receive>> receives_;
    std::vector<Bytes> hellos_;
    std::vector<std::unique_ptr<Relation>> relations_;
    Endpoint bystander_;
    std::vector<std::uint64_t> pongs_;
    std::map<std::uint64_t, std::uint64_t> last_number_;
    Report report_ = {};
};

void be_survivor(Channel& control, std::uint64_t seed) {
    Survivor survivor(seed);
    control.send(survivor.address());
    survivor.run_until_asked(control);
    control.send_value(survivor.report());
}

void be_bystander(Channel& control, const Bytes& survivor) {
    Entity self(resource_of("sm"));
    self.keep_record = false;
    self.record_am(kPing);
    std::uint64_t pings = 0;
    std::uint64_t pongs = 0;
    self.on_am = [&](const AmMessage& message) {
        EXPECT_EQ(pongs, value_at<std::uint64_t>(message.bytes)) << "lost or out of order";
        ++pongs;
        return UCS_OK;
    };
    const Endpoint ep = connect_to(self, survivor);
    const Bytes hello = address_of(self);
    EXPECT_EQ(UCS_OK, retry(self, [&] { return send_am_bytes(ep, kPing, hello); }));
    control.signal();
    unsigned turns = 0;
    while (++turns % 1024 != 0 || !control.has_message()) {
        if (pings < pongs + 16 && uct_ep_am_short(ep, kPing, pings, nullptr, 0) == UCS_OK)
            ++pings;
        self.progress();
    }
    control.await_signal();
    EXPECT_TRUE(progress_until(self, [&] { return pongs == pings; }));
    EXPECT_TRUE(self.errors.empty());
    control.send_value(pongs);
    control.await_signal();  // an orderly end would be one more dead peer to the survivor
}

/// Never returns by itself unless `operations_max` is reached, where it kills itself.
void be_victim(Channel& control, const Bytes& survivor, std::uint64_t id,
               std::uint64_t operations_max) {
    Entity self(resource_of("sm"));
    self.keep_record = false;
    const Buffer arena(self, kMemoryBytes, Backing::kAllocated);
    const Buffer registered(self, kMemoryBytes, Backing::kRegistered);
    std::memset(arena.data(), 0, kMemoryBytes);
    self.record_am(kNoise);
    Receive receives[3] = {{self, kRndvBytes}, {self, kRndvBytes}, {self, kRndvBytes}};
    for (uct_tag_t tag = 0; tag < 3; ++tag) {
        receives[tag].on_done = [tag](Receive& done) { EXPECT_EQ(UCS_OK, done.post(tag)); };
        EXPECT_EQ(UCS_OK, receives[tag].post(tag));
    }
    const auto bytes_of = [](std::uint64_t value) {
        const auto* first = reinterpret_cast<const std::byte*>(&value);
        return Bytes(first, first + sizeof value);
    };
    const Endpoint ep = connect_to(self, survivor);
    const Bytes hello =
        pack({bytes_of(id), self.device_address(), self.iface_address(), arena.packed_rkey(),
              registered.packed_rkey(), bytes_of(arena.address()), bytes_of(registered.address())});
    control.signal();
    EXPECT_EQ(UCS_OK, retry(self, [&] { return send_am_bytes(ep, kHello, hello); }));

    std::mt19937_64 random(id);
    std::uint64_t number = 1;
    Buffer payload(self, kRndvBytes, Backing::kRegistered);
    std::vector<std::unique_ptr<Completion>> operations;
    for (std::uint64_t i = 0;; ++i) {
        if (i == operations_max)
            ::kill(getpid(), SIGKILL);
        self.progress();
        if (random() % 8 == 0) {
            const uct_tag_t tag = 1000 + id;
            const uct_iov_t iov = payload.iov(0, 1 + random() % kRndvBytes);
            if (operations.empty())
                fill_pattern(payload.span(), tag);
            operations.push_back(std::make_unique<Completion>());
            if (random() % 2 == 0) {
                const auto handle =
                    uct_ep_tag_rndv_zcopy(ep, tag, nullptr, 0, &iov, 1, 0, operations.back().get());
                static_cast<void>(handle);
            } else {
                static_cast<void>(
                    uct_ep_tag_eager_zcopy(ep, tag, 0, &iov, 1, 0, operations.back().get()));
            }
            continue;
        }
        const std::size_t most = random() % 4 == 0 ? 4000 : 60;
        Bytes message(sizeof(Numbered) + random() % most);
        const Numbered numbered{id, number};
        std::memcpy(message.data(), &numbered, sizeof numbered);
        fill_pattern(std::span(message).subspan(sizeof numbered), number);
        if (send_am_bytes(ep, kNumber, message) == UCS_OK)
            ++number;
    }
}

class Kill : public ProcessTest {};

TEST_F(Kill, victims_at_random_points_disturb_nobody) {
    const std::uint64_t seed = seed_of_run();
    const int rounds = rounds_of_run(200);
    SCOPED_TRACE("replay with TAGWIRE_TEST_SEED=" + std::to_string(seed));
    std::mt19937_64 random(seed);

    Child survivor([&](Channel& control) { be_survivor(control, seed); });
    const auto address = survivor.channel().receive();
    ASSERT_TRUE(address.has_value());
    Child bystander([&](Channel& control) { be_bystander(control, *address); });
    ASSERT_TRUE(bystander.channel().await_signal());

    for (int round = 0; round < rounds; ++round) {
        const bool kills_itself = random() % 2 == 0;
        const std::uint64_t operations_max = kills_itself ? random() % 2000 : ~std::uint64_t{0};
        const auto id = static_cast<std::uint64_t>(round);
        Child victim([&](Channel& control) { be_victim(control, *address, id, operations_max); });
        if (!kills_itself) {
            const bool early = random() % 4 == 0;  // even before it is ready
            if (!early) {
                ASSERT_TRUE(victim.channel().await_signal());
            }
            spin_ns(random() % 4'000'000);
            victim.signal(SIGKILL);
        }
        ASSERT_EQ(128 + SIGKILL, victim.join()) << "round " << round;
    }

    bystander.channel().signal();
    const auto pongs = bystander.channel().receive_value<std::uint64_t>();
    ASSERT_TRUE(pongs.has_value());
    EXPECT_GT(*pongs, static_cast<std::uint64_t>(rounds));
    survivor.channel().signal();
    const auto report = survivor.channel().receive_value<Report>();
    ASSERT_TRUE(report.has_value()) << "the survivor ended with " << survivor.join();
    EXPECT_EQ(0, survivor.join());
    bystander.channel().signal();
    EXPECT_EQ(0, bystander.join());
    EXPECT_EQ(report->connections, report->errors) << "a death was not reported, or twice";
    EXPECT_GT(report->hellos, static_cast<std::uint64_t>(rounds) / 4);
    EXPECT_GT(report->numbers, static_cast<std::uint64_t>(rounds));
    std::printf(
        "%d victims: %llu said hello, %llu connected to, %llu numbers, %llu receives, "
        "%llu pings\n",
        rounds, static_cast<unsigned long long>(report->hellos),
        static_cast<unsigned long long>(report->connections),
        static_cast<unsigned long long>(report->numbers),
        static_cast<unsigned long long>(report->receives), static_cast<unsigned long long>(*pongs));
}

TEST_F(Kill, everybody_at_once_leaves_nothing) {
    std::mt19937_64 random(seed_of_run());
    for (int round = 0; round < rounds_of_run(10); ++round) {
        Child survivor([&](Channel& control) { be_survivor(control, 1); });
        const auto address = survivor.channel().receive();
        ASSERT_TRUE(address.has_value());
        std::vector<std::unique_ptr<Child>> victims;
        for (std::uint64_t id = 0; id < 3; ++id) {
            victims.push_back(std::make_unique<Child>([&, id](Channel& control) {
                be_victim(control, *address, id, ~std::uint64_t{0});
            }));
        }
        spin_ns(random() % 20'000'000);
        survivor.kill_now();
        for (const auto& victim : victims)
            victim->kill_now();
    }
}

}  // namespace
}  // namespace tagwire::test
