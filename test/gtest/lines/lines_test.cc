// SPDX-License-Identifier: BSD-3-Clause
// Which cache lines threads share: none where each has a worker, and a constant number per message
// where all use one.
#include <tagwire.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "lines/analysis.hpp"
#include "protocols/fixture.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/reg_cache.hpp"

namespace tagwire::test {
namespace {

struct Traffic {
    const char* name;
    std::size_t bytes;
    bool is_unexpected;  // sent before the receive is posted
    bool has_handle;     // the buffers were mapped
};

constexpr std::size_t kBytesMax = 65536;
// clang-format off
constexpr Traffic kTraffic[] = {
    {"8 bytes", 8, false, false},
    {"8 bytes, unexpected", 8, true, false},
    {"1 KiB", 1024, false, false},
    {"1 KiB, unexpected", 1024, true, false},
    {"16 KiB", 16384, false, false},
    {"64 KiB", kBytesMax, false, false},
    {"64 KiB, unexpected", kBytesMax, true, false},
    {"64 KiB, mapped", kBytesMax, false, true},
};
// clang-format on
constexpr unsigned kLayouts = 10;
constexpr int kWarmup = 100;
constexpr int kMessages = 100;
/// Enough for each line of a pool to be used by several threads.
constexpr std::uint32_t kSharedWarmup = 200;
constexpr std::uint32_t kSharedMessages = 2000;
constexpr std::uint32_t kLongSharedMessages = 500;
constexpr int kStepsMax = 10'000'000;

/// A thread's use of a worker: it sends to the worker itself.
class User {
  public:
    User(tw_context_h context, Node& node, std::uint64_t tag)
        : context_(context), worker_(node.worker()), ep_(node.to(node)), tag_(tag) {
        for (Memory& memory : memory_) {
            memory.bytes = std::aligned_alloc(4096, kBytesMax);
            EXPECT_NE(memory.bytes, nullptr);
            std::memset(memory.bytes, static_cast<int>(tag), kBytesMax);
            EXPECT_EQ(tw_mem_map(context, memory.bytes, kBytesMax, nullptr, &memory.handle), TW_OK);
        }
    }
    User(const User&) = delete;
    User& operator=(const User&) = delete;
    ~User() {
        for (const Memory& memory : memory_) {
            tw_mem_unmap(context_, memory.handle);
            std::free(memory.bytes);
        }
    }

    void exchange(const Traffic& traffic) {
        tw_request_h receive = nullptr, send = nullptr;
        if (!traffic.is_unexpected)
            post(traffic, &receive);
        tw_op_t op{};
        op.mem = traffic.has_handle ? memory_[0].handle : nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        for (int i = 0; i < kStepsMax && status == TW_ERR_NO_RESOURCE; ++i) {
            status = tw_tag_send(ep_, memory_[0].bytes, traffic.bytes, tag_, &op, &send);
            if (status == TW_ERR_NO_RESOURCE)
                tw_worker_progress(worker_);
        }
        EXPECT_GE(status, TW_OK);
        if (traffic.is_unexpected) {
            for (int i = 0; i < 3; ++i)
                tw_worker_progress(worker_);
            post(traffic, &receive);
        }
        finish(receive);
        finish(send);
    }

  private:
    struct Memory {
        void* bytes = nullptr;
        tw_mem_h handle = nullptr;
    };

    void post(const Traffic& traffic, tw_request_h* request_p) {
        tw_op_t op{};
        op.mem = traffic.has_handle ? memory_[1].handle : nullptr;
        EXPECT_GE(tw_tag_recv(worker_, memory_[1].bytes, traffic.bytes, tag_, 0, &op, request_p),
                  TW_OK);
    }
    void finish(tw_request_h request) {
        if (request == nullptr)
            return;
        int steps = 0;
        while (tw_request_test(request, nullptr) == TW_INPROGRESS && ++steps < kStepsMax)
            tw_worker_progress(worker_);
        EXPECT_EQ(tw_request_test(request, nullptr), TW_OK);
        tw_request_free(request);
    }

    tw_context_h context_;
    tw_worker_h worker_;
    tw_ep_h ep_;
    std::uint64_t tag_;
    Memory memory_[2];  // sent, received
};

/// Blocks in the heap with gaps between them, so that what is made next lies beside each other in
/// another way than without.
class Litter {
  public:
    explicit Litter(unsigned seed) {
        std::mt19937 random(seed);
        std::vector<std::unique_ptr<char[]>> gaps;
        for (unsigned i = 0; i < 400 * seed; ++i)
            (i % 2 == 0 ? blocks_ : gaps).push_back(std::make_unique<char[]>(1 + random() % 500));
    }

  private:
    std::vector<std::unique_ptr<char[]>> blocks_;
};

struct Recorded {
    explicit Recorded(std::size_t threads) : recorders(threads) {
        for (const LineRecorder& recorder : recorders)
            pointers.push_back(&recorder);
    }
    Records records() const { return pointers; }
    bool is_whole() const {
        return std::ranges::none_of(recorders, &LineRecorder::is_full) &&
               std::ranges::none_of(recorders, [](const LineRecorder& recorder) {
                   return recorder.touches().empty();
               });
    }

    std::vector<LineRecorder> recorders;
    std::vector<const LineRecorder*> pointers;
};

void run_threads(std::size_t count, const std::function<void(std::size_t)>& run) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < count; ++i)
        threads.emplace_back(run, i);
    for (std::thread& thread : threads)
        thread.join();
}

/// Short messages go eagerly and long ones by rendezvous, whatever is faster here and now.
class LinesTest : private Settings, public MsgTest {
  protected:
    LinesTest() : Settings({{"TAGWIRE_RNDV_THRESHOLD", "32k"}}) {}

    /// `count` threads, each with a worker, exchange messages at the same time.
    void expect_no_shared_line(std::size_t count, tw_thread_mode_t mode) {
        for (unsigned layout = 0; layout < kLayouts && !HasFailure(); ++layout) {
            SCOPED_TRACE("layout " + std::to_string(layout));
            const Litter litter(layout);
            renew_context();
            expect_none(count, mode);
        }
    }
    void expect_none(std::size_t count, tw_thread_mode_t mode) {
        std::vector<std::unique_ptr<Node>> nodes;
        for (std::size_t i = 0; i < count; ++i)
            nodes.push_back(std::make_unique<Node>(context_.get(), mode));
        std::vector<std::unique_ptr<User>> users;
        for (std::size_t i = 0; i < count; ++i)
            users.push_back(std::make_unique<User>(context_.get(), *nodes[i], i + 1));
        Recorded recorded(count);
        std::barrier all(static_cast<std::ptrdiff_t>(count));
        run_threads(count, [&](std::size_t i) {
            for (const Traffic& traffic : kTraffic) {
                for (int message = 0; message < kWarmup; ++message)
                    users[i]->exchange(traffic);
                all.arrive_and_wait();
                recorded.recorders[i].start(static_cast<std::uint32_t>(i));
                for (int message = 0; message < kMessages; ++message)
                    users[i]->exchange(traffic);
                LineRecorder::stop();
                all.arrive_and_wait();
                if (i == 0)
                    expect_none_shared(recorded, traffic.name);
                all.arrive_and_wait();
                recorded.recorders[i].clear();
            }
        });
    }

    static void expect_none_shared(const Recorded& recorded, const char* name) {
        EXPECT_TRUE(recorded.is_whole()) << name;
        const Mappings mappings;
        const std::vector<SharedLine> lines = shared_lines(recorded.records(), mappings);
        EXPECT_TRUE(lines.empty()) << name << ": " << report(lines, mappings);
    }

    /// Lines that a message writes and that several threads write, where `count` threads use one
    /// worker, one message at a time.
    double shared_writes_of_one_worker(std::size_t count, const Traffic& traffic) {
        Node node(context_.get(), TW_THREAD_MULTI);
        std::vector<std::unique_ptr<User>> users;
        for (std::size_t i = 0; i < count; ++i)
            users.push_back(std::make_unique<User>(context_.get(), node, i + 1));
        Recorded recorded(count);
        const std::uint32_t turns =
            kSharedWarmup + (traffic.bytes > 1024 ? kLongSharedMessages : kSharedMessages);
        // In no order, for the worker's pools and rings have one, too.
        std::mt19937 random(1);
        std::vector<std::size_t> thread_of(turns);
        for (std::size_t& thread : thread_of)
            thread = random() % count;
        std::atomic<std::uint32_t> turn{0};
        run_threads(count, [&](std::size_t i) {
            for (std::uint32_t own = 0; own < turns; ++own) {
                if (thread_of[own] != i)
                    continue;
                while (turn.load(std::memory_order_acquire) !=
                       own)  // SYNC lines_turn: stored below
                    std::this_thread::yield();
                if (own >= kSharedWarmup)
                    recorded.recorders[i].start(own);
                users[i]->exchange(traffic);
                LineRecorder::stop();
                turn.store(own + 1, std::memory_order_release);  // SYNC lines_turn: it is over
            }
        });
        EXPECT_TRUE(recorded.is_whole());
        const Mappings mappings;
        if (std::getenv("TAGWIRE_TEST_REPORT") != nullptr)
            std::puts(report(shared_lines(recorded.records(), mappings), mappings).c_str());
        return written_by_many_per_turn(recorded.records(), mappings);
    }
};

TEST_F(LinesTest, recorders_see_what_threads_share) {
    constexpr std::size_t kWords = kLineBytes / sizeof(std::uint64_t);
    alignas(kLineBytes) std::uint64_t words[3 * kWords] = {};
    Recorded recorded(2);
    std::uint32_t turn = 0;
    const auto run = [&](std::size_t i, std::size_t word, bool writes) {
        recorded.recorders[i].start(turn++);
        LineRecorder::note(&words[word], sizeof words[word], writes, nullptr);
        LineRecorder::stop();
    };
    run(0, 0, true);  // the first line: both write, words of their own
    run(1, 1, true);
    run(0, 0, true);
    run(0, kWords, false);  // the second: both read
    run(1, kWords, false);
    run(1, 2 * kWords, true);  // the third: one alone
    const Mappings mappings;
    const std::vector<SharedLine> lines = shared_lines(recorded.records(), mappings);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_EQ(lines[0].line, reinterpret_cast<std::uintptr_t>(words) / kLineBytes);
    EXPECT_EQ(lines[0].sides[0].written, 0xffU);
    EXPECT_EQ(lines[0].sides[1].written, 0xff00U);
    EXPECT_EQ(written_by_many_per_turn(recorded.records(), mappings), 3.0 / 6);
}

TEST_F(LinesTest, two_threads_with_a_worker_each_write_no_shared_line) {
    expect_no_shared_line(2, TW_THREAD_SINGLE);
}

TEST_F(LinesTest, four_threads_with_a_worker_each_write_no_shared_line) {
    expect_no_shared_line(4, TW_THREAD_SINGLE);
}

TEST_F(LinesTest, workers_with_a_lock_write_no_shared_line) {
    expect_no_shared_line(3, TW_THREAD_MULTI);
}

/// Each to a peer of its own, of one worker.
TEST_F(LinesTest, threads_with_a_transmit_context_each_send_without_a_shared_line) {
    constexpr std::size_t kThreads = 3;
    constexpr int kBursts = 20, kBurst = 20;
    tw_worker_params_t params{};
    params.thread_mode = TW_THREAD_MULTI;
    params.tx_contexts = kThreads;
    Node from(context_.get(), params);
    std::vector<std::unique_ptr<Node>> peers;
    for (std::size_t i = 0; i < kThreads; ++i)
        peers.push_back(std::make_unique<Node>(context_.get()));
    for (const std::size_t bytes : {8U, 1024U}) {
        Recorded recorded(kThreads);
        std::barrier all(static_cast<std::ptrdiff_t>(kThreads));
        run_threads(kThreads, [&](std::size_t i) {
            const Bytes data(bytes);
            Bytes to(bytes);
            const tw_ep_h ep = from.to(*peers[i]);
            for (int burst = 0; burst < kBursts; ++burst) {
                if (burst >= kBursts / 2)
                    recorded.recorders[i].start(static_cast<std::uint32_t>(i));
                for (int k = 0; k < kBurst; ++k)
                    EXPECT_GE(tw_tag_send(ep, data.data(), bytes, 1, nullptr, nullptr), TW_OK);
                LineRecorder::stop();
                for (int k = 0; k < kBurst; ++k) {
                    tw_request_h request = nullptr;
                    if (tw_tag_recv(peers[i]->worker(), to.data(), bytes, 1, 0, nullptr,
                                    &request) != TW_INPROGRESS)
                        continue;
                    while (tw_request_test(request, nullptr) == TW_INPROGRESS) {
                        tw_worker_progress(peers[i]->worker());
                        tw_worker_progress(from.worker());
                    }
                    tw_request_free(request);
                }
                all.arrive_and_wait();
            }
        });
        expect_none_shared(recorded, bytes == 8 ? "8 bytes" : "1 KiB");
    }
}

TEST_F(LinesTest, hits_of_the_registration_cache_write_no_shared_line) {
    constexpr std::size_t kThreads = 3;
    std::unique_ptr<proto::Context> context;
    ASSERT_EQ(proto::Context::create("sm", &context), UCS_OK);
    proto::RegCache cache(*context, 2 * kThreads * kBytesMax);
    std::vector<std::unique_ptr<proto::RegLeases>> leases;
    std::vector<void*> buffers;
    for (std::size_t i = 0; i < kThreads; ++i) {
        leases.push_back(std::make_unique<proto::RegLeases>(cache));
        buffers.push_back(std::aligned_alloc(4096, kBytesMax));
    }
    const auto use = [&](std::size_t i, std::size_t buffer) {
        bool is_new = false;
        proto::RegLease* lease =
            leases[i]->acquire(0, buffers[buffer], kBytesMax, proto::RegUse::kTarget, &is_new);
        ASSERT_NE(lease, nullptr);
        proto::RegLeases::release(*lease, true);
    };
    Recorded recorded(kThreads);
    std::barrier all(static_cast<std::ptrdiff_t>(kThreads));
    run_threads(kThreads, [&](std::size_t i) {
        for (int round = 0; round < 2; ++round) {
            use(i, i);
            use(i, kThreads - 1);  // one that all use
            all.arrive_and_wait();
        }
        recorded.recorders[i].start(static_cast<std::uint32_t>(i));
        for (int hit = 0; hit < kMessages; ++hit) {
            use(i, i);
            use(i, kThreads - 1);
        }
        LineRecorder::stop();
    });
    EXPECT_TRUE(recorded.is_whole());
    const Mappings mappings;
    const std::vector<SharedLine> lines = shared_lines(recorded.records(), mappings);
    EXPECT_TRUE(lines.empty()) << report(lines, mappings);
    leases.clear();
    for (void* buffer : buffers)
        std::free(buffer);
}

TEST_F(LinesTest, shared_lines_per_message_do_not_grow_with_the_threads_of_a_worker) {
    // Receivers learn from times: messages of 16 KiB would go either way.
    const ::tagwire::test::Settings settings({{"TAGWIRE_RNDV_THRESHOLD", "8k"}});
    renew_context();
    for (const Traffic& traffic : kTraffic) {
        const double two = shared_writes_of_one_worker(2, traffic);
        const double four = shared_writes_of_one_worker(4, traffic);
        std::printf("%-20s lines per message that several threads write: %.1f of 2, %.1f of 4\n",
                    traffic.name, two, four);
        EXPECT_LE(four, 1.1 * two + 2) << traffic.name;
    }
}

}  // namespace
}  // namespace tagwire::test
