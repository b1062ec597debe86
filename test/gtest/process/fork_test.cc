// SPDX-License-Identifier: BSD-3-Clause
// Forked children, many interfaces under small limits, and sleepers in different processes.
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "buffer.hpp"
#include "harness.hpp"
#include "operations.hpp"
#include "pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint8_t kAddresses = 6;

void limit_descriptors(rlim_t count) {
    const rlimit limit = {count, count};
    ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
}

std::size_t open_descriptors() {
    return files_in("/proc/self/fd").size();
}

class Fork : public ProcessTest {};

TEST_F(Fork, a_forked_child_talks_to_its_parent_through_interfaces_of_its_own) {
    Child parent([](Channel&) {
        Entity self(resource_of("sm"));
        const Bytes address = address_of(self);
        Child child([&](Channel& control) {
            Entity own(resource_of("sm"));
            const Endpoint ep = connect_to(own, address);
            const Bytes bytes = pattern(3000, 5);
            EXPECT_EQ(UCS_OK, retry(own, [&] { return send_am_bytes(ep, Entity::kAmId, bytes); }));
            control.send(address_of(own));
            EXPECT_TRUE(progress_until(own, [&] { return !own.am.empty(); }));
            EXPECT_TRUE(has_pattern(own.am[0].bytes, 6));
        });
        EXPECT_TRUE(progress_until(self, [&] { return !self.am.empty(); }));
        EXPECT_TRUE(has_pattern(self.am[0].bytes, 5));
        const auto back = child.channel().receive();
        ASSERT_TRUE(back.has_value());
        const Endpoint ep = connect_to(self, *back);
        const Bytes bytes = pattern(2000, 6);
        EXPECT_EQ(UCS_OK, retry(self, [&] { return send_am_bytes(ep, Entity::kAmId, bytes); }));
        EXPECT_EQ(0, child.join());
        EXPECT_TRUE(progress_until(self, [&] { return !self.errors.empty(); }));
    });
    EXPECT_EQ(0, parent.join());
}

TEST_F(Fork, a_child_that_touches_nothing_disturbs_nobody) {
    Child parent([](Channel&) {
        Entity self(resource_of("sm"));
        Entity other(resource_of("sm"));
        const Endpoint ep = connect_to(self, address_of(other));
        const auto exchange = [&](std::uint64_t number) {
            EXPECT_EQ(UCS_OK, retry(self, [&] {
                          return uct_ep_am_short(ep, Entity::kAmId, number, nullptr, 0);
                      }));
            EXPECT_TRUE(progress_until(other, [&] { return other.am.size() == number; }));
        };
        exchange(1);
        {
            Child child([](Channel& control) { control.await_signal(); });
            exchange(2);
            child.channel().signal();
            EXPECT_EQ(0, child.join());
        }
        exchange(3);
        EXPECT_TRUE(self.errors.empty());
    });
    EXPECT_EQ(0, parent.join());
}

// The child holds whatever the parent had: a watch on the connection must not outlive that.
TEST_F(Fork, a_child_that_lives_on_does_not_keep_the_parent_awake) {
    Pair pair(
        {},
        [](Side side) {
            Child idle([](Channel& control) { control.await_signal(); });
            side.control.signal();
            EXPECT_TRUE(progress_until(side.self, [&] { return !side.self.errors.empty(); }));
            int fd = -1;
            ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(side.self.iface(), &fd));
            const auto is_asleep = [&] {
                pollfd entry = {fd, POLLIN, 0};
                return uct_iface_event_arm(side.self.iface(), UCT_EVENT_RECV) == UCS_OK &&
                       poll(&entry, 1, 0) == 0;
            };
            EXPECT_TRUE(progress_until(side.self, is_asleep, 2000));
            idle.channel().signal();
            EXPECT_EQ(0, idle.join());
        },
        [](Side side) { side.control.await_signal(); });
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.kill_now();
    EXPECT_EQ(0, pair.first.join());
}

TEST_F(Fork, five_hundred_and_twelve_interfaces_reach_one_hub_and_back) {
    constexpr int kProcesses = 8;
    constexpr int kEach = 64;
    constexpr std::uint64_t kAll = kProcesses * kEach;
    Child hub([](Channel& control) {
        limit_descriptors(1024);
        Entity self(resource_of("sm"));
        self.keep_record = false;
        std::vector<Bytes> waiting;
        std::uint64_t numbers = 0;
        self.record_am(kAddresses);
        self.on_am = [&](const AmMessage& message) {
            if (message.id == kAddresses)
                waiting.push_back(message.bytes);
            else
                ++numbers;
            return UCS_OK;
        };
        control.send(address_of(self));
        std::vector<Endpoint> endpoints;
        EXPECT_TRUE(progress_until(self, [&] {
            for (const Bytes& address : std::exchange(waiting, {})) {
                endpoints.push_back(connect_to(self, address));
                uct_ep_h ep = endpoints.back();
                EXPECT_EQ(UCS_OK, retry(self, [&] {
                              return uct_ep_am_short(ep, Entity::kAmId, 1, nullptr, 0);
                          }));
            }
            return endpoints.size() == kAll && waiting.empty();
        }));
        EXPECT_TRUE(progress_until(self, [&] { return numbers == kAll; })) << numbers;
        EXPECT_TRUE(self.errors.empty());
        control.send_value(open_descriptors());
        control.await_signal();
    });
    const auto address = hub.channel().receive();
    ASSERT_TRUE(address.has_value());
    std::vector<std::unique_ptr<Child>> spokes;
    for (int i = 0; i < kProcesses; ++i) {
        spokes.push_back(std::make_unique<Child>([&](Channel& control) {
            limit_descriptors(1024);
            std::vector<std::unique_ptr<Entity>> entities;
            std::vector<Endpoint> endpoints;
            for (int k = 0; k < kEach; ++k) {
                entities.push_back(std::make_unique<Entity>(resource_of("sm")));
                endpoints.push_back(connect_to(*entities.back(), *address));
                uct_ep_h ep = endpoints.back();
                const Bytes own = address_of(*entities.back());
                EXPECT_EQ(UCS_OK, retry(*entities.back(),
                                        [&] { return send_am_bytes(ep, kAddresses, own); }));
            }
            for (std::size_t k = 0; k < kEach; ++k) {
                Entity& entity = *entities[k];
                EXPECT_TRUE(progress_until(entity, [&] { return !entity.am.empty(); }));
                EXPECT_EQ(UCS_OK, retry(entity, [&] {
                              return uct_ep_am_short(endpoints[k], Entity::kAmId, k, nullptr, 0);
                          }));
            }
            control.send_value(open_descriptors());
            control.await_signal();
        }));
    }
    const auto descriptors = hub.channel().receive_value<std::size_t>();
    ASSERT_TRUE(descriptors.has_value());
    std::printf("the hub has %zu descriptors open for %llu peers\n", *descriptors,
                static_cast<unsigned long long>(kAll));
    for (const auto& spoke : spokes) {
        const auto each = spoke->channel().receive_value<std::size_t>();
        ASSERT_TRUE(each.has_value());
    }
    hub.channel().signal();
    EXPECT_EQ(0, hub.join());
    for (const auto& spoke : spokes) {
        spoke->channel().signal();
        EXPECT_EQ(0, spoke->join());
    }
}

#if !defined(__SANITIZE_ADDRESS__)  // the undefined-behaviour sanitizer takes descriptors, too
// Opens interfaces and endpoints until the process has no descriptor left, then closes them again.
void starve_of_descriptors(rlim_t limit) {
    int output[2];
    ASSERT_EQ(0, pipe(output));
    ASSERT_GE(fcntl(output[0], F_SETFL, O_NONBLOCK), 0);
    std::vector<std::unique_ptr<Entity>> entities;
    entities.push_back(std::make_unique<Entity>(resource_of("sm")));
    const Bytes hub = address_of(*entities[0]);
    const int standard_error = dup(STDERR_FILENO);
    dup2(output[1], STDERR_FILENO);
    limit_descriptors(limit);
    bool refused = false;
    std::vector<Endpoint> endpoints;
    for (int i = 0; i < 100 && !refused; ++i) {
        try {
            entities.push_back(std::make_unique<Entity>(resource_of("sm")));
            endpoints.push_back(connect_to(*entities.back(), hub));
            uct_ep_h ep = endpoints.back();
            const ucs_status_t status = retry(*entities.back(), [&] {
                entities[0]->progress();
                return uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0);
            });
            refused = status != UCS_OK;
        } catch (const std::runtime_error&) {
            refused = true;
        }
    }
    dup2(standard_error, STDERR_FILENO);
    EXPECT_TRUE(refused);
    std::string text(65536, '\0');
    const ssize_t got = read(output[0], text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    EXPECT_NE(std::string::npos, text.find("ulimit -n")) << limit << ", it said: " << text;
    EXPECT_EQ(std::string::npos, text.find("another machine")) << limit << ", it said: " << text;

    // The first interface lives on: what is closed can be opened again.
    endpoints.clear();
    entities.resize(1);
    Entity again(resource_of("sm"));
    const Endpoint ep = connect_to(again, hub);
    const std::size_t before = entities[0]->am.size();
    EXPECT_EQ(UCS_OK,
              retry(again, [&] { return uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0); }));
    EXPECT_TRUE(progress_until(*entities[0], [&] { return entities[0]->am.size() > before; }));
}

TEST_F(Fork, running_out_of_descriptors_is_an_error_that_names_the_limit) {
    // As many limits as an interface with a peer has descriptors: each call is the first to lack
    // one.
    for (rlim_t limit = 56; limit < 76; ++limit) {
        Child starving([limit](Channel&) { starve_of_descriptors(limit); });
        EXPECT_EQ(0, starving.join()) << "with " << limit << " descriptors";
    }
}
#endif

TEST_F(Fork, sleepers_in_two_processes_wake_each_other) {
    constexpr std::uint64_t kRounds = 20000;
    const auto sleeper = [](bool serves) {
        return [serves](Channel& control) {
            Entity self(resource_of("sm"));
            self.keep_record = false;
            control.send(address_of(self));
            const auto address = control.receive();
            ASSERT_TRUE(address.has_value());
            const Endpoint ep = connect_to(self, *address);
            int fd = -1;
            ASSERT_EQ(UCS_OK, uct_iface_event_fd_get(self.iface(), &fd));
            const auto sleep_until = [&](std::uint64_t count) {
                while (self.am_count < count) {
                    if (self.progress() != 0)
                        continue;
                    const ucs_status_t armed = uct_iface_event_arm(self.iface(), UCT_EVENT_RECV);
                    if (armed == UCS_ERR_BUSY)
                        continue;
                    pollfd entry = {fd, POLLIN, 0};
                    if (armed != UCS_OK || poll(&entry, 1, 10000) != 1)
                        return false;
                }
                return true;
            };
            for (std::uint64_t round = 0; round < kRounds; ++round) {
                if (!serves) {
                    ASSERT_TRUE(sleep_until(round + 1)) << "slept through message " << round;
                }
                ASSERT_EQ(UCS_OK, retry(self, [&] {
                              return uct_ep_am_short(ep, Entity::kAmId, round, nullptr, 0);
                          }));
                if (serves) {
                    ASSERT_TRUE(sleep_until(round + 1)) << "slept through message " << round;
                }
            }
            control.signal();
            control.await_signal();
        };
    };
    Child one(sleeper(true));
    Child two(sleeper(false));
    const auto first = one.channel().receive();
    const auto second = two.channel().receive();
    ASSERT_TRUE(first && second);
    one.channel().send(*second);
    two.channel().send(*first);
    EXPECT_TRUE(one.channel().await_signal());
    EXPECT_TRUE(two.channel().await_signal());
    one.channel().signal();
    two.channel().signal();
    EXPECT_EQ(0, one.join());
    EXPECT_EQ(0, two.join());
}

}  // namespace
}  // namespace tagwire::test
