// SPDX-License-Identifier: BSD-3-Clause
#include "star.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace tagwire::test {

namespace {

constexpr int kPlayPatienceMs = 300'000;  // a loaded machine takes its time, a hang takes for ever
constexpr std::uint8_t kStarPing = 0;
constexpr uct_tag_t kPingTag = 7;
constexpr std::size_t kPingBytes = 50'000;

/// One end of a connection, however the transport makes it.
class Line {
  public:
    explicit Line(Entity& self) : self_(self) {
        if (self.offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE))
            return;
        uct_ep_params_t params = {};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = self.iface();
        uct_ep_h ep = nullptr;
        require_ok(uct_ep_create(&params, &ep), "uct_ep_create");
        ep_ = Endpoint(ep);
    }

    [[nodiscard]] Bytes address() const {
        if (ep_.get() == nullptr)
            return pack({self_.device_address(), self_.iface_address()});
        Bytes own(self_.attr().ep_addr_len);
        require_ok(uct_ep_get_address(ep_, reinterpret_cast<uct_ep_addr_t*>(own.data())),
                   "uct_ep_get_address");
        return pack({self_.device_address(), own});
    }

    void connect(const Bytes& address) {
        const std::vector<Bytes> parts = unpack(address);
        if (ep_.get() == nullptr) {
            ep_ = connect_to_address(self_, parts.at(0), parts.at(1));
            return;
        }
        require_ok(uct_ep_connect_to_ep(
                       ep_, reinterpret_cast<const uct_device_addr_t*>(parts.at(0).data()),
                       reinterpret_cast<const uct_ep_addr_t*>(parts.at(1).data())),
                   "uct_ep_connect_to_ep");
    }

    [[nodiscard]] uct_ep_h ep() const { return ep_; }
    void close() { ep_.reset(); }

  private:
    Entity& self_;
    Endpoint ep_;
};

bool await(const Channel& channel) {
    return channel.receive(kPlayPatienceMs).has_value();
}

/// Tells the test that this role came so far, and goes on when that says so.
void meet(const Channel& control) {
    control.signal();
    if (!await(control))
        throw std::runtime_error("the test went away");
}

bool patiently(Entity& self, const std::function<bool()>& done) {
    return progress_until(self, done, kPlayPatienceMs);
}

// ---- The victim of a scene

struct Setting {
    const std::string& transport;
    const EntityOptions& options;
};

void be_victim(Channel& control, const Setting& setting, const ScenePlan& plan, unsigned number) {
    Entity self(resource_of(setting.transport), setting.options);
    self.record_am(static_cast<std::uint8_t>(number));
    const std::unique_ptr<Scene> scene = plan.make();
    Line line(self);
    control.send(pack({line.address(), scene->props(self)}));
    const auto address = control.receive(kPlayPatienceMs);
    line.connect(address.value());
    const Stage stage{self, line.ep(), number, {}};
    scene->prepare_as_victim(stage);
    meet(control);
    scene->act_as_victim(stage);
    meet(control);
    scene->last_words(stage);
    control.send_value(::testing::Test::HasFailure());
    await(control);  // its death comes first
}

// ---- The bystander, which answers each message by one and a rendezvous

void be_bystander(Channel& control, const Setting& setting) {
    Entity self(resource_of(setting.transport), setting.options);
    self.record_am(kStarPing);
    Line line(self);
    control.send(pack({line.address(), {}}));
    line.connect(control.receive(kPlayPatienceMs).value());
    meet(control);
    const bool has_tags = self.offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
    const Buffer payload = make_payload(self, kPingBytes, 3);
    const uct_iov_t iov = payload.iov();
    std::size_t answered = 0;
    while (!control.has_message()) {
        self.progress();
        sched_yield();
        if (answered == self.am.size())
            continue;
        Completion completion;
        if (has_tags) {
            ucs_status_ptr_t handle = nullptr;
            EXPECT_TRUE(patiently(self, [&] {
                handle =
                    uct_ep_tag_rndv_zcopy(line.ep(), kPingTag, nullptr, 0, &iov, 1, 0, &completion);
                return UCS_PTR_STATUS(handle) != UCS_ERR_NO_RESOURCE;
            }));
            ASSERT_FALSE(UCS_PTR_IS_ERR(handle));
            EXPECT_TRUE(patiently(self, [&] { return completion.calls == 1; }))
                << facts_of(self, line.ep());
        }
        EXPECT_EQ(UCS_OK, retry(self, [&] {
                      return send_am_bytes(line.ep(), kStarPing, self.am.at(answered).bytes);
                  }));
        ++answered;
    }
    await(control);
    EXPECT_TRUE(self.errors.empty()) << "the survivor was taken for dead";
}

// ---- The survivor

class StarSurvivor {
  public:
    StarSurvivor(const Setting& setting, const std::vector<ScenePlan>& plans)
        : self_(resource_of(setting.transport), setting.options), plans_(plans) {
        self_.record_am(kStarPing);
        lines_.emplace_back(self_);
        for (unsigned i = 1; i <= plans.size(); ++i) {
            self_.record_am(static_cast<std::uint8_t>(i));
            lines_.emplace_back(self_);
            scenes_.push_back(plans[i - 1].make());
        }
        self_.on_error = [this](const PeerError& error) { take_error(error); };
    }

    [[nodiscard]] Bytes addresses() const {
        std::vector<Bytes> all;
        for (const Line& line : lines_)
            all.push_back(line.address());
        return pack(all);
    }

    void connect(const std::vector<Bytes>& peers) {
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            const std::vector<Bytes> words = unpack(peers.at(i));
            lines_[i].connect(words.at(0));
            if (i > 0) {
                stages_.push_back({self_, lines_[i].ep(), static_cast<unsigned>(i),
                                   words.size() > 1 ? words[1] : Bytes{}});
            }
        }
        errors_.resize(stages_.size());
    }

    void act(const Channel& control) {
        each([](Scene& scene, const Stage& stage) { scene.act(stage); });
        expect_pong();
        meet(control);  // the others begin: what they match was posted before
        ping();
        expect_pong();
        EXPECT_TRUE(
            until_all([](Scene& scene, const Stage& stage) { return scene.is_set(stage); }));
        control.signal();
        EXPECT_TRUE(patiently(self_, [&] { return control.has_message(); }));
        await(control);
    }

    void live_on() {
        each([](Scene& scene, const Stage& stage) { scene.it_died(stage); });
        EXPECT_TRUE(until_all([this](Scene& scene, const Stage& stage) {
            return errors_[stage.number - 1] > 0 && scene.is_over(stage);
        }));
        each([this](Scene& scene, const Stage& stage) {
            EXPECT_EQ(1, errors_[stage.number - 1]);
            scene.check(stage);
        });
        ping();
        expect_pong();
    }

    void close() {
        for (const Stage& stage : stages_)
            lines_[stage.number].close();
        for (const auto& scene : scenes_)
            scene->after_close(self_);
        ping();
        if (fact_of(self_, "rendezvous_under_way") >= 0) {
            // Queue pairs go when what they took has come back; dc has endpoints to answer by.
            const bool has_own_qps = fact_of(self_, "qps_per_peer") > 0;
            EXPECT_TRUE(
                patiently(self_, [&] { return !has_own_qps || fact_of(self_, "endpoints") == 1; }));
            EXPECT_EQ(0, fact_of(self_, "receive_buffers_held"));
            EXPECT_EQ(0, fact_of(self_, "rendezvous_under_way"));
            constexpr long kBatch = 64;  // fewer are posted together with later ones
            EXPECT_LT(
                fact_of(self_, "receive_buffers_wanted") - fact_of(self_, "receive_buffers_posted"),
                kBatch);
        }
        EXPECT_TRUE(is_bystander_alive_);
    }

  private:
    template <class Action>
    void each(Action&& action) {
        for (const Stage& stage : stages_) {
            SCOPED_TRACE(plans_[stage.number - 1].name);
            action(*scenes_[stage.number - 1], stage);
        }
    }

    template <class Condition>
    bool until_all(Condition&& condition) {
        const Stage* waits_for = nullptr;
        const bool done = patiently(self_, [&] {
            waits_for = nullptr;
            for (const Stage& stage : stages_)
                if (!condition(*scenes_[stage.number - 1], stage))
                    waits_for = &stage;
            return waits_for == nullptr;
        });
        if (waits_for != nullptr)
            ADD_FAILURE() << plans_[waits_for->number - 1].name << " hangs";
        return done;
    }

    void take_error(const PeerError& error) {
        EXPECT_NE(UCS_OK, error.status);
        is_bystander_alive_ = is_bystander_alive_ && error.ep != lines_[0].ep();
        for (const Stage& stage : stages_) {
            if (stage.peer == error.ep) {
                SCOPED_TRACE(plans_[stage.number - 1].name);
                ++errors_[stage.number - 1];
                EXPECT_TRUE(scenes_[stage.number - 1]->has_endpoint_ended(stage))
                    << "the error is told before all operations ended";
                EXPECT_LT(uct_ep_am_short(stage.peer, kStarPing, 0, nullptr, 0), UCS_OK);
                EXPECT_NE(UCS_ERR_NO_RESOURCE,
                          uct_ep_am_short(stage.peer, kStarPing, 0, nullptr, 0));
            }
        }
    }

    /// Long before ping(): a device does not look at a receive while messages that nobody expected
    /// are on their way to us, and what comes then is unexpected, too.
    void expect_pong() {
        pong_ = std::make_unique<Receive>(self_, kPingBytes);
        if (self_.offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY)) {
            EXPECT_EQ(UCS_OK, pong_->post(kPingTag));
        }
    }

    /// A message to the bystander and back, and a rendezvous.
    void ping() {
        const Receive& receive = *pong_;
        const bool has_tags = self_.offers(UCT_IFACE_FLAG_TAG_RNDV_ZCOPY);
        const auto pongs = [&] {
            return std::count_if(self_.am.begin(), self_.am.end(),
                                 [](const AmMessage& message) { return message.id == kStarPing; });
        };
        const auto before = pongs();
        const Bytes message = pattern(100, ++pings_);
        EXPECT_EQ(UCS_OK,
                  retry(self_, [&] { return send_am_bytes(lines_[0].ep(), kStarPing, message); }));
        EXPECT_TRUE(patiently(
            self_, [&] { return pongs() == before + 1 && (!has_tags || receive.completed == 1); }))
            << "the bystander does not answer: " << facts_of(self_, lines_[0].ep());
        if (has_tags) {
            EXPECT_EQ(UCS_OK, receive.status);
            EXPECT_TRUE(has_pattern(receive.received(), 3));
        }
    }

    Entity self_;
    const std::vector<ScenePlan>& plans_;
    std::vector<std::unique_ptr<Scene>> scenes_;
    std::vector<Line> lines_;  // the first is the bystander's
    std::vector<Stage> stages_;
    std::vector<int> errors_;
    std::unique_ptr<Receive> pong_;
    std::uint64_t pings_ = 0;
    bool is_bystander_alive_ = true;
};

void be_survivor(Channel& control, const Setting& setting, const std::vector<ScenePlan>& plans) {
    StarSurvivor survivor(setting, plans);
    control.send(survivor.addresses());
    survivor.connect(unpack(control.receive(kPlayPatienceMs).value()));
    meet(control);
    survivor.act(control);
    meet(control);  // its victims have their last words, and die
    survivor.live_on();
    survivor.close();
    meet(control);  // the bystander leaves first
}

/// All that came so far go on.
void release(std::vector<std::unique_ptr<Child>>& children) {
    for (const auto& child : children)
        child->channel().signal();
}

}  // namespace

void play(const std::string& transport, const EntityOptions& options,
          const std::vector<ScenePlan>& plans) {
    const Setting setting{transport, options};
    Child survivor([&](Channel& control) { be_survivor(control, setting, plans); });
    // The bystander first, then the victims.
    std::vector<std::unique_ptr<Child>> others;
    others.push_back(
        std::make_unique<Child>([&](Channel& control) { be_bystander(control, setting); }));
    for (unsigned i = 1; i <= plans.size(); ++i) {
        others.push_back(std::make_unique<Child>(
            [&, i](Channel& control) { be_victim(control, setting, plans[i - 1], i); }));
    }
    const auto offers = survivor.channel().receive(kPlayPatienceMs);
    ASSERT_TRUE(offers.has_value()) << "the survivor ended with " << survivor.join();
    const std::vector<Bytes> offered = unpack(*offers);
    std::vector<Bytes> answers;
    for (std::size_t i = 0; i < others.size(); ++i) {
        const auto answer = others[i]->channel().receive(kPlayPatienceMs);
        ASSERT_TRUE(answer.has_value()) << "no address of process " << i;
        answers.push_back(*answer);
        others[i]->channel().send(offered.at(i));
    }
    survivor.channel().send(pack(answers));
    // Connected: the play begins.
    for (const auto& other : others)
        ASSERT_TRUE(await(other->channel()));
    for (int step = 0; step < 2; ++step) {  // the survivor is connected; it has acted
        ASSERT_TRUE(await(survivor.channel())) << "the survivor ended with " << survivor.join();
        survivor.channel().signal();
    }
    release(others);
    for (std::size_t i = 1; i < others.size(); ++i)
        ASSERT_TRUE(await(others[i]->channel())) << plans[i - 1].name;
    for (int step = 0; step < 2; ++step) {  // all is set; it is quiet
        ASSERT_TRUE(await(survivor.channel())) << "the survivor ended with " << survivor.join();
        if (step == 0)
            survivor.channel().signal();
    }
    for (std::size_t i = 1; i < others.size(); ++i) {
        others[i]->channel().signal();
        // Nothing comes of one that has killed itself.
        const auto has_failed = others[i]->channel().receive(kPlayPatienceMs);
        EXPECT_FALSE(has_failed && *has_failed != Bytes(1)) << plans[i - 1].name;
    }
    for (std::size_t i = 1; i < others.size(); ++i)
        others[i]->signal(SIGKILL);
    for (std::size_t i = 1; i < others.size(); ++i)
        EXPECT_EQ(128 + SIGKILL, others[i]->join(kPlayPatienceMs)) << plans[i - 1].name;
    survivor.channel().signal();
    EXPECT_TRUE(await(survivor.channel()));
    others[0]->channel().signal();
    EXPECT_EQ(0, others[0]->join(kPlayPatienceMs));
    survivor.channel().signal();
    EXPECT_EQ(0, survivor.join(kPlayPatienceMs));
}

void die() {
    ::kill(getpid(), SIGKILL);
    std::abort();
}

}  // namespace tagwire::test
