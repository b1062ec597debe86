// SPDX-License-Identifier: BSD-3-Clause
// Exchanges over UCP, as `tagwire perf tag_exchange` makes them; bench/compare.py runs both. No
// code of ours is in it.
//
// Usage: ucp_exchange RANKS BYTES COUNT CPUS
//
// RANKS processes, each pinned to the next of CPUS ("0,1"). In each exchange a rank receives from
// the one at some distance before it, and sends to the one at that distance behind it, both at
// once; the distances take turns. COUNT exchanges follow as many that are not timed.
// Prints the time of one: the median over batches of 32, mean of all ranks.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ucp_program.hpp"

using namespace ucp_program;

namespace {

constexpr std::size_t kRanksMax = 256;
constexpr std::size_t kAddressMax = 4096;
constexpr std::uint64_t kBatch = 32;

struct Plan {
    std::size_t ranks, bytes;
    std::uint64_t count;
    std::vector<int> cpus;

    /// A rank that waits yields after so many calls of progress that found nothing. Where each has
    /// a CPU only threads of UCX want it, which get none otherwise under SCHED_FIFO.
    [[nodiscard]] unsigned idle_max() const { return ranks > cpus.size() ? 1 : 4096; }
};

/// Memory of all ranks, mapped before they are forked: their addresses and results.
struct Board {
    struct Entry {
        std::size_t address_length;
        std::byte address[kAddressMax];
        double median_ns;
    };

    // SYNC arrived: a rank's entry is written before it arrives, and read by those that have seen
    // all arrive.
    std::atomic<std::uint64_t> arrived;
    Entry entries[kRanksMax];

    static Board* open() {
        void* const memory =
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            fail("no shared memory");
        return ::new (memory) Board;
    }
};

class Rank {
  public:
    Rank(const Plan& plan, Board& board, std::size_t number)
        : plan_(plan), board_(board), me_(number), out_(plan.bytes), in_(plan.bytes) {
        pin_to(plan.cpus[number % plan.cpus.size()]);
        open_worker();
        meet();
        connect();
    }

    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    /// The others may need our progress until they have closed, too.
    ~Rank() {
        meet();
        for (const ucp_ep_h ep : eps_)
            if (ep != nullptr)
                ucp_ep_destroy(ep);
        meet();
        ucp_worker_destroy(worker_);
        ucp_cleanup(context_);
    }

    void run() {
        for (std::uint64_t i = 0; i < plan_.count; ++i)
            exchange();
        meet();
        std::vector<double> batches;
        batches.reserve(plan_.count / kBatch + 1);
        double last = now_ns();
        double sum = 0;
        for (std::uint64_t i = 1; i <= plan_.count; ++i) {
            exchange();
            const double now = now_ns();  // of each, as ours does
            sum += now - last;
            last = now;
            if (i % kBatch == 0)
                batches.push_back(std::exchange(sum, 0) / kBatch);
        }
        if (batches.empty())
            fail("COUNT is from 32 on");
        const auto middle = batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 2);
        std::nth_element(batches.begin(), middle, batches.end());
        board_.entries[me_].median_ns = *middle;
        meet();
    }

    [[nodiscard]] double mean_of_medians() const {
        double sum = 0;
        for (std::size_t rank = 0; rank < plan_.ranks; ++rank)
            sum += board_.entries[rank].median_ns;
        return sum / static_cast<double>(plan_.ranks);
    }

  private:
    void open_worker() {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        must(ucp_init(&params, nullptr, &context_), "ucp_init");
        ucp_worker_params_t worker{};
        worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker.thread_mode = UCS_THREAD_MODE_SINGLE;
        must(ucp_worker_create(context_, &worker, &worker_), "ucp_worker_create");
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        must(ucp_worker_get_address(worker_, &address, &length), "ucp_worker_get_address");
        if (length > kAddressMax)
            fail("an address is too long");
        std::memcpy(board_.entries[me_].address, address, length);
        board_.entries[me_].address_length = length;
        ucp_worker_release_address(worker_, address);
    }

    void connect() {
        for (std::size_t rank = 0; rank < plan_.ranks; ++rank) {
            ucp_ep_h ep = nullptr;
            if (rank != me_) {
                ucp_ep_params_t to{};
                to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
                to.address = reinterpret_cast<const ucp_address_t*>(board_.entries[rank].address);
                must(ucp_ep_create(worker_, &to, &ep), "ucp_ep_create");
            }
            eps_.push_back(ep);
        }
    }

    /// All ranks are here; ours makes progress meanwhile.
    void meet() {
        rounds_ += plan_.ranks;
        board_.arrived.fetch_add(1, std::memory_order_acq_rel);           // SYNC arrived
        while (board_.arrived.load(std::memory_order_acquire) < rounds_)  // SYNC arrived
            if (ucp_worker_progress(worker_) == 0)
                sched_yield();
    }

    void exchange() {
        const std::size_t to = (me_ + distance_) % plan_.ranks;
        const std::size_t from = (me_ + plan_.ranks - distance_) % plan_.ranks;
        const ucp_request_param_t param{};
        // The tag is the sender: messages of the same one come in order.
        void* const received =
            ucp_tag_recv_nbx(worker_, in_.data(), in_.size(), from, ~ucp_tag_t{0}, &param);
        void* const sent = ucp_tag_send_nbx(eps_[to], out_.data(), out_.size(), me_, &param);
        finish(received, "ucp_tag_recv_nbx");
        finish(sent, "ucp_tag_send_nbx");
        distance_ = distance_ + 1 < plan_.ranks ? distance_ + 1 : 1;
    }

    void finish(void* request, const char* call) {
        if (UCS_PTR_IS_ERR(request))
            must(UCS_PTR_STATUS(request), call);
        if (request == nullptr)
            return;
        ucs_status_t status = UCS_INPROGRESS;
        for (unsigned idle = 1; (status = ucp_request_check_status(request)) == UCS_INPROGRESS;)
            if (ucp_worker_progress(worker_) == 0 && idle++ % idle_max_ == 0)
                sched_yield();
        ucp_request_free(request);
        must(status, call);
    }

    const Plan& plan_;
    Board& board_;
    const std::size_t me_;
    const unsigned idle_max_ = plan_.idle_max();
    std::vector<std::byte> out_, in_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    std::vector<ucp_ep_h> eps_;
    std::size_t distance_ = 1;
    std::uint64_t rounds_ = 0;  // how many have arrived when all are here
};

/// One rank that fails ends all: the others would wait for it.
void end_with_failed(int) {
    int status = 0;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status != 0)
            _exit(1);
}

std::size_t fork_ranks(std::size_t ranks) {
    signal(SIGCHLD, end_with_failed);
    const pid_t parent = getpid();
    for (std::size_t rank = 1; rank < ranks; ++rank) {
        const pid_t process = fork();
        if (process < 0)
            fail("cannot fork");
        if (process == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                std::exit(1);
            return rank;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5)
        fail("usage: ucp_exchange RANKS BYTES COUNT CPUS");
    const Plan plan{.ranks = number(argv[1]),
                    .bytes = number(argv[2]),
                    .count = number(argv[3]),
                    .cpus = cpu_list(argv[4])};
    if (plan.ranks < 2 || plan.ranks > kRanksMax)
        fail("RANKS are 2 to 256");
    Board& board = *Board::open();
    const std::size_t me = fork_ranks(plan.ranks);
    Rank rank(plan, board, me);
    rank.run();
    if (me == 0)
        std::printf("exchange_ns %.1f\n", rank.mean_of_medians());
    return 0;
}
