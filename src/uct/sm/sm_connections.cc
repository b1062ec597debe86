// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_connections.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/sys/limits.hpp"
#include "ucs/time/clock.hpp"
#include "ucs/topo/topology.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

constexpr unsigned kAcceptsPerLook = 64;
constexpr unsigned kPacketsPerLook = 64;  // of one peer, who might send without end
constexpr std::uint64_t kAcceptPauseNs = 100'000'000;
/// The time after the start of a connection in which the looks are close together.
constexpr std::uint64_t kContactNs = 50'000'000;

}  // namespace

SmConnections::SmConnections(SmIface& owner, const SmOptions& options, const SmForce& force)
    : iface_(owner),
      options_(options),
      ring_start_(force.ring_start),
      processes_(events_, force.death) {
    cancelled_link_.state = LinkState::kFailed;
    cancelled_link_.failure = UCS_ERR_CANCELED;
}

ucs_status_t SmConnections::open() {
    name_ = ucs::random_u64();
    cookie_ = ucs::random_u64();
    look_ticks_ = ucs::ticks_from_ns(options_.liveness_interval_ns);
    iface_.buffers.prefetch_from(ucs::ticks_from_ns(options_.prefetch_from_ns));
    iface_.buffers.prefetch_up_to(options_.prefetch_max);
    pool_sizes_ = PoolSizes::of_machine(options_.pool_bytes);  // reads the topology, while it may
    const int node = ucs::current_node();
    numa_node_ = node >= 0 && node < 0xff ? static_cast<std::uint8_t>(node) : std::uint8_t{0xff};
    ucs_status_t status = proof_.open();
    if (status == UCS_OK)
        status = events_.open();
    if (status != UCS_OK)
        return status;
    timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_)
        return ucs::fd_error("timerfd_create", errno);
    events_.watch(timer_.get(), Watched::kTimer, 0);
    network_namespace_ = ucs::network_namespace();
    address_.directory = options_.directory.text;
    if (!address_.directory.empty()) {
        if ((status = ucs::unix_check_directory(address_.directory)) != UCS_OK)
            return status;
        ucs::unix_sweep_directory(address_.directory, kSocketPrefix);
    }
    address_.name = socket_name(name_);
    status = ucs::unix_listen(address_, &listener_);
    if (status == UCS_OK)
        events_.watch(listener_.get(), Watched::kListener, 0);
    return status;
}

SmConnections::~SmConnections() {
    for (const auto& link : links_) {
        if (link == nullptr)
            continue;
        if (link->tx_made)
            link->close_ring();
        link->end_writing(events_.is_ours());
        close_socket(*link);
        if (link->rx_segment != nullptr)
            std::exchange(link->rx_segment, nullptr)->abandon();
    }
    if (listener_ && events_.is_ours())
        ucs::unix_unlink(address_);
}

void SmConnections::close_socket(Link& link) {
    if (!link.socket)
        return;
    events_.unwatch(link.socket.get());
    // A forked child's copy must not keep the peer from seeing the end.
    if (events_.is_ours())
        ucs::unix_shut_down(link.socket.get());
    link.socket.reset();
}

void SmConnections::set_timer(std::uint64_t ns) {
    const itimerspec once{{0, 0}, {0, static_cast<long>(ns)}};
    ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

// ---- Looking

bool SmConnections::look() {
    bool moved = false;
    std::array<epoll_event, 64> events;
    for (const epoll_event& event : events_.take(events)) {
        const auto which = static_cast<std::uint32_t>(event.data.u64);
        switch (static_cast<Watched>(event.data.u64 >> 32)) {
            case Watched::kListener:
                accept_peers();
                moved = true;
                break;
            case Watched::kLink:
                if (which >= links_.size() || links_[which] == nullptr)
                    break;
                if (links_[which]->owes_leave)
                    send_leave(*links_[which]);
                moved |= read_socket(*links_[which]);
                break;
            case Watched::kProcess:
                process_died(which);
                moved = true;
                break;
            case Watched::kTimer:
                std::uint64_t expirations = 0;
                [[maybe_unused]] const ssize_t got =
                    ::read(timer_.get(), &expirations, sizeof expirations);
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
void SmConnections::await_contact() {
    contact_until_ = ucs::ticks_now() + ucs::ticks_from_ns(kContactNs);
}

void SmConnections::set_retry(Link& link, bool wanted) {
    if (link.retries == wanted)
        return;
    link.retries = wanted;
    if (wanted)
        retrying_.push_back(&link);
    else
        std::erase(retrying_, &link);
}

void SmConnections::retry(Link& link) {
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
        iface_.ends.fail(link, status);
}

void SmConnections::accept_peers() {
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
            TW_LOG_REPEATED(
                ucs::LogLevel::kWarn, refusals_.due(),
                "connection from process %d refused: it runs as user %u, this process as user %u",
                peer.pid, peer.uid, ::geteuid());
            iface_.count(SmCounter::kRefused);
            continue;
        }
        Link& link = new_link();
        link.state = LinkState::kStranger;
        link.peer = peer;
        link.socket = std::move(socket);
        await_contact();
        events_.watch(link.socket.get(), Watched::kLink, link.index);
        read_socket(link);
    }
}

// Takes all packets that are there. True: something was.
bool SmConnections::read_socket(Link& link) {
    alignas(8) std::array<std::byte, kPacketBytesMax> buffer;
    bool any = false;
    for (unsigned i = 0; i < kPacketsPerLook && link.failure == UCS_OK && link.socket; ++i) {
        ucs::ReceivedMessage message;
        ucs_status_t status = ucs::unix_receive(link.socket.get(), buffer, &message);
        if (status == UCS_ERR_NO_PROGRESS)
            break;
        any = true;
        if (status != UCS_OK && status != UCS_ERR_INVALID_PARAM) {
            iface_.ends.fail(link, status);
            break;
        }
        std::string reason;  // of a packet that is refused
        const std::span<const std::byte> packet(buffer.data(), message.bytes);
        const auto type = status == UCS_OK ? check_packet(packet, &reason) : std::nullopt;
        if (!type) {
            iface_.ends.violation(
                link, reason.empty() ? "packet of an impossible length" : reason.c_str());
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
            iface_.rings.make_hot(link);
        }
        if (status != UCS_OK)
            iface_.ends.violation(link, "packet that was refused");
    }
    return any;
}

void SmConnections::peer_leaves(Link& link) {
    link.peer_left = true;
    forget_name(link);
    if (link.eps.empty())
        iface_.ends.fail(link, UCS_ERR_CONNECTION_RESET);  // delivers the rest, then closes
}

ucs_status_t SmConnections::take_hello(Link& link, const Hello& hello,
                                       ucs::ReceivedMessage& message) {
    std::string reason;
    if (link.state == LinkState::kReady || message.fd_count != 2 || !check_hello(hello, &reason))
        return UCS_ERR_INVALID_PARAM;
    if (!link.is_outgoing && hello.cookie != cookie_) {
        TW_LOG_REPEATED(
            ucs::LogLevel::kWarn, refusals_.due(),
            "connection from process %d refused: its cookie is not that of this interface",
            link.peer.pid);
        iface_.count(SmCounter::kRefused);
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
    // The arena may be known already, by what another hello has said of it.
    std::byte* const word = link.arena->at(kGenerationsBytes + hello.writer * sizeof(WriterWord<>),
                                           sizeof(WriterWord<>));
    if (word == nullptr)
        return UCS_ERR_INVALID_PARAM;
    link.writer = {reinterpret_cast<WriterWord<>*>(word), hello.writer == kSharedWriter,
                   HostFences{!iface_.rings.has_membarrier()}};
    link.peer_name = hello.name;
    link.peer_fences = hello.has_membarrier == 0;
    if (!link.peer_fences)
        iface_.rings.add_unfenced();
    processes_.join(link);
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
    iface_.count(SmCounter::kConnections);
    return UCS_OK;
}

ucs_status_t SmConnections::take_ring(Link& link, const RingOffer& offer,
                                      ucs::ReceivedMessage& message) {
    std::string reason;
    const auto geometry = check_ring_offer(offer, &reason);
    if (link.state != LinkState::kReady || link.rx_segment != nullptr || message.fd_count != 2 ||
        !geometry) {
        if (!reason.empty())
            TW_LOG_ERROR("process %d offered an impossible %s", link.peer.pid, reason.c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    const ucs_status_t status =
        RxSegment::attach(message.fds[0].get(), message.fds[1].get(), *geometry, &link.rx_segment);
    if (status != UCS_OK)
        return status;
    link.begin_rx(offer.start, HostFences{link.peer_fences});
    iface_.rings.make_hot(link);
    return UCS_OK;
}

// ---- Connecting

Link& SmConnections::new_link() {
    if (free_links_.empty()) {
        free_links_.push_back(static_cast<std::uint32_t>(links_.size()));
        links_.push_back(nullptr);
    }
    const std::uint32_t index = free_links_.back();
    free_links_.pop_back();
    links_[index] = std::make_unique<Link>(iface_, index);
    return *links_[index];
}

ucs_status_t SmConnections::link_to(const IfaceAddress& address, Link** link_p) {
    // The peer may be on its way to us: one connection serves both directions.
    if (listener_ && !iface_.guard().is_inside())
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
ucs_status_t SmConnections::connect(Link& link) {
    ucs_status_t status = link.socket ? UCS_OK : reach(link);
    if (status == UCS_OK)
        status = send_hello(link, link.peer_cookie);
    set_retry(link, status == UCS_ERR_NO_RESOURCE);
    if (status == UCS_OK) {
        link.state = LinkState::kGreeted;
        await_contact();
        events_.watch(link.socket.get(), Watched::kLink, link.index);
    } else if (status != UCS_ERR_NO_RESOURCE && !link.eps.empty()) {
        iface_.ends.fail(link, status);
    }
    return status;
}

ucs_status_t SmConnections::reach(Link& link) {
    ucs::UniqueFd socket;
    ucs_status_t status = ucs::unix_connect(link.address, &socket);
    if (status == UCS_ERR_UNREACHABLE)
        TW_LOG_DEBUG("no process listens at %s", link.address.name.c_str());
    if (status == UCS_OK)
        status = ucs::unix_peer_credentials(socket.get(), &link.peer);
    if (status == UCS_OK && link.peer.uid != ::geteuid()) {
        TW_LOG_ERROR(
            "process %d runs as user %u, this one as %u: shared memory needs the same user",
            link.peer.pid, link.peer.uid, ::geteuid());
        status = UCS_ERR_REJECTED;
    }
    if (status == UCS_OK)
        link.socket = std::move(socket);
    return status;
}

ucs_status_t SmConnections::send_hello(Link& link, std::uint64_t cookie) {
    Hello hello{};
    hello.magic = kPacketMagic;
    hello.version = kFormatVersion;
    hello.type = PacketType::kHello;
    hello.has_membarrier = iface_.rings.has_membarrier() ? 1 : 0;
    hello.cookie = cookie;
    hello.name = name_;
    hello.arena_id = iface_.sm_md().arena().mapping().id();
    hello.arena_bytes = iface_.sm_md().arena().mapping().bytes();
    hello.bell_bytes = iface_.rings.bell_bytes();
    hello.probe_address = proof_.get().address;
    hello.probe_value = proof_.get().value;
    hello.bell_bit = link.index % kBellBits;
    if (link.peer_writer == kSharedWriter)  // it may be sent again
        link.peer_writer = iface_.sm_md().writers().give(link.peer.pid);
    hello.writer = link.peer_writer;
    const int fds[] = {iface_.rings.bell_fd(), iface_.sm_md().arena().fd()};
    return ucs::unix_send(link.socket.get(), bytes_of(hello), fds, 2);
}

ucs_status_t SmConnections::make_tx(Link& link) {
    if (link.failure != UCS_OK)
        return link.failure;
    if ((link.state != LinkState::kGreeted && link.state != LinkState::kReady) || link.owes_hello)
        return UCS_ERR_NO_RESOURCE;
    ucs_status_t status = iface_.buffers.open(pool_sizes_);
    if (status != UCS_OK)
        return status;
    RingGeometry geometry;
    geometry.slot_count = static_cast<std::uint32_t>(options_.ring_slots);
    geometry.pool_blocks = iface_.buffers.block_count();
    // One line more than is ever used: a pack callback that runs over its limit by a little hits
    // nobody.
    geometry.seg_bytes = static_cast<std::uint32_t>(iface_.seg_bytes() + kCacheLine);
    geometry.page_bytes = static_cast<std::uint32_t>(ucs::page_bytes());
    const std::size_t bytes = geometry.bytes();
    ucs::UniqueFd fd;
    if ((status = ucs::memfd_create_sealed("tagwire-ring", bytes, &fd)) != UCS_OK)
        return status;
    ucs::Mapping segment;
    if ((status = ucs::map_shared(fd.get(), bytes, &segment)) != UCS_OK)
        return status;
    bind_near(segment, link.numa_node);
    auto* head = reinterpret_cast<RingHead*>(segment.base());
    head->header = RingHeader{kRingMagic, kFormatVersion, geometry.slot_count, geometry.seg_bytes,
                              geometry.pool_blocks};
    const RingOffer offer{kPacketMagic,        kFormatVersion,
                          PacketType::kRing,   geometry.slot_count,
                          geometry.seg_bytes,  geometry.pool_blocks,
                          geometry.page_bytes, 0,
                          ring_start_,         bytes};
    const int fds[] = {fd.get(), iface_.buffers.fd()};
    if ((status = ucs::unix_send(link.socket.get(), bytes_of(offer), fds, 2)) != UCS_OK)
        return status;
    link.segs = iface_.buffers.add_user(geometry, segment.base());
    link.tx_geometry = geometry;
    link.tx_segment = std::move(segment);
    link.begin_tx(ring_start_, HostFences{!iface_.rings.has_membarrier()});
    return UCS_OK;
}

// The ring lies where its receiver runs, who polls it.
void SmConnections::bind_near(ucs::Mapping& segment, std::uint8_t numa_node) const {
    if (numa_node == 0xff || numa_node == numa_node_)
        return;  // first touch does it
    ucs::system_topology().bind_memory(segment.base(), segment.bytes(), numa_node);
}

void SmConnections::choose_copy_path(Link& link, const Hello& hello) const {
    link.copy_path = CopyPath::kMessages;
    if (options_.cma == static_cast<int>(CmaMode::kOff)) {
        link.copy_reason = "TAGWIRE_SM_CMA=off";
        return;
    }
    if (link.peer.pid == events_.pid()) {
        link.copy_path = CopyPath::kSelf;
        link.copy_reason = "the peer is this process";
        return;
    }
    if (link.peer.pid <= 0) {
        link.copy_reason = "the peer's pid namespace cannot be seen from here";
        return;
    }
    link.proof = {hello.probe_address, hello.probe_value};
    if (ucs::process_prove(link.peer.pid, link.proof) == UCS_OK) {
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

// ---- Leaving

void SmConnections::process_died(std::uint32_t id) {
    PeerProcess* process = processes_.find_dead(id);
    if (process == nullptr)
        return;
    for (const auto& link : links_) {
        if (link == nullptr || link->process != process)
            continue;
        while (link->socket && read_socket(*link)) {
        }  // the packets sent before it died; ends, for nobody sends any more
        iface_.ends.fail(*link, UCS_ERR_CONNECTION_RESET);
    }
}

void SmConnections::forget_name(const Link& link) {
    const auto known = by_name_.find(link.peer_name);
    if (known != by_name_.end() && known->second == &link)
        by_name_.erase(known);
}

// A peer that never learns of it keeps the connection: where the notice finds no room it goes when
// there is some.
void SmConnections::send_leave(Link& link) {
    const Notice leave{kPacketMagic, kFormatVersion, PacketType::kLeave, 0};
    const bool had_owed = std::exchange(link.owes_leave, true);
    if (link.owes_hello)
        return;
    const ucs_status_t status = ucs::unix_send(link.socket.get(), bytes_of(leave), nullptr, 0);
    link.owes_leave = status == UCS_ERR_NO_RESOURCE;
    if (link.owes_leave || had_owed)
        events_.change(link.socket.get(), Watched::kLink, link.index, link.owes_leave);
}

void SmConnections::remove(Link& link) {
    iface_.rings.make_cold(link);
    set_retry(link, false);
    close_socket(link);
    iface_.forget_work(link);
    iface_.ends.forget(link);
    forget_name(link);
    link.retire_buffers();
    link.end_writing(events_.is_ours());
    processes_.leave(link);
    if (link.rx_segment != nullptr)
        link.rx_segment->abandon();
    free_links_.push_back(link.index);
    links_[link.index].reset();
}

// ---- Addresses

DeviceAddress SmConnections::device_address() const {
    const bool abstract = address_.directory.empty();
    return {ucs::boot_id(), abstract ? network_namespace_ : 0};
}

IfaceAddress SmConnections::iface_address() const {
    const Place place = address_.directory.empty() ? Place::kAbstract : Place::kDirectory;
    return {kFormatVersion, place, numa_node_, ::geteuid(), name_, cookie_};
}

}  // namespace tagwire::sm
