// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/worker/worker.hpp"

#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "protocols/transfer/stripe.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker_messages.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/listeners.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/step_aside.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

/// The answer to a thread that polls while another one progresses, which may have lost its
/// processor to threads like this.
[[gnu::noinline, gnu::cold]] unsigned busy() {
    constexpr unsigned kPollsPerYield = 32;
    [[gnu::tls_model("initial-exec")]] static thread_local constinit unsigned polls = 0;
    if (++polls % kPollsPerYield == 0)
        ucs::step_aside();
    return TW_PROGRESS_BUSY;
}

}  // namespace

ucs_status_t Worker::create(Context& context, const tw_worker_params_t& params, TxContext* own_tx,
                            std::unique_ptr<Worker>* worker_p) {
    std::unique_ptr<Worker> worker(new Worker(context, params, own_tx));
    ucs_status_t status = worker->open();
    if (status == UCS_OK && own_tx == nullptr)
        status = worker->open_tx_contexts();
    if (status == UCS_OK)
        *worker_p = std::move(worker);
    return status;
}

ucs_status_t Worker::open() {
    ucs_status_t status = requests_.open(options());
    if (status == UCS_OK)
        status = rma_ops.open();
    if (status == UCS_OK)
        status = waiting_.create();
    if (status == UCS_OK)
        status = ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_);
    if (status == UCS_OK)
        status = uct_worker_create(async_, UCS_THREAD_MODE_SERIALIZED, &uct_);
    if (status != UCS_OK)
        return status;
    politeness_.begin(uct_, params_, context_.given());
    if ((status = open_rails()) != UCS_OK)
        return status;
    context_.set_atomics_by_device(are_atomics_by_device());
    if ((status = check_scheme()) != UCS_OK || (status = plan_stripes()) != UCS_OK ||
        (status = open_device_tags()) != UCS_OK)
        return status;
    contacts_.choose(rails_);
    if (!contacts_.rails().empty()) {
        // Looked at in each call of progress: peers that are near are many. The others are looked
        // at now and then until one comes.
        contacts_.rails().front()->enable();
        TW_CHECK(address(SIZE_MAX).size() <= TW_ADDRESS_BYTES_MAX);
        return UCS_OK;
    }
    if (lacks_memory_)
        return UCS_ERR_NO_MEMORY;
    TW_LOG_ERROR(
        "worker: could not open an interface for first contact; one of these is needed: %s",
        first_contact_names().c_str());
    return UCS_ERR_NO_DEVICE;
}

ucs_status_t Worker::open_tx_contexts() {
    const unsigned count = params_.tx_contexts != 0 ? params_.tx_contexts
                           : is_multi               ? static_cast<unsigned>(options().tx_contexts)
                                                    : 1;
    if (count == 1)
        return UCS_OK;
    if (!is_multi || count > TW_TX_CONTEXTS_MAX) {
        TW_LOG_ERROR(
            "worker: tx_contexts is %u; expected 1, or with TW_THREAD_MULTI at most %d, or 0 for "
            "TAGWIRE_TX_CONTEXTS",
            count, TW_TX_CONTEXTS_MAX);
        return UCS_ERR_INVALID_PARAM;
    }
    if (options().tag_offload) {
        TW_LOG_ERROR(
            "worker: %u transmit contexts cannot be combined with TAGWIRE_TAG_OFFLOAD=y: a device "
            "matches by senders, and each context is one",
            count);
        return UCS_ERR_UNSUPPORTED;
    }
    tx_contexts_ = std::make_unique<TxContexts>(*this);
    return tx_contexts_->open(context_, count);
}

// A rail that cannot be opened is left out, with the reason in the log, unless the reason is an
// option that has no such value: then the program does not get what it has asked for.
ucs_status_t Worker::open_rails() {
    const auto matches = [](const auto& rail) { return rail->matches_tags(); };
    constexpr TagCallbacks callbacks{
        [](void* arg, void* data, size_t length, unsigned flags, uct_tag_t tag, uint64_t imm,
           void**) {
            return static_cast<Worker*>(arg)->device_tags_->on_eager(data, length, flags, tag, imm);
        },
        [](void* arg, unsigned, uint64_t tag, const void* header, unsigned length, uint64_t, size_t,
           const void*) {
            return static_cast<Worker*>(arg)->device_tags_->on_request(header, length, tag);
        }};
    for (const Resource& resource : context_.resources()) {
        if (rails_.size() == UINT8_MAX)
            break;
        const RailPorts ports{context_.domains()[resource.domain], options(),
                              context_.calibration(), refusals, &context_.given()};
        auto rail =
            std::make_unique<Rail>(ports, static_cast<std::uint8_t>(rails_.size()), resource);
        const auto failed = [](void* arg, uct_ep_h ep, ucs_status_t status) {
            static_cast<Worker*>(arg)->own_peers_.lane_failed(ep, status);
            return UCS_OK;
        };
        const bool may_match = options().tag_offload && std::ranges::none_of(rails_, matches);
        const ucs_status_t status =
            rail->open(uct_, failed, this, may_match ? &callbacks : nullptr);
        if (rail->has_bad_option())
            return status;
        if (status != UCS_OK) {
            TW_LOG_WARN("worker: %s on %s is not used: %s", rail->transport(), rail->device(),
                        ucs_status_string(status));
            lacks_memory_ |= status == UCS_ERR_NO_MEMORY;
            continue;
        }
        set_message_handlers(*rail, *this);
        rails_.push_back(std::move(rail));
    }
    return UCS_OK;
}

/// One device alone reaches memory of the context, whatever rail leads to it, and has what others
/// can be made of. A rail for first contact may have to serve for more: of a worker to itself, say.
bool Worker::are_atomics_by_device() const {
    constexpr std::uint64_t kNeeded =
        (std::uint64_t{1} << UCT_ATOMIC_OP_ADD) | (std::uint64_t{1} << UCT_ATOMIC_OP_CSWAP);
    const auto has = [](const auto& rail) {
        return (rail->attr().cap.flags & UCT_IFACE_FLAG_ATOMIC_DEVICE) != 0 && rail->can_get() &&
               rail->can_put() && (rail->attr().cap.atomic64.fop_flags & kNeeded) == kNeeded;
    };
    return context_.domains().size() == 1 && std::ranges::all_of(rails_, has);
}

/// A way that is asked for by name must be one that some transport has.
ucs_status_t Worker::check_scheme() const {
    const RndvScheme scheme = options().scheme();
    const auto has = [&](const auto& rail) {
        return scheme == RndvScheme::kGet ? rail->can_get() : rail->can_put();
    };
    const bool is_free = scheme == RndvScheme::kAuto || scheme == RndvScheme::kCopy;
    if (is_free || rails_.empty() || std::ranges::any_of(rails_, has))
        return UCS_OK;
    TW_LOG_ERROR("TAGWIRE_RNDV_SCHEME=%s: none of the transports in use can %s; set auto or copy",
                 scheme == RndvScheme::kGet ? "get" : "put",
                 scheme == RndvScheme::kGet ? "read a peer's memory" : "write a peer's memory");
    return UCS_ERR_UNSUPPORTED;
}

/// So many rails as were asked for must be there, whether or not they lead to each peer.
ucs_status_t Worker::plan_stripes() {
    const auto wanted = static_cast<std::size_t>(options().rndv_rails);
    const auto usable = static_cast<std::size_t>(
        std::ranges::count_if(rails_, [](const auto& rail) { return rail->can_stripe(); }));
    if (wanted > 1 && !rails_.empty() && usable < wanted) {
        TW_LOG_ERROR(
            "TAGWIRE_RNDV_RAILS=%zu: only %zu of the interfaces in use can read and write a peer's "
            "memory; set at most that, or name more devices in TAGWIRE_TRANSPORTS",
            wanted, usable);
        return UCS_ERR_UNSUPPORTED;
    }
    for (const auto& rail : rails_)
        proto::plan_stripes(*rail, rails_);
    return UCS_OK;
}

/// One device matches: a receive can be with one only.
ucs_status_t Worker::open_device_tags() {
    if (!options().tag_offload || rails_.empty() || own_tx != nullptr)
        return UCS_OK;
    const auto found =
        std::ranges::find_if(rails_, [](const auto& rail) { return rail->matches_tags(); });
    if (found == rails_.end()) {
        TW_LOG_ERROR(
            "TAGWIRE_TAG_OFFLOAD=y: no device in use matches tags; `tagwire info devices` "
            "says why (tag_matching)");
        return UCS_ERR_UNSUPPORTED;
    }
    receive_path = ReceivePath::kSlow;
    (*found)->enable();
    own_device_tags_ = std::make_unique<DeviceTags>(
        DeviceTagPorts{port(), space(true), endpoints_, **found, this, kDeviceTagCalls},
        context_.tag_sender_mask);
    device_tags_ = own_device_tags_.get();
    own_receiver_.set_has_device();
    return UCS_OK;
}

Worker::~Worker() {
    requests_.silence();
    for (auto& lookout : lookouts)
        lookout.reset();
    ams_.clear_own();
    if (tx_contexts_ != nullptr) {
        // They go first, and their endpoints with them.
        endpoints_.for_each([](Endpoint& ep) { ep.tx.contexts = nullptr; });
        tx_contexts_.reset();
    }
    if (device_tags_ != nullptr)
        device_tags_->close();
    say_farewell();
    endpoints_.for_each([](Endpoint& ep) { ep.fail(UCS_ERR_CANCELED); });
    while (Request* request = draining_.front())
        drained(*request, UCS_ERR_CANCELED);
    matches_.clear();
    requests_.clear();
    own_peers_.clear();
    rails_.clear();
    uct_worker_destroy(uct_);
    ucs_async_context_destroy(async_);
}

/// A lane that is full has room again when the peer takes what is in it, and goes when that and
/// the message have arrived, because what its transport has not sent goes with it: over rc, all
/// that the peer's device has not acknowledged. For a peer that takes nothing, or is no more,
/// nobody waits long. Messages that come meanwhile are dropped.
void Worker::say_farewell() {
    constexpr std::uint64_t kFarewellNs = 100'000'000;
    constexpr std::uint64_t kArrivalNs = 20'000'000;  // of what the lane has taken at once
    struct Leaving {
        Endpoint* ep;
        bool is_told;
        std::uint64_t until;
    };
    const std::uint64_t begin = ucs::clock_now_ns();
    ucs::ReserveVector<Leaving> left;
    endpoints_.for_each([&](Endpoint& ep) {
        const bool is_told = ep.closing().say_reset(true);
        if (!is_told || !ep.closing().has_arrived())
            left.push_back({&ep, is_told, begin + (is_told ? kArrivalNs : kFarewellNs)});
    });
    if (left.empty() && !own_peers_.destroy_arrived())
        return;
    for (const auto& rail : rails_)
        drop_messages(*rail, *this);
    do {
        politeness_.go_away_if_wanted();
        for (const auto& rail : rails_)
            uct_iface_progress(rail->iface());
        const std::uint64_t now = ucs::clock_now_ns();
        std::erase_if(left, [now](Leaving& each) {
            Closing& closing = each.ep->closing();
            if (!each.is_told) {
                each.ep->stop_sending();  // what waits is lost, and must not take the room
                each.is_told = closing.say_reset(true);
            }
            return closing.has_gone || now >= each.until || (each.is_told && closing.has_arrived());
        });
    } while (own_peers_.destroy_arrived() || !left.empty());
}

unsigned Worker::refuse_progress() {
    if (!has_refused_progress_.exchange(true, std::memory_order_relaxed))
        TW_LOG_ERROR("tw_worker_progress: called from a callback, where it does nothing");
    return 0;
}

[[gnu::noinline]] unsigned Worker::progress_alone() {
    if (is_in_progress())
        return refuse_progress();
    const Politeness::Away wish = politeness_.take_wish();
    const unsigned count = attention_.is_needed() ? progress_slowly() : advance();
    if (is_watched())
        waiting_.settle(false);
    if (wish != Politeness::Away::kNo) {
        politeness_.take_wish();  // of this call
        Politeness::Leave leave;
        politeness_.take(count, wish, &leave);
        politeness_.go_away(leave);
    }
    return count;
}

unsigned Worker::progress_otherwise() {
    if (guards == 0)
        return progress_alone();
    if (guards != kLocked) [[unlikely]]
        return progress_heard();
    if (tx_contexts_ == nullptr) [[likely]]
        return progress_shared();
    return tx_contexts_->progress();
}

/// Log lines are told at the end, without the lock.
[[gnu::noinline]] unsigned Worker::progress_heard() {
    const ucs::LogScope scope(context_.log_id());
    if (!is_multi)
        return progress_alone();
    return tx_contexts_ == nullptr ? progress_shared() : tx_contexts_->progress();
}

[[gnu::noinline]] unsigned Worker::leave_and_go_away(unsigned count) {
    Politeness::Leave away;
    politeness_.take(count, &away);
    leave();
    politeness_.go_away(away);
    return count;
}

[[gnu::noinline]] unsigned Worker::settle_and_leave(unsigned count) {
    Wakes wakes;
    waiting_.settle(own_tx != nullptr && count > 0, wakes);
    Politeness::Leave away;
    if (attention_.is_away_wanted())
        politeness_.take(count, &away);
    leave();
    wakes.write();
    if (away.how == Politeness::Away::kNo)
        lock.give_way();  // this thread comes back at once
    politeness_.go_away(away);
    return count;
}

unsigned Worker::progress_shared() {
    return lock.try_lock() ? progress_and_unlock() : progress_behind_another();
}

[[gnu::noinline]] unsigned Worker::progress_behind_another() {
    if (attention_.is_progressing_thread())
        return refuse_progress();
    if (lock.is_taken_for_long())
        return busy();
    lock.lock();  // whoever has it leaves at once
    return progress_and_unlock();
}

[[gnu::always_inline]] inline unsigned Worker::progress_and_unlock() {
    open_if_wanted();
    if (attention_.is_needed()) [[unlikely]]
        return leave_attentively(progress_attentively());
    attention_.begin_plain<true>();
    const unsigned count = progress_and_look();
    if (!attention_.is_plain_inside()) [[unlikely]]
        return end_attentively_and_leave(count);
    attention_.end_plain<true>();
    leave();
    lock.give_way();  // this thread comes back at once
    return count;
}

[[gnu::noinline]] unsigned Worker::end_attentively_and_leave(unsigned count) {
    return leave_attentively(end_attentively(count));
}

[[gnu::noinline]] unsigned Worker::leave_attentively(unsigned count) {
    if (is_watched())
        return settle_and_leave(count);
    if (attention_.is_away_wanted())
        return leave_and_go_away(count);
    leave();
    lock.give_way();
    return count;
}

unsigned Worker::progress_attentively() {
    if (!is_in_progress())
        return progress_slowly();
    return is_in_progress_here() ? refuse_progress() : busy();
}

unsigned Worker::progress_slowly() {
    if (is_in_progress())
        return refuse_progress();
    if (!is_watched())
        return progress_all();
    return waiting_.progress();
}

unsigned Worker::progress_all() {
    attention_.begin_progress();
    // First, so that ends are reported in the order in which they were seen.
    const unsigned count = run_slow_work();
    return count + advance();
}

unsigned Worker::advance() {
    attention_.begin_progress();
    return end_attentively(progress_and_look());
}

[[gnu::noinline]] unsigned Worker::end_attentively(unsigned count) {
    if (attention_.has_deferred())
        count += requests_.tell_ends();
    attention_.end_progress();
    return count;
}

/// Those behind the first, which has brought `count`.
[[gnu::noinline]] unsigned Worker::progress_other_transports(unsigned count) {
    const ucs_callbackq_elem_t* each = uct_->progress_q.fast_elems + 1;
    // SYNC publish(callbackq): as in ucs_callbackq_dispatch().
    while (const ucs_callback_t callback = __atomic_load_n(&each->cb, __ATOMIC_ACQUIRE)) {
        count += callback(each->arg);
        ++each;
    }
    return count;
}

std::uint64_t Worker::look_at_clock_next() {
    calls_left_ = 1;
    next_kernel_look_ns_ = 0;
    return endpoints_.size() == 0 ? UINT64_MAX : next_look_ns_;
}

unsigned Worker::look_around() {
    calls_left_ = kCallsPerLook;
    unsigned count = look_at_rails();
    look_at_peers();
    for (const auto& lookout : lookouts) {
        if (lookout == nullptr)
            continue;
        calls_left_ = kCallsPerLookout;
        count += lookout->look();
    }
    return count;
}

void set_lookout(WorkerCore& core, LookoutOf kind, std::unique_ptr<Lookout> lookout) {
    Worker& worker = worker_of(core);
    worker.lookouts[static_cast<std::size_t>(kind)] = std::move(lookout);
    worker.look_at_clock_next();
    worker.waiting().add(worker.lookout(kind)->fd());
}

/// A peer may choose a rail that this side has no endpoint on, and come without being asked. The
/// first message makes the rail one that each call progresses.
unsigned Worker::look_at_rails() {
    unsigned count = 0;
    bool is_due = false;  // those that cost system calls
    for (const auto& rail : rails_) {
        if (rail->is_enabled())
            continue;
        calls_left_ = kCallsPerRailLook;
        if (rail->goes_through_kernel() && !is_due) {
            const std::uint64_t now = ucs::clock_now_ns();
            if (now < next_kernel_look_ns_)
                continue;
            next_kernel_look_ns_ = now + kKernelLookNs;
            is_due = true;
        }
        count += rail->look();
    }
    return count;
}

// A worker that waits for a peer sends nothing, and so would not learn that the peer has died.
void Worker::look_at_peers() {
    const std::uint64_t now = ucs::clock_now_ns();
    if (now < next_look_ns_)
        return;
    next_look_ns_ = now + std::min(options().liveness_interval_ns, UINT64_MAX - now);
    const Walk walk(attention_);
    endpoints_.for_each([](Endpoint& ep) { ep.check(); });
}

unsigned Worker::run_slow_work() {
    attention_.take_slow_work();
    unsigned count = own_peers_.fail_lanes();
    count += requests_.tell_ends();
    const unsigned told = own_peers_.run_notices();
    attention_.count_events(told);
    count += told;
    if (requests_.told() != requests_.told_and_deferred())
        ask_slow_work();
    own_peers_.run_wireup();
    count += own_peers_.end_connections();
    own_peers_.destroy_arrived();
    return count + own_peers_.destroy_retired();
}

void WorkerCore::open() {
    constexpr std::size_t kOwn = 8;  // for calls of the owner itself
    if (requests_.keep_free(WorkerLockEnv::kRoom + kOwn))
        lock.open();
}

void WorkerCore::carry_out_and_settle(const DelegatedCall& call) {
    {
        const Walk walk(attention_);
        carry_out(*this, call);
    }
    if (attention_.is_watched()) [[unlikely]]
        worker_of(*this).waiting().settle_delegated();
}

void Worker::cancel(Request& request) {
    if (request.has_ended)
        return;
    if (request.kind == RequestKind::kReceive) {
        if (request.is_posted) {
            if (request.is_whole && DeviceTags::cancel(request, UCS_ERR_CANCELED))
                return;
            own_receiver_.unpost(request);
            if ((request.flags & kMultiReceive) != 0)
                return own_receiver_.close_multi(request, UCS_ERR_CANCELED);
            finish(request, UCS_ERR_CANCELED);
        }
    } else if (request.ep != nullptr) {
        request.ep->cancel(request);
    }
}

void Worker::query(tw_worker_attr_t* attr) const {
    attr->id = id_;
    attr->thread_mode = params_.thread_mode;
    attr->inject_bytes_max = options().inject_bytes;
    attr->multi_recv_bytes_min = limits.multi_recv_bytes_min;
    attr->buffered_bytes_limit = limits.buffered_bytes_limit;
    attr->buffered_bytes_min = limits.buffered_bytes_min;
    attr->endpoints = endpoints_.size();
    attr->tx_contexts =
        tx_contexts_ == nullptr ? 1 : static_cast<unsigned>(tx_contexts_->all().size());
    attr->progress =
        tagwire_uct_worker_is_polite(uct_) != 0 ? TW_PROGRESS_POLITE : TW_PROGRESS_SPIN;
}

}  // namespace tagwire::proto
