// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/tx_contexts.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/entry.hpp"
#include "protocols/worker/peer_table.hpp"
#include "protocols/worker/worker.hpp"
#include "ucs/debug/check.hpp"

namespace tagwire::proto {

namespace {

/// The contexts that the calling thread progresses.
[[gnu::tls_model("initial-exec")]] thread_local constinit const TxContexts* progressing = nullptr;

class Progressing {
  public:
    explicit Progressing(const TxContexts& contexts)
        : before_(std::exchange(progressing, &contexts)) {}
    Progressing(const Progressing&) = delete;
    Progressing& operator=(const Progressing&) = delete;
    ~Progressing() { progressing = before_; }

  private:
    const TxContexts* const before_;
};

/// A call on the worker of a context, by a thread that has the front's lock.
class InContext {
  public:
    explicit InContext(const TxContext& context)
        : entry_(*context.worker), work_(*context.worker), walk_(context.worker->attention()) {}
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

  private:
    const Entry entry_;
    const LeavesWork work_;
    const Walk walk_;
};

}  // namespace

unsigned new_number_of_thread() {
    // Relaxed: the numbers differ, and no more is needed.
    static std::atomic<unsigned> next{0};
    return next.fetch_add(1, std::memory_order_relaxed) % (UINT32_MAX / 2);
}

// ---- One context

TxContext::TxContext(WorkerCore& of, unsigned its_number) : front(of), number(its_number) {}

// The end of its endpoints is told to it.
TxContext::~TxContext() {
    worker.reset();
}

void TxContext::has_failed(const Endpoint& ep, ucs_status_t status) {
    failures_.push_back({ep.tx.front, status});
    has_news_.store(true, std::memory_order_relaxed);
}

void TxContext::delay_failure_of(Endpoint& failed) {
    const RequestTable& requests = worker->requests();
    if (requests.told() == requests.told_and_deferred())
        return;
    tellings_.push_back({&failed, requests.told_and_deferred()});
    ++failed.marks.draining;
    has_news_.store(true, std::memory_order_relaxed);
}

ucs::ReserveVector<TxContext::Failure> TxContext::take_failures() {
    return std::exchange(failures_, {});
}

ucs::ReserveVector<Endpoint*> TxContext::take_told() {
    ucs::ReserveVector<Endpoint*> fronts;
    const std::uint64_t told = worker->requests().told();
    std::erase_if(tellings_, [&](const Telling& one) {
        if (one.after > told)
            return false;
        fronts.push_back(one.front);
        return true;
    });
    has_news_.store(!tellings_.empty(), std::memory_order_relaxed);
    return fronts;
}

void TxContext::forget(const Endpoint& gone) {
    std::erase_if(failures_, [&](const Failure& one) { return one.front == &gone; });
    std::erase_if(tellings_, [&](const Telling& one) { return one.front == &gone; });
}

// ---- The endpoints beside one

constinit const TxCalls EpTxContexts::kCalls{
    .begin = [](TxParts& parts) { static_cast<EpTxContexts&>(parts).begin_all(); },
    .fail = [](TxParts& parts,
               ucs_status_t status) { static_cast<EpTxContexts&>(parts).fail_all(status); },
    .flush =
        [](TxParts& parts, bool closes, tw_flush_level_t level, bool is_kept) {
            return static_cast<EpTxContexts&>(parts).flush_all(closes, level, is_kept);
        },
    .release = [](TxParts& parts) { static_cast<EpTxContexts&>(parts).release_all(); },
};

EpTxContexts::EpTxContexts(TxContexts& owner, Endpoint& front)
    : TxParts(kCalls), owner_(owner), front_(&front) {
    for (const auto& context : owner.all())
        parts_.push_back({context.get(), nullptr});
}

ucs_status_t EpTxContexts::open() {
    for (TxPart& part : parts_) {
        const InContext inside(*part.context);
        auto* const ep =
            static_cast<Endpoint*>(part.context->worker->peers().found_or_made(front_->worker_id));
        if (ep == nullptr)
            return UCS_ERR_NO_MEMORY;
        TW_ASSERT(!ep->closing().is_open());
        ep->tx.front = front_;
        ep->tx.part = &part;
        ep->closing().open(nullptr);
        part.ep = ep;
    }
    return UCS_OK;
}

void EpTxContexts::begin_all() {
    if (std::exchange(has_begun_, true))
        return;
    for (const TxPart& part : parts_) {
        const InContext inside(*part.context);
        if (part.ep != nullptr && part.ep->state() == EpState::kConnecting &&
            part.ep->connector().contact_ep() == nullptr)
            part.ep->connector().begin(front_->connector().address());
    }
}

void EpTxContexts::fail_all(ucs_status_t status) {
    for (const TxPart& part : parts_) {
        const InContext inside(*part.context);
        if (part.ep == nullptr)
            continue;
        part.ep->closing().end(status);
        part.context->delay_failure_of(*front_);
    }
}

tw_status_t EpTxContexts::flush_all(bool closes, tw_flush_level_t level, bool is_kept) {
    for (TxPart& part : parts_) {
        const InContext inside(*part.context);
        if (part.ep == nullptr || !part.ep->closing().is_open() || part.ep->closing().is_closing())
            continue;
        if (closes && !has_begun_ && part.ep->has_no_work()) {
            // Nothing was sent, and nobody else would end it.
            part.context->worker->peers().close(*part.ep);
            continue;
        }
        tw_op_t how{};
        how.flags = flag_if(is_kept, TW_OP_QUEUE);
        how.complete = flushed;
        how.context = this;
        const RequestKind kind = closes ? RequestKind::kClose : RequestKind::kFlush;
        const tw_status_t status = part.ep->flushes().call(kind, level, &how, nullptr);
        if (status == TW_ERR_NO_RESOURCE)
            return status;
        if (status == TW_INPROGRESS)
            ++ends_;
    }
    return TW_OK;
}

void EpTxContexts::flushed(const tw_completion_t* done) {
    EpTxContexts& all = *static_cast<EpTxContexts*>(done->context);
    Worker& front = all.owner_.front();
    const Entry entry(front);
    const LeavesWork work(front);
    if (done->status != TW_OK && all.front_ != nullptr)
        all.front_->flushes().note_refusal(static_cast<ucs_status_t>(done->status));
    all.ended();
}

void EpTxContexts::ended() {
    --ends_;
    if (front_ != nullptr)
        front_->flushes().check();
    else if (ends_ == 0)
        owner_.remove(*this);
}

void EpTxContexts::release_all() {
    for (TxPart& part : parts_) {
        const InContext inside(*part.context);
        part.context->forget(*front_);
        Endpoint* ep = std::exchange(part.ep, nullptr);
        if (ep == nullptr)
            continue;
        ep->tx.part = nullptr;
        if (ep->closing().is_open())
            part.context->worker->peers().close(*ep);
    }
    front_ = nullptr;
    if (ends_ == 0)
        owner_.remove(*this);
}

// ---- All of a worker

TxContexts::TxContexts(Worker& front) : front_(front) {}

TxContexts::~TxContexts() {
    contexts_.clear();
}

ucs_status_t TxContexts::open(Context& context, unsigned count) {
    tw_worker_params_t params{};
    params.thread_mode = TW_THREAD_MULTI;
    for (unsigned number = 1; number <= count; ++number) {
        contexts_.push_back(std::make_unique<TxContext>(front_, number));
        TxContext& one = *contexts_.back();
        const ucs_status_t status = Worker::create(context, params, &one, &one.worker);
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

ucs_status_t TxContexts::add(Endpoint& front) {
    endpoints_.push_back(std::make_unique<EpTxContexts>(*this, front));
    EpTxContexts& made = *endpoints_.back();
    front.tx.contexts = &made;
    const ucs_status_t status = made.open();
    if (status == UCS_OK && front.state() == EpState::kReady)
        made.begin();
    return status;
}

void TxContexts::remove(const EpTxContexts& gone) {
    const auto found = std::ranges::find(endpoints_, &gone, [](const auto& one) { return &*one; });
    std::swap(*found, endpoints_.back());
    endpoints_.pop_back();
}

bool TxContexts::is_in_progress_here() const {
    return progressing == this;
}

bool TxContexts::is_in_callback() const {
    return is_in_progress_here() || front_.is_progressing_thread();
}

unsigned TxContexts::progress(TxContext& context) {
    const unsigned count = context.worker->progress_shared();
    if (context.has_news()) [[unlikely]]
        settle(context);
    return count == TW_PROGRESS_BUSY ? 0 : count;
}

/// The thread's own context each time, and the others in turn: their threads may poll no more.
unsigned TxContexts::progress_contexts() {
    constexpr unsigned kCallsPerOther = 8;
    if (is_in_callback())
        return 0;
    const Progressing inside(*this);
    const std::size_t own = number_of_thread() % contexts_.size();
    const unsigned calls = contexts_[own]->count_call();
    unsigned count = progress(*contexts_[own]);
    if (calls % kCallsPerOther == 0) {
        const std::size_t other = calls / kCallsPerOther % contexts_.size();
        if (other != own)
            count += progress(*contexts_[other]);
    }
    return count;
}

unsigned TxContexts::progress() {
    if (is_in_callback())
        return front_.refuse_progress();
    const unsigned sent = progress_contexts();
    const unsigned count = front_.progress_shared();
    if (count == TW_PROGRESS_BUSY)
        return sent > 0 ? sent : count;
    return sent + count;
}

/// The front hears what the context has to tell.
void TxContexts::settle(TxContext& context) {
    const Entry entry(front_);
    const LeavesWork work(front_);
    ucs::ReserveVector<TxContext::Failure> failures;
    {
        const Entry inside(*context.worker);
        failures = context.take_failures();
        for (Endpoint* ep : context.take_told()) {
            --ep->marks.draining;
            front_.ask_slow_work();  // its failure may be told
        }
    }
    for (const TxContext::Failure& failure : failures)
        failure.front->closing().end(failure.status);
}

unsigned TxContexts::poll(tw_completion_t* completions, unsigned max) const {
    unsigned count = 0;
    for (const auto& context : contexts_) {
        if (count == max)
            break;
        const Entry entry(*context->worker);
        count += context->worker->requests().poll(completions + count, max - count);
    }
    return count;
}

std::uint64_t TxContexts::counter(std::size_t place) const {
    std::uint64_t sum = 0;
    for (const auto& context : contexts_)
        sum += context->worker->counters().values[place].value();
    return sum;
}

std::uint64_t TxContexts::ends() const {
    std::uint64_t ends = 0;
    for (const auto& context : contexts_) {
        const BriefEntry entry(*context->worker);
        ends += context->worker->ends();
    }
    return ends;
}

bool TxContexts::has_completions() const {
    return std::ranges::any_of(contexts_, [](const auto& context) {
        const BriefEntry entry(*context->worker);
        return context->worker->requests().has_completions();
    });
}

std::vector<const Rail*> TxContexts::rails() const {
    std::vector<const Rail*> rails;
    for (const auto& context : contexts_)
        for (const auto& rail : context->worker->rails())
            rails.push_back(rail.get());
    return rails;
}

void TxContexts::describe(std::vector<Fact>& facts) const {
    for (const auto& context : contexts_) {
        const Entry entry(*context->worker);
        for (Fact& fact : context->worker->description())
            facts.push_back(
                {fmt::format("tx_{}_{}", context->number, fact.key), std::move(fact.value)});
    }
}

ucs_status_t TxContexts::arm(std::uint64_t* deadline_ns) const {
    for (const auto& context : contexts_) {
        Worker& worker = *context->worker;
        const Entry entry(worker);
        // Its progress, or its callback, leaves work and rings when it is watched.
        worker.set_watched(true);
        if (worker.is_in_progress() || worker.has_work())
            return UCS_ERR_BUSY;
        *deadline_ns = std::min(*deadline_ns, worker.look_at_clock_next());
        const ucs_status_t status = Wakeup::arm(worker.rails());
        if (status != UCS_OK)
            return status;
        if (worker.has_work())
            return UCS_ERR_BUSY;
    }
    return UCS_OK;
}

}  // namespace tagwire::proto
