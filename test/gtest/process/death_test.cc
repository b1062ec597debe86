// SPDX-License-Identifier: BSD-3-Clause
// Detection of the death of a peer, and the events that must come before it. Also: a stopped peer
// is not a dead one.
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>

#include "buffer.hpp"
#include "harness.hpp"
#include "operations.hpp"
#include "pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint64_t kReportBoundNs = 100'000'000;

/// Processor time of this process. The bound is one on progress being called, so time in which this
/// process did not run does not count.
std::uint64_t cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

EntityOptions options_of(const std::string& death) {
    EntityOptions options;
    if (death != "auto")
        options.iface_config = {{"SM_FORCE", "death:" + death}};
    return options;
}

void progress_for_ever(const Side& side) {
    for (;;)
        side.self.progress();
}

class Death : public ProcessTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Death, is_reported_within_its_bound) {
    Pair pair(
        options_of(GetParam()),
        [](Side side) {
            side.control.signal();
            EXPECT_TRUE(side.control.await_signal());  // "it is dead"
            const std::uint64_t start = cpu_ns();
            EXPECT_TRUE(progress_until(
                side.self, [&] { return !side.self.errors.empty(); }, 5000));
            EXPECT_LT(cpu_ns() - start, kReportBoundNs);
            EXPECT_EQ(side.peer, side.self.errors.at(0).ep);
            EXPECT_LT(uct_ep_am_short(side.peer, Entity::kAmId, 0, nullptr, 0), UCS_OK);
            progress_until(
                side.self, [] { return false; }, 50);
            EXPECT_EQ(1u, side.self.errors.size());
        },
        progress_for_ever);
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.kill_now();
    pair.first.channel().signal();
    EXPECT_EQ(0, pair.first.join());
}

TEST_P(Death, is_reported_while_somebody_else_keeps_the_receiver_busy) {
    Pair pair(
        options_of(GetParam()),
        [&](Side side) {
            Entity chatter(resource_of("sm"));
            const Endpoint chat =
                connect_to_address(chatter, side.self.device_address(), side.self.iface_address());
            side.self.keep_record = false;
            side.control.signal();
            std::uint64_t told_at = 0;  // when "it is dead" was seen; the report may come before
            EXPECT_TRUE(progress_until(side.self, [&] {
                uct_ep_am_short(chat, Entity::kAmId, 0, nullptr, 0);
                chatter.progress();
                if (told_at == 0 && side.control.has_message())
                    told_at = cpu_ns();
                return !side.self.errors.empty();
            }));
            if (told_at != 0) {
                EXPECT_LT(cpu_ns() - told_at, kReportBoundNs);
            }
        },
        progress_for_ever);
    ASSERT_TRUE(pair.first.channel().await_signal());
    spin_ns(20'000'000);
    pair.second.kill_now();
    pair.first.channel().signal();
    EXPECT_EQ(0, pair.first.join());
}

TEST_P(Death, comes_after_the_messages_published_before_it) {
    for (const std::uint64_t count : {1u, 100u, 200u}) {
        Pair pair(
            options_of(GetParam()),
            [count](Side side) {
                std::uint64_t at_report = 0;
                side.self.on_error = [&](const PeerError&) { at_report = side.self.am_count; };
                EXPECT_TRUE(side.control.await_signal());  // "it sent and is dead"
                EXPECT_TRUE(progress_until(side.self, [&] { return !side.self.errors.empty(); }));
                EXPECT_EQ(count, at_report);
                EXPECT_EQ(count, side.self.am_count);
            },
            [count](Side side) {
                for (std::uint64_t i = 0; i < count; ++i) {
                    EXPECT_EQ(UCS_OK, retry(side.self, [&] {
                                  return uct_ep_am_short(side.peer, Entity::kAmId, i, nullptr, 0);
                              }));
                }
                ::kill(getpid(), SIGKILL);
            });
        EXPECT_EQ(128 + SIGKILL, pair.second.join());
        pair.first.channel().signal();
        EXPECT_EQ(0, pair.first.join());
    }
}

TEST_P(Death, completes_every_outstanding_operation_once) {
    Pair pair(
        options_of(GetParam()),
        [](Side side) {
            const Buffer payload = make_payload(side.self, 100000, 1);
            const uct_iov_t iov = payload.iov();
            std::vector<std::unique_ptr<Completion>> completions;
            for (uct_tag_t tag = 0; tag < 50; ++tag) {
                completions.push_back(std::make_unique<Completion>());
                EXPECT_EQ(UCS_OK, retry(side.self, [&] {
                              const auto handle = uct_ep_tag_rndv_zcopy(
                                  side.peer, tag, nullptr, 0, &iov, 1, 0, completions.back().get());
                              return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                          }));
            }
            std::uint64_t pending_calls = 0;
            struct Request : uct_pending_req_t {
                std::uint64_t* calls;
            } request{};
            request.calls = &pending_calls;
            request.func = [](uct_pending_req_t* self) {
                ++*static_cast<Request*>(self)->calls;
                return UCS_ERR_NO_RESOURCE;
            };
            while (uct_ep_am_short(side.peer, Entity::kAmId, 0, nullptr, 0) == UCS_OK) {
            }
            EXPECT_EQ(UCS_OK, uct_ep_pending_add(side.peer, &request, 0));
            side.control.signal();
            EXPECT_TRUE(progress_until(side.self, [&] { return !side.self.errors.empty(); }));
            for (const auto& completion : completions) {
                EXPECT_EQ(1, completion->calls);
                EXPECT_LT(completion->ended, UCS_OK);
            }
            int purged = 0;
            uct_ep_pending_purge(
                side.peer, [](uct_pending_req_t*, void* arg) { ++*static_cast<int*>(arg); },
                &purged);
            EXPECT_EQ(1, purged);
        },
        [](Side side) { side.control.await_signal(); });  // alive, but it never progresses
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.kill_now();
    EXPECT_EQ(0, pair.first.join());
}

TEST_P(Death, of_the_sender_ends_a_receive_in_the_middle) {
    Pair pair(
        options_of(GetParam()),
        [](Side side) {
            std::vector<std::unique_ptr<Receive>> receives;
            for (int i = 0; i < 32; ++i) {
                receives.push_back(std::make_unique<Receive>(side.self, 4 << 20));
                EXPECT_EQ(UCS_OK, receives.back()->post(7));
            }
            EXPECT_TRUE(progress_until(side.self, [&] { return !side.self.errors.empty(); }));
            for (const auto& receive : receives) {
                EXPECT_EQ(receive->consumed, receive->completed);
                if (receive->completed == 0) {
                    EXPECT_EQ(UCS_OK, receive->cancel(true));
                } else if (receive->status == UCS_OK) {
                    EXPECT_TRUE(has_pattern(receive->received(), 9));
                }
            }
        },
        [](Side side) {
            const Buffer payload = make_payload(side.self, 4 << 20, 9);
            const uct_iov_t iov = payload.iov();
            Completion completion(1 << 30);
            side.control.signal();
            for (;;) {
                uct_ep_tag_rndv_zcopy(side.peer, 7, nullptr, 0, &iov, 1, 0, &completion);
                side.self.progress();
            }
        });
    ASSERT_TRUE(pair.second.channel().await_signal());
    spin_ns(3'000'000);
    pair.second.kill_now();
    EXPECT_EQ(0, pair.first.join());
}

std::string death_label(const ::testing::TestParamInfo<const char*>& parameter) {
    return parameter.param;
}
INSTANTIATE_TEST_SUITE_P(Process, Death, ::testing::Values("auto", "peerpidfd", "pidfd", "hangup"),
                         death_label);

class Stopped : public ProcessTest {};

TEST_F(Stopped, a_stopped_peer_is_alive_and_its_messages_wait) {
    Pair pair(
        {},
        [](Side side) {
            EXPECT_TRUE(side.control.await_signal());  // "it is stopped"
            const Buffer payload = make_payload(side.self, 50000, 1);
            const uct_iov_t iov = payload.iov();
            Completion completion;
            EXPECT_EQ(UCS_OK, retry(side.self, [&] {
                          const auto handle = uct_ep_tag_rndv_zcopy(side.peer, 5, nullptr, 0, &iov,
                                                                    1, 0, &completion);
                          return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                      }));
            std::uint64_t sent = 0;
            while (uct_ep_am_short(side.peer, Entity::kAmId, sent, nullptr, 0) == UCS_OK)
                ++sent;
            EXPECT_FALSE(progress_until(
                side.self, [&] { return completion.calls > 0 || !side.self.errors.empty(); }, 400))
                << "ended while the peer was only stopped";
            side.control.send_value(sent);  // "let it go on"
            EXPECT_TRUE(progress_until(side.self, [&] { return completion.calls > 0; }));
            EXPECT_EQ(UCS_OK, completion.ended);
            EXPECT_TRUE(side.control.await_signal());
            EXPECT_TRUE(side.self.errors.empty());
        },
        [](Side side) {
            Receive receive(side.self, 50000);
            EXPECT_EQ(UCS_OK, receive.post(5));
            side.control.signal();
            const auto sent_known = [&] { return side.control.has_message(); };
            EXPECT_TRUE(progress_until(side.self, sent_known));
            const auto sent = side.control.receive_value<std::uint64_t>();
            EXPECT_TRUE(progress_until(side.self, [&] { return side.self.am_count == *sent; }));
            EXPECT_TRUE(progress_until(side.self, [&] { return receive.completed == 1; }));
            EXPECT_TRUE(has_pattern(receive.received(), 1));
            side.control.signal();
            side.control.await_signal();
        });
    ASSERT_TRUE(pair.second.channel().await_signal());
    pair.second.signal(SIGSTOP);
    pair.first.channel().signal();
    const auto sent = pair.first.channel().receive_value<std::uint64_t>();
    ASSERT_TRUE(sent.has_value());
    pair.second.signal(SIGCONT);
    pair.second.channel().send_value(*sent);
    ASSERT_TRUE(pair.second.channel().await_signal());
    pair.first.channel().signal();
    EXPECT_EQ(0, pair.first.join());
    pair.second.channel().signal();
    EXPECT_EQ(0, pair.second.join());
}

TEST_F(Stopped, cancel_flush_and_destroy_end_although_the_peer_is_stopped) {
    Pair pair(
        {},
        [](Side side) {
            EXPECT_TRUE(side.control.await_signal());
            const Buffer payload = make_payload(side.self, 50000, 1);
            const uct_iov_t iov = payload.iov();
            Completion completions[4];
            ucs_status_ptr_t first = nullptr;
            for (Completion& completion : completions) {
                EXPECT_EQ(UCS_OK, retry(side.self, [&] {
                              const auto handle = uct_ep_tag_rndv_zcopy(side.peer, 5, nullptr, 0,
                                                                        &iov, 1, 0, &completion);
                              first = first == nullptr ? handle : first;
                              return UCS_PTR_IS_ERR(handle) ? UCS_PTR_RAW_STATUS(handle) : UCS_OK;
                          }));
            }
            EXPECT_EQ(UCS_OK, uct_ep_tag_rndv_cancel(side.peer, first));
            Completion flushed;
            const ucs_status_t status = retry(side.self, [&] {
                return uct_ep_flush(side.peer, UCT_FLUSH_FLAG_CANCEL, &flushed);
            });
            EXPECT_TRUE(progress_until(
                side.self, [&] { return status == UCS_OK || flushed.calls == 1; }, 3000));
            EXPECT_EQ(0, completions[0].calls);
            for (int i = 1; i < 4; ++i) {
                EXPECT_EQ(1, completions[i].calls);
                EXPECT_EQ(UCS_ERR_CANCELED, completions[i].ended);
            }
            EXPECT_TRUE(side.self.errors.empty());
        },
        [](Side side) { side.control.await_signal(); });
    pair.second.signal(SIGSTOP);
    pair.first.channel().signal();
    EXPECT_EQ(0, pair.first.join());  // its endpoint and interface are destroyed on the way
    pair.second.signal(SIGCONT);
    pair.second.channel().signal();
    EXPECT_EQ(0, pair.second.join());
}

}  // namespace
}  // namespace tagwire::test
