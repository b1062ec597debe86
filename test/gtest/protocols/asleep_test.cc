// SPDX-License-Identifier: BSD-3-Clause
// First contact of two processes that both sleep, on a fabric that loses the first packets: timers
// wake the side that has to send again, and neither wakes up for nothing. A separate program,
// because it forks before anything of the library runs.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <random>

#include "common/child.hpp"
#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr double kLoss = 0.02;
constexpr unsigned kPatternPackets = 3;  // whose fate is chosen
constexpr unsigned kAwakeMax = 400;      // a side that spins is awake far more often
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr int kAsleepPatienceMs = 60'000;  // then it sleeps for ever

/// A seed by which a virtual HCA loses, of the first packets that it sends, those of `pattern` (bit
/// i: packet i), and of the others as many as it may.
std::uint64_t seed_of(unsigned pattern, std::uint64_t from) {
    for (std::uint64_t seed = from;; ++seed) {
        std::mt19937_64 random(seed);
        unsigned lost = 0;
        for (unsigned i = 0; i < kPatternPackets; ++i)
            if (static_cast<double>(random() >> 11) * 0x1p-53 < kLoss)
                lost |= 1U << i;
        if (lost == pattern)
            return seed;
    }
}

enum class Sleep { kArmed, kWaiting };  // on the descriptor, or in tw_worker_wait()

/// One process. Its results are exit codes: 0, or which step failed.
class Sleeper {
  public:
    Sleeper(int peer, Sleep way, std::uint64_t seed) : peer_(peer), way_(way) {
        // Only what a transport has to send again may wake a worker.
        ::setenv("TAGWIRE_LIVENESS_INTERVAL", "1000s", 1);
        ::setenv("TAGWIRE_UD_KEEPALIVE_INTERVAL", "0", 1);
        ::setenv("TAGWIRE_DC_KEEPALIVE_INTERVAL", "0", 1);
        ::setenv("TAGWIRE_RC_KEEPALIVE_INTERVAL", "0", 1);
        ::setenv("TAGWIRE_VHCA_LOSS", std::to_string(kLoss).c_str(), 1);
        ::setenv("TAGWIRE_VHCA_SEED", std::to_string(seed).c_str(), 1);
        tw_context_params_t params{};
        params.transports = std::getenv("TAGWIRE_TEST_TRANSPORTS");
        if (tw_context_create(&params, &context_) == TW_OK)
            node_.emplace(context_);
    }
    int run(bool speaks) {
        int fd = -1;
        if (!node_ || tw_worker_fd(node_->worker(), &fd) != TW_OK)
            return 10;
        const Bytes address = node_->address();
        Bytes theirs(TW_ADDRESS_BYTES_MAX);
        if (::send(peer_, address.data(), address.size(), 0) < 0)
            return 11;
        const ssize_t length = ::recv(peer_, theirs.data(), theirs.size(), 0);
        if (length <= 0)
            return 12;
        post();
        if (speaks && !speak(theirs, static_cast<std::size_t>(length)))
            return 13;
        // Whoever was spoken to answers.
        while (ended_ < 2) {
            if (!sleep(fd))
                return 14;
            if (!speaks && has_received_ && !has_spoken_ &&
                !speak(theirs, static_cast<std::size_t>(length)))
                return 15;
        }
        if (received_ != data_)
            return 16;
        return finish(fd);
    }

  private:
    void post() {
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        how.context = &has_received_;
        tw_tag_recv(node_->worker(), received_.data(), received_.size(), 1, 0, &how, nullptr);
    }
    bool speak(const Bytes& theirs, std::size_t length) {
        const tw_ep_params_t params{
            .address = theirs.data(), .address_length = length, .user_data = nullptr};
        tw_ep_h ep = nullptr;
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION | TW_OP_DELIVERY_COMPLETE;
        how.context = &has_spoken_;
        has_spoken_ = true;
        return tw_ep_create(node_->worker(), &params, &ep) == TW_OK &&
               tw_tag_send(ep, data_.data(), data_.size(), 1, &how, nullptr) == TW_INPROGRESS;
    }
    /// Until something happens. False: it does not.
    bool sleep(int fd) {
        ++awake_;
        if (way_ == Sleep::kWaiting) {
            if (tw_worker_wait(node_->worker(), TW_WAIT_SLEEP,
                               kAsleepPatienceMs / 1000 * kNsPerSecond) != TW_OK)
                return false;
        } else if (tw_worker_progress(node_->worker()) == 0) {
            const tw_status_t armed = tw_worker_arm(node_->worker());
            pollfd polled{fd, POLLIN, 0};
            if (armed != TW_ERR_BUSY &&
                (armed != TW_OK || ::poll(&polled, 1, kAsleepPatienceMs) != 1))
                return false;
        }
        take_ends();
        return awake_ < kAwakeMax;
    }
    void take_ends() {
        tw_completion_t done{};
        while (tw_worker_poll(node_->worker(), &done, 1) == 1) {
            ++ended_;
            failed_ |= done.status != TW_OK;
            if (done.context == &has_received_)
                has_received_ = true;
        }
    }
    /// Progresses until the peer is done too: the messages that it waits for leave by progress.
    int finish(int fd) {
        if (failed_)
            return 17;
        if (::send(peer_, "x", 1, 0) != 1)
            return 18;
        char byte = 0;
        pollfd polled[] = {{peer_, POLLIN, 0}, {fd, POLLIN, 0}};
        while (::recv(peer_, &byte, 1, MSG_DONTWAIT) < 0) {
            node_->progress();
            if (tw_worker_arm(node_->worker()) == TW_OK && ::poll(polled, 2, kAsleepPatienceMs) < 1)
                return 19;
        }
        node_.reset();
        tw_context_destroy(context_);
        return 0;
    }

    const int peer_;
    const Sleep way_;
    tw_context_h context_ = nullptr;
    std::optional<Node> node_;
    const Bytes data_ = pattern(20000, 1);
    Bytes received_ = Bytes(20000);
    bool has_received_ = false, has_spoken_ = false, failed_ = false;
    int ended_ = 0;
    unsigned awake_ = 0;
};

class MsgAsleep : public ::testing::Test {
  protected:
    /// One process loses these of its first packets, the other one those.
    static void run(unsigned first_lost, unsigned second_lost, bool both_speak) {
        SCOPED_TRACE("first packets lost: " + std::to_string(first_lost) + ", " +
                     std::to_string(second_lost));
        for (const Sleep way : {Sleep::kArmed, Sleep::kWaiting}) {
            const Sleep other = way == Sleep::kArmed ? Sleep::kWaiting : Sleep::kArmed;
            int sockets[2];
            ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
            const std::uint64_t first_seed = seed_of(first_lost, 1);
            const std::uint64_t second_seed = seed_of(second_lost, first_seed + 1);
            SecondProcess first(
                [&](int) { return Sleeper(sockets[0], way, first_seed).run(true); });
            SecondProcess second(
                [&](int) { return Sleeper(sockets[1], other, second_seed).run(both_speak); });
            EXPECT_EQ(first.result(), 0);
            EXPECT_EQ(second.result(), 0);
            ::close(sockets[0]);
            ::close(sockets[1]);
        }
    }
};

TEST_F(MsgAsleep, a_lost_first_packet_is_sent_again) {
    TW_SKIP_FORK_BESIDE_THREADS();
    run(0b001, 0, false);
}

TEST_F(MsgAsleep, a_lost_first_answer_is_sent_again) {
    TW_SKIP_FORK_BESIDE_THREADS();
    run(0, 0b001, false);
}

TEST_F(MsgAsleep, what_is_sent_again_may_be_lost_too) {
    TW_SKIP_FORK_BESIDE_THREADS();
    run(0b011, 0b011, false);
}

TEST_F(MsgAsleep, first_packets_of_connects_that_cross_may_be_lost) {
    TW_SKIP_FORK_BESIDE_THREADS();
    run(0b001, 0b001, true);
}

}  // namespace
}  // namespace tagwire::test
