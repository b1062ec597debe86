// SPDX-License-Identifier: BSD-3-Clause
// A peer is killed with everything under way. A separate program, because it forks before anything
// of the library runs.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "common/child.hpp"
#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLong = 300000;

/// Says hello, and then only progresses.
[[noreturn]] void be_victim(int to_parent, int from_parent, const char* transports) {
    DoomedNode doomed(to_parent, from_parent, transports);
    const Bytes data = pattern(kLong, 1);
    tw_tag_send(doomed.ep(), data.data(), 10, 1, nullptr, nullptr);
    tw_tag_send(doomed.ep(), data.data(), kLong, 2, nullptr, nullptr);
    for (;;)
        doomed.node().progress();
}

[[noreturn]] void be_sending_victim(int to_parent, int from_parent) {
    be_victim(to_parent, from_parent, kill_transports());
}

class MsgKill : public ::testing::Test {
  protected:
    static const char* transports() { return kill_transports(); }
};

TEST_F(MsgKill, a_killed_peer_ends_everything_and_the_worker_goes_on) {
    const Victim victim(be_sending_victim);
    LivingNode living;
    Node& node = *living;
    const tw_ep_h ep = living.meet(victim);
    while (node.counter("rx_unexpected") < 2)
        node.progress();

    const Bytes data = pattern(kLong, 2);
    Bytes buffer(10);
    int marks[6];
    const auto op = [&](int i, std::uint32_t flags) {
        tw_op_t how{};
        how.context = &marks[i];
        how.flags = flags | TW_OP_COMPLETION;
        return how;
    };
    const tw_op_t rndv = op(0, 0), match = op(1, TW_OP_MATCH_COMPLETE), flush = op(2, 0),
                  fence = op(3, TW_OP_FENCE);
    tw_op_t directed = op(4, 0);
    directed.source = ep;
    ASSERT_EQ(tw_tag_send(ep, data.data(), kLong, 5, &rndv, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(ep, data.data(), 10, 5, &match, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_ep_flush(ep, TW_FLUSH_DELIVERED, &flush, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(ep, data.data(), 10, 5, &fence, nullptr), TW_INPROGRESS);
    ASSERT_EQ(tw_tag_recv(node.worker(), buffer.data(), 10, 6, 0, &directed, nullptr),
              TW_INPROGRESS);
    for (int i = 0; i < 1000; ++i)
        node.progress();
    ASSERT_TRUE(node.done.empty());
    victim.kill();
    while (node.failures.empty() || node.done.size() < 5)
        node.progress();
    EXPECT_EQ(node.done.size(), 5U);
    for (int i = 0; i < 5; ++i) {
        const auto found = std::ranges::find_if(
            node.done, [&](const tw_completion_t& done) { return done.context == &marks[i]; });
        ASSERT_NE(found, node.done.end()) << i;
        EXPECT_LT(found->status, TW_OK) << i;
    }
    EXPECT_EQ(node.failures.size(), 1U);
    EXPECT_EQ(tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr), node.failures[0].second);

    // A message that had come in full is still there; one that had come in part is not.
    node.done.clear();
    const tw_op_t late = op(5, 0);
    ASSERT_EQ(tw_tag_recv(node.worker(), buffer.data(), 10, 1, 0, &late, nullptr), TW_INPROGRESS);
    node.progress();
    ASSERT_EQ(node.done.size(), 1U);
    EXPECT_EQ(node.done[0].status, TW_OK);
    EXPECT_EQ(buffer, pattern(10, 1));
    EXPECT_EQ(probe(node.worker(), 2), TW_ERR_NO_MESSAGE);

    // And the worker goes on.
    const Bytes more = pattern(100, 3);
    Bytes received(100);
    ASSERT_GE(tw_tag_send(node.to(node), more.data(), 100, 7, nullptr, nullptr), TW_OK);
    ASSERT_EQ(tw_tag_recv(node.worker(), received.data(), 100, 7, 0, &late, nullptr),
              TW_INPROGRESS);
    node.done.clear();
    while (node.done.empty())
        node.progress();
    EXPECT_EQ(received, more);
}

/// Takes requests, and never replies.
[[noreturn]] void be_silent_victim(int to_parent, int from_parent) {
    DoomedNode doomed(to_parent, from_parent, kill_transports());
    std::size_t count = 0;
    tw_call_register(
        doomed.node().worker(), 1,
        [](void* counted, tw_call_request_t*) { ++*static_cast<std::size_t*>(counted); }, &count);
    tw_tag_send(doomed.ep(), nullptr, 0, 1, nullptr, nullptr);
    for (bool is_told = false;;) {
        doomed.node().progress();
        if (count >= 6 && !std::exchange(is_told, true) && ::write(to_parent, "x", 1) != 1)
            _exit(6);
    }
}

TEST_F(MsgKill, calls_of_a_killed_peer_end_once_each) {
    const Victim victim(be_silent_victim);
    LivingNode living;
    Node& node = *living;
    const tw_ep_h ep = living.meet(victim);
    while (node.counter("rx_unexpected") < 1)
        node.progress();
    const Bytes data = pattern(kLong, 2);
    struct End {
        int times = 0;
        tw_status_t status = TW_OK;
    } ends[6];
    for (std::size_t i = 0; i < std::size(ends); ++i) {
        tw_call_params_t params{};
        params.context = &ends[i];
        params.timeout_ns = i % 2 == 0 ? 0 : 3'600'000'000'000;
        params.done = [](const tw_call_done_t* done) {
            End& end = *static_cast<End*>(done->context);
            ++end.times;
            end.status = done->status;
        };
        ASSERT_EQ(tw_call(ep, 1, data.data(), i < 3 ? 10 : kLong, &params, nullptr), TW_OK);
    }
    pollfd polled{victim.from(), POLLIN, 0};
    while (::poll(&polled, 1, 0) == 0)
        node.progress();
    victim.kill();
    while (std::ranges::any_of(ends, [](const End& end) { return end.times == 0; }))
        node.progress();
    for (int i = 0; i < 1000; ++i)
        node.progress();
    for (const End& end : ends) {
        EXPECT_EQ(end.times, 1);
        EXPECT_LT(end.status, TW_OK);
        EXPECT_NE(end.status, TW_ERR_TIMED_OUT);
    }
}

/// The handler of id 1 keeps everything.
struct KeptAms {
    explicit KeptAms(const Node& at) {
        EXPECT_EQ(tw_am_register(at.worker(), 1, &KeptAms::take, this), TW_OK);
    }
    KeptAms(const KeptAms&) = delete;
    KeptAms& operator=(const KeptAms&) = delete;
    static void take(void* arg, tw_am_t* am) {
        auto& all = static_cast<KeptAms*>(arg)->messages;
        tw_message_h message = nullptr;
        EXPECT_EQ(tw_am_keep(am, &message), TW_OK);
        all.push_back({message, (am->flags & TW_AM_RNDV) != 0, am->length});
    }

    struct Kept {
        tw_message_h message;
        bool is_rndv;
        std::size_t length;
    };
    std::vector<Kept> messages;
};
constexpr std::size_t kAmLengths[] = {10, 5000, 20000, kLong};

[[noreturn]] void be_am_victim(int to_parent, int from_parent, const char* transports) {
    DoomedNode doomed(to_parent, from_parent, transports);
    const KeptAms kept(doomed.node());
    const Bytes data = pattern(kLong, 1);
    for (const std::size_t length : kAmLengths)
        tw_am_send(doomed.ep(), 1, "head", 4, data.data(), length, nullptr, nullptr);
    for (;;)
        doomed.node().progress();
}

TEST_F(MsgKill, active_messages_of_a_killed_peer_stay_and_those_to_it_end) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const Victim victim(
        [](int to_parent, int from_parent) { be_am_victim(to_parent, from_parent, transports()); });
    LivingNode living;
    Node& node = *living;
    KeptAms kept(node);
    const tw_ep_h ep = living.meet(victim);
    const Bytes data = pattern(kLong, 1);
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION | TW_OP_DELIVERY_COMPLETE;
    ASSERT_EQ(tw_am_send(ep, 1, nullptr, 0, data.data(), 10, &how, nullptr), TW_INPROGRESS);
    while (kept.messages.size() < std::size(kAmLengths) || node.done.empty())
        node.progress();
    EXPECT_EQ(node.done[0].status, TW_OK) << "its handler has returned";
    node.done.clear();
    // The victim keeps the first, which is never received; the second waits for its end.
    ASSERT_EQ(tw_am_send(ep, 1, nullptr, 0, data.data(), kLong, &how, nullptr), TW_INPROGRESS);
    how.flags |= TW_OP_FENCE;
    ASSERT_EQ(tw_am_send(ep, 1, "h", 1, data.data(), 10, &how, nullptr), TW_INPROGRESS);
    for (int i = 0; i < 1000; ++i)
        node.progress();
    EXPECT_TRUE(node.done.empty());
    victim.kill();
    while (node.failures.empty() || node.done.size() < 2)
        node.progress();
    EXPECT_EQ(node.done.size(), 2U);
    for (const tw_completion_t& done : node.done)
        EXPECT_LT(done.status, TW_OK);
    for (const KeptAms::Kept& message : kept.messages) {
        Bytes received(message.length);
        EXPECT_EQ(tw_message_recv(node.worker(), message.message, received.data(), message.length,
                                  nullptr, nullptr),
                  message.is_rndv ? TW_ERR_CONNECTION_RESET : TW_OK);
        EXPECT_TRUE(message.is_rndv || received == pattern(message.length, 1));
    }
    EXPECT_NE(node.description().find("unexpected: 0 messages in 0 bytes"), std::string::npos);
    EXPECT_LT(tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr), TW_OK);
}

TEST_F(MsgKill, a_receive_only_worker_hears_of_a_death_awake_and_asleep) {
    TW_SKIP_FORK_BESIDE_THREADS();
    for (const bool sleeps : {false, true}) {
        SCOPED_TRACE(sleeps);
        const Victim victim(be_sending_victim);
        tw_context_params_t params{};
        params.transports = transports();
        tw_context_h context = nullptr;
        ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
        {
            Node node(context);
            const Bytes theirs = victim.start(node.address());
            std::uint64_t id = 0;
            ASSERT_EQ(tw_address_worker_id(theirs.data(), theirs.size(), &id), TW_OK);
            // Messages over rc may overtake what connects our own side, which comes over ud.
            while (node.counter("rx_unexpected") < 2 || node.events.empty())
                node.progress();
            ASSERT_EQ(node.events.size(), 1U);
            EXPECT_EQ(node.events[0], (Node::PeerEvent{id, TW_PEER_UP, TW_OK}));
            victim.kill();
            while (node.events.size() < 2)
                if (sleeps) {
                    ASSERT_EQ(tw_worker_wait(node.worker(), TW_WAIT_SLEEP, UINT64_MAX), TW_OK);
                } else {
                    node.progress();
                }
            EXPECT_EQ(node.events[1].worker_id, id);
            EXPECT_EQ(node.events[1].event, TW_PEER_FAILED);
            EXPECT_TRUE(node.events[1].status == TW_ERR_CONNECTION_RESET ||
                        node.events[1].status == TW_ERR_ENDPOINT_TIMEOUT)
                << tw_status_string(node.events[1].status);
            EXPECT_TRUE(node.failures.empty());
        }
        tw_context_destroy(context);
    }
}

/// Dies after so many calls of progress that did something, in the midst of connecting.
[[noreturn]] void be_early_victim(int to_parent, int from_parent, const char* transports,
                                  unsigned steps) {
    constexpr unsigned kCallsMax = 200'000;
    DoomedNode doomed(to_parent, from_parent, transports);
    for (unsigned calls = 0; steps > 0 && calls < kCallsMax; ++calls)
        steps -= tw_worker_progress(doomed.node().worker()) > 0 ? 1 : 0;
    ::raise(SIGKILL);
    _exit(6);
}

TEST_F(MsgKill, a_death_in_any_phase_of_connecting_is_heard_of) {
    TW_SKIP_FORK_BESIDE_THREADS();
    constexpr unsigned kVictims = 10;
    constexpr std::size_t kOps = 2;  // with each
    // First contact may be by another transport than that of the messages: its bound counts, too.
    const Settings settings({{"TAGWIRE_UD_PEER_TIMEOUT", "500ms"}});
    std::vector<std::unique_ptr<Victim>> victims;
    for (unsigned i = 0; i < kVictims; ++i) {
        victims.push_back(std::make_unique<Victim>([i](int to_parent, int from_parent) {
            be_early_victim(to_parent, from_parent, transports(), i);
        }));
    }
    tw_context_params_t params{};
    params.transports = transports();
    tw_context_h context = nullptr;
    ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
    {
        Node node(context);
        const Bytes data = pattern(kLong, 1);
        std::vector<Bytes> buffers(kVictims, Bytes(10));
        std::size_t begun = 0;
        std::size_t unreachable = 0;
        for (unsigned i = 0; i < kVictims; ++i) {
            const Bytes theirs = victims[i]->start(node.address());
            const tw_ep_params_t ep_params{
                .address = theirs.data(), .address_length = theirs.size(), .user_data = nullptr};
            tw_ep_h ep = nullptr;
            const tw_status_t status = tw_ep_create(node.worker(), &ep_params, &ep);
            if (status != TW_OK) {  // it was dead before
                EXPECT_EQ(status, TW_ERR_UNREACHABLE);
                ++unreachable;
                continue;
            }
            tw_op_t how{};
            how.flags = TW_OP_COMPLETION;
            ASSERT_EQ(tw_tag_send(ep, data.data(), kLong, 5, &how, nullptr), TW_INPROGRESS);
            how.source = ep;
            ASSERT_EQ(tw_tag_recv(node.worker(), buffers[i].data(), 10, 6, 0, &how, nullptr),
                      TW_INPROGRESS);
            begun += kOps;
        }
        while (node.done.size() < begun || node.failures.size() + unreachable < kVictims)
            node.progress();
        EXPECT_EQ(node.done.size(), begun);
        EXPECT_EQ(node.failures.size() + unreachable, kVictims);
        for (const tw_completion_t& done : node.done)
            EXPECT_LT(done.status, TW_OK);
    }
    for (const auto& victim : victims)
        victim->kill();
    tw_context_destroy(context);
}

/// Reports of completions and failures, and where they come.
struct KillTold {
    const char* where = "nowhere";
    int ended = 0;
    std::vector<std::string> failed_in;
    std::vector<int> ended_before;
};

TEST_F(MsgKill, a_failure_that_arming_sees_is_told_in_progress_behind_the_ends) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const Victim victim(be_sending_victim);
    tw_context_params_t params{};
    params.transports = transports();
    tw_context_h context = nullptr;
    ASSERT_EQ(tw_context_create(&params, &context), TW_OK);
    KillTold told;
    tw_worker_params_t worker_params{};
    worker_params.ep_failed_arg = &told;
    worker_params.ep_failed = [](void* arg, tw_ep_h, tw_status_t) {
        KillTold& all = *static_cast<KillTold*>(arg);
        all.failed_in.emplace_back(all.where);
        all.ended_before.push_back(all.ended);
    };
    {
        Node node(context, worker_params);
        const Bytes theirs = victim.start(node.address());
        const tw_ep_params_t ep_params{
            .address = theirs.data(), .address_length = theirs.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        ASSERT_EQ(tw_ep_create(node.worker(), &ep_params, &ep), TW_OK);
        while (node.counter("rx_unexpected") < 2)
            node.progress();
        const Bytes data = pattern(kLong, 2);
        tw_op_t how{};
        how.context = &told;
        how.flags = TW_OP_COMPLETION;
        how.complete = [](const tw_completion_t* done) {
            KillTold& all = *static_cast<KillTold*>(done->context);
            EXPECT_STREQ(all.where, "progress");
            ++all.ended;
        };
        ASSERT_EQ(tw_tag_send(ep, data.data(), kLong, 5, &how, nullptr), TW_INPROGRESS);
        how.flags |= TW_OP_MATCH_COMPLETE;
        ASSERT_EQ(tw_tag_send(ep, data.data(), 10, 5, &how, nullptr), TW_INPROGRESS);
        int fd = -1;
        ASSERT_EQ(tw_worker_fd(node.worker(), &fd), TW_OK);
        told.where = "progress";
        for (int i = 0; i < 1000; ++i)
            node.progress();
        victim.kill();
        // Over shared memory the death is there to be seen before the first arming.
        pollfd polled{fd, POLLIN, 0};
        if (std::string_view(transports()) == "sm")
            ::poll(&polled, 1, 10000);
        while (told.failed_in.empty()) {
            told.where = "arm";
            for (int i = 0; i < 3; ++i)
                tw_worker_arm(node.worker());
            told.where = "progress";
            node.progress();
        }
        for (int i = 0; i < 1000; ++i)
            node.progress();
        EXPECT_EQ(told.failed_in, std::vector<std::string>{"progress"});
        EXPECT_EQ(told.ended_before, std::vector<int>{2});
        EXPECT_LT(tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr), TW_OK);
    }
    tw_context_destroy(context);
}

}  // namespace
}  // namespace tagwire::test
