// SPDX-License-Identifier: BSD-3-Clause
// Connections: admission of peers, exchange of hellos, detection of the end of a peer.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "ucs/topo/topology.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

// The subject of an epoll event: the high half is the kind, the low half which one.
enum Watched : std::uint32_t { kListener = 1, kLink = 2, kProcess = 3, kTimer = 4 };
constexpr std::uint64_t event_tag(Watched kind, std::uint32_t which) {
    return std::uint64_t{kind} << 32 | which;
}

constexpr unsigned kAcceptsPerLook = 64;
constexpr unsigned kPacketsPerLook = 64;  // of one peer, who might send without end
constexpr std::uint64_t kAcceptPauseNs = 100'000'000;
/// The time after the start of a connection in which the looks are close together.
constexpr std::uint64_t kContactNs = 50'000'000;

}  // namespace

void SmIface::watch(int fd, std::uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = tag;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        ucs::fd_error("epoll_ctl", errno);
}

// Closing is not enough: a forked child that holds the descriptor, too, keeps the watch alive.
void SmIface::unwatch_fd(int fd) {
    if (is_ours())
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

// `for_room`: also tells when a packet fits again.
void SmIface::watch_link(Link& link, bool for_room) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | (for_room ? std::uint32_t{EPOLLOUT} : 0U);
    event.data.u64 = event_tag(kLink, link.index);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.socket.get(), &event);
}

void SmIface::close_socket(Link& link) {
    if (!link.socket)
        return;
    unwatch_fd(link.socket.get());
    // A forked child's copy must not keep the peer from seeing the end.
    if (is_ours())
        ucs::unix_shut_down(link.socket.get());
    link.socket.reset();
}

void SmIface::watch_listener() {
    watch(listener_.get(), event_tag(kListener, 0));
}
void SmIface::watch_timer() {
    watch(timer_.get(), event_tag(kTimer, 0));
}

// ---- Looking

// No callback runs here: event_arm() looks, too. A link that fails waits in failed_ for progress.
bool SmIface::look() {
    bool moved = false;
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const std::uint64_t tag = events[static_cast<std::size_t>(i)].data.u64;
        const auto which = static_cast<std::uint32_t>(tag);
        switch (tag >> 32) {
            case kListener:
                accept_peers();
                moved = true;
                break;
            case kLink:
                if (which >= links_.size() || links_[which] == nullptr)
                    break;
                if (links_[which]->owes_leave)
                    send_leave(*links_[which]);
                moved |= read_socket(*links_[which]);
                break;
            case kProcess:
                process_died(which);
                moved = true;
                break;
            default:
                drain_timer();
                break;
        }
    }
    for (std::size_t i = retrying_.size(); i-- > 0;)  // backwards: those that are done go
        retry(*retrying_[i]);
    const std::uint64_t now = ucs::ticks_now();
    const bool is_close = !retrying_.empty() || static_cast<std::int64_t>(contact_until_ - now) > 0;
    next_look_ = now + (is_close ? look_ticks_ / 16 : look_ticks_);
    return moved;
}

// The peer's next packet comes by an event, but who polls looks for events only now and then.
void SmIface::await_contact() {
    contact_until_ = ucs::ticks_now() + ucs::ticks_from_ns(kContactNs);
}

void SmIface::set_retry(Link& link, bool wanted) {
    if (link.retries == wanted)
        return;
    link.retries = wanted;
    if (wanted)
        retrying_.push_back(&link);
    else
        std::erase(retrying_, &link);
}

void SmIface::retry(Link& link) {
    if (link.state == LinkState::kConnecting) {
        connect(link);
        return;
    }
    const ucs_status_t status = send_hello(link, 0);
    if (status == UCS_ERR_NO_RESOURCE)
        return;
    link.owes_hello = false;
    set_retry(link, false);
    if (link.owes_leave)
        send_leave(link);
    if (status != UCS_OK && status != UCS_ERR_CONNECTION_RESET)
        fail(link, status);
}

void SmIface::accept_peers() {
    if (accept_after_ != 0 && static_cast<std::int64_t>(ucs::ticks_now() - accept_after_) < 0)
        return;
    accept_after_ = 0;
    for (unsigned i = 0; i < kAcceptsPerLook; ++i) {
        ucs::UniqueFd socket;
        const ucs_status_t status = ucs::unix_accept(listener_.get(), &socket);
        if (status == UCS_ERR_NO_PROGRESS)
            return;
        if (status != UCS_OK) {
            // Out of descriptors: those who wait are let in when some are free again.
            accept_after_ = ucs::ticks_now() + ucs::ticks_from_ns(kAcceptPauseNs);
            return;
        }
        ucs::PeerCredentials peer{};
        if (ucs::unix_peer_credentials(socket.get(), &peer) != UCS_OK)
            continue;
        if (peer.uid != ::geteuid()) {
            TW_LOG_WARN("connection from process %d refused: it runs as user %u, we as %u",
                        peer.pid, peer.uid, ::geteuid());
            counters_.add(SmCounter::kRefused);
            continue;
        }
        Link& link = new_link();
        link.state = LinkState::kStranger;
        link.peer = peer;
        link.socket = std::move(socket);
        await_contact();
        watch(link.socket.get(), event_tag(kLink, link.index));
        read_socket(link);
    }
}

// Takes all packets that are there. True: something was.
bool SmIface::read_socket(Link& link) {
    alignas(8) std::array<std::byte, kPacketBytesMax> buffer;
    bool any = false;
    for (unsigned i = 0; i < kPacketsPerLook && link.failure == UCS_OK && link.socket; ++i) {
        ucs::ReceivedMessage message;
        ucs_status_t status = ucs::unix_receive(link.socket.get(), buffer, &message);
        if (status == UCS_ERR_NO_PROGRESS)
            break;
        any = true;
        if (status == UCS_ERR_CONNECTION_RESET) {
            fail(link, UCS_ERR_CONNECTION_RESET);
            break;
        }
        std::string reason;  // of a packet that is refused
        const std::span<const std::byte> packet(buffer.data(), message.bytes);
        const auto type = status == UCS_OK ? check_packet(packet, &reason) : std::nullopt;
        if (!type) {
            violation(link, reason.empty() ? "packet that does not fit" : reason.c_str());
            break;
        }
        if (*type == PacketType::kHello) {
            Hello hello;
            std::memcpy(&hello, packet.data(), sizeof hello);
            status = take_hello(link, hello, message);
        } else if (*type == PacketType::kRing) {
            RingOffer offer;
            std::memcpy(&offer, packet.data(), sizeof offer);
            status = take_ring(link, offer, message);
        } else if (*type == PacketType::kLeave) {
            peer_leaves(link);
        } else {
            make_hot(link);
        }
        if (status != UCS_OK)
            violation(link, "packet that was refused");
    }
    return any;
}

void SmIface::peer_leaves(Link& link) {
    link.peer_left = true;
    const auto known = by_name_.find(link.peer_name);
    if (known != by_name_.end() && known->second == &link)
        by_name_.erase(known);
    if (link.eps.empty())
        fail(link, UCS_ERR_CONNECTION_RESET);  // delivers the rest, then closes
}

ucs_status_t SmIface::take_hello(Link& link, const Hello& hello, ucs::ReceivedMessage& message) {
    std::string reason;
    if (link.state == LinkState::kReady || message.fd_count != 2 || !check_hello(hello, &reason))
        return UCS_ERR_INVALID_PARAM;
    if (!link.is_outgoing && hello.cookie != cookie_) {
        TW_LOG_WARN("connection from process %d refused: it does not know this interface's cookie",
                    link.peer.pid);
        counters_.add(SmCounter::kRefused);
        return UCS_ERR_REJECTED;
    }
    if (link.is_outgoing && hello.name != link.peer_name)
        return UCS_ERR_INVALID_PARAM;
    ucs_status_t status = ucs::memfd_check_sealed(message.fds[0].get(), hello.bell_bytes);
    if (status == UCS_OK)
        status = ucs::map_shared(message.fds[0].get(), hello.bell_bytes, &link.bell_page);
    if (status == UCS_OK) {
        status = ArenaMapping::attach(hello.arena_id, message.fds[1].get(), hello.arena_bytes,
                                      &link.arena);
    }
    if (status != UCS_OK)
        return status;
    link.bell_bit = hello.bell_bit;
    link.peer_name = hello.name;
    link.peer_fences = hello.has_membarrier == 0;
    if (!link.peer_fences && !has_membarrier_)
        sleeps_by_timer_ = true;
    watch_process(link);
    choose_copy_path(link, hello);
    if (!link.is_outgoing) {
        // A peer that died on the way may have sent messages before: they are in the ring that its
        // next packet brings.
        status = send_hello(link, 0);
        link.owes_hello = status == UCS_ERR_NO_RESOURCE;
        if (link.owes_hello)
            set_retry(link, true);
        else if (status != UCS_OK && status != UCS_ERR_CONNECTION_RESET)
            return status;
    }
    if (!link.has_left)  // new endpoints take no link that closes
        by_name_.try_emplace(link.peer_name, &link);
    link.state = LinkState::kReady;
    counters_.add(SmCounter::kConnections);
    return UCS_OK;
}

ucs_status_t SmIface::take_ring(Link& link, const RingOffer& offer, ucs::ReceivedMessage& message) {
    std::string reason;
    const auto geometry = check_ring_offer(offer, &reason);
    if (link.state != LinkState::kReady || link.rx_segment != nullptr || message.fd_count != 1 ||
        !geometry) {
        if (!reason.empty())
            TW_LOG_ERROR("process %d offers a %s", link.peer.pid, reason.c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status =
        RxSegment::attach(message.fds[0].get(), *geometry, offer.bytes, &link.rx_segment);
    if (status != UCS_OK)
        return status;
    auto* slots =
        reinterpret_cast<Slot<>*>(link.rx_segment->mapping.base() + geometry->slots_offset());
    link.rx = RxRing(slots, &link.rx_segment->head().consumer, geometry->slot_count, offer.start,
                     HostFences{link.peer_fences});
    make_hot(link);
    return UCS_OK;
}

// ---- Connecting

Link& SmIface::new_link() {
    if (free_links_.empty()) {
        free_links_.push_back(static_cast<std::uint32_t>(links_.size()));
        links_.push_back(nullptr);
    }
    const std::uint32_t index = free_links_.back();
    free_links_.pop_back();
    links_[index] = std::make_unique<Link>(*this, index);
    return *links_[index];
}

ucs_status_t SmIface::link_to(const IfaceAddress& address, Link** link_p) {
    // The peer may be on its way to us: one connection serves both directions.
    if (listener_ && in_progress_ == 0)
        accept_peers();
    const auto known = by_name_.find(address.name);
    if (known != by_name_.end() && known->second->failure == UCS_OK) {
        *link_p = known->second;
        return UCS_OK;
    }
    // Allocations that may fail come before the link.
    ucs::UnixAddress listener;
    listener.name = socket_name(address.name);
    if (address.place == Place::kDirectory)
        listener.directory = options_.directory.text;
    Link& link = new_link();
    link.is_outgoing = true;
    link.peer_name = address.name;
    link.peer_cookie = address.cookie;
    link.numa_node = address.numa_node;
    link.address = std::move(listener);
    const ucs_status_t status = connect(link);
    if (status != UCS_OK && status != UCS_ERR_NO_RESOURCE) {
        remove(link);
        return status;
    }
    by_name_[address.name] = &link;
    *link_p = &link;
    return UCS_OK;
}

// UCS_ERR_NO_RESOURCE: tried again at each look.
ucs_status_t SmIface::connect(Link& link) {
    ucs_status_t status = link.socket ? UCS_OK : reach(link);
    if (status == UCS_OK)
        status = send_hello(link, link.peer_cookie);
    set_retry(link, status == UCS_ERR_NO_RESOURCE);
    if (status == UCS_OK) {
        link.state = LinkState::kGreeted;
        await_contact();
        watch(link.socket.get(), event_tag(kLink, link.index));
    } else if (status != UCS_ERR_NO_RESOURCE && !link.eps.empty()) {
        fail(link, status);
    }
    return status;
}

ucs_status_t SmIface::reach(Link& link) {
    ucs::UniqueFd socket;
    ucs_status_t status = ucs::unix_connect(link.address, &socket);
    if (status == UCS_ERR_UNREACHABLE)
        TW_LOG_DEBUG("nobody listens at %s", link.address.name.c_str());
    if (status == UCS_OK)
        status = ucs::unix_peer_credentials(socket.get(), &link.peer);
    if (status == UCS_OK && link.peer.uid != ::geteuid()) {
        TW_LOG_ERROR("process %d runs as user %u, we as %u: shared memory is for one user only",
                     link.peer.pid, link.peer.uid, ::geteuid());
        status = UCS_ERR_REJECTED;
    }
    if (status == UCS_OK)
        link.socket = std::move(socket);
    return status;
}

ucs_status_t SmIface::send_hello(Link& link, std::uint64_t cookie) {
    Hello hello{};
    hello.magic = kPacketMagic;
    hello.version = kFormatVersion;
    hello.type = PacketType::kHello;
    hello.has_membarrier = has_membarrier_ ? 1 : 0;
    hello.cookie = cookie;
    hello.name = name_;
    hello.arena_id = md_.arena().mapping().id();
    hello.arena_bytes = md_.arena().mapping().bytes();
    hello.bell_bytes = bell_page_.bytes();
    hello.probe_address = reinterpret_cast<std::uintptr_t>(&probe_value_);
    hello.probe_value = probe_value_;
    hello.bell_bit = link.index % kBellBits;
    const int fds[] = {bell_fd_.get(), md_.arena().fd()};
    return ucs::unix_send(link.socket.get(), bytes_of(hello), fds, 2);
}

ucs_status_t SmIface::make_tx(Link& link) {
    if (link.failure != UCS_OK)
        return link.failure;
    if ((link.state != LinkState::kGreeted && link.state != LinkState::kReady) || link.owes_hello)
        return UCS_ERR_NO_RESOURCE;
    RingGeometry geometry;
    geometry.slot_count = static_cast<std::uint32_t>(options_.ring_slots);
    geometry.seg_count = static_cast<std::uint32_t>(options_.seg_count);
    // One line more than is ever used: a pack callback that runs over its limit by a little hits
    // nobody.
    geometry.seg_bytes = static_cast<std::uint32_t>(seg_bytes_ + kCacheLine);
    geometry.page_bytes = static_cast<std::uint32_t>(ucs::page_bytes());
    const std::size_t bytes = geometry.bytes();
    ucs::UniqueFd fd;
    ucs_status_t status = ucs::memfd_create_sealed("tagwire-ring", bytes, &fd);
    if (status != UCS_OK)
        return status;
    ucs::Mapping segment;
    if ((status = ucs::map_shared(fd.get(), bytes, &segment)) != UCS_OK)
        return status;
    bind_near(segment, link.numa_node);
    auto* head = reinterpret_cast<RingHead*>(segment.base());
    head->header = RingHeader{kRingMagic, kFormatVersion, geometry.slot_count, geometry.seg_count,
                              geometry.seg_bytes};
    head->consumer.tail.store(options_.ring_start,
                              std::memory_order_relaxed);  // the descriptor publishes it
    const RingOffer offer{kPacketMagic,        kFormatVersion,
                          PacketType::kRing,   geometry.slot_count,
                          geometry.seg_count,  geometry.seg_bytes,
                          geometry.page_bytes, 0,
                          options_.ring_start, bytes};
    const int fds[] = {fd.get()};
    if ((status = ucs::unix_send(link.socket.get(), bytes_of(offer), fds, 1)) != UCS_OK)
        return status;
    auto* slots = reinterpret_cast<Slot<>*>(segment.base() + geometry.slots_offset());
    link.tx = TxRing(slots, &head->consumer, geometry.slot_count, options_.ring_start,
                     HostFences{!has_membarrier_});
    link.segs = SegmentPool(geometry, segment.base());
    link.tx_geometry = geometry;
    link.tx_segment = std::move(segment);
    link.tx_made = true;
    return UCS_OK;
}

// The ring lies where its receiver runs, who polls it.
void SmIface::bind_near(ucs::Mapping& segment, std::uint8_t numa_node) {
    if (numa_node == 0xff || numa_node == numa_node_)
        return;  // first touch does it
    ucs::system_topology().bind_memory(segment.base(), segment.bytes(), numa_node);
}

void SmIface::choose_copy_path(Link& link, const Hello& hello) {
    link.copy_path = CopyPath::kMessages;
    if (options_.cma == static_cast<int>(CmaMode::kOff)) {
        link.copy_reason = "TAGWIRE_SM_CMA=off";
        return;
    }
    if (link.peer.pid == pid_) {
        link.copy_path = CopyPath::kSelf;
        link.copy_reason = "the peer is this process";
        return;
    }
    if (link.peer.pid <= 0) {
        link.copy_reason = "the peer's pid namespace cannot be seen from here";
        return;
    }
    std::uint64_t value = 0;
    const iovec local{&value, sizeof value};
    const ucs_status_t status =
        ucs::process_read(link.peer.pid, &local, 1, hello.probe_address, sizeof value);
    if (status == UCS_OK && value == hello.probe_value) {
        link.copy_path = CopyPath::kProcessVm;
        link.copy_reason = "process_vm_readv is permitted";
        return;
    }
    link.copy_reason = "process_vm_readv is not permitted";
    const int scope = ucs::yama_ptrace_scope();
    if (scope > 0) {
        link.copy_reason.append(" (kernel.yama.ptrace_scope is ")
            .append(std::to_string(scope).c_str())
            .append(scope == 1 ? "; TAGWIRE_SM_CMA=allow-any at the peer would permit it)" : ")");
    }
}

// ---- The peer's process

void SmIface::watch_process(Link& link) {
    if (link.peer.pid == pid_)
        return;  // its end is ours
    auto opened = std::make_unique<PeerProcess>();
    opened->pid = link.peer.pid;
    open_pidfd(link, *opened);
    PeerProcess* process = opened->pidfd ? known_process(link.peer.pid) : nullptr;
    if (process == nullptr) {
        process = opened.get();
        process->id = ++process_serial_;
        if (process->pidfd)
            watch(process->pidfd.get(), event_tag(kProcess, process->id));
        processes_.emplace(process->id, std::move(opened));
    }
    ++process->link_count;
    link.process = process;
}

// The process that has this pid and lives. Two of the same pid are the same process only where both
// live, and where the pid is one of this namespace.
PeerProcess* SmIface::known_process(pid_t pid) {
    for (const auto& [id, process] : processes_)
        if (pid > 0 && process->pid == pid && process->pidfd &&
            ucs::pidfd_is_alive(process->pidfd.get()))
            return process.get();
    return nullptr;
}

void SmIface::open_pidfd(Link& link, PeerProcess& process) {
    const auto mode = static_cast<DeathMode>(options_.death);
    const auto attempt = [&](ucs::DeathSource source) {
        return ucs::open_peer_pidfd(source, link.socket.get(), link.peer.pid, &process.pidfd) ==
               UCS_OK;
    };
    if ((mode == DeathMode::kAuto || mode == DeathMode::kPeerPidfd) &&
        attempt(ucs::DeathSource::kPeerPidfd)) {
        process.source = "SO_PEERPIDFD";
        return;
    }
    if ((mode == DeathMode::kAuto || mode == DeathMode::kPidfd) &&
        attempt(ucs::DeathSource::kPidfdOpen)) {
        process.source = "pidfd_open";
    }
}

}  // namespace tagwire::sm
