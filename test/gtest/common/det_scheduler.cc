// SPDX-License-Identifier: BSD-3-Clause
#include "common/det_scheduler.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "common/det_fiber.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kNobody = DetRun::kThreadsMax;

/** splitmix64: any seed is good, neighbours too. */
class Random {
  public:
    explicit Random(std::uint64_t seed = 0) : state_(seed * 0xd1342543de82ef95U) {}
    std::uint64_t next() {
        std::uint64_t bits = state_ += 0x9e3779b97f4a7c15U;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
        return bits ^ (bits >> 31);
    }
    std::uint64_t below(std::uint64_t limit) { return next() % limit; }

  private:
    std::uint64_t state_;
};

/** For each thread, up to which of its times everything is known to have happened. */
struct Clock {
    std::array<std::uint32_t, DetRun::kThreadsMax> time{};

    void join(const Clock& other) {
        for (std::size_t i = 0; i < time.size(); ++i)
            time[i] = std::max(time[i], other.time[i]);
    }
    bool includes(const Clock& other) const {
        for (std::size_t i = 0; i < time.size(); ++i)
            if (other.time[i] > time[i])
                return false;
        return true;
    }
};

struct PlainHistory {
    Clock last_write;  // one entry
    Clock reads;       // since then
};

struct BufferedStore {
    void* address;
    std::size_t bytes;
    std::uint64_t bits;
    bool release;
    Clock published;  // what an acquire load of it learns
};

struct Thread {
    enum class State { kUnused, kAlive, kEnded, kDied };

    DetFiber fiber;
    std::function<void()> body;
    State state = State::kUnused;
    const std::function<bool()>* ready = nullptr;  // waits for this
    std::deque<BufferedStore> buffer;
    std::size_t steps = 0;
    std::size_t dies_at_step = 0;
    Clock clock;
    Clock at_fence;  // what relaxed stores publish
    Clock seen;      // what relaxed loads have read, learnt at the next fence
};

bool acquires(std::memory_order order) {
    return order != std::memory_order_relaxed && order != std::memory_order_release;
}

bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
}

std::optional<std::uint64_t> number_from_environment(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr)
        return std::nullopt;
    return std::strtoull(text, nullptr, 0);
}

}  // namespace

class DetScheduler {
  public:
    DetScheduler(const DetOptions& options, bool trace) : options_(options), trace_(trace) {}

    void begin(std::uint64_t seed);
    void spawn(std::function<void()> body, std::size_t dies_at_step);
    bool run();
    void note_failure(const char* what);

    bool in_thread() const { return current_ != kNobody && !evaluating_; }
    bool failed() const { return !message_.empty(); }
    const std::string& message() const { return message_; }
    std::uint64_t steps() const { return steps_; }
    bool died(std::size_t thread) const { return threads_[thread].state == Thread::State::kDied; }
    std::uint64_t below(std::uint64_t limit) { return random_.below(limit); }

    [[noreturn]] void fail_here(const char* what);
    std::uint64_t load(const void* address, std::size_t bytes, std::memory_order order);
    void store(const BufferedStore& store, std::memory_order order);
    void begin_update(const void* address);
    void end_update(const void* address, bool written, std::memory_order order);
    void fence();
    void fence_everybody();
    void pause();
    void plain_access(const void* address, bool write);
    void block_until(const std::function<bool()>& ready);

  private:
    static void thread_main(void* self);

    Thread& me() { return threads_[current_]; }
    bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
    void count_step();
    void interleave();
    bool runnable(const Thread& thread);
    std::size_t pick(std::size_t last_choice);
    void go_to(std::size_t next);
    [[noreturn]] void leave();
    void commit(Thread& thread, std::size_t index);
    void commit_some();
    void drain(Thread& thread);
    void publish(const void* address, const Clock& clock) { atomics_[address] = clock; }
    void learn(const void* address, std::memory_order order);
    void pass_fence(Thread& thread);
    void trace(const char* what, const void* address, std::uint64_t bits);

    const DetOptions options_;
    const bool trace_;
    Random random_;
    std::uint64_t seed_ = 0;
    std::uint64_t steps_ = 0;
    std::uint64_t switch_one_in_ =
        2;  // drawn anew for every schedule, as rare switches find other bugs
    std::uint64_t commit_one_in_ = 2;
    std::string message_;

    std::array<Thread, DetRun::kThreadsMax> threads_;
    std::size_t thread_count_ = 0;
    std::size_t current_ = kNobody;
    bool evaluating_ = false;
    std::size_t buffered_ = 0;  // in all threads
    DetFiber main_;
    std::unordered_map<const void*, Clock> atomics_;
    std::unordered_map<const void*, PlainHistory> plain_;
};

namespace {
DetScheduler* scheduler = nullptr;
}

void DetScheduler::begin(std::uint64_t seed) {
    seed_ = seed;
    random_ = Random(seed);
    constexpr std::uint64_t kSwitch[] = {1, 2, 4, 16};
    constexpr std::uint64_t kCommit[] = {2, 4, 16, 128};
    switch_one_in_ = kSwitch[random_.below(std::size(kSwitch))];
    commit_one_in_ = kCommit[random_.below(std::size(kCommit))];
    steps_ = 0;
    message_.clear();
    for (std::size_t i = 0; i < thread_count_; ++i) {
        Thread& thread = threads_[i];
        thread.body = nullptr;
        thread.state = Thread::State::kUnused;
        thread.ready = nullptr;
        thread.buffer.clear();
    }
    thread_count_ = 0;
    buffered_ = 0;
    current_ = kNobody;
    atomics_.clear();
    plain_.clear();
}

void DetScheduler::spawn(std::function<void()> body, std::size_t dies_at_step) {
    if (thread_count_ == DetRun::kThreadsMax)
        std::abort();
    Thread& thread = threads_[thread_count_];
    thread.body = std::move(body);
    thread.state = Thread::State::kAlive;
    thread.steps = 0;
    thread.dies_at_step = dies_at_step;
    thread.clock = thread.at_fence = thread.seen = Clock{};
    thread.clock.time[thread_count_] = 1;
    thread.fiber.prepare(&DetScheduler::thread_main, this);
    ++thread_count_;
}

bool DetScheduler::run() {
    const std::size_t first = pick(kNobody);
    if (first == kNobody)
        return !failed();
    current_ = first;
    DetFiber::switch_to(main_, threads_[first].fiber);
    if (!failed())
        for (Thread& thread : threads_)
            drain(thread);
    return !failed();
}

void DetScheduler::thread_main(void* self) {
    auto* const owner = static_cast<DetScheduler*>(self);
    owner->me().body();
    owner->me().state = Thread::State::kEnded;
    owner->leave();
}

/** The current thread never runs again. */
void DetScheduler::leave() {
    const std::size_t next = failed() ? kNobody : pick(kNobody);
    if (next != kNobody)
        go_to(next);
    if (!failed())
        for (std::size_t i = 0; i < thread_count_; ++i)
            if (threads_[i].state == Thread::State::kAlive)
                note_failure("deadlock: all threads wait");
    DetFiber& last = me().fiber;
    current_ = kNobody;
    DetFiber::switch_to(last, main_);
    __builtin_unreachable();
}

void DetScheduler::note_failure(const char* what) {
    if (failed())
        return;
    char text[256];
    std::snprintf(text, sizeof(text),
                  "%s (seed %llu, step %llu, thread %d; replay with TAGWIRE_TEST_SEED=%llu)", what,
                  static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(steps_),
                  current_ == kNobody ? -1 : static_cast<int>(current_),
                  static_cast<unsigned long long>(seed_));
    message_ = text;
    if (trace_)
        std::fprintf(stderr, "%s\n", text);
}

void DetScheduler::fail_here(const char* what) {
    note_failure(what);
    leave();
}

void DetScheduler::trace(const char* what, const void* address, std::uint64_t bits) {
    if (!trace_)
        return;
    std::fprintf(stderr, "step %5llu thread %zu %-14s %p 0x%llx\n",
                 static_cast<unsigned long long>(steps_), current_, what, address,
                 static_cast<unsigned long long>(bits));
}

// Schedules.

void DetScheduler::count_step() {
    if (++steps_ > options_.steps_max)
        fail_here("livelock: too many steps");
    if (++me().steps != me().dies_at_step)
        return;
    trace("dies", nullptr, 0);
    me().state = Thread::State::kDied;
    leave();
}

/** Before every operation: stores of any thread may become visible, and other threads may run. */
void DetScheduler::interleave() {
    count_step();
    while (buffered_ != 0 && one_in(commit_one_in_))
        commit_some();
    if (one_in(switch_one_in_))
        go_to(pick(kNobody));
}

bool DetScheduler::runnable(const Thread& thread) {
    if (thread.state != Thread::State::kAlive)
        return false;
    if (thread.ready == nullptr)
        return true;
    evaluating_ = true;
    const bool ready = (*thread.ready)();
    evaluating_ = false;
    return ready;
}

/** Some thread that can run, `last_choice` only if no other ever can; kNobody if none can. */
std::size_t DetScheduler::pick(std::size_t last_choice) {
    for (;;) {
        std::array<std::size_t, DetRun::kThreadsMax> candidates;
        std::size_t count = 0;
        for (std::size_t i = 0; i < thread_count_; ++i)
            if (i != last_choice && runnable(threads_[i]))
                candidates[count++] = i;
        if (count != 0)
            return candidates[count == 1 ? 0 : random_.below(count)];
        if (buffered_ == 0)
            return last_choice;
        commit_some();
    }
}

void DetScheduler::go_to(std::size_t next) {
    if (next == current_)
        return;
    DetFiber& from = me().fiber;
    current_ = next;
    DetFiber::switch_to(from, threads_[next].fiber);
}

void DetScheduler::pause() {
    count_step();
    go_to(pick(current_));
}

void DetScheduler::block_until(const std::function<bool()>& ready) {
    interleave();
    Thread& self = me();
    self.ready = &ready;
    const std::size_t next = pick(kNobody);
    if (next == kNobody)
        leave();
    go_to(next);
    self.ready = nullptr;
}

// Memory.

void DetScheduler::commit(Thread& thread, std::size_t index) {
    const auto position = thread.buffer.begin() + static_cast<std::ptrdiff_t>(index);
    std::memcpy(position->address, &position->bits, position->bytes);
    publish(position->address, position->published);
    trace("visible", position->address, position->bits);
    thread.buffer.erase(position);
    --buffered_;
}

/** One store of some thread: its oldest, or a relaxed one that passes earlier stores to other
 * places. */
void DetScheduler::commit_some() {
    std::uint64_t which = random_.below(buffered_);
    std::size_t owner = 0;
    for (; which >= threads_[owner].buffer.size(); ++owner)
        which -= threads_[owner].buffer.size();
    const auto& buffer = threads_[owner].buffer;
    const auto chosen = buffer.begin() + static_cast<std::ptrdiff_t>(which);
    const bool may_pass =
        !options_.stores_in_order && !chosen->release &&
        std::none_of(buffer.begin(), chosen, [chosen](const BufferedStore& earlier) {
            return earlier.address == chosen->address;
        });
    commit(threads_[owner], may_pass ? which : 0);
}

void DetScheduler::drain(Thread& thread) {
    while (!thread.buffer.empty())
        commit(thread, 0);
}

void DetScheduler::learn(const void* address, std::memory_order order) {
    const auto found = atomics_.find(address);
    if (found != atomics_.end())
        (acquires(order) ? me().clock : me().seen).join(found->second);
}

std::uint64_t DetScheduler::load(const void* address, std::size_t bytes, std::memory_order order) {
    interleave();
    const auto& buffer = me().buffer;
    const auto own =
        std::find_if(buffer.rbegin(), buffer.rend(),
                     [address](const BufferedStore& each) { return each.address == address; });
    std::uint64_t bits = 0;
    if (own != buffer.rend()) {
        bits = own->bits;
    } else {
        std::memcpy(&bits, address, bytes);
        learn(address, order);
    }
    trace("load", address, bits);
    return bits;
}

void DetScheduler::store(const BufferedStore& store, std::memory_order order) {
    interleave();
    Thread& self = me();
    trace(order == std::memory_order_seq_cst ? "store seq_cst"
                                             : (store.release ? "store release" : "store"),
          store.address, store.bits);
    if (self.buffer.size() >= options_.buffered_stores_max)
        commit(self, 0);
    self.buffer.push_back(store);
    self.buffer.back().published = store.release ? self.clock : self.at_fence;
    ++buffered_;
    if (store.release)
        ++self.clock.time[current_];
    if (order == std::memory_order_seq_cst)
        drain(self);
}

void DetScheduler::begin_update(const void*) {
    interleave();
    drain(me());
}

void DetScheduler::end_update(const void* address, bool written, std::memory_order order) {
    Thread& self = me();
    trace(written ? "update" : "update refused", address, 0);
    learn(address, order);
    if (!written)
        return;
    atomics_[address].join(releases(order) ? self.clock : self.at_fence);
    if (releases(order))
        ++self.clock.time[current_];
}

void DetScheduler::pass_fence(Thread& thread) {
    drain(thread);
    thread.clock.join(thread.seen);
    thread.at_fence = thread.clock;
    ++thread.clock.time[static_cast<std::size_t>(&thread - threads_.data())];
}

void DetScheduler::fence() {
    interleave();
    trace("fence", nullptr, 0);
    pass_fence(me());
}

void DetScheduler::fence_everybody() {
    interleave();
    trace("membarrier", nullptr, 0);
    for (std::size_t i = 0; i < thread_count_; ++i)
        pass_fence(threads_[i]);
}

void DetScheduler::plain_access(const void* address, bool write) {
    const Thread& self = me();
    PlainHistory& history = plain_[address];
    trace(write ? "plain write" : "plain read", address, 0);
    if (!self.clock.includes(history.last_write))
        fail_here("data race: after a write that nothing orders");
    if (!write) {
        history.reads.time[current_] = self.clock.time[current_];
        return;
    }
    if (!self.clock.includes(history.reads))
        fail_here("data race: a write after a read that nothing orders");
    history = PlainHistory{};
    history.last_write.time[current_] = self.clock.time[current_];
}

// The interface.

void DetRun::spawn(std::function<void()> body) {
    scheduler_.spawn(std::move(body), 0);
}

void DetRun::spawn_mortal(std::function<void()> body, std::size_t steps_max) {
    const bool dies = random(2) == 0;
    scheduler_.spawn(std::move(body), dies ? 1 + random(steps_max) : 0);
}

bool DetRun::run() {
    return scheduler_.run();
}

void DetRun::check(bool condition, const char* what) {
    if (condition)
        return;
    if (scheduler_.in_thread())
        scheduler_.fail_here(what);
    scheduler_.note_failure(what);
}

bool DetRun::died(std::size_t thread) const {
    return scheduler_.died(thread);
}

std::uint64_t DetRun::random(std::uint64_t limit) {
    return scheduler_.below(limit);
}

DetResult det_explore(const DetOptions& options, const std::function<void(DetRun&)>& scenario) {
    const auto replay = number_from_environment("TAGWIRE_TEST_SEED");
    const auto schedules =
        number_from_environment("TAGWIRE_TEST_SCHEDULES").value_or(options.schedules);
    const auto made = std::make_unique<DetScheduler>(options, replay.has_value());
    DetScheduler* const outer = std::exchange(scheduler, made.get());
    DetResult result;
    while (result.ok() && result.schedules < (replay ? 1 : schedules)) {
        result.seed = replay.value_or(options.seed + result.schedules);
        made->begin(result.seed);
        DetRun run(*made);
        scenario(run);
        ++result.schedules;
        result.steps += made->steps();
        result.failed = made->failed();
        result.message = made->message();
    }
    scheduler = outer;
    return result;
}

namespace det {

bool in_thread() {
    return scheduler != nullptr && scheduler->in_thread();
}

std::uint64_t load(const void* address, std::size_t bytes, std::memory_order order) {
    return scheduler->load(address, bytes, order);
}

void store(void* address, std::size_t bytes, std::uint64_t bits, std::memory_order order) {
    scheduler->store({address, bytes, bits, releases(order), {}}, order);
}

void begin_update(const void* address) {
    scheduler->begin_update(address);
}

void end_update(const void* address, bool written, std::memory_order order) {
    scheduler->end_update(address, written, order);
}

void fence() {
    if (in_thread())
        scheduler->fence();
}

void fence_everybody() {
    if (in_thread())
        scheduler->fence_everybody();
}

void pause() {
    if (in_thread())
        scheduler->pause();
}

bool one_in(std::uint64_t n) {
    return scheduler->below(n) == 0;
}

void plain_read(const void* address, std::size_t) {
    if (in_thread())
        scheduler->plain_access(address, false);
}

void plain_write(const void* address, std::size_t) {
    if (in_thread())
        scheduler->plain_access(address, true);
}

void block_until(const std::function<bool()>& ready) {
    scheduler->block_until(ready);
}

}  // namespace det
}  // namespace tagwire::test
