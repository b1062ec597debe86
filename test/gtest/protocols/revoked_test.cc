// SPDX-License-Identifier: BSD-3-Clause
// A sender closes its endpoint by force around the moment at which the receiver reads the message,
// and overwrites the buffer at once. A receive that succeeds has the old bytes, all of them. A
// separate program, because it forks before anything of the library runs.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <span>

#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kRevokedMax = std::size_t{1} << 20;
constexpr std::byte kNewByte{200};
constexpr std::uint64_t kGreetingTag = 1;
constexpr std::uint64_t kMessageTag = 2;
/// Some nanoseconds each; a close comes before, in and behind the read.
unsigned spins_max(std::size_t bytes) {
    return 3000 + static_cast<unsigned>(bytes / 64);
}
constexpr int kCallsUntilReady = 2000;

std::byte old_byte(unsigned round) {
    return static_cast<std::byte>(1 + round % 100);
}

bool has_said(int fd) {
    pollfd wanted{fd, POLLIN, 0};
    return ::poll(&wanted, 1, 0) == 1;
}

void take_byte(int fd) {
    char byte = 0;
    if (::read(fd, &byte, 1) != 1)
        _exit(20);
}

void give_byte(int fd) {
    if (::write(fd, "x", 1) != 1)
        _exit(21);
}

void spin_randomly(std::mt19937& random, unsigned turns_max) {
    static std::atomic<unsigned> turns{0};
    for (std::uint64_t left = random() % turns_max; left > 0; --left)
        turns.fetch_add(1, std::memory_order_relaxed);
}

/// The sender, in a process of its own. Each round has a new connection.
class Revoker {
  public:
    Revoker(int to_parent, int from_parent, std::size_t bytes, unsigned rounds, unsigned seed)
        : to_parent_(to_parent),
          from_parent_(from_parent),
          bytes_(bytes),
          rounds_(rounds),
          random_(seed) {}

    [[noreturn]] void run() {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        tw_context_params_t params{};
        params.transports = kill_transports();
        tw_context_h context = nullptr;
        if (tw_context_create(&params, &context) != TW_OK)
            _exit(2);
        Node node(context);
        const Bytes own = node.address();
        address_.resize(TW_ADDRESS_BYTES_MAX);
        if (::write(to_parent_, own.data(), own.size()) < 0)
            _exit(3);
        const ssize_t length = ::read(from_parent_, address_.data(), address_.size());
        if (length <= 0)
            _exit(4);
        address_.resize(static_cast<std::size_t>(length));
        for (unsigned round = 0; round < rounds_; ++round)
            send_and_revoke(node, round);
        for (;;)
            ::pause();
    }

  private:
    void send_and_revoke(Node& node, unsigned round) {
        const tw_ep_params_t params{
            .address = address_.data(), .address_length = address_.size(), .user_data = nullptr};
        tw_ep_h ep = nullptr;
        if (tw_ep_create(node.worker(), &params, &ep) != TW_OK)
            _exit(5);
        std::fill_n(buffer_.begin(), bytes_, old_byte(round));
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION | TW_OP_DELIVERY_COMPLETE;
        if (tw_tag_send(ep, "x", 1, kGreetingTag, &op, nullptr) != TW_INPROGRESS)
            _exit(6);
        while (node.done.empty())
            node.progress();
        node.done.clear();
        for (int i = 0; i < kCallsUntilReady; ++i)
            node.progress();
        give_byte(to_parent_);  // the message comes now
        op.flags = TW_OP_COMPLETION;
        const tw_status_t sent = tw_tag_send(ep, buffer_.data(), bytes_, kMessageTag, &op, nullptr);
        if (sent != TW_INPROGRESS)
            _exit(7);
        spin_randomly(random_, 2 * spins_max(bytes_));
        if (random_() % 2 == 0)
            node.progress();
        if (tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr) < 0)
            _exit(8);
        std::fill_n(buffer_.begin(), bytes_, kNewByte);
        give_byte(to_parent_);
        while (!has_said(from_parent_))
            node.progress();
        take_byte(from_parent_);
        node.done.clear();
        node.failures.clear();
    }

    const int to_parent_, from_parent_;
    const std::size_t bytes_;
    const unsigned rounds_;
    Bytes address_;
    Bytes buffer_ = Bytes(kRevokedMax);
    std::mt19937 random_;
};

struct RevokedEnds {
    unsigned old_bytes = 0, failures = 0, nothing = 0;
};

class MsgRevoked : public ::testing::TestWithParam<std::size_t> {
  protected:
    static unsigned rounds() {
        const char* const told = std::getenv("TAGWIRE_TEST_ROUNDS");
        return told == nullptr ? 100 : static_cast<unsigned>(std::atoi(told));
    }

    void receive(Node& node, int from_child, unsigned round, RevokedEnds* ends) {
        tw_op_t op{};
        op.flags = TW_OP_COMPLETION;
        char greeting = 0;
        ASSERT_EQ(TW_INPROGRESS,
                  tw_tag_recv(node.worker(), &greeting, 1, kGreetingTag, 0, &op, nullptr));
        while (node.done.empty() || !has_said(from_child))
            node.progress();
        node.done.clear();
        take_byte(from_child);
        std::fill_n(buffer_.begin(), GetParam(), std::byte{0});
        spin_randomly(random_, spins_max(GetParam()));
        tw_request_h request = nullptr;
        // A plain receive, and one that takes the general path.
        op.flags = 0;
        op.context = this;
        done_ = {};
        calls_ = 0;
        op.complete = [](const tw_completion_t* done) {
            auto& self = *static_cast<MsgRevoked*>(done->context);
            self.done_ = *done;
            ++self.calls_;
        };
        const tw_iov_t iov{buffer_.data(), GetParam()};
        const tw_status_t begun =
            round % 2 == 0 ? tw_tag_recv(node.worker(), buffer_.data(), GetParam(), kMessageTag, 0,
                                         &op, &request)
                           : tw_tag_recvv(node.worker(), &iov, 1, kMessageTag, 0, &op, &request);
        if (begun == TW_OK || begun < 0) {
            done_.status = begun;
            ++calls_;
        }
        bool is_closed = false;
        auto until = std::chrono::steady_clock::time_point::max();
        while (calls_ == 0 && std::chrono::steady_clock::now() < until) {
            node.progress();
            if (!is_closed && has_said(from_child)) {
                is_closed = true;
                until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
            }
        }
        if (calls_ == 0) {
            ++ends->nothing;
            tw_request_cancel(request);
            while (calls_ == 0)
                node.progress();
        }
        ASSERT_EQ(1, calls_) << "an end that is told twice";
        if (done_.status == TW_OK) {
            ++ends->old_bytes;
            const std::span received = std::span(buffer_).first(GetParam());
            const auto wrong =
                std::ranges::find_if(received, [&](std::byte b) { return b != old_byte(round); });
            ASSERT_EQ(received.end(), wrong)
                << "round " << round << ": byte " << wrong - received.begin() << " is "
                << static_cast<int>(*wrong);
        } else {
            ++ends->failures;
        }
        while (!has_said(from_child))
            node.progress();
        take_byte(from_child);
    }

    void forget(Node& node) {
        for (const auto& [ep, status] : node.failures)
            tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr);
        node.failures.clear();
    }

    Bytes buffer_ = Bytes(kRevokedMax);
    const unsigned seed_ = std::random_device{}();
    std::mt19937 random_{seed_};
    tw_completion_t done_{};
    int calls_ = 0;
};

TEST_P(MsgRevoked, a_receive_that_succeeds_has_the_bytes_of_the_message) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    const Victim victim([this](int to_parent, int from_parent) {
        Revoker(to_parent, from_parent, GetParam(), rounds(), seed_ + 1).run();
    });
    tw_context_params_t params{};
    params.transports = kill_transports();
    tw_context_h context = nullptr;
    ASSERT_EQ(TW_OK, tw_context_create(&params, &context));
    RevokedEnds ends;
    {
        Node node(context);
        victim.start(node.address());
        for (unsigned round = 0; round < rounds() && !HasFatalFailure(); ++round) {
            receive(node, victim.from(), round, &ends);
            for (int i = 0; i < kCallsUntilReady; ++i)
                node.progress();
            forget(node);
            victim.tell();
        }
        victim.kill();
    }
    tw_context_destroy(context);
    std::printf("%zu bytes: %u received, %u ended otherwise, %u of them cancelled here\n",
                GetParam(), ends.old_bytes, ends.failures, ends.nothing);
}

// Lengths that one side copies, and that both sides do.
INSTANTIATE_TEST_SUITE_P(Lengths, MsgRevoked,
                         ::testing::Values(2048, 16384, 48000, 65536, 300000, kRevokedMax),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace tagwire::test
