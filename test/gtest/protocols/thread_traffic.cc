// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/thread_traffic.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace tagwire::test {

namespace {

constexpr std::uint64_t kThreadTrafficWaitNs = 200'000;
constexpr std::size_t kThreadTrafficCapacities[] = {2, 4, 64, 4096};

}  // namespace

thread_local TrafficThread* ThreadTraffic::t_self = nullptr;

ThreadTraffic::ThreadTraffic(std::uint64_t seed, tw_context_h context, const Options& options)
    : context_(context), options_(options), seed_(seed) {
    const unsigned workers = options_.workers + (options_.has_death ? 1 : 0);
    for (unsigned i = 0; i < workers; ++i)
        open_worker();
    for (unsigned i = 0; i < workers * workers; ++i)
        ways_.emplace_back();
    for (unsigned i = 0; i < options_.threads + (options_.has_death ? 1 : 0); ++i) {
        TrafficThread& thread = threads_.emplace_back();
        thread.number = i;
        thread.random.seed(seed * 1009 + i);
        thread.sends = std::make_unique<ThreadOp[]>(options_.steps * 4);
    }
    if (options_.has_death)
        threads_.back().mortal = options_.workers;
    main_.random.seed(seed);
    tw_cq_params_t params{};
    params.capacity = kThreadTrafficCapacities[pick(main_, std::size(kThreadTrafficCapacities))];
    EXPECT_EQ(tw_cq_create(context_, &params, &queue_), TW_OK);
    EXPECT_EQ(tw_counter_create(&counter_), TW_OK);
    if (options_.has_others) {
        memory_.open();
        am_.open();
    }
}

ThreadTraffic::~ThreadTraffic() {
    for (const ThreadWorker& worker : workers_)
        memory_.free_keys(worker.index);
    workers_.clear();
    tw_cq_destroy(queue_);
    tw_counter_destroy(counter_);
    for_each_op([&](ThreadOp& op) { give_back(op); });
}

void ThreadTraffic::open_worker() {
    ThreadWorker& shared = workers_.emplace_back();
    shared.traffic = this;
    shared.index = static_cast<unsigned>(workers_.size() - 1);
    tw_worker_params_t params{};
    params.thread_mode = TW_THREAD_MULTI;
    params.tx_contexts = options_.tx_contexts;
    params.ep_failed = on_failure;
    params.ep_failed_arg = this;
    params.peer_event = on_peer;
    params.peer_event_arg = &shared;
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context_, &params, &worker), TW_OK);
    shared.worker.reset(worker);
    shared.address.resize(TW_ADDRESS_BYTES_MAX);
    std::size_t length = shared.address.size();
    EXPECT_EQ(tw_worker_address(worker, shared.address.data(), &length), TW_OK);
    shared.address.resize(length);
    EXPECT_EQ(tw_address_worker_id(shared.address.data(), length, &shared.id), TW_OK);
    tw_worker_attr_t attr{};
    EXPECT_EQ(tw_worker_query(worker, &attr), TW_OK);
    shared.buffered_limit = attr.buffered_bytes_limit;
    shared.buffered_min = attr.buffered_bytes_min;
    int fd = -1;
    EXPECT_EQ(tw_worker_fd(worker, &fd), TW_OK);  // tw_worker_arm() needs it
}

/// One that this thread may use.
unsigned ThreadTraffic::some_worker(TrafficThread& self) {
    return self.mortal ? *self.mortal : static_cast<unsigned>(pick(self, options_.workers));
}

void ThreadTraffic::run() {
    std::vector<std::thread> threads;
    for (TrafficThread& thread : threads_)
        threads.emplace_back([this, &thread] { live(thread); });
    const auto all = static_cast<unsigned>(threads_.size());
    wait_for_threads("every thread takes its steps", [&] { return acting_ == all; });
    is_settling_ = true;
    wait_for_threads("everything is received", [&] { return is_everything_received(); });
    may_end_ = true;
    wait_for_threads("every thread returns", [&] { return settling_ == all; });
    for (std::thread& thread : threads)
        thread.join();
    if (!has_failed_)
        finish();
    if (!has_failed_) {
        check_statuses();
        check_reference();
        check_counter();
    }
    if (!has_failed_ && options_.has_others) {
        memory_.check();
        am_.check();
    }
    EXPECT_TRUE(wrong_.empty()) << "seed " << seed_ << ", " << options_.threads << " threads, "
                                << options_.workers << " workers:\n"
                                << wrong_ << history();
}

void ThreadTraffic::live(TrafficThread& self) {
    t_self = &self;
    const std::uint64_t death =
        self.mortal ? options_.steps / 3 + pick(self, options_.steps / 3) : options_.steps;
    for (std::uint64_t step = 0; step < death && !has_failed_; ++step) {
        const unsigned worker = some_worker(self);
        for (std::uint64_t left = 1 + pick(self, 3); left > 0; --left)
            act(self, worker);
        for (std::uint64_t left = pick(self, 4); left > 0; --left)
            work(self, some_worker(self));
    }
    if (self.mortal)
        die(self);
    self.depth = 1;  // nothing is begun in callbacks any more
    ++acting_;
    settle(self);
    ++settling_;
    t_self = nullptr;
}

// ---- Calls

void ThreadTraffic::act(TrafficThread& self, unsigned worker) {
    if (options_.has_closes && chance(self, 80))
        return close(self, worker);
    const std::uint64_t what = pick(self, 100);
    if (what < 8)
        return peek(self, worker);
    if (what < 14)
        return claim(self, worker);
    if (what < 18)
        return cancel(self);
    if (what < 20)
        return look(self, worker);
    if (workers_[worker].open >= options_.open_max)
        return;
    if (options_.has_others && chance(self, 2))
        return act_otherwise(self, worker);
    if (what < 23)
        return flush(self, worker);
    if (what < 26)
        return receive_many(self, worker);
    if (what < 60)
        return receive(self, worker);
    send(self, worker);
}

/// Calls that change nothing that lasts.
void ThreadTraffic::look(TrafficThread& self, unsigned worker) {
    const tw_worker_h handle = workers_[worker].worker.get();
    tw_worker_attr_t attr{};
    std::array<tw_worker_counter_t, 128> counters;
    unsigned count = counters.size();
    const auto ignore = [](void*, const char*, const char*) {};
    bool is_right = true;
    switch (pick(self, 5)) {
        case 0:
            is_right = tw_worker_counters(handle, counters.data(), &count) == TW_OK;
            break;
        case 1:
            is_right = tw_worker_describe(handle, ignore, nullptr) == TW_OK;
            break;
        case 2:
            is_right = tw_worker_query(handle, &attr) == TW_OK;
            break;
        case 3:
            is_right = tw_worker_signal(handle) == TW_OK;
            break;
        default: {
            const tw_status_t status = tw_worker_arm(handle);
            is_right = status == TW_OK || status == TW_ERR_BUSY;
        }
    }
    if (!is_right)
        wrong("a call that asks has failed");
}

// ---- Progress

/// Progress, or a wait of one of the kinds, and then whatever has ended.
void ThreadTraffic::work(TrafficThread& self, unsigned worker) {
    const tw_worker_h handle = workers_[worker].worker.get();
    constexpr tw_wait_mode_t kHow[] = {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP};
    if (chance(self, 8)) {
        const tw_status_t status =
            tw_worker_wait(handle, kHow[pick(self, std::size(kHow))], kThreadTrafficWaitNs / 4);
        if (status != TW_OK && status != TW_ERR_TIMED_OUT)
            wrong(std::string("a wait answers ") + tw_status_string(status));
    } else {
        tw_worker_progress(handle);
    }
    test(self, worker);
    poll(self, worker);
    if (!self.mortal)
        poll_queue(self);
    close_failed(worker);
}

void ThreadTraffic::poll(TrafficThread& self, unsigned worker) {
    std::array<tw_completion_t, 8> done;
    const auto room = static_cast<unsigned>(1 + pick(self, done.size()));
    const unsigned count = tw_worker_poll(workers_[worker].worker.get(), done.data(), room);
    for (unsigned i = 0; i < count; ++i)
        told(*static_cast<ThreadOp*>(done.at(i).context), done.at(i));
}

void ThreadTraffic::poll_queue(TrafficThread& self) {
    std::array<tw_completion_t, 8> done;
    const auto room = static_cast<unsigned>(1 + pick(self, done.size()));
    unsigned count = 0;
    if (chance(self, 16))
        tw_cq_wait(queue_, done.data(), room, kThreadTrafficWaitNs / 4, &count);
    else
        count = tw_cq_poll(queue_, done.data(), room);
    for (unsigned i = 0; i < count; ++i)
        told(*static_cast<ThreadOp*>(done.at(i).context), done.at(i));
}

/// True: it has ended, or nobody wants to know any more.
bool ThreadTraffic::is_tested_over(TrafficThread& self, ThreadOp& op) {
    constexpr tw_wait_mode_t kHow[] = {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP};
    tw_completion_t done{};
    tw_status_t status = TW_INPROGRESS;
    if (chance(self, 10)) {
        const tw_wait_mode_t mode = kHow[pick(self, std::size(kHow))];
        std::size_t index = 0;
        const bool is_any = chance(self, 2);
        status = is_any ? tw_wait_any(&op.request, 1, mode, kThreadTrafficWaitNs / 4, &index)
                        : tw_request_wait(op.request, mode, kThreadTrafficWaitNs / 4, nullptr);
        if (status == TW_INPROGRESS)
            return false;
    }
    status = tw_request_test(op.request, &done);
    const bool gives_up = status == TW_INPROGRESS && op.kind == Kind::kSend &&
                          op.cancelled.load(std::memory_order_relaxed) == kNever && !is_settling_ &&
                          chance(self, 300);
    if (status == TW_INPROGRESS && !gives_up)
        return false;
    {
        const std::lock_guard guard(op.guard);
        if (gives_up && op.cancelled.load(std::memory_order_relaxed) != kNever)
            return false;  // another thread was quicker
        if (gives_up) {    // nobody will tell
            op.report = Report::kNobody;
            workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
        }
        tw_request_free(std::exchange(op.request, nullptr));
    }
    if (!gives_up)
        told(op, done);
    return true;
}

void ThreadTraffic::test(TrafficThread& self, unsigned worker) {
    std::erase_if(self.tested,
                  [&](ThreadOp* op) { return op->worker == worker && is_tested_over(self, *op); });
}

/// Its worker goes, with everything under way.
void ThreadTraffic::die(TrafficThread& self) {
    const unsigned dead = *self.mortal;
    workers_[dead].is_dead = true;
    for (unsigned i = 0; i < workers_.size(); ++i) {
        note_break(i, dead, kNever);
        note_break(dead, i, kNever);
    }
    memory_.free_keys(dead);
    am_.forget(dead);
    workers_[dead].worker.reset();
    self.tested.clear();
    self.claims.clear();
    self.has_claims = false;
}

}  // namespace tagwire::test
