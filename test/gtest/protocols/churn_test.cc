// SPDX-License-Identifier: BSD-3-Clause
// A long-lived worker meets peers that come, leave messages that nobody receives, and go: in order,
// by force, or in the middle of a message. It gives back everything that it took for them.
#include <malloc.h>
#include <chrono>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kChurnBudget = 64 << 10;
constexpr std::size_t kChurnOnItsWay = 8 << 20;  // what is never held against a peer
constexpr std::uint64_t kChurnExpected = 1;      // tags
constexpr std::uint64_t kChurnNobodys = 99;
constexpr int kChurnPeersQuick = 24;

int peers() {
    const char* const named = std::getenv("TAGWIRE_TEST_CHURN");
    return named == nullptr ? kChurnPeersQuick : std::atoi(named);
}

/// Resources that the process holds when its peers are gone.
struct Held {
    std::size_t heap = 0, descriptors = 0, mappings = 0;
};

Held held() {
    Held held;
    const struct mallinfo2 heap = mallinfo2();
    held.heap = heap.uordblks + heap.hblkhd;
    const std::filesystem::directory_iterator open("/proc/self/fd");
    held.descriptors = static_cast<std::size_t>(std::distance(begin(open), end(open)));
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        ++held.mappings;
    return held;
}

class MsgChurn : private Settings, public MsgTest {
  protected:
    MsgChurn()
        : Settings({{"TAGWIRE_UNEXPECTED_BYTES", std::to_string(kChurnBudget)},
                    {"TAGWIRE_SM_ARENA_BYTES", "4m"}}) {}

    std::uint64_t kept_bytes() {
        const std::string text = node(0).description();
        const std::string mark = " messages in ";
        const std::size_t at = text.find(mark);
        EXPECT_NE(at, std::string::npos) << text;
        return at == std::string::npos ? 0 : std::stoull(text.substr(at + mark.size()));
    }

    /// One message each way that is received, and some that nobody receives; then it goes.
    void visit(int number) {
        Node& self = node(0);
        Node& peer = node(1);
        send(peer, self, short_, kChurnExpected);
        expect_message(self, short_, kChurnExpected);
        send(self, peer, short_, kChurnExpected);
        expect_message(peer, short_, kChurnExpected);
        const bool is_in_order = number % 3 == 0;
        for (const Bytes* data : {&short_, &short_, &long_}) {
            // A close in order would wait until somebody receives what goes by rendezvous.
            if (data == &long_ && is_in_order)
                break;
            EXPECT_GE(tw_tag_send(peer.to(self), data->data(), data->size(), kChurnNobodys, nullptr,
                                  nullptr),
                      TW_OK);
            self.progress();
            peer.progress();
        }
        const tw_flush_level_t how = is_in_order ? TW_FLUSH_DELIVERED : TW_CLOSE_FORCE;
        if (number % 3 != 2) {
            EXPECT_GE(tw_ep_close(peer.to(self), how, nullptr, nullptr), TW_OK);
        }
        EXPECT_GE(tw_ep_close(self.to(peer), how, nullptr, nullptr), TW_OK);
        run_some();
        forget_last_node();
        run_some();
    }

    /// Receives of nobody's messages what is there.
    void take_all() {
        while (take_and_drop(node(0).worker(), 0, ~std::uint64_t{0}))
            ++taken_;
        EXPECT_EQ(kept_bytes(), 0U);
        let_lanes_go();
        node(0).events.clear();
        node(0).failures.clear();
        node(0).done.clear();
    }

    /// The last lanes of peers that were closed by force stay for 100 ms.
    void let_lanes_go() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
        run_until([&] { return std::chrono::steady_clock::now() >= end; });
    }

    const Bytes short_ = pattern(4000, 1);
    const Bytes long_ = pattern(300'000, 2);
    std::uint64_t taken_ = 0;
};

TEST_F(MsgChurn, a_worker_takes_no_more_for_the_second_half_of_its_peers_than_for_the_first) {
    constexpr std::size_t kHeapMore = 256 << 10;
    constexpr std::size_t kFewMore = 8;
    const int all = peers();
    std::uint64_t most = 0;
    Held before{};
    for (int i = 0; i < all; ++i) {
        if (i == all / 2) {
            take_all();
            before = held();
        }
        visit(i);
        most = std::max(most, kept_bytes());
    }
    EXPECT_LE(most, kChurnBudget + kChurnOnItsWay + long_.size());
    take_all();
    const Held after = held();
    EXPECT_GT(taken_, 0U) << "what was sent in full stays until it is received";
    EXPECT_LE(after.heap, before.heap + kHeapMore);
    EXPECT_LE(after.descriptors, before.descriptors + kFewMore);
    if (transports() == "sm" && before.heap > 0) {  // else a device's, or a sanitizer's too
        EXPECT_LE(after.mappings, before.mappings + kFewMore);
    }
    tw_worker_attr_t attr{};
    ASSERT_EQ(tw_worker_query(node(0).worker(), &attr), TW_OK);
    EXPECT_EQ(attr.endpoints, 0U);
}

}  // namespace
}  // namespace tagwire::test
