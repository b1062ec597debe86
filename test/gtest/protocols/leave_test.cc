// SPDX-License-Identifier: BSD-3-Clause
// A job whose ranks close their endpoints at TW_FLUSH_SENT and end while others still compute, as
// MPI programs do in MPI_Finalize(): nothing is lost, and nobody waits for a rank that does not
// progress. A separate program, because it forks before anything of the library runs.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>

#include "protocols/fixture.hpp"
#include "protocols/victim.hpp"

namespace tagwire::test {
namespace {

constexpr unsigned kRanksMax = 16;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;

unsigned number_of(const char* name, unsigned otherwise) {
    const char* value = std::getenv(name);
    return value == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}

std::uint64_t job_clock_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

/// Memory that the ranks share beside the library.
struct Board {
    std::atomic<unsigned> present;  // have written their address
    std::atomic<unsigned> closed;   // have closed all endpoints
    struct {
        std::size_t length;
        std::byte bytes[TW_ADDRESS_BYTES_MAX];
    } addresses[kRanksMax];
};

enum class End {
    kAtOnce,       // each rank ends when it has closed
    kWithBarrier,  // all wait first, without progress, until all have closed
    kAbruptly,     // at once, and the worker is not destroyed
};

struct Job {
    unsigned ranks;
    unsigned seed;
    End end;
    Board* board;
};

/// One rank. Failed expectations end the process with a status of their own.
class Rank {
  public:
    Rank(const Job& job, unsigned number) : job_(job), number_(number) {
        tw_context_params_t params{};
        params.transports = kill_transports();
        tw_context_h context = nullptr;
        must(tw_context_create(&params, &context) == TW_OK, "context");
        context_.reset(context);
        node_ = std::make_unique<Node>(context);
    }

    void run() {
        meet();
        exchange(kSizes, 0, [](unsigned from, unsigned to) { return from != to; });
        // Those of lower numbers have gone when these are received, most of the time.
        exchange(kLateSizes, std::size(kSizes),
                 [](unsigned from, unsigned to) { return from < to; });
        close_all();
        if (job_.end == End::kAbruptly)
            return;
        if (job_.end == End::kWithBarrier)
            wait_for(job_.board->closed, false);
        node_->destroy();
    }

  private:
    static constexpr std::size_t kSizes[] = {0, 8, 300, 5000, 20'000, 100'000};
    static constexpr std::size_t kLateSizes[] = {8, 300, 5000, 0};  // eager

    void must(bool is_right, const char* what, tw_status_t status = TW_OK) const {
        if (is_right)
            return;
        std::fprintf(stderr, "rank %u, seed %u: wrong: %s: %s\n", number_, job_.seed, what,
                     tw_status_string(status));
        if (node_ != nullptr)
            std::fprintf(stderr, "%s\n", node_->description().c_str());
        _exit(1);
    }
    void must_not_take_long(const char* what) const { must(job_clock_ns() < deadline_, what); }

    /// Counts this rank, and waits for the others.
    void wait_for(std::atomic<unsigned>& all, bool progresses) {
        all.fetch_add(1);
        while (all.load() < job_.ranks) {
            must_not_take_long("a rank does not come");
            if (progresses)
                node_->progress();
            ::sched_yield();
        }
    }
    void meet() {
        const Bytes own = node_->address();
        auto& place = job_.board->addresses[number_];
        place.length = own.size();
        std::copy(own.begin(), own.end(), place.bytes);
        wait_for(job_.board->present, false);
        eps_.resize(job_.ranks);
        for (unsigned i = 0; i < job_.ranks; ++i) {
            const tw_ep_params_t params{.address = job_.board->addresses[i].bytes,
                                        .address_length = job_.board->addresses[i].length,
                                        .user_data = nullptr};
            must(i == number_ || tw_ep_create(node_->worker(), &params, &eps_[i]) == TW_OK,
                 "endpoint");
        }
    }
    std::uint64_t tag_of(unsigned from, std::size_t i) const { return (from << 8U) | i; }
    std::uint64_t seed_of(unsigned from, unsigned to, std::size_t i) const {
        return ((job_.seed * 64U + from) * 64U + to) * 64U + i;
    }
    /// The call does what it is to do, or is repeated behind some progress.
    template <class Call>
    tw_status_t patiently(const Call& call) {
        for (;;) {
            const tw_status_t status = call();
            if (status != TW_ERR_NO_RESOURCE)
                return status;
            node_->progress();
            must_not_take_long("no room");
        }
    }
    /// Sends messages of these sizes to those that `goes` names, computes, and receives those of
    /// others. The number of the first is `first`.
    template <std::size_t Count, class Goes>
    void exchange(const std::size_t (&sizes)[Count], std::size_t first, const Goes& goes) {
        std::deque<Bytes> sent, received, wanted;
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        node_->done.clear();
        const auto message = [&](unsigned from, unsigned to, std::size_t i) {
            return pattern(sizes[i], seed_of(from, to, first + i));
        };
        for (std::size_t i = 0; i < Count; ++i) {
            for (unsigned to = 0; to < job_.ranks; ++to) {
                if (!goes(number_, to))
                    continue;
                const Bytes& data = sent.emplace_back(message(number_, to, i));
                const tw_status_t status = patiently([&] {
                    return tw_tag_send(eps_[to], data.data(), data.size(),
                                       tag_of(number_, first + i), &how, nullptr);
                });
                must(status == TW_INPROGRESS, "send");
            }
        }
        compute();
        for (unsigned from = 0; from < job_.ranks; ++from) {
            for (std::size_t i = 0; i < Count && goes(from, number_); ++i) {
                Bytes& buffer = received.emplace_back(sizes[i]);
                wanted.push_back(message(from, number_, i));
                const tw_status_t status = patiently([&] {
                    return tw_tag_recv(node_->worker(), buffer.data(), buffer.size(),
                                       tag_of(from, first + i), 0, &how, nullptr);
                });
                must(status == TW_INPROGRESS, "receive");
            }
        }
        while (node_->done.size() < sent.size() + received.size()) {
            node_->progress();
            ::sched_yield();
            must_not_take_long("a message does not come, or a send does not end");
        }
        for (const tw_completion_t& done : node_->done)
            must(done.status == TW_OK, "end of a message", done.status);
        must(received == wanted, "data");
    }
    /// Without progress: up to 30 ms, longer for high numbers.
    void compute() const {
        const std::uint64_t ms = (job_.seed * 7 + number_ * 13) % 31 + number_;
        const std::uint64_t until = job_clock_ns() + ms * 1'000'000;
        while (job_clock_ns() < until)
            ::sched_yield();
    }
    /// A peer that has left in order already leaves nothing to flush.
    void close_all() {
        node_->done.clear();
        std::size_t waiting = 0;
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        for (tw_ep_h ep : eps_) {
            if (ep == nullptr)
                continue;
            const tw_status_t status =
                patiently([&] { return tw_ep_close(ep, TW_FLUSH_SENT, &how, nullptr); });
            must(status == TW_INPROGRESS || status == TW_ERR_NOT_CONNECTED, "close", status);
            waiting += status == TW_INPROGRESS ? 1 : 0;
        }
        while (node_->done.size() < waiting) {
            node_->progress();
            ::sched_yield();
            must_not_take_long("a close does not end");
        }
        for (const tw_completion_t& done : node_->done)
            must(done.status == TW_OK || done.status == TW_ERR_NOT_CONNECTED, "end of a close",
                 done.status);
        for (const auto& failure : node_->failures)
            must(failure.second == TW_ERR_NOT_CONNECTED, "failure", failure.second);
    }

    const Job& job_;
    const unsigned number_;
    const std::uint64_t deadline_ = job_clock_ns() + kPatienceNs;
    std::unique_ptr<tw_context, ContextDeleter> context_;
    std::unique_ptr<Node> node_;
    std::vector<tw_ep_h> eps_;
};

void run_job(unsigned ranks, unsigned seed, End end) {
    void* const shared =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    const Job job{ranks, seed, end, ::new (shared) Board{}};
    std::vector<pid_t> processes;
    for (unsigned i = 0; i < ranks; ++i) {
        const pid_t process = ::fork();
        ASSERT_GE(process, 0);
        if (process == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            Rank(job, i).run();
            std::fflush(nullptr);
            _exit(0);
        }
        processes.push_back(process);
    }
    for (const pid_t process : processes) {
        int status = 0;
        EXPECT_EQ(::waitpid(process, &status, 0), process);
        EXPECT_EQ(status, 0) << "seed " << seed;
    }
    ::munmap(shared, sizeof(Board));
}

class MsgLeave : public ::testing::Test {
  protected:
    const unsigned ranks = number_of("TAGWIRE_TEST_RANKS", kRanksMax);
    const unsigned rounds = number_of("TAGWIRE_TEST_ROUNDS", 2);
    const unsigned first = number_of("TAGWIRE_TEST_SEED", 1);
};

TEST_F(MsgLeave, ranks_that_end_while_others_compute_lose_nothing) {
    for (unsigned seed = first; seed < first + rounds && !HasFailure(); ++seed)
        run_job(ranks, seed, End::kAtOnce);
}

TEST_F(MsgLeave, ranks_that_have_closed_need_not_progress) {
    for (unsigned seed = first; seed < first + rounds && !HasFailure(); ++seed)
        run_job(ranks, seed, End::kWithBarrier);
}

// Their rings and what their devices were given outlive them.
TEST_F(MsgLeave, ranks_that_do_not_destroy_their_worker_lose_nothing) {
    for (unsigned seed = first; seed < first + rounds && !HasFailure(); ++seed)
        run_job(ranks, seed, End::kAbruptly);
}

}  // namespace
}  // namespace tagwire::test
