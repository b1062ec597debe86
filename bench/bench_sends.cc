// SPDX-License-Identifier: BSD-3-Clause
// Rate at which threads hand 8-byte messages over to sm, while the messages fit into the rings:
// do the threads of one worker send in parallel? Budget: two threads on one worker with two
// transmit contexts at least 1.4 times one thread.
//
// Usage: bench_sends [--rounds N] [WAY...]
//
// Each thread has a CPU of its own, and sends to a peer worker of its own, to which nobody attends
// meanwhile. A round takes all ways in turn: a burst of 2000 messages of each thread is timed, then
// the peers receive it, each on the other thread's CPU. A way's figure is the median of its rounds,
// that of two threads from the first one's begin to the last one's end.
#include <pthread.h>
#include <sched.h>
#include <tagwire.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kThreads = 2;
constexpr std::uint64_t kBurst = 2000;
/// Bursts that fill every slot of the rings once, so that their memory is there.
constexpr std::size_t kWarmUpRounds = 40;
constexpr const char* kRingSlots = "65536";
constexpr std::size_t kDefaultRounds = 301;
constexpr std::uint64_t kRoundsMax = 1'000'000;
constexpr std::uint64_t kPayload = 0;

/// Workers and threads.
struct Way {
    const char* name;
    std::size_t threads;
    tw_thread_mode_t mode;
    bool is_shared;  // one worker for all threads; otherwise a worker each
    unsigned tx_contexts;
    const char* doc;
};

constexpr Way kWays[] = {
    {"single", 1, TW_THREAD_SINGLE, true, 1, "one thread, a worker of mode single"},
    {"multi", 1, TW_THREAD_MULTI, true, 1, "one thread, a worker of mode multi"},
    {"each", 2, TW_THREAD_SINGLE, false, 1, "two threads, a worker of mode single each"},
    {"shared", 2, TW_THREAD_MULTI, true, 1, "two threads, one worker with 1 transmit context"},
    {"contexts", 2, TW_THREAD_MULTI, true, 2, "two threads, one worker with 2 transmit contexts"},
};

/// Two threads over one.
struct Ratio {
    const char* two;
    const char* one;
    double at_least;  // 0: no target
};

constexpr Ratio kRatios[] = {{"each", "single", 0},
                             {"shared", "multi", 0},
                             {"contexts", "single", 0},
                             {"contexts", "multi", 1.4}};

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "bench_sends: %s\n", what.c_str());
    std::exit(1);
}

void must(tw_status_t status, const char* call) {
    if (status != TW_OK)
        fail(std::string(call) + ": " + tw_status_string(status));
}

double now_ns() {
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// The first CPUs that the process may use, one for each thread.
std::array<std::size_t, kThreads> cpus_of_threads() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_COUNT(&allowed) < static_cast<int>(kThreads)) {
        fail("two CPUs are needed, one for each thread");
    }
    std::array<std::size_t, kThreads> cpus{};
    std::size_t cpu = 0;
    for (std::size_t& one : cpus) {
        while (!CPU_ISSET(cpu, &allowed))
            ++cpu;
        one = cpu++;
    }
    return cpus;
}

void pin_to(std::size_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        fail("cannot run on one of the CPUs");
}

tw_worker_h make_worker(tw_context_h context, tw_thread_mode_t mode, unsigned tx_contexts) {
    tw_worker_params_t params{};
    params.thread_mode = mode;
    params.tx_contexts = tx_contexts;
    tw_worker_h worker = nullptr;
    must(tw_worker_create(context, &params, &worker), "tw_worker_create");
    return worker;
}

/// The workers, peers and endpoints of a way, and what was measured.
class Arrangement {
  public:
    Arrangement(tw_context_h context, const Way& its_way) : way(its_way) {
        for (std::size_t i = 0; i < way.threads; ++i) {
            workers_[i] = i > 0 && way.is_shared ? workers_[0]
                                                 : make_worker(context, way.mode, way.tx_contexts);
            peers_[i] = make_worker(context, TW_THREAD_SINGLE, 1);
            std::uint8_t address[TW_ADDRESS_BYTES_MAX];
            std::size_t length = sizeof address;
            must(tw_worker_address(peers_[i], address, &length), "tw_worker_address");
            tw_ep_params_t params{};
            params.address = address;
            params.address_length = length;
            must(tw_ep_create(workers_[i], &params, &eps_[i]), "tw_ep_create");
        }
    }
    ~Arrangement() {
        for (std::size_t i = 0; i < way.threads; ++i) {
            if (i == 0 || !way.is_shared)
                tw_worker_destroy(workers_[i]);
            tw_worker_destroy(peers_[i]);
        }
    }
    Arrangement(const Arrangement&) = delete;
    Arrangement& operator=(const Arrangement&) = delete;

    void send_burst(std::size_t thread) {
        const tw_ep_h ep = eps_[thread];
        std::uint64_t refusals = 0, left = 0;
        begin_[thread] = now_ns();
        for (std::uint64_t i = 0; i < kBurst; ++i) {
            tw_status_t status;
            while ((status = tw_tag_send(ep, &kPayload, sizeof kPayload, i, nullptr, nullptr)) ==
                   TW_ERR_NO_RESOURCE) {
                ++refusals;
                tw_worker_progress(workers_[thread]);
            }
            if (status == TW_INPROGRESS)
                ++left;
            else if (status != TW_OK)
                fail(std::string("tw_tag_send: ") + tw_status_string(status));
        }
        end_[thread] = now_ns();
        refusals_[thread] += refusals;
        left_[thread] += left;
    }

    /// The peer of `thread` receives the thread's burst.
    void drain(std::size_t thread) const {
        const tw_worker_h peer = peers_[thread];
        std::uint64_t value;
        for (std::uint64_t i = 0; i < kBurst; ++i) {
            tw_request_h request = nullptr;
            tw_status_t status = tw_tag_recv(peer, &value, sizeof value, i, 0, nullptr, &request);
            if (status == TW_INPROGRESS) {
                while ((status = tw_request_test(request, nullptr)) == TW_INPROGRESS) {
                    tw_worker_progress(peer);
                    tw_worker_progress(workers_[thread]);
                }
                tw_request_free(request);
            }
            must(status, "tw_tag_recv");
        }
    }

    void keep_rate() {
        const auto threads = static_cast<std::ptrdiff_t>(way.threads);
        const double ns = *std::max_element(end_.begin(), end_.begin() + threads) -
                          *std::min_element(begin_.begin(), begin_.begin() + threads);
        rates_.push_back(static_cast<double>(kBurst * way.threads) / ns * 1e9);
    }
    /// Drops the measurements so far, which were to warm up.
    void restart() {
        rates_.clear();
        refusals_.fill(0);
        left_.fill(0);
    }

    /// Messages per second of all threads together, sorted.
    std::vector<double> rates() const {
        std::vector<double> sorted = rates_;
        std::ranges::sort(sorted);
        return sorted;
    }
    std::uint64_t refusals() const { return refusals_[0] + refusals_[1]; }
    /// Sends that began but had not ended when their call returned (TW_INPROGRESS).
    std::uint64_t left() const { return left_[0] + left_[1]; }
    std::uint64_t sends() const { return rates_.size() * way.threads * kBurst; }

    const Way& way;

  private:
    std::array<tw_worker_h, kThreads> workers_{}, peers_{};
    std::array<tw_ep_h, kThreads> eps_{};
    // Each thread writes its own; the barriers of Rounds stand between that and who reads.
    std::array<double, kThreads> begin_{}, end_{};
    std::array<std::uint64_t, kThreads> refusals_{}, left_{};
    std::vector<double> rates_;
};

using Arrangements = std::vector<std::unique_ptr<Arrangement>>;

/// The threads that send, and drain each other's peers.
class Rounds {
  public:
    Rounds(const Arrangements& arrangements, std::size_t count)
        : arrangements_(arrangements), count_(count) {}

    void run() {
        const std::array<std::size_t, kThreads> cpus = cpus_of_threads();
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < kThreads; ++i) {
            threads.emplace_back([this, cpu = cpus[i], i] {
                pin_to(cpu);
                for (std::size_t round = 0; round < kWarmUpRounds + count_; ++round)
                    take(i, round == kWarmUpRounds);
            });
        }
        for (std::thread& thread : threads)
            thread.join();
    }

  private:
    void take(std::size_t thread, bool is_first) {
        for (const auto& one : arrangements_) {
            if (thread == 0 && is_first)
                one->restart();
            together_.arrive_and_wait();
            if (thread < one->way.threads) {
                if (one->way.threads == kThreads)
                    start_together();
                one->send_burst(thread);
            }
            together_.arrive_and_wait();
            if (thread == 0)
                one->keep_rate();
            if (const std::size_t other = kThreads - 1 - thread; other < one->way.threads)
                one->drain(other);
            together_.arrive_and_wait();
        }
    }

    /// Returns in both threads at the same time, up to the transfer of a cache line. A barrier that
    /// sleeps is not that exact.
    void start_together() {
        // Relaxed: the barriers order what the threads read of each other.
        const std::uint64_t mine = ready_.fetch_add(1, std::memory_order_relaxed);
        const std::uint64_t all = mine / kThreads * kThreads + kThreads;
        while (ready_.load(std::memory_order_relaxed) < all) {
        }
    }

    const Arrangements& arrangements_;
    const std::size_t count_;
    std::barrier<> together_{static_cast<std::ptrdiff_t>(kThreads)};
    alignas(64) std::atomic<std::uint64_t> ready_ = 0;
};

struct Wanted {
    std::size_t rounds = kDefaultRounds;
    std::vector<const Way*> ways;
};

Wanted parse(int argc, char** argv) {
    CLI::App app(
        "Rate at which threads hand 8-byte messages over to sm while these fit into the rings, "
        "which have " +
        std::string(kRingSlots) + " slots unless TAGWIRE_SM_RING_SLOTS says how many");
    std::string docs = "Ways to measure, in turn (default all): ";
    std::vector<std::string> known, names;
    for (const Way& way : kWays) {
        known.emplace_back(way.name);
        docs += (known.size() == 1 ? "" : "; ") + known.back() + ", " + way.doc;
    }
    Wanted wanted;
    app.add_option("--rounds", wanted.rounds,
                   "Rounds, each with a burst of " + std::to_string(kBurst) + " messages a thread")
        ->check(CLI::Range(std::uint64_t{1}, kRoundsMax))
        ->capture_default_str();
    app.add_option("way", names, docs)->check(CLI::IsMember(known));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    for (const Way& way : kWays)
        if (names.empty() || std::ranges::find(names, way.name) != names.end())
            wanted.ways.push_back(&way);
    return wanted;
}

double median_of(const Arrangement& one) {
    const std::vector<double> sorted = one.rates();
    return sorted[sorted.size() / 2];
}

/// nullptr: it was not measured.
const Arrangement* named(const Arrangements& all, std::string_view name) {
    const auto at =
        std::ranges::find_if(all, [&](const auto& one) { return one->way.name == name; });
    return at == all.end() ? nullptr : at->get();
}

void print(const Arrangements& all, std::size_t rounds) {
    std::printf("%zu rounds, bursts of %llu messages a thread\n\n%-10s  %10s  %10s\n", rounds,
                static_cast<unsigned long long>(kBurst), "way", "median", "best");
    for (const auto& one : all) {
        std::printf("%-10s  %6.2f M/s  %6.2f M/s  %s\n", one->way.name, median_of(*one) * 1e-6,
                    one->rates().back() * 1e-6, one->way.doc);
        if (one->refusals() > 0) {
            std::printf("%-10s  %llu sends had to be repeated: the rings were full\n", "",
                        static_cast<unsigned long long>(one->refusals()));
        }
        if (one->left() > 0) {
            std::printf("%-10s  %.1f %% of the sends were not over when their call returned\n", "",
                        100 * static_cast<double>(one->left()) / static_cast<double>(one->sends()));
        }
    }
    std::printf("\n");
    for (const Ratio& ratio : kRatios) {
        const Arrangement* const two = named(all, ratio.two);
        const Arrangement* const one = named(all, ratio.one);
        if (two == nullptr || one == nullptr)
            continue;
        const double value = median_of(*two) / median_of(*one);
        std::printf("%s / %s: %.2f", ratio.two, ratio.one, value);
        if (ratio.at_least > 0) {
            std::printf(" (target >= %.2f: %s)", ratio.at_least,
                        value >= ratio.at_least ? "met" : "MISSED");
        }
        std::printf("\n");
    }
}

void measure(const Wanted& wanted) {
    tw_context_params_t params{};
    params.transports = "sm";
    tw_context_h context = nullptr;
    must(tw_context_create(&params, &context), "tw_context_create");
    {
        Arrangements arrangements;
        for (const Way* way : wanted.ways)
            arrangements.push_back(std::make_unique<Arrangement>(context, *way));
        Rounds(arrangements, wanted.rounds).run();
        print(arrangements, wanted.rounds);
    }
    tw_context_destroy(context);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        setenv("TAGWIRE_SM_RING_SLOTS", kRingSlots, 0);
        measure(parse(argc, argv));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_sends: %s\n", error.what());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
