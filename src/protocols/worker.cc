// SPDX-License-Identifier: BSD-3-Clause
// A worker: its rails, its progress, its description.
#include "protocols/worker.hpp"

#include <sys/random.h>

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr auto kCounters = ucs::counter_table<WorkerCounter>({
    {WorkerCounter::kTxShort, "tx_short", "messages",
     "short messages sent in one piece on the fast path"},
    {WorkerCounter::kTxEager, "tx_eager", "messages",
     "eager messages sent in one piece, copied by the transport"},
    {WorkerCounter::kTxParts, "tx_parts", "parts",
     "parts of eager messages that are longer than one piece"},
    {WorkerCounter::kTxRndv, "tx_rndv", "messages", "messages announced by a rendezvous request"},
    {WorkerCounter::kTxQueued, "tx_queued", "messages",
     "messages that had to wait for the transport, the peer or a fence"},
    {WorkerCounter::kRxExpected, "rx_expected", "messages",
     "messages that matched a posted receive when they arrived"},
    {WorkerCounter::kRxUnexpected, "rx_unexpected", "messages",
     "messages that arrived before a matching receive was posted"},
    {WorkerCounter::kRxRndv, "rx_rndv", "messages", "messages received by rendezvous"},
    {WorkerCounter::kRndvGet, "rndv_get", "messages",
     "rendezvous messages received by reading the sender's memory"},
    {WorkerCounter::kRndvPut, "rndv_put", "messages",
     "rendezvous messages received because the sender wrote them"},
    {WorkerCounter::kRndvCopy, "rndv_copy", "messages",
     "rendezvous messages received in pieces that the sender sent"},
    {WorkerCounter::kRndvFallback, "rndv_fallback", "messages",
     "rendezvous messages moved in another way than TAGWIRE_RNDV_SCHEME asked for"},
    {WorkerCounter::kRndvStriped, "rndv_striped", "messages",
     "rendezvous messages read or written by this side over several rails"},
    {WorkerCounter::kRndvRailBytes, "rndv_rail_bytes", "bytes",
     "bytes of rendezvous messages moved by other rails than the lane"},
    {WorkerCounter::kRndvRailLost, "rndv_rail_lost", "parts",
     "parts of rendezvous messages that the lane moved because a rail had failed"},
    {WorkerCounter::kRegCached, "reg_cached", "buffers", "buffers found in the registration cache"},
    {WorkerCounter::kRegMade, "reg_made", "buffers",
     "buffers registered for the registration cache"},
    {WorkerCounter::kRegRefused, "reg_refused", "buffers",
     "buffers that the registration cache had no room for, or that a device refused"},
    {WorkerCounter::kTxTagged, "tx_tagged", "messages",
     "tagged messages sent for a device to match"},
    {WorkerCounter::kTxPlaceholders, "tx_placeholders", "messages",
     "messages for a matching device that an active message announced"},
    {WorkerCounter::kTagGiven, "tag_given", "receives",
     "receives posted to a device that matches tags"},
    {WorkerCounter::kTagMatched, "tag_matched", "messages", "messages that a device matched"},
    {WorkerCounter::kTagBounced, "tag_bounced", "receives",
     "receives posted to a device with a buffer of the library's"},
    {WorkerCounter::kTagTakenBack, "tag_taken_back", "receives",
     "receives of a device that a message matched in software after all"},
    {WorkerCounter::kTagRecalled, "tag_recalled", "receives",
     "receives taken from a device because of a new peer"},
    {WorkerCounter::kTagKeptKind, "tag_kept_kind", "receives",
     "receives not posted to a device: of one source, or buffered"},
    {WorkerCounter::kTagKeptOrder, "tag_kept_order", "receives",
     "receives not posted to a device: they could overtake an older one that no device has"},
    {WorkerCounter::kTagKeptPeers, "tag_kept_peers", "receives",
     "receives not posted to a device: a peer on another transport could match them"},
    {WorkerCounter::kTagKeptFull, "tag_kept_full", "receives",
     "receives not posted to a device: its list was full"},
    {WorkerCounter::kHeldData, "held_data", "times",
     "requests to a peer to send no data of rendezvous"},
    {WorkerCounter::kHeld, "held", "times", "requests to a peer to send nothing"},
    {WorkerCounter::kOrphansDropped, "orphans_dropped", "messages",
     "complete messages of peers that are gone, dropped to stay within TAGWIRE_UNEXPECTED_BYTES "
     "and TAGWIRE_UNEXPECTED_MAX"},
    {WorkerCounter::kLate, "late", "messages",
     "messages dropped because their endpoint had been closed or had failed"},
    {WorkerCounter::kGarbage, "garbage", "messages", "malformed or impossible messages dropped"},
});

using Handler = ucs_status_t (Worker::*)(const std::byte*, std::size_t);

template <Handler kHandler>
ucs_status_t handle(void* arg, void* data, size_t length, unsigned) {
    return (static_cast<Worker*>(arg)->*kHandler)(static_cast<const std::byte*>(data), length);
}

std::uint64_t random_id() {
    std::uint64_t id = 0;
    while (id == 0)
        TW_CHECK(getrandom(&id, sizeof id, 0) == sizeof id);
    return id;
}

}  // namespace

Worker::Worker(Context& context, const tw_worker_params_t& params)
    : is_multi(params.thread_mode == TW_THREAD_MULTI),
      limits{context.options().multi_recv_min, context.options().buffered_limit,
             context.options().buffered_min},
      receives_long(is_multi),
      context_(context),
      params_(params),
      id_(random_id()) {
    ++context_.users;
}

ucs_status_t Worker::create(Context& context, const tw_worker_params_t& params,
                            std::unique_ptr<Worker>* worker_p) {
    std::unique_ptr<Worker> worker(new Worker(context, params));
    const ucs_status_t status = worker->open();
    if (status == UCS_OK)
        *worker_p = std::move(worker);
    return status;
}

ucs_status_t Worker::open() {
    ucs_status_t status = requests_.open(options());
    if (status == UCS_OK)
        status = wakeup_.create();
    if (status == UCS_OK)
        status = ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_);
    if (status == UCS_OK)
        status = uct_worker_create(async_, UCS_THREAD_MODE_SERIALIZED, &uct_);
    if (status != UCS_OK)
        return status;
    open_rails();
    if ((status = check_scheme()) != UCS_OK || (status = plan_stripes()) != UCS_OK ||
        (status = open_device_tags()) != UCS_OK)
        return status;
    for (const char* transport : kFirstContact) {
        Rail* rail = rail_of(transport);
        if (rail == nullptr)
            continue;
        rail->enable();
        const auto device = rail->device_address();
        const auto iface = rail->iface_address();
        address_ =
            pack({id_, transport, {device.begin(), device.end()}, {iface.begin(), iface.end()}});
        TW_CHECK(address_.size() <= TW_ADDRESS_BYTES_MAX);
        return UCS_OK;
    }
    TW_LOG_ERROR("worker: no interface that takes first contact (dc, ud, sm) could be opened");
    return UCS_ERR_NO_DEVICE;
}

// A rail that cannot be opened is left out, with the reason in the log.
void Worker::open_rails() {
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
        auto rail =
            std::make_unique<Rail>(*this, static_cast<std::uint8_t>(rails_.size()), resource);
        const auto failed = [](void* arg, uct_ep_h ep, ucs_status_t status) {
            static_cast<Worker*>(arg)->peers_.lane_failed(ep, status);
            return UCS_OK;
        };
        const bool may_match = options().tag_offload && std::ranges::none_of(rails_, matches);
        const ucs_status_t status =
            rail->open(uct_, failed, this, may_match ? &callbacks : nullptr);
        if (status != UCS_OK) {
            TW_LOG_WARN("worker: %s on %s is not used: %s", rail->transport(), rail->device(),
                        ucs_status_string(status));
            continue;
        }
        set_handlers(*rail);
        rails_.push_back(std::move(rail));
    }
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
    TW_LOG_ERROR("TAGWIRE_RNDV_SCHEME=%s: none of the transports in use can %s; auto and copy work",
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
            "TAGWIRE_RNDV_RAILS=%zu: %zu of the transports in use can read and write a peer's "
            "memory; each device of each of them is one rail",
            wanted, usable);
        return UCS_ERR_UNSUPPORTED;
    }
    for (const auto& rail : rails_)
        rail->plan_stripes(rails_);
    return UCS_OK;
}

/// One device matches: a receive can be with one only.
ucs_status_t Worker::open_device_tags() {
    if (!options().tag_offload || rails_.empty())
        return UCS_OK;
    const auto found =
        std::ranges::find_if(rails_, [](const auto& rail) { return rail->matches_tags(); });
    if (found == rails_.end()) {
        TW_LOG_ERROR(
            "TAGWIRE_TAG_OFFLOAD=y: no device in use matches tags; `tagwire info devices` "
            "says why (tag_matching)");
        return UCS_ERR_UNSUPPORTED;
    }
    receives_long = true;
    (*found)->enable();
    device_tags_ = std::make_unique<DeviceTags>(*this, **found, context_.tag_sender_mask);
    return UCS_OK;
}

void Worker::set_handlers(Rail& rail) {
    const auto set = [&](AmId id, uct_am_callback_t handler) {
        uct_iface_set_am_handler(rail.iface(), static_cast<std::uint8_t>(id), handler, this, 0);
    };
    set(AmId::kEager, handle<&Worker::on_eager>);
    set(AmId::kPart, handle<&Worker::on_part>);
    set(AmId::kRts, handle<&Worker::on_rts>);
    set(AmId::kRtr, handle<&Worker::on_rtr>);
    set(AmId::kData, handle<&Worker::on_data>);
    set(AmId::kControl, handle<&Worker::on_control>);
    set(AmId::kWireup, handle<&Worker::on_wireup>);
}

Worker::~Worker() {
    requests_.silence();
    if (device_tags_ != nullptr)
        device_tags_->close();
    peers_.for_each([](Endpoint& ep) {
        ep.say_reset(true);
        ep.fail(UCS_ERR_CANCELED);
    });
    while (Request* request = late_.front())
        end_late(*request, UCS_ERR_CANCELED);
    matches_.clear();
    requests_.clear();
    peers_.clear();
    rails_.clear();
    uct_worker_destroy(uct_);
    ucs_async_context_destroy(async_);
    --context_.users;
}

Rail* Worker::rail_of(std::string_view transport) const {
    for (const auto& rail : rails_)
        if (transport == rail->transport())
            return rail.get();
    return nullptr;
}

unsigned Worker::progress_slowly() {
    if (is_in_progress()) {
        if (!std::exchange(has_refused_progress_, true))
            TW_LOG_ERROR("tw_worker_progress: called from a callback, where it does nothing");
        return 0;
    }
    if (!is_watched())
        return progress_all();
    return progress_watched();
}

unsigned Worker::progress_all() {
    attention_.begin_progress();
    // First, so that ends are reported in the order in which they were seen.
    const unsigned count = run_slow_work();
    return count + advance();
}

unsigned Worker::look_around() {
    calls_left_ = kCallsPerLook;
    const unsigned count = look_at_rails();
    look_at_peers();
    return count;
}

/// A peer may choose a rail that this side has no endpoint on, and come without being asked. The
/// first message makes the rail one that each call progresses.
unsigned Worker::look_at_rails() {
    unsigned count = 0;
    for (const auto& rail : rails_) {
        if (rail->is_enabled())
            continue;
        count += rail->look();
        calls_left_ = kCallsPerRailLook;
    }
    return count;
}

// A worker that waits for a peer sends nothing, and so would not learn that the peer has died.
void Worker::look_at_peers() {
    const std::uint64_t now = ucs::clock_now_ns();
    if (now < next_look_ns_)
        return;
    next_look_ns_ = now + std::min(options().liveness_interval_ns, UINT64_MAX - now);
    peers_.for_each([](Endpoint& ep) { ep.check(); });
}

unsigned Worker::run_slow_work() {
    attention_.take_slow_work();
    unsigned count = peers_.fail_lanes();
    count += requests_.run_deferred();
    const unsigned told = peers_.run_notices();
    attention_.count_events(told);
    count += told;
    if (requests_.has_deferred())
        ask_slow_work();
    peers_.run_wireup();
    count += peers_.end_connections();
    return count + peers_.destroy_retired();
}

void Worker::query(tw_worker_attr_t* attr) const {
    attr->id = id_;
    attr->thread_mode = params_.thread_mode;
    attr->inject_bytes_max = options().inject_bytes;
    attr->multi_recv_bytes_min = limits.multi_recv_bytes_min;
    attr->buffered_bytes_limit = limits.buffered_bytes_limit;
    attr->buffered_bytes_min = limits.buffered_bytes_min;
    attr->endpoints = peers_.size();
}

ucs::CounterSet Worker::counters() const {
    return counters_.set(kCounters);
}

void Worker::describe(tw_describe_cb_t cb, void* arg) {
    const auto tell = [&](const std::string& key, const std::string& value) {
        cb(arg, key.c_str(), value.c_str());
    };
    tell("worker_id", fmt::format("{:016x}", id_));
    tell("address_bytes", fmt::format("{}", address_.size()));
    tell("peers", fmt::format("{} connected, {} remembered", peers_.size(), peers_.remembered()));
    for (const auto& rail : rails_) {
        if (rail->is_auxiliary) {
            tell(fmt::format("rail_{}", rail->index()),
                 fmt::format("{}:{}, for first contact only", rail->transport(), rail->device()));
            continue;
        }
        tell(fmt::format("rail_{}", rail->index()),
             fmt::format("{}:{}, {:.0f} ns, rendezvous from {} bytes, of copied buffers {}, {} "
                         "bytes of messages over several rails",
                         rail->transport(), rail->device(), rail->latency() * 1e9,
                         rail->selection().rndv_from(BufferKind::kPlain),
                         rail->selection().rndv_from(BufferKind::kUnmapped), rail->striped_bytes));
    }
    if (device_tags_ != nullptr)
        tell("tag_offload", device_tags_->description());
    tell("unexpected", matches_.description());
    if (RegCache* cache = context_.cache())
        tell("registration_cache", cache->description());
    peers_.for_each([&](Endpoint& ep) {
        tell(fmt::format("endpoint_{:016x}", ep.worker_id), ep.description());
    });
}

}  // namespace tagwire::proto
