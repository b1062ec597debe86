// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/nomem.hpp"

namespace tagwire::test {

namespace {

constexpr std::uint64_t kTrafficWaitNs = 50'000;
constexpr std::size_t kTrafficCapacities[] = {2, 4, 64, 4096};
constexpr tw_wait_mode_t kTrafficWaits[] = {TW_WAIT_SPIN, TW_WAIT_YIELD, TW_WAIT_SLEEP};

}  // namespace

thread_local TrafficThread* Traffic::t_self = nullptr;

/// A call may be refused so where allocations fail, and has done nothing then.
bool Traffic::is_for_lack_of_memory(tw_status_t status) {
    return nomem::is_there() && status == TW_ERR_NO_MEMORY;
}

Traffic::Traffic(std::uint64_t seed, tw_context_h context, const Options& options)
    : context_(context), options_(options), seed_(seed) {
    main_.random.seed(seed);
    for (std::size_t i = 0; i < workers_max() * workers_max(); ++i)
        ways_.emplace_back();
    const bool has_mortal = options_.has_death && !is_alone();
    for (unsigned i = 0; i < options_.threads + (has_mortal ? 1 : 0); ++i) {
        TrafficThread& thread = threads_.emplace_back();
        thread.number = i;
        thread.random.seed(seed * 1009 + i);
        thread.sends = std::make_unique<TrafficOp[]>(ops_max());
    }
    if (has_mortal)
        threads_.back().mortal = options_.workers;
    while (workers_.size() < options_.workers + (has_mortal ? 1 : 0))
        open_worker();
    tw_cq_params_t params{};
    params.capacity = kTrafficCapacities[pick(main_, std::size(kTrafficCapacities))];
    EXPECT_EQ(tw_cq_create(context_, &params, &queue_), TW_OK);
    EXPECT_EQ(tw_counter_create(&counter_), TW_OK);
}

Traffic::~Traffic() {
    for (const TrafficWorker& worker : workers_)
        memory_.free_keys(worker.index);
    for (TrafficWorker& worker : workers_)
        worker.worker.reset();
    tw_cq_destroy(queue_);
    tw_counter_destroy(counter_);
    for_each_op([&](TrafficOp& op) { give_back(op); });
}

void Traffic::open_worker() {
    TrafficWorker& made = workers_.emplace_back();
    made.traffic = this;
    made.index = static_cast<unsigned>(workers_.size() - 1);
    made.context = made.index % 2 != 0 && options_.odd != nullptr ? options_.odd : context_;
    tw_worker_params_t params{};
    params.thread_mode = is_alone() && !chance(main_, 3) ? TW_THREAD_SINGLE : TW_THREAD_MULTI;
    params.tx_contexts = options_.tx_contexts;
    params.ep_failed = on_failure;
    params.ep_failed_arg = this;
    params.peer_event = on_peer;
    params.peer_event_arg = &made;
    params.rma_event = TrafficMemory::on_event;
    params.rma_event_arg = &made;
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(made.context, &params, &worker), TW_OK);
    made.worker.reset(worker);
    made.address.resize(TW_ADDRESS_BYTES_MAX);
    std::size_t length = made.address.size();
    EXPECT_EQ(tw_worker_address(worker, made.address.data(), &length), TW_OK);
    made.address.resize(length);
    EXPECT_EQ(tw_address_worker_id(made.address.data(), length, &made.id), TW_OK);
    tw_worker_attr_t attr{};
    EXPECT_EQ(tw_worker_query(worker, &attr), TW_OK);
    made.buffered_limit = attr.buffered_bytes_limit;
    made.buffered_min = attr.buffered_bytes_min;
    int fd = -1;
    if (!is_alone()) {
        EXPECT_EQ(tw_worker_fd(worker, &fd), TW_OK);  // tw_worker_arm() needs it
    }
    if (options_.has_others) {
        memory_.open(made);
        am_.open(made);
    }
}

/// One that this thread may use.
unsigned Traffic::some_worker(TrafficThread& self) {
    if (self.mortal)
        return *self.mortal;
    for (;;) {
        const auto worker =
            static_cast<unsigned>(pick(self, is_alone() ? workers_.size() : options_.workers));
        if (!workers_[worker].is_dead)
            return worker;
    }
}

std::vector<unsigned> Traffic::living() {
    std::vector<unsigned> all;
    for (const TrafficWorker& worker : workers_)
        if (!worker.is_dead)
            all.push_back(worker.index);
    return all;
}

void Traffic::run() {
    const NoMemory failing(nomem::Where::kAnywhere);
    if (is_alone()) {
        live(threads_.front());
        is_settling_ = true;
        settle(threads_.front());
    } else {
        run_threads();
    }
    if (!has_failed_)
        finish();
    if (!has_failed_)
        check();
    EXPECT_TRUE(wrong_.empty()) << "seed " << seed_ << ", " << options_.threads << " threads, "
                                << options_.workers << " workers:\n"
                                << wrong_ << history();
}

void Traffic::run_threads() {
    std::vector<std::thread> threads;
    for (TrafficThread& thread : threads_) {
        threads.emplace_back([this, &thread] {
            live(thread);
            ++acting_;
            settle(thread);
            ++settling_;
        });
    }
    const auto all = static_cast<unsigned>(threads_.size());
    wait_for_threads("every thread takes its steps", [&] { return acting_ == all; });
    is_settling_ = true;
    wait_for_threads("everything is received", [&] { return is_everything_received(); });
    may_end_ = true;
    wait_for_threads("every thread returns", [&] { return settling_ == all; });
    for (std::thread& thread : threads)
        thread.join();
}

void Traffic::live(TrafficThread& self) {
    t_self = &self;
    const bool has_death = self.mortal || (is_alone() && options_.has_death);
    const std::uint64_t death =
        has_death ? options_.steps / 4 + pick(self, options_.steps / 2) : options_.steps;
    for (std::uint64_t step = 0; step < options_.steps && !has_failed_; ++step) {
        if (step == death)
            die(self, some_worker(self));
        if (step >= death && self.mortal)
            break;
        const unsigned worker = some_worker(self);
        for (std::uint64_t left = 1 + pick(self, 4); left > 0; --left)
            act(self, worker);
        if (chance(self, 100))
            workers_[some_worker(self)].pause =
                static_cast<int>(1 + pick(self, options_.steps / 8));
        for (std::uint64_t left = pick(self, 6); left > 0; --left)
            work(self, some_worker(self));
    }
    self.depth = 2;  // nothing is begun in callbacks any more
}

// ---- Calls

void Traffic::act(TrafficThread& self, unsigned worker) {
    if (options_.has_closes && chance(self, 60))
        return close(self, worker);
    const std::uint64_t what = pick(self, 100);
    if (what < 10)
        return peek(self, worker);
    if (what < 16)
        return claim(self, worker);
    if (what < 20)
        return cancel(self);
    if (what < 22)
        return look(self, worker);
    if (workers_[worker].open >= options_.open_max)
        return;
    if (options_.has_others && chance(self, is_alone() ? 4 : 2))
        return chance(self, 3) ? am_.act(self, worker) : memory_.act(self, worker);
    if (what < 25)
        return flush(self, worker);
    if (what < 28)
        return receive_many(self, worker);
    if (what < 62)
        return receive(self, worker);
    send(self, worker);
}

/// Calls that change nothing that lasts. Without a descriptor of the worker there are fewer.
void Traffic::look(TrafficThread& self, unsigned worker) {
    const tw_worker_h handle = workers_[worker].worker.get();
    tw_worker_attr_t attr{};
    std::array<tw_worker_counter_t, 128> counters;
    unsigned count = counters.size();
    const auto ignore = [](void*, const char*, const char*) {};
    tw_status_t status = TW_OK;
    switch (pick(self, is_alone() ? 3 : 5)) {
        case 0:
            status = tw_worker_counters(handle, counters.data(), &count);
            break;
        case 1:
            status = tw_worker_describe(handle, ignore, nullptr);
            break;
        case 2:
            status = tw_worker_query(handle, &attr);
            break;
        case 3:
            status = tw_worker_signal(handle);
            break;
        default:
            status = tw_worker_arm(handle);
            status = status == TW_ERR_BUSY ? TW_OK : status;
    }
    if (status != TW_OK && !is_for_lack_of_memory(status))
        wrong(std::string("a call that asks answers ") + tw_status_string(status));
}

// ---- Progress

/// Progress, or a wait of one of the kinds, and then whatever has ended.
void Traffic::work(TrafficThread& self, unsigned worker) {
    if (!is_settling_ && workers_[worker].pause.load(std::memory_order_relaxed) > 0) {
        workers_[worker].pause.fetch_sub(1, std::memory_order_relaxed);
        return;
    }
    const tw_worker_h handle = workers_[worker].worker.get();
    if (!is_alone() && chance(self, 8)) {
        const tw_wait_mode_t mode = kTrafficWaits[pick(self, std::size(kTrafficWaits))];
        const tw_status_t status = tw_worker_wait(handle, mode, kTrafficWaitNs);
        if (status != TW_OK && status != TW_ERR_TIMED_OUT)
            wrong(std::string("a wait answers ") + tw_status_string(status));
    } else {
        tw_worker_progress(handle);
    }
    test(self, worker);
    poll(self, worker);
    if (!self.mortal)
        poll_queue(self);
    close_failed(self, worker);
}

void Traffic::poll(TrafficThread& self, unsigned worker) {
    std::array<tw_completion_t, 8> done;
    const auto room = static_cast<unsigned>(1 + pick(self, done.size()));
    unsigned count = 0;
    do {
        count = tw_worker_poll(workers_[worker].worker.get(), done.data(), room);
        for (unsigned i = 0; i < count; ++i) {
            if (done.at(i).context != nullptr)
                ended(*static_cast<TrafficOp*>(done.at(i).context), done.at(i));
            else if (done.at(i).status >= TW_OK || !is_anything_broken(worker))
                wrong("a send of nobody's is reported, and has not failed");
        }
    } while (is_alone() && count > 0);
}

void Traffic::poll_queue(TrafficThread& self) {
    std::array<tw_completion_t, 8> done;
    const auto room = static_cast<unsigned>(1 + pick(self, done.size()));
    unsigned count = 0;
    if (!is_alone() && chance(self, 16))
        tw_cq_wait(queue_, done.data(), room, kTrafficWaitNs, &count);
    else
        count = tw_cq_poll(queue_, done.data(), room);
    for (unsigned i = 0; i < count; ++i)
        ended(*static_cast<TrafficOp*>(done.at(i).context), done.at(i));
}

/// True: it has ended, or nobody wants to know any more.
bool Traffic::is_tested_over(TrafficThread& self, TrafficOp& op) {
    tw_completion_t done{};
    tw_status_t status = TW_INPROGRESS;
    if (!is_alone() && chance(self, 10)) {
        const tw_wait_mode_t mode = kTrafficWaits[pick(self, std::size(kTrafficWaits))];
        std::size_t index = 0;
        const bool is_any = chance(self, 2);
        status = is_any ? tw_wait_any(&op.request, 1, mode, kTrafficWaitNs, &index)
                        : tw_request_wait(op.request, mode, kTrafficWaitNs, nullptr);
        if (status == TW_INPROGRESS)
            return false;
    }
    const tw_request_h request = op.request;
    status = tw_request_test(request, &done);
    const bool gives_up = status == TW_INPROGRESS && op.kind == Kind::kSend &&
                          op.cancelled.load(std::memory_order_relaxed) == kNever && !is_settling_ &&
                          chance(self, 300);
    if (status == TW_INPROGRESS && !gives_up)
        return false;
    if (!gives_up && (done.status != status || done.request != request))
        wrong("a test says something else than it answers", &op);
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
        ended(op, done);
    return true;
}

/// Callbacks may begin operations that are to be tested.
void Traffic::test(TrafficThread& self, unsigned worker) {
    std::vector<TrafficOp*> all = std::exchange(self.tested, {});
    std::erase_if(all,
                  [&](TrafficOp* op) { return op->worker == worker && is_tested_over(self, *op); });
    self.tested.insert(self.tested.end(), all.begin(), all.end());
}

/// A worker goes, with everything under way. With one thread another worker comes.
void Traffic::die(TrafficThread& self, unsigned dead) {
    workers_[dead].is_dead = true;
    for (unsigned i = 0; i < workers_max(); ++i)
        note_break(i, dead, kNever);
    memory_.free_keys(dead);
    am_.forget(dead);
    nomem::arm(nomem::Where::kNowhere);  // a worker goes without a transport that lacks memory
    workers_[dead].worker.reset();
    std::erase_if(self.tested, [&](const TrafficOp* op) { return op->worker == dead; });
    std::erase_if(self.claims, [&](const TrafficClaim& one) { return one.found->worker == dead; });
    self.has_claims = !self.claims.empty();
    if (is_alone()) {
        for_each_op([&](TrafficOp& op) { op.request = op.worker == dead ? nullptr : op.request; });
        open_worker();
    }
    nomem::arm(nomem::Where::kAnywhere);
}

}  // namespace tagwire::test
