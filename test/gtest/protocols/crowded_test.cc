// SPDX-License-Identifier: BSD-3-Clause
// More ranks than cores, of which one is killed, one is stopped for a second, one computes, and one
// forks while all send to all: the others are done with each other, every operation ends once, and
// its end tells the truth.
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdlib>
#include <deque>
#include <new>
#include <string_view>

#include "common/child.hpp"
#include "common/network.hpp"
#include "common/skip.hpp"
#include "protocols/crowded_rank.hpp"
#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr int kJobMs = 150'000;
constexpr int kStopMs = 1000;

/// The board of a job, in memory that its processes share.
class SharedBoard {
  public:
    SharedBoard() {
        void* const memory = ::mmap(nullptr, sizeof(CrowdedBoard), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(memory, MAP_FAILED);
        board_ = ::new (memory) CrowdedBoard{};
    }
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    ~SharedBoard() { ::munmap(board_, sizeof(CrowdedBoard)); }

    CrowdedBoard& get() { return *board_; }

  private:
    CrowdedBoard* board_;
};

void be_rank(Channel& control, const CrowdedPlan& plan, CrowdedBoard& board, unsigned rank) {
    ::setenv("TAGWIRE_TCP_DEVICES", "lo", 1);
    CrowdedRank self(plan, board, rank);
    control.send(self.introduction());
    self.connect(unpack(control.receive(kJobMs).value()));
    self.work();
    control.signal();
    self.await(control);
    self.check_memory();
    self.close();
    control.signal();
    self.await(control);
}

class MsgCrowded : public ProcessTest {
  protected:
    void SetUp() override {
        ProcessTest::SetUp();
        if (!enter_network_with_loopback())
            TW_SKIP("network namespaces cannot be made here");
    }
    void TearDown() override {
        ranks_.clear();
        ProcessTest::TearDown();
    }

    /// Over verbs each operation is one of the virtual HCA, whose threads need the cores, too.
    static CrowdedPlan plan() {
        const std::string_view transports = kill_transports();
        if (transports == "sm")
            return {.ranks = 16, .rounds = 40, .long_bytes = 20'000, .fates = {}};
        if (transports == "tcp")
            return {.ranks = 16, .rounds = 8, .long_bytes = 20'000, .fates = {}};
        return {.ranks = 16, .rounds = 3, .long_bytes = 10'000, .fates = {}};
    }

    void run(const CrowdedPlan& plan) {
        SharedBoard board;
        start(plan, board.get());
        if (HasFatalFailure())
            return;
        continue_stopped(plan);
        for (unsigned phase = 0; phase < 2; ++phase) {  // worked; closed
            for (unsigned rank = 0; rank < plan.ranks; ++rank) {
                if (!plan.is_doomed(rank)) {
                    ASSERT_TRUE(ranks_[rank].channel().receive(kJobMs).has_value()) << rank;
                }
            }
            for (unsigned rank = 0; rank < plan.ranks; ++rank)
                ranks_[rank].channel().signal();
        }
        for (unsigned rank = 0; rank < plan.ranks; ++rank)
            EXPECT_EQ(ranks_[rank].join(kJobMs), plan.is_doomed(rank) ? 128 + SIGKILL : 0) << rank;
        check_board(plan, board.get());
    }

  private:
    void start(const CrowdedPlan& plan, CrowdedBoard& board) {
        ASSERT_LE(plan.ranks, kCrowdedRanksMax);
        for (unsigned rank = 0; rank < plan.ranks; ++rank)
            ranks_.emplace_back(
                [&, rank](Channel& control) { be_rank(control, plan, board, rank); });
        std::vector<Bytes> introductions;
        for (Child& rank : ranks_) {
            auto introduction = rank.channel().receive(kJobMs);
            ASSERT_TRUE(introduction.has_value());
            introductions.push_back(std::move(*introduction));
        }
        for (Child& rank : ranks_)
            rank.channel().send(pack(introductions));
    }
    void continue_stopped(const CrowdedPlan& plan) {
        for (const auto& [rank, fate] : plan.fates) {
            if (fate != Fate::kStopped)
                continue;
            int status = 0;
            const pid_t pid = ranks_[rank].pid();
            ASSERT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
            ASSERT_TRUE(WIFSTOPPED(status)) << status;
            // The time of the stop is the case's subject; nothing of the library runs here.
            ranks_[rank].channel().receive(kStopMs);
            ranks_[rank].signal(SIGCONT);
        }
    }
    /// A sender that was told of a delivery was told the truth, also by one that has died since.
    static void check_board(const CrowdedPlan& plan, const CrowdedBoard& board) {
        for (unsigned from = 0; from < plan.ranks; ++from) {
            for (unsigned to = 0; to < plan.ranks; ++to) {
                if (from == to)
                    continue;
                const std::uint32_t handled = board.handled[to][from];
                const std::uint32_t delivered = board.delivered[from][to];
                EXPECT_LE(delivered, handled) << from << " to " << to;
                if (!plan.is_doomed(from) && !plan.is_doomed(to)) {
                    EXPECT_EQ(delivered, plan.rounds) << from << " to " << to;
                }
            }
        }
    }

    std::deque<Child> ranks_;
};

TEST_F(MsgCrowded, every_kind_of_work_of_all_to_all_ends) {
    TW_SKIP_FORK_BESIDE_THREADS();
    run(plan());
}

TEST_F(MsgCrowded, the_others_finish_although_one_dies) {
    TW_SKIP_FORK_BESIDE_THREADS();
    CrowdedPlan plan = this->plan();
    plan.fates = {{5, Fate::kKilled}};
    run(plan);
}

TEST_F(MsgCrowded, all_finish_although_one_is_stopped_one_computes_and_two_fork) {
    TW_SKIP_FORK_BESIDE_THREADS();
    CrowdedPlan plan = this->plan();
    plan.fates = {
        {2, Fate::kStopped}, {7, Fate::kComputes}, {9, Fate::kForks}, {10, Fate::kForksBriefly}};
    run(plan);
}

TEST_F(MsgCrowded, the_others_finish_although_all_of_that_comes_together) {
    TW_SKIP_FORK_BESIDE_THREADS();
    CrowdedPlan plan = this->plan();
    plan.fates = {{1, Fate::kForks},
                  {3, Fate::kKilled},
                  {6, Fate::kStopped},
                  {8, Fate::kComputes},
                  {12, Fate::kKilled}};
    run(plan);
}

}  // namespace
}  // namespace tagwire::test
