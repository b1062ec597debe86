// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_iface.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <cstring>
#include <new>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "ucs/topo/topology.hpp"
#include "uct/ops.hpp"
#include "uct/sm/sm_ep.hpp"

namespace tagwire::sm {

constexpr ucs::CounterTable<SmCounter> kSmCounterInfos = ucs::counter_table<SmCounter>({
    {SmCounter::kDelivered, "delivered", "messages",
     "messages read from peers' rings, control messages included"},
    {SmCounter::kUnexpected, "unexpected", "messages",
     "tagged messages that found no posted receive"},
    {SmCounter::kMatched, "matched", "messages", "tagged messages that completed a posted receive"},
    {SmCounter::kNoResource, "no_resource", "calls",
     "sends refused: no room in the receiver's ring or buffers, or earlier requests pending"},
    {SmCounter::kBells, "bells", "calls",
     "sends to a receiver that does not poll the ring: the bell was rung"},
    {SmCounter::kWakeups, "wakeups", "packets",
     "wake-up packets sent to receivers asleep in poll(2)"},
    {SmCounter::kCooled, "cooled", "rings", "rings that progress stopped polling"},
    {SmCounter::kConnections, "connections", "peers",
     "connections established, in either direction"},
    {SmCounter::kRefused, "refused", "peers", "connections refused: other user, or wrong cookie"},
    {SmCounter::kViolations, "violations", "peers",
     "connections ended because the peer sent malformed or impossible data"},
    {SmCounter::kPeerFailures, "peer_failures", "peers",
     "connections with endpoints that ended in an error"},
    {SmCounter::kDirectBytes, "direct_bytes", "bytes",
     "bytes moved by loads and stores to arena memory"},
    {SmCounter::kProcessVmBytes, "process_vm_bytes", "bytes",
     "bytes moved by process_vm_readv and process_vm_writev"},
    {SmCounter::kMessageBytes, "message_bytes", "bytes",
     "bytes sent piece by piece because process_vm_* is not permitted"},
    {SmCounter::kHelpedBytes, "helped_bytes", "bytes",
     "bytes of rendezvous and gets that this side, the owner of the data, copied for the reader"},
    {SmCounter::kCopiedDescs, "copied_descs", "messages",
     "messages copied to a private descriptor (headroom, or too many held)"},
    {SmCounter::kRingChanges, "ring_changes", "changes",
     "changes between front and back ring: the receiver began to fall behind, or has caught up"},
    {SmCounter::kLentReads, "lent_reads", "reads",
     "reads of memory that the peer lends without a registration"},
    {SmCounter::kLentEnded, "lent_ended", "reads",
     "reads of lent memory that did not count, since the peer had taken memory back"},
});

namespace {

constexpr uct_iface_ops_t kOps = uct::make_ops<SmIface, SmEp>();

}  // namespace

SmIface::SmIface(SmMd& md, uct::Worker& worker, const SmOptions& options, const SmForce& force)
    : BaseIface(md, worker, kOps, progress_callback<SmIface>),
      md_(md),
      options_(options),
      force_(force) {
    seg_bytes_ = ucs::round_up(options.seg_bytes, kCacheLine);
    set_lending(loans);
    set_move_pieces(&SmEp::move_pieces);
}

ucs_status_t SmIface::open(SmMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                           const SmOptions& options, uct_iface_h* iface_p) {
    SmForce force;
    ucs_status_t status = parse_force(options.force.text, &force);
    if (status != UCS_OK)
        return status;
    std::unique_ptr<SmIface> iface(new SmIface(md, worker, options, force));
    if ((status = iface->init(params)) != UCS_OK)
        return status;
    *iface_p = iface.release();
    return UCS_OK;
}

ucs_status_t SmIface::init(const uct_iface_params_t& iface_params) {
    ucs_status_t status = take_params(iface_params);
    if (status != UCS_OK)
        return status;
    if (worker().thread_mode() == UCS_THREAD_MODE_MULTI) {
        TW_LOG_ERROR(
            "sm does not support a worker of UCS_THREAD_MODE_MULTI: use UCS_THREAD_MODE_SINGLE, or "
            "UCS_THREAD_MODE_SERIALIZED with a lock of the program");
        return UCS_ERR_UNSUPPORTED;
    }
    if (options_.cma == static_cast<int>(CmaMode::kAllowAny))
        ucs::allow_any_ptracer();

    status = rings.open(force_);
    if (status == UCS_OK)
        status = connections.open();
    if (status != UCS_OK)
        return status;
    descs.open(params());
    return tags.open(has_tag_callbacks() ? options_.tag_depth : 0);
}

SmIface::~SmIface() {
    for (const auto& link : connections.links())
        if (link != nullptr && link->message_entry != nullptr)
            tags.destroy(*link->message_entry);
    tags.destroy_all();
    ops.for_each([this](Op& op) {
        if (op.kind == OpKind::kReceive)
            tags.destroy(*op.entry);
    });
}

// The program's callbacks run here, too, and may destroy endpoints themselves: so one at a time.
void SmIface::close() {
    const auto any = [this]() -> SmEp* {
        for (const auto& link : connections.links())
            if (link != nullptr && !link->eps.empty())
                return link->eps.back();
        return nullptr;
    };
    std::size_t eps = 0;
    for (SmEp* ep = any(); ep != nullptr; ep = any(), ++eps)
        ep->destroy();
    if (eps > 0)
        TW_LOG_WARN("sm interface closed with %zu endpoints", eps);
    delete this;
}

// ---- Capabilities

ucs_status_t SmIface::query(uct_iface_attr_t* attr) {
    std::memset(attr, 0, sizeof *attr);
    constexpr std::size_t kZcopyMax = std::size_t{1} << 40;
    const std::size_t seg = seg_bytes_;

    attr->cap.am.max_short = kAmInlineMax;
    attr->cap.am.max_bcopy = seg;
    attr->cap.am.max_zcopy = seg;
    attr->cap.am.max_hdr = seg;
    attr->cap.am.max_iov = kIovMax;
    attr->cap.am.opt_zcopy_align = 1;
    attr->cap.am.align_mtu = 1;

    attr->cap.put.max_short = static_cast<unsigned>(seg);
    attr->cap.put.max_bcopy = seg;
    attr->cap.put.max_zcopy = kZcopyMax;
    attr->cap.put.max_iov = kIovMax;
    attr->cap.put.opt_zcopy_align = 1;
    attr->cap.put.align_mtu = 1;
    attr->cap.get.max_short = static_cast<unsigned>(seg);
    attr->cap.get.max_bcopy = seg;
    attr->cap.get.max_zcopy = kZcopyMax;
    attr->cap.get.max_iov = kIovMax;
    attr->cap.get.opt_zcopy_align = 1;
    attr->cap.get.align_mtu = 1;

    constexpr std::uint64_t kPostOps = UCS_BIT(UCT_ATOMIC_OP_ADD) | UCS_BIT(UCT_ATOMIC_OP_AND) |
                                       UCS_BIT(UCT_ATOMIC_OP_OR) | UCS_BIT(UCT_ATOMIC_OP_XOR);
    constexpr std::uint64_t kFetchOps =
        kPostOps | UCS_BIT(UCT_ATOMIC_OP_SWAP) | UCS_BIT(UCT_ATOMIC_OP_CSWAP);
    attr->cap.atomic32.op_flags = attr->cap.atomic64.op_flags = kPostOps;
    attr->cap.atomic32.fop_flags = attr->cap.atomic64.fop_flags = kFetchOps;

    attr->cap.flags =
        UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
        UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_PUT_SHORT | UCT_IFACE_FLAG_PUT_BCOPY |
        UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_SHORT | UCT_IFACE_FLAG_GET_BCOPY |
        UCT_IFACE_FLAG_GET_ZCOPY | UCT_IFACE_FLAG_ATOMIC_CPU | UCT_IFACE_FLAG_CONNECT_TO_IFACE |
        UCT_IFACE_FLAG_CB_SYNC | UCT_IFACE_FLAG_EP_CHECK | UCT_IFACE_FLAG_EP_KEEPALIVE |
        UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF | UCT_IFACE_FLAG_ERRHANDLE_AM_ID |
        UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN | UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM |
        UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE | TAGWIRE_UCT_IFACE_FLAG_FLUSH_REMOTE |
        TAGWIRE_UCT_IFACE_FLAG_LEND | TAGWIRE_UCT_IFACE_FLAG_SENT_AT_ONCE;
    attr->cap.event_flags = UCT_IFACE_FLAG_EVENT_SEND_COMP | UCT_IFACE_FLAG_EVENT_RECV |
                            UCT_IFACE_FLAG_EVENT_RECV_SIG | UCT_IFACE_FLAG_EVENT_FD;

    if (has_tag_callbacks()) {
        attr->cap.flags |= UCT_IFACE_FLAG_TAG_EAGER_SHORT | UCT_IFACE_FLAG_TAG_EAGER_BCOPY |
                           UCT_IFACE_FLAG_TAG_EAGER_ZCOPY | UCT_IFACE_FLAG_TAG_RNDV_ZCOPY;
        attr->cap.tag.recv.min_recv = 0;
        attr->cap.tag.recv.max_zcopy = kZcopyMax;
        attr->cap.tag.recv.max_iov = kIovMax;
        attr->cap.tag.recv.max_outstanding = options_.tag_depth;
        attr->cap.tag.eager.max_short = sizeof(TagShortBody::data);
        attr->cap.tag.eager.max_bcopy = seg;
        attr->cap.tag.eager.max_zcopy = kFragmentCountMax * seg;
        attr->cap.tag.eager.max_iov = kIovMax;
        attr->cap.tag.rndv.max_zcopy = kZcopyMax;
        attr->cap.tag.rndv.max_hdr = seg;
        attr->cap.tag.rndv.max_iov = 1;
    }

    attr->device_addr_len = sizeof(DeviceAddress);
    attr->iface_addr_len = sizeof(IfaceAddress);
    attr->ep_addr_len = 0;
    attr->max_conn_priv = 0;
    attr->overhead = 10e-9;
    attr->bandwidth.dedicated = 13e9;
    attr->bandwidth.shared = 0;
    attr->latency = ucs_linear_func_make(60e-9, 0);
    attr->priority = 0;
    attr->max_num_eps = SIZE_MAX;
    attr->dev_num_paths = 1;
    return UCS_OK;
}

// ---- Addresses

ucs_status_t SmIface::get_device_address(uct_device_addr_t* addr) {
    const DeviceAddress device = connections.device_address();
    std::memcpy(addr, &device, sizeof device);
    return UCS_OK;
}

ucs_status_t SmIface::get_address(uct_iface_addr_t* addr) {
    const IfaceAddress address = connections.iface_address();
    std::memcpy(addr, &address, sizeof address);
    return UCS_OK;
}

bool SmIface::reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                        std::string* reason) {
    const auto say = [&](std::string text) {
        if (reason != nullptr)
            *reason = std::move(text);
        return false;
    };
    const auto device = parse_device_address(
        std::span(reinterpret_cast<const std::byte*>(dev_addr), sizeof(DeviceAddress)));
    if (!device || device->boot_id != ucs::boot_id())
        return say("the peer is on another machine");
    std::optional<IfaceAddress> address;
    if (iface_addr != nullptr) {
        std::string what;
        address = parse_iface_address(
            std::span(reinterpret_cast<const std::byte*>(iface_addr), sizeof(IfaceAddress)), &what);
        if (!address)
            return say(what);
        if (address->uid != ::geteuid()) {
            return say("the peer runs as user " + std::to_string(address->uid) +
                       ", this process as user " + std::to_string(::geteuid()));
        }
        if (address->place == Place::kDirectory && connections.address().directory.empty())
            return say(
                "the peer's socket is in a directory: set the peer's TAGWIRE_SM_DIR here, too");
        if (address->place == Place::kDirectory)
            return true;
    }
    if (device->network_namespace != 0 &&
        device->network_namespace != connections.network_namespace()) {
        return say(
            "the peer is in another network namespace: set TAGWIRE_SM_DIR to a shared directory "
            "on both sides");
    }
    return true;
}

// ---- Flush, fence

ucs_status_t SmIface::flush(unsigned, uct_completion_t* comp) {
    if (comp != nullptr)
        return UCS_ERR_UNSUPPORTED;
    if (!pending.empty())
        return UCS_ERR_NO_RESOURCE;
    for (const auto& link : connections.links())
        if (link != nullptr && !link->ops.empty())
            return UCS_INPROGRESS;
    return UCS_OK;
}

ucs_status_t SmIface::fence(unsigned) {
    for (const auto& link : connections.links()) {
        if (link == nullptr || link->blocking_ops == 0)
            continue;
        link->fence_waits = true;
        if (link->tx_made)
            link->tx.hold();
    }
    ucs::full_barrier();
    return UCS_OK;
}

// ---- Events

ucs_status_t SmIface::event_fd_get(int* fd_p) {
    *fd_p = connections.event_fd();
    return UCS_OK;
}

namespace {

/// Another number when anything has gone to anybody.
std::uint64_t slots_used(const SmConnections& connections) {
    std::uint64_t sum = 0;
    for (const auto& link : connections.links())
        sum += link == nullptr ? 0 : link->tx.head();
    return sum;
}

}  // namespace

ucs_status_t SmIface::event_arm(unsigned) {
    const bool only_pending = working_.empty() && !ends.has_failed() && !tags.has_cancelled();
    if ((rest_.has_work && !only_pending) || guard_.is_inside())
        return UCS_ERR_BUSY;
    if (connections.look() || ends.has_failed() || !rings.try_sleep())
        return UCS_ERR_BUSY;
    // Requests wait for room; or somebody's sends carry no fence and we cannot run the barrier for
    // them, or a connection is being retried: then the sleep is short, and nothing is left to the
    // bell.
    if (pending.empty())
        room_wait_.end();
    if (rings.sleeps_by_timer() || connections.is_retrying())
        connections.set_timer(RoomWait::kShortestNs);
    else if (!pending.empty())
        connections.set_timer(
            room_wait_.next_sleep_ns(slots_used(connections), ucs::clock_now_ns()));
    if (rings.sleeps_by_timer()) {
        for (const auto& link : connections.links())
            if (link != nullptr)
                rings.make_hot(*link);
    }
    return UCS_OK;
}

// ---- Descriptions

void SmIface::describe(const uct::DescribeSink& sink) const {
    // Listener, epoll, timer, bell; the pool, once it has sent.
    const std::size_t own_fds = buffers.fd() < 0 ? 4 : 5;
    std::size_t peers = 0, fds = own_fds, bytes = rings.bell_bytes() + buffers.touched_bytes();
    for (const auto& link : connections.links()) {
        if (link == nullptr)
            continue;
        ++peers;
        fds += link->socket ? 1 : 0;
        bytes += link->tx_segment.bytes() + sizeof(Link);
    }
    fds += connections.processes().fd_count();
    const ucs::UnixAddress& address = connections.address();
    sink.text("socket", address.directory.empty() ? "@" + address.name
                                                  : address.directory + "/" + address.name);
    sink.text("wakeup", rings.has_membarrier() ? "membarrier: sends carry no fence"
                                               : "each send carries a fence");
    sink.number("peers", peers);
    sink.number("hot_rings", rings.hot().size());
    sink.text("poll", rings.is_crowded() ? "bell" : "rings");
    sink.number("fds", fds);
    sink.number("bytes", bytes);
    sink.number("pool_bytes", buffers.span_bytes());
    sink.number("pool_bytes_touched", buffers.touched_bytes());
    sink.number("fds_per_peer", peers == 0 ? 0 : (fds - own_fds + peers - 1) / peers);
    sink.number("bytes_per_peer", peers == 0 ? 0 : bytes / peers);
    sink.number("posted_receives", tags.posted());
    sink.number("arena_bytes_allocated", md_.arena().allocated_bytes());
}

void SmIface::describe_ep(uct_ep_h handle, const uct::DescribeSink& sink) const {
    static constexpr const char* kStates[] = {"connecting", "accepted", "greeted", "ready",
                                              "failed"};
    static constexpr const char* kPaths[] = {"not known yet", "load_store", "process_vm",
                                             "messages"};
    const Link& link = static_cast<const SmEp*>(handle)->link();
    sink.text("state", kStates[static_cast<std::size_t>(link.state)]);
    sink.number("peer_pid", static_cast<std::uint64_t>(std::max(link.peer.pid, 0)));
    sink.text("zcopy_path", kPaths[static_cast<std::size_t>(link.copy_path)]);
    sink.text("zcopy_reason", link.copy_reason.c_str());
    sink.text("death_noticed_by", link.process == nullptr ? "hang-up" : link.process->source);
    sink.flag("ring_made", link.tx_made);
    sink.number("ring_bytes", link.tx_segment.bytes());
    sink.number("fds", (link.socket ? 1U : 0U) +
                           (link.process != nullptr && link.process->pidfd ? 1U : 0U));
    sink.number("buffers_under_way", link.tx_made ? link.segs->out_count() : 0);
    sink.number("rendezvous_under_way", link.rndv_count);
    sink.flag("has_lent", link.loan.is_in_force());
}

}  // namespace tagwire::sm
