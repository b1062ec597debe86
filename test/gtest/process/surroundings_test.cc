// SPDX-License-Identifier: BSD-3-Clause
// Processes that the system restricts: hidden pids of other namespaces, and a low limit of
// descriptors under way.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "common/skip.hpp"
#include "harness.hpp"

namespace tagwire::test {
namespace {

bool write_file(const char* path, const std::string& text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done = fd >= 0 && write(fd, text.data(), text.size()) == ssize_t(text.size());
    if (fd >= 0)
        close(fd);
    return done;
}

/// The children of this process will be in a pid namespace of their own.
bool leave_pid_namespace() {
    if (unshare(CLONE_NEWPID) == 0)
        return true;
    const std::string uid = std::to_string(geteuid());
    return unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 &&
           write_file("/proc/self/uid_map", uid + " " + uid + " 1");
}

/// Runs `body` as the first process of a pid namespace.
void run_unseen(const std::function<void()>& body) {
    ASSERT_TRUE(leave_pid_namespace());
    const pid_t inner = fork();
    ASSERT_GE(inner, 0);
    if (inner == 0) {
        body();
        _exit(testing::Test::HasFailure() ? kFailedInChild : 0);
    }
    int status = 0;
    ASSERT_EQ(inner, waitpid(inner, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

class Surroundings : public ProcessTest {};

/// Sends its address; progresses until it is told to die, which it does without a word.
void peer_that_dies(Channel& control) {
    run_unseen([&] {
        Entity self(resource_of("sm"));
        control.send(address_of(self));
        progress_until(self, [&] { return control.has_message(); });
        _exit(testing::Test::HasFailure() ? kFailedInChild : 0);
    });
}

// All of them have pid 0 here.
TEST_F(Surroundings, a_peer_of_an_unseen_namespace_dies_alone) {
    {
        Child probe([](Channel&) { _exit(leave_pid_namespace() ? 0 : 1); });
        if (probe.join() != 0)
            TW_SKIP("this user may not make pid namespaces");
    }
    for (const std::size_t victim : {0U, 1U}) {
        std::vector<std::unique_ptr<Child>> peers;
        std::vector<Bytes> addresses;
        for (int i = 0; i < 2; ++i) {
            peers.push_back(std::make_unique<Child>(peer_that_dies));
            const auto address = peers.back()->channel().receive();
            ASSERT_TRUE(address.has_value());
            addresses.push_back(*address);
        }
        Child hub([&](Channel& control) {
            run_unseen([&] {
                Entity self(resource_of("sm"));
                std::vector<Endpoint> eps;
                for (const Bytes& address : addresses)
                    eps.push_back(connect_to(self, address));
                const auto send = [&](uct_ep_h ep) {
                    return retry(self,
                                 [&] { return uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0); });
                };
                for (const Endpoint& ep : eps) {
                    EXPECT_EQ(UCS_OK, send(ep));
                    EXPECT_TRUE(progress_until(self, [&] {
                        return facts_of(self, ep).find("state=ready") != std::string::npos;
                    }));
                }
                control.signal();
                EXPECT_TRUE(progress_until(self, [&] { return !self.errors.empty(); }));
                EXPECT_EQ(eps[victim].get(), self.errors.at(0).ep);
                // Whoever shared its watch would have failed together with it.
                EXPECT_EQ(1U, self.errors.size());
                EXPECT_EQ(UCS_OK, send(eps[1 - victim]));
            });
        });
        ASSERT_TRUE(hub.channel().await_signal());
        peers[victim]->channel().signal();
        EXPECT_EQ(0, peers[victim]->join());
        EXPECT_EQ(0, hub.join());
        peers[1 - victim]->channel().signal();
        EXPECT_EQ(0, peers[1 - victim]->join());
    }
}

/// Those with this right send as many descriptors as they like.
bool give_up_rights() {
    constexpr uid_t kNobody = 65534;
    return geteuid() != 0 ||
           (setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0);
}

// A user may have as many descriptors under way as a process may have open. A process that greets
// many peers at once exceeds that, and greets the rest when the first have read.
TEST_F(Surroundings, many_peers_that_connect_at_once_are_greeted_one_after_the_other) {
    constexpr std::size_t kPeers = 60;
    constexpr rlim_t kDescriptors = 100;
    Child hub([](Channel& control) {
        ASSERT_TRUE(give_up_rights());
        const rlimit limit{kDescriptors, kDescriptors};
        ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
        Entity self(resource_of("sm"));
        control.send(address_of(self));
        ASSERT_TRUE(control.await_signal());  // all wait
        EXPECT_TRUE(progress_until(self, [&] { return fact_of(self, "peers") == long{kPeers}; }));
        control.signal();
        EXPECT_TRUE(progress_until(self, [&] { return self.am_count == kPeers; }));
    });
    const auto address = hub.channel().receive();
    ASSERT_TRUE(address.has_value());
    Child crowd([&](Channel& control) {
        ASSERT_TRUE(give_up_rights());
        std::vector<std::unique_ptr<Entity>> entities;
        std::vector<Endpoint> eps;
        for (std::size_t i = 0; i < kPeers; ++i) {
            entities.push_back(std::make_unique<Entity>(resource_of("sm")));
            eps.push_back(connect_to(*entities.back(), *address));
        }
        control.signal();
        ASSERT_TRUE(control.await_signal());  // they were accepted while nobody here read
        for (std::size_t i = 0; i < kPeers; ++i) {
            EXPECT_EQ(UCS_OK, retry(*entities[i], [&] {
                          return uct_ep_am_short(eps[i], Entity::kAmId, 0, nullptr, 0);
                      }));
            EXPECT_TRUE(entities[i]->errors.empty());
        }
        EXPECT_TRUE(control.await_signal());
    });
    ASSERT_TRUE(crowd.channel().await_signal());
    hub.channel().signal();
    ASSERT_TRUE(hub.channel().await_signal());
    crowd.channel().signal();
    EXPECT_EQ(0, hub.join());
    crowd.channel().signal();
    EXPECT_EQ(0, crowd.join());
}

}  // namespace
}  // namespace tagwire::test
