// SPDX-License-Identifier: BSD-3-Clause
// Messages per second of threads over UCP, in the arrangements of `tagwire perf --threads` at level
// msg, which ucx_perftest -T has one of: bench/threads.py runs both. No code of ours is in it.
//
// Usage: ucp_threads context|worker single|multi THREADS POLLERS spin|yield COUNT|SECONDSs CPUS
//
// THREADS threads of one process send tagged messages of 8 bytes to themselves, COUNT each or for
// so long ("0.3s"), with a worker each (context) or over one. POLLERS threads progress the first
// worker meanwhile. Each is pinned to the next of CPUS ("0,1"); "yield" gives it away while nothing
// arrives. Prints the rate of all threads together, and that of each by the processor time that it
// took.
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ucp_program.hpp"

using namespace ucp_program;

namespace {

constexpr std::uint64_t kWindow = 64;
constexpr unsigned kThreadShift = 40;  // tags: the thread, then the number of the message

double thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

struct Worker {
    ucp_worker_h worker = nullptr;
    ucp_ep_h ep = nullptr;

    Worker(ucp_context_h context, ucs_thread_mode_t mode) {
        ucp_worker_params_t params{};
        params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        params.thread_mode = mode;
        must(ucp_worker_create(context, &params, &worker), "ucp_worker_create");
        ucp_worker_attr_t attr{};
        attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
        must(ucp_worker_query(worker, &attr), "ucp_worker_query");
        if (mode == UCS_THREAD_MODE_MULTI && attr.thread_mode != UCS_THREAD_MODE_MULTI)
            fail("this UCX was built without --enable-mt: its workers are for one thread");
        ucp_address_t* address = nullptr;
        std::size_t length = 0;
        must(ucp_worker_get_address(worker, &address, &length), "ucp_worker_get_address");
        ucp_ep_params_t to{};
        to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        to.address = address;
        must(ucp_ep_create(worker, &to, &ep), "ucp_ep_create");
        ucp_worker_release_address(worker, address);
    }
};

/// The messages of one thread.
class Stream {
  public:
    Stream(const Worker& worker, std::uint64_t thread, bool yields)
        : worker_(worker), own_tags_(thread << kThreadShift), yields_(yields) {}

    void run(std::uint64_t count) {
        const std::uint64_t end = sent_ + count;
        while (received_.load(std::memory_order_relaxed) < end) {
            const std::uint64_t received = received_.load(std::memory_order_relaxed);
            for (; posted_ < std::min(end, received + 2 * kWindow); ++posted_)
                post(posted_);
            for (; sent_ < std::min(end, received + kWindow); ++sent_)
                send(sent_);
            if (ucp_worker_progress(worker_.worker) == 0 && yields_)
                sched_yield();
        }
    }

  private:
    static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t*,
                            void* self) {
        must(status, "ucp_tag_recv_nbx");
        static_cast<Stream*>(self)->received_.fetch_add(1, std::memory_order_relaxed);
        ucp_request_free(request);
    }

    void post(std::uint64_t sequence) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param.cb.recv = &on_received;
        param.user_data = this;
        void* const request =
            ucp_tag_recv_nbx(worker_.worker, &in_[sequence % (2 * kWindow)], sizeof in_[0],
                             own_tags_ | sequence, ~ucp_tag_t{0}, &param);
        if (UCS_PTR_IS_ERR(request))
            must(UCS_PTR_STATUS(request), "ucp_tag_recv_nbx");
        if (request == nullptr)
            received_.fetch_add(1, std::memory_order_relaxed);
    }

    void send(std::uint64_t sequence) {
        const ucp_request_param_t param{};
        void* const request =
            ucp_tag_send_nbx(worker_.ep, &out_, sizeof out_, own_tags_ | sequence, &param);
        if (UCS_PTR_IS_ERR(request))
            must(UCS_PTR_STATUS(request), "ucp_tag_send_nbx");
        if (request != nullptr)
            ucp_request_free(request);  // once it has completed
    }

    const Worker& worker_;
    const std::uint64_t own_tags_;
    const bool yields_;
    std::uint64_t posted_ = 0, sent_ = 0;
    std::uint64_t out_ = 0;
    std::uint64_t in_[2 * kWindow] = {};
    // Counted by whichever thread progresses. Relaxed: nobody reads the messages.
    alignas(64) std::atomic<std::uint64_t> received_ = 0;
};

struct Plan {
    bool is_shared, is_multi;
    std::uint64_t threads, pollers;
    bool yields;
    std::uint64_t count;  // of each thread, or of a part of what it sends
    double seconds;       // so many parts; 0: one
    std::vector<int> cpus;
};

/// Returns the number of messages.
std::uint64_t run_stream(const Plan& plan, Stream& stream) {
    const double end_ns = now_ns() + plan.seconds * 1e9;
    std::uint64_t sent = 0;
    do {
        stream.run(plan.count);
        sent += plan.count;
    } while (now_ns() < end_ns);
    return sent;
}

ucp_context_h open_context(const Plan& plan) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_TAG;
    params.mt_workers_shared = plan.threads > 1 && !plan.is_shared ? 1 : 0;
    ucp_context_h context = nullptr;
    must(ucp_init(&params, nullptr, &context), "ucp_init");
    return context;
}

void run(const Plan& plan) {
    const ucp_context_h context = open_context(plan);
    std::vector<Worker> workers;
    for (std::uint64_t i = 0; i < (plan.is_shared ? 1 : plan.threads); ++i)
        workers.emplace_back(context,
                             plan.is_multi ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE);
    std::vector<double> begin(plan.threads), end(plan.threads), cpu_ns(plan.threads);
    std::vector<std::uint64_t> sent(plan.threads);
    std::barrier together(static_cast<std::ptrdiff_t>(plan.threads));
    std::atomic<bool> is_over = false;  // relaxed: nothing else is read for it
    const auto cpu_of = [&](std::uint64_t i) { return plan.cpus[i % plan.cpus.size()]; };
    std::vector<std::thread> pollers, threads;
    for (std::uint64_t i = 0; i < plan.pollers; ++i) {
        pollers.emplace_back([&, i] {
            pin_to(cpu_of(plan.threads + i));
            while (!is_over.load(std::memory_order_relaxed))
                if (ucp_worker_progress(workers[0].worker) == 0 && plan.yields)
                    sched_yield();
        });
    }
    for (std::uint64_t i = 0; i < plan.threads; ++i) {
        threads.emplace_back([&, i] {
            pin_to(cpu_of(i));
            Stream stream(workers[plan.is_shared ? 0 : i], i, plan.yields);
            stream.run(plan.count / 10 + 1);
            together.arrive_and_wait();
            begin[i] = now_ns();
            const double cpu_begin = thread_cpu_ns();
            sent[i] = run_stream(plan, stream);
            cpu_ns[i] = thread_cpu_ns() - cpu_begin;
            end[i] = now_ns();
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    is_over.store(true, std::memory_order_relaxed);
    for (std::thread& thread : pollers)
        thread.join();
    const double ns = *std::ranges::max_element(end) - *std::ranges::min_element(begin);
    const std::uint64_t all = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
    std::printf("messages_per_s %.0f\nby_cpu_time", static_cast<double>(all) / ns * 1e9);
    for (std::uint64_t i = 0; i < plan.threads; ++i)
        std::printf(" %.0f", static_cast<double>(sent[i]) / cpu_ns[i] * 1e9);
    std::printf("\n");
    // Workers and context end with the process: closing them is not measured.
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8)
        fail(
            "usage: ucp_threads context|worker single|multi THREADS POLLERS spin|yield "
            "COUNT|SECONDSs CPUS");
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    constexpr std::uint64_t kPart = 4000;
    const bool is_timed = words[5].ends_with('s');
    const Plan plan{.is_shared = words[0] == "worker",
                    .is_multi = words[1] == "multi",
                    .threads = number(words[2]),
                    .pollers = number(words[3]),
                    .yields = words[4] == "yield",
                    .count = is_timed ? kPart : number(words[5]),
                    .seconds = is_timed ? std::atof(argv[6]) : 0,
                    .cpus = cpu_list(words[6])};
    if (plan.threads == 0 || plan.count == 0)
        fail("THREADS and COUNT are from 1 on");
    run(plan);
    return 0;
}
