// SPDX-License-Identifier: BSD-3-Clause
// Polite progress: a worker yields, or naps, while a peer makes no calls. A peer that is not
// progressed here stands for one that has no processor, or that computes. A long yield that the
// worker is told of stands for programs of others that keep the processor.
#include <uct/api/tagwire_uct.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "common/strangers.hpp"
#include "fixture.hpp"

namespace tagwire::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHangs(10);  // a nap that lasts so long was ended by nothing

std::uint64_t now_of_counters() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
            .count());
}

std::uint64_t polite_count(const Entity& entity, const char* name) {
    tagwire_uct_counter_t counters[16];
    unsigned count = 16;
    EXPECT_EQ(UCS_OK, tagwire_uct_worker_query_counters(entity.worker(), counters, &count));
    for (unsigned i = 0; i < count; ++i)
        if (std::strcmp(counters[i].name, name) == 0)
            return counters[i].value;
    ADD_FAILURE() << "no counter '" << name << "'";
    return 0;
}

/// As if yields had given the processor to programs of others, which keep it for a second each: for
/// longer than a case lasts the worker naps instead.
void tell_of_strangers(const Entity& entity) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    for (int i = 0; i < 2; ++i) {
        const std::uint64_t now = now_of_counters();
        EXPECT_EQ(UCS_OK, tagwire_uct_worker_was_away(entity.worker(), TAGWIRE_UCT_AWAY_YIELD,
                                                      now - kSecond, now));
    }
}

/// Stands in front of the interface's own event_arm, as long as it lives. One at a time.
class ArmHook {
  public:
    using Hook = std::function<ucs_status_t(unsigned)>;

    /// `instead` may call original().
    ArmHook(const Entity& entity, Hook instead)
        : iface_(entity.iface()),
          original_(iface_->ops.iface_event_arm),
          instead_(std::move(instead)) {
        active = this;
        iface_->ops.iface_event_arm = [](uct_iface_h, unsigned events) {
            return active->instead_(events);
        };
    }
    ~ArmHook() { iface_->ops.iface_event_arm = original_; }
    ArmHook(const ArmHook&) = delete;
    ArmHook& operator=(const ArmHook&) = delete;
    ucs_status_t original(unsigned events) const { return original_(iface_, events); }

  private:
    static inline ArmHook* active = nullptr;
    const uct_iface_h iface_;
    decltype(uct_iface_ops_t::iface_event_arm) const original_;
    const Hook instead_;
};

/// One more interface of an entity's worker, on the same resource.
class SecondIface {
  public:
    explicit SecondIface(const Entity& entity) : attr_(entity.attr()) {
        const Resource& resource = entity.resource();
        uct_iface_config_t* config = nullptr;
        require_ok(uct_md_iface_config_read(entity.md(), resource.transport.c_str(), nullptr,
                                            nullptr, &config),
                   "uct_md_iface_config_read");
        uct_iface_params_t params = {};
        params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                            UCT_IFACE_PARAM_FIELD_FEATURES;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = resource.transport.c_str();
        params.mode.device.dev_name = resource.device.c_str();
        params.features = UCT_IFACE_FEATURE_AM;
        const ucs_status_t status =
            uct_iface_open(entity.md(), entity.worker(), &params, config, &iface_);
        uct_config_release(config);
        require_ok(status, "uct_iface_open");
        const auto take = [](void* arg, void*, std::size_t, unsigned) {
            ++static_cast<SecondIface*>(arg)->am_count;
            return UCS_OK;
        };
        uct_iface_set_am_handler(iface_, kId, take, this, 0);
        uct_iface_progress_enable(iface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    }
    ~SecondIface() { uct_iface_close(iface_); }
    SecondIface(const SecondIface&) = delete;
    SecondIface& operator=(const SecondIface&) = delete;

    uct_iface_h iface() const { return iface_; }
    /// An endpoint of `from` to it.
    Endpoint connect_from(Entity& from) const {
        Bytes device(attr_.device_addr_len), address(attr_.iface_addr_len);
        require_ok(uct_iface_get_device_address(
                       iface_, reinterpret_cast<uct_device_addr_t*>(device.data())),
                   "uct_iface_get_device_address");
        require_ok(
            uct_iface_get_address(iface_, reinterpret_cast<uct_iface_addr_t*>(address.data())),
            "uct_iface_get_address");
        return connect_to_address(from, device, address);
    }

    std::uint64_t am_count = 0;

  private:
    const uct_iface_attr_t attr_;
    uct_iface_h iface_ = nullptr;
};

/// Between two entities: the sender is polite, the receiver is its peer.
class Polite : public Contract {
  protected:
    void SetUp() override {
        Contract::SetUp();
        tagwire::test::meet_nobody(true);
        know_each_other();
    }
    void TearDown() override {
        tagwire::test::meet_nobody(false);
        Contract::TearDown();
    }
    void know_each_other() {
        if (!sender().offers(UCT_IFACE_FLAG_AM_SHORT))
            GTEST_SKIP() << "not offered: UCT_IFACE_FLAG_AM_SHORT";
        // Whatever TAGWIRE_PROGRESS says.
        ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(sender().worker(), 1));
        // It would tell that it waits on this processor, where the sender runs now.
        ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(receiver().worker(), 0));
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 0, nullptr, 0); }));
        ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(back_ep(), kId, 0, nullptr, 0); }));
        ASSERT_TRUE(until([&] { return receiver().am_count == 1 && sender().am_count == 1; }));
        drain();
        sender().keep_record = receiver().keep_record = false;
    }

    bool sees_peers() const { return GetParam().resource.transport == "sm"; }
    /// The peer is known to be on this host.
    bool yields_first() const { return sees_peers() || GetParam().resource.transport == "tcp"; }
    std::uint64_t yields() { return polite_count(sender(), "yields"); }
    std::uint64_t naps() { return polite_count(sender(), "naps"); }
    std::uint64_t looks() { return polite_count(sender(), "looks"); }

    std::uint64_t times_away() { return yields() + naps(); }

    /// Progress of the sender alone: its peer stands.
    bool alone_until(const std::function<bool()>& done) {
        return driven_until(done, [this] { sender().progress(); });
    }
    static bool driven_until(const std::function<bool()>& done, const std::function<void()>& step) {
        for (std::uint64_t i = 0; i < kStepsMax; ++i) {
            if (done())
                return true;
            step();
        }
        return done();
    }
    /// Naps go on for some milliseconds only, which may be over before the next call on a busy
    /// machine.
    bool naps_again() {
        constexpr unsigned kCalls = 1000;
        const std::uint64_t before = naps();
        unsigned calls = 0;
        return alone_until([&] {
            if (calls++ % kCalls == 0)
                tell_of_strangers(sender());
            return naps() > before;
        });
    }
    /// For so long it would have napped or yielded some times.
    void look_for_a_while() {
        const std::uint64_t before = looks();
        EXPECT_TRUE(alone_until([&] { return looks() >= before + 50; }));
    }
    /// The message arrives at the sender.
    void send_back() {
        EXPECT_EQ(UCS_OK, retry_alone(receiver(), [&] {
                      return uct_ep_am_short(back_ep(), kId, 1, nullptr, 0);
                  }));
    }
    /// Ready for a nap, which acknowledgements and timers may put off. UCS_ERR_BUSY: it never is.
    ucs_status_t prepare_nap(tagwire_uct_nap_t* nap) {
        ucs_status_t status = UCS_ERR_BUSY;
        EXPECT_TRUE(alone_until([&] {
            status = tagwire_uct_worker_prepare_nap(sender().worker(), nap);
            return status != UCS_ERR_BUSY;
        }));
        return status;
    }
    /// Sleeps without a bound, as far as that can be told. False: nothing ended the nap.
    bool nap_without_bound(const tagwire_uct_nap_t& nap) {
        const Clock::time_point begin = Clock::now();
        EXPECT_EQ(UCS_OK, tagwire_uct_nap_sleep(&nap, std::chrono::nanoseconds(kHangs).count()));
        const Clock::time_point end = Clock::now();
        const std::uint64_t ns = now_of_counters();
        EXPECT_EQ(UCS_OK,
                  tagwire_uct_worker_was_away(sender().worker(), TAGWIRE_UCT_AWAY_NAP, ns, ns));
        return end - begin < kHangs;
    }
};

INSTANTIATE_TEST_SUITE_P(Contract, Polite, ::testing::ValuesIn(pair_setups()), setup_label);

// ---- Whom it waits for

// A yield helps one that is on this host.
TEST_P(Polite, it_goes_away_for_a_peer_that_makes_no_calls) {
    const std::uint64_t before = times_away();
    EXPECT_TRUE(alone_until([&] { return times_away() >= before + 3; }));
    if (yields_first()) {
        EXPECT_EQ(naps(), 0U);
    }
}

TEST_P(Polite, it_spins_for_a_peer_that_makes_calls) {
    if (!sees_peers())
        GTEST_SKIP() << "not offered: sight of peers";
    const std::uint64_t looked = looks(), before = times_away();
    EXPECT_TRUE(driven_until([&] { return looks() >= looked + 50; }, [&] { step(); }));
    EXPECT_EQ(times_away(), before);
}

TEST_P(Polite, it_naps_for_a_peer_that_makes_no_calls_beside_strangers) {
    tell_of_strangers(sender());
    const std::uint64_t napped = naps(), yielded = yields();
    EXPECT_TRUE(alone_until([&] { return naps() >= napped + 10; }));
    EXPECT_EQ(yields(), yielded);
    // Messages go both ways as before.
    send_back();
    EXPECT_TRUE(alone_until([&] { return sender().am_count == 2; }));
    ASSERT_EQ(UCS_OK, retry([&] { return uct_ep_am_short(ep(), kId, 1, nullptr, 0); }));
    EXPECT_TRUE(until([&] { return receiver().am_count == 2; }));
}

// ---- The decision is the program's

TEST_P(Polite, a_worker_that_is_told_to_spin_neither_yields_nor_naps) {
    ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(sender().worker(), 0));
    tell_of_strangers(sender());
    const std::uint64_t before = times_away();
    for (int i = 0; i < 20000; ++i)
        sender().progress();
    EXPECT_EQ(times_away(), before);
    ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(sender().worker(), 1));
    EXPECT_TRUE(naps_again());
}

/// The handler of a program, which does as it is told a while later.
struct AwayWishes {
    int yields = 0, naps = 0;
    static void note(void* arg, tagwire_uct_away_t how) {
        auto& self = *static_cast<AwayWishes*>(arg);
        ++(how == TAGWIRE_UCT_AWAY_NAP ? self.naps : self.yields);
    }
};

TEST_P(Polite, a_handler_is_told_instead_and_what_it_did_counts) {
    AwayWishes wishes;
    const std::uint64_t before = times_away(), yielded = yields(), napped = naps();
    tagwire_uct_worker_set_away_handler(sender().worker(), &AwayWishes::note, &wishes);
    EXPECT_TRUE(alone_until([&] { return wishes.yields + wishes.naps >= 5; }));
    EXPECT_EQ(times_away(), before) << "the worker did it itself";
    if (yields_first()) {
        EXPECT_EQ(wishes.naps, 0);
    }
    const std::uint64_t now = now_of_counters();
    tagwire_uct_worker_was_away(sender().worker(), TAGWIRE_UCT_AWAY_YIELD, now - 500, now);
    EXPECT_EQ(yields(), yielded + 1);
    tell_of_strangers(sender());
    wishes = {};
    EXPECT_TRUE(alone_until([&] { return wishes.naps >= 5; }));
    EXPECT_EQ(naps(), napped) << "the worker did it itself";
    tagwire_uct_worker_set_away_handler(sender().worker(), nullptr, nullptr);
    EXPECT_TRUE(naps_again());
}

/// In the callback queue behind the interfaces, so that what a look asks for comes a call later.
TEST_P(Polite, a_wish_that_is_out_of_date_is_dropped) {
    uct_worker_cb_id_t id = UCS_CALLBACKQ_ID_NULL;
    uct_iface_progress_disable(sender().iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    uct_worker_progress_register_safe(
        sender().worker(), [](void*) { return 0U; }, nullptr, 0, &id);
    uct_iface_progress_enable(sender().iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    std::uint64_t late = 0;
    for (int round = 0; round < 50; ++round) {
        const std::uint64_t before = looks();
        ASSERT_TRUE(alone_until([&] { return looks() > before; }));
        ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(sender().worker(), 0));
        const std::uint64_t yielded = yields();
        for (int i = 0; i < 100; ++i)
            sender().progress();
        late += yields() - yielded;
        ASSERT_EQ(UCS_OK, tagwire_uct_worker_set_polite(sender().worker(), 1));
    }
    EXPECT_EQ(late, 0U) << "yielded after it was told to spin";
    uct_worker_progress_unregister_safe(sender().worker(), &id);
}

TEST_P(Polite, a_worker_that_threads_may_share_naps_only_by_a_handler) {
    EntityOptions options;
    options.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    reopen(options, {});
    know_each_other();
    if (yields_first()) {
        EXPECT_TRUE(alone_until([&] { return yields() > 0; }));
    }
    tell_of_strangers(sender());
    look_for_a_while();
    EXPECT_EQ(naps(), 0U) << "somebody's lock is held";
    AwayWishes wishes;
    tagwire_uct_worker_set_away_handler(sender().worker(), &AwayWishes::note, &wishes);
    tell_of_strangers(sender());
    EXPECT_TRUE(alone_until([&] { return wishes.naps > 0; }));
    tagwire_uct_worker_set_away_handler(sender().worker(), nullptr, nullptr);
}

// ---- Naps that would not be safe

TEST_P(Polite, no_nap_on_an_interface_that_cannot_be_armed) {
    const SecondIface second(sender());  // one alone may need no descriptor
    tell_of_strangers(sender());
    for (const ucs_status_t answer : {UCS_ERR_UNSUPPORTED, UCS_ERR_BUSY, UCS_ERR_IO_ERROR}) {
        const ArmHook hook(sender(), [answer](unsigned) { return answer; });
        const std::uint64_t before = naps();
        look_for_a_while();
        EXPECT_EQ(naps(), before);
    }
    EXPECT_TRUE(naps_again());
}

TEST_P(Polite, no_nap_beside_an_interface_that_the_program_progresses_itself) {
    const SecondIface second(sender());
    uct_iface_progress_disable(second.iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    tell_of_strangers(sender());
    const std::uint64_t before = naps();
    look_for_a_while();
    EXPECT_EQ(naps(), before);
    uct_iface_progress_enable(second.iface(), UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    EXPECT_TRUE(naps_again());
}

TEST_P(Polite, no_nap_while_a_callback_of_the_program_polls_other_things) {
    int calls = 0;
    uct_worker_cb_id_t id = UCS_CALLBACKQ_ID_NULL;
    uct_worker_progress_register_safe(
        sender().worker(),
        [](void* arg) {
            ++*static_cast<int*>(arg);
            return 0U;
        },
        &calls, UCS_CALLBACKQ_FLAG_FAST, &id);
    tell_of_strangers(sender());
    const std::uint64_t before = naps();
    look_for_a_while();
    EXPECT_EQ(naps(), before);
    EXPECT_GT(calls, 0);
    uct_worker_progress_unregister_safe(sender().worker(), &id);
    EXPECT_TRUE(naps_again());
}

TEST_P(Polite, no_nap_in_a_callback) {
    tell_of_strangers(sender());
    std::uint64_t slept = 0;
    int callbacks = 0;
    sender().on_am = [&](const AmMessage&) {
        const std::uint64_t before = naps();
        for (int i = 0; i < 20000; ++i)
            uct_worker_progress(sender().worker());
        slept += naps() - before;
        ++callbacks;
        return UCS_OK;
    };
    for (int i = 0; i < 5; ++i) {
        send_back();
        ASSERT_TRUE(alone_until([&] { return callbacks == i + 1; }));
        drain();
    }
    EXPECT_EQ(slept, 0U);
    sender().on_am = {};
}

// ---- The end of a nap. It has no bound here, so that something else ends it.

TEST_P(Polite, a_message_between_the_arming_and_the_sleep_ends_the_nap) {
    for (std::uint64_t round = 2; round < 20; ++round) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        send_back();
        ASSERT_TRUE(nap_without_bound(nap)) << "round " << round;
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
}

TEST_P(Polite, a_message_to_either_of_two_interfaces_ends_the_nap) {
    TW_NEED(UCT_IFACE_FLAG_CONNECT_TO_IFACE);
    if (device_matches())
        GTEST_SKIP() << "not offered: endpoints to an interface without tags";
    SecondIface second(sender());
    Endpoint to_second = second.connect_from(receiver());
    const auto send_to_second = [&] { return uct_ep_am_short(to_second, kId, 2, nullptr, 0); };
    ASSERT_EQ(UCS_OK, retry(send_to_second));
    ASSERT_TRUE(until([&] { return second.am_count == 1; }));
    drain();
    for (std::uint64_t round = 2; round < 12; ++round) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        ASSERT_EQ(UCS_OK, retry_alone(receiver(), send_to_second));
        ASSERT_TRUE(nap_without_bound(nap)) << "round " << round;
        ASSERT_TRUE(until([&] { return second.am_count == round; }));
        drain();
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        send_back();
        ASSERT_TRUE(nap_without_bound(nap)) << "round " << round;
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
    to_second.reset();
}

TEST_P(Polite, no_nap_is_prepared_while_a_message_waits) {
    for (std::uint64_t round = 2; round < 20; ++round) {
        send_back();
        tagwire_uct_nap_t nap{};
        const ucs_status_t status = tagwire_uct_worker_prepare_nap(sender().worker(), &nap);
        // Prepared all the same is right, too, if it ends at once.
        if (status == UCS_OK) {
            ASSERT_TRUE(nap_without_bound(nap));
        } else {
            ASSERT_EQ(UCS_ERR_BUSY, status);
        }
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
}

TEST_P(Polite, a_message_that_comes_during_a_nap_ends_it) {
    for (std::uint64_t round = 2; round < 12; ++round) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        // It sleeps already, or is about to.
        std::thread peer([&] { send_back(); });
        const bool is_woken = nap_without_bound(nap);
        peer.join();
        ASSERT_TRUE(is_woken) << "round " << round;
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
}

TEST_P(Polite, another_thread_of_the_program_ends_a_nap_on_a_word) {
    if (!sees_peers())
        GTEST_SKIP() << "not offered: naps on a word";
    for (std::uint64_t round = 2; round < 12; ++round) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        ASSERT_NE(nullptr, nap.word);
        std::thread other([&] { tagwire_uct_worker_wake_naps(sender().worker()); });
        const Clock::time_point begin = Clock::now();
        EXPECT_EQ(UCS_OK, tagwire_uct_nap_sleep(&nap, std::chrono::nanoseconds(kHangs).count()));
        EXPECT_LT(Clock::now() - begin, kHangs) << "round " << round;
        other.join();
        const std::uint64_t ns = now_of_counters();
        tagwire_uct_worker_was_away(sender().worker(), TAGWIRE_UCT_AWAY_NAP, ns, ns);
        // Messages end naps as before.
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        send_back();
        ASSERT_TRUE(nap_without_bound(nap)) << "round " << round;
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
}

TEST_P(Polite, a_nap_that_its_bound_ended_loses_nothing) {
    for (std::uint64_t round = 2; round < 20; ++round) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        ASSERT_EQ(UCS_OK, tagwire_uct_nap_sleep(&nap, 0));
        if (round % 2 == 0)
            send_back();  // before it says that it is back
        const std::uint64_t now = now_of_counters();
        tagwire_uct_worker_was_away(sender().worker(), TAGWIRE_UCT_AWAY_NAP, now, now);
        if (round % 2 != 0)
            send_back();
        ASSERT_TRUE(until([&] { return sender().am_count == round; }));
        drain();
    }
}

/// A sender whose requests wait for room or for acknowledgements may nap. Its peer has made no call
/// until then.
TEST_P(Polite, a_nap_with_requests_pending_ends_when_there_is_room) {
    TW_NEED(UCT_IFACE_FLAG_PENDING);
    struct Waiting : uct_pending_req_t {
        uct_ep_h ep;
        bool is_sent;
    } request{};
    request.ep = ep();
    request.func = [](uct_pending_req_t* self) {
        auto& mine = *static_cast<Waiting*>(self);
        const ucs_status_t status = uct_ep_am_short(mine.ep, kId, 0, nullptr, 0);
        mine.is_sent = status == UCS_OK;
        return status;
    };
    std::uint64_t sent = 1;
    while (sent < 10'000'000 && uct_ep_am_short(ep(), kId, sent, nullptr, 0) == UCS_OK)
        ++sent;
    ASSERT_EQ(UCS_OK, uct_ep_pending_add(ep(), &request, 0));
    std::atomic<bool> may_run = false, is_over = false;
    std::thread peer([&] {
        while (!is_over)
            may_run ? void(receiver().progress()) : std::this_thread::yield();
    });
    bool is_woken = true;
    for (int steps = 0; !request.is_sent && is_woken && steps < 1'000'000; ++steps) {
        tagwire_uct_nap_t nap{};
        sender().progress();
        const ucs_status_t status = tagwire_uct_worker_prepare_nap(sender().worker(), &nap);
        may_run = true;
        // Once it is sent, nothing is to end a nap.
        if (status == UCS_OK && !request.is_sent)
            is_woken = nap_without_bound(nap);
        else
            std::this_thread::yield();
    }
    is_over = true;
    peer.join();
    EXPECT_TRUE(is_woken) << "nothing ended a nap";
    EXPECT_TRUE(request.is_sent);
    EXPECT_TRUE(until([&] { return receiver().am_count == sent + 1; }));
}

/// A message that nobody acknowledges: its owner's own timers end the nap.
TEST_P(Polite, timers_of_this_side_end_a_nap) {
    if (GetParam().resource.transport != "ud")
        GTEST_SKIP() << "not offered: retransmission by software";
    ASSERT_EQ(UCS_OK, uct_ep_am_short(ep(), kId, 1, nullptr, 0));
    for (int i = 0; i < 3; ++i) {
        tagwire_uct_nap_t nap{};
        ASSERT_EQ(UCS_OK, prepare_nap(&nap));
        ASSERT_TRUE(nap_without_bound(nap)) << "nap " << i;
    }
    EXPECT_TRUE(until([&] { return receiver().am_count == 2; }));
}

}  // namespace
}  // namespace tagwire::test
