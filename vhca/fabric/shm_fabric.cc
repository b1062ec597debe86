// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/fabric/shm_fabric.hpp"

#include <endian.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "ucs/sys/unix_socket.hpp"
#include "ucs/time/clock.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/fabric/packet_trace.hpp"

namespace tagwire::vhca {

std::string node_socket_name(unsigned uid, std::uint16_t lid) {
    return "tagwire-vhca." + std::to_string(uid) + "." + std::to_string(lid);
}

ibv_gid link_local_gid(std::uint64_t guid) {
    ibv_gid gid{};
    gid.global.subnet_prefix = htobe64(kLinkLocalPrefix);
    gid.global.interface_id = htobe64(guid);
    return gid;
}

int ShmFabric::open(std::unique_ptr<ShmFabric>* fabric_p) {
    std::unique_ptr<ShmFabric> fabric(new (std::nothrow) ShmFabric);
    if (fabric == nullptr)
        return ENOMEM;
    fabric->fences_.has_membarrier = ucs::register_global_barrier();
    fabric->scratch_ = std::make_unique<std::byte[]>(kPacketBytesMax);
    fabric->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!fabric->epoll_)
        return errno;
    if (const int error = fabric->listen(); error != 0)
        return error;
    if (!fabric->watch(fabric->listener_.get()))
        return errno;
    *fabric_p = std::move(fabric);
    return 0;
}

ShmFabric::~ShmFabric() = default;

// The process id leads to different places at once, so that LIDs are rarely sought for long.
int ShmFabric::listen() {
    const auto start = static_cast<unsigned>(::getpid());
    for (unsigned i = 0; i < kLidMax; ++i) {
        const auto lid = static_cast<std::uint16_t>(1 + (start + i) % kLidMax);
        const ucs::UnixAddress address{"", node_socket_name(::geteuid(), lid)};
        const ucs_status_t status = ucs::unix_listen(address, &listener_);
        if (status == UCS_OK) {
            lid_ = lid;
            return 0;
        }
        if (status != UCS_ERR_ALREADY_EXISTS)
            return status == UCS_ERR_EXCEEDS_LIMIT ? EMFILE : EIO;
    }
    return EADDRNOTAVAIL;
}

bool ShmFabric::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// ---- Sending -----------------------------------------------------------------------------------

ShmFabric::OutLink* ShmFabric::link_to(std::uint64_t node) {
    if (last_ != nullptr && last_->lid == node) [[likely]]
        return last_;
    const auto found = out_.find(node);
    if (found != out_.end()) {
        last_ = found->second.get();
        return last_;
    }
    const bool is_possible = node != 0 && node <= kLidMax && !is_abandoned_;
    last_ = is_possible ? connect(static_cast<std::uint16_t>(node)) : nullptr;
    return last_;
}

std::byte* ShmFabric::claim(Route to, std::size_t bytes) {
    OutLink* link = link_to(to.node);
    if (link == nullptr) [[unlikely]]
        return scratch_.get();
    std::byte* place = link->ring.claim(bytes);
    if (place == nullptr && link->ring.is_corrupt()) [[unlikely]] {
        ++counters_.corrupt;
        drop_out(*link, 0);
        return scratch_.get();
    }
    return place;
}

void ShmFabric::commit(Route to, std::size_t bytes) {
    ++counters_.packets_sent;
    OutLink* link = last_;
    if (link == nullptr || link->lid != to.node) [[unlikely]] {
        ++counters_.vanished;
        return;
    }
    link->ring.publish(bytes);
    if (link->ring.must_ring()) [[unlikely]]
        knock(*link);
}

const ShmFabric::OutLink* ShmFabric::standing_link(std::uint64_t node) const {
    if (last_ != nullptr && last_->lid == node) [[likely]]
        return last_;
    const auto found = out_.find(node);
    return found == out_.end() ? nullptr : found->second.get();
}

Turn ShmFabric::turn_of(Route to) {
    const OutLink* link = standing_link(to.node);
    return link == nullptr ? Turn{}
                           : Turn{.packets = link->ring.head(), .visits = link->ring.visits()};
}

bool ShmFabric::has_had_turn(Route to, const Turn& since) {
    const OutLink* link = standing_link(to.node);
    // A ring that is shorter than that belongs to a later connection.
    if (link == nullptr || link->ring.head() < since.packets)
        return true;
    const bool has_taken = link->ring.head() - link->ring.unconsumed() >= since.packets;
    return has_taken &&
           (link->ring.is_receiver_asleep() || link->ring.visits() - since.visits >= kVisitsOfTurn);
}

void ShmFabric::knock(OutLink& link) {
    if (!link.socket)
        return;  // loopback: who sent it drives the device
    constexpr Knock kKnock = 1;
    ++counters_.knocks_sent;
    // When the buffer is full the peer has knocks enough; when it is gone, service() learns that.
    static_cast<void>(
        ucs::unix_send(link.socket.get(), std::as_bytes(std::span(&kKnock, 1)), nullptr, 0));
}

void ShmFabric::knock_at_idle() {
    constexpr unsigned kPatienceMax = 64;
    for (auto& [node, owner] : out_) {
        OutLink& link = *owner;
        const std::uint64_t unconsumed = link.ring.unconsumed();
        const std::uint64_t tail = link.ring.head() - unconsumed;
        const bool is_stuck = unconsumed != 0 && link.has_waited && tail == link.tail_seen;
        link.has_waited = unconsumed != 0;
        link.tail_seen = tail;
        if (!is_stuck) {
            link.patience = link.visits_to_skip = 0;
        } else if (link.visits_to_skip != 0) {
            --link.visits_to_skip;
        } else {
            knock(link);
            link.patience = std::min(kPatienceMax, 1 + 2 * link.patience);
            link.visits_to_skip = link.patience;
        }
    }
}

void ShmFabric::drop_out(OutLink& link, std::uint64_t pause_ns) {
    if (pause_ns != 0)
        paused_until_ns_[link.lid] = ucs::clock_now_ns() + pause_ns;
    if (last_ == &link)
        last_ = nullptr;
    out_by_fd_.erase(link.socket.get());
    out_.erase(link.lid);
}

// ---- Receiving ---------------------------------------------------------------------------------

unsigned ShmFabric::deliver(Device& device, Time now) {
    const auto take = [this, &device, now](Route from, std::span<const std::byte> packet) {
        if (tap_ != nullptr) [[unlikely]]
            tap_->arrived(from, packet);
        if (guid_base_ != 0 && is_datagram(packet)) [[unlikely]]
            deliver_datagram(device, from, packet, now);
        else
            device.receive(from, packet, now);
    };
    return poll(take, [&device](Route node) { device.note_gone(node); });
}

// The GRH is an IPv6 header, as RoCE version 2 has it.
void ShmFabric::deliver_datagram(Device& device, Route from, std::span<const std::byte> packet,
                                 Time now) {
    constexpr std::uint32_t kVersion = 6U << 28;
    constexpr std::uint8_t kUdp = 17, kHops = 64;
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(kVersion);
    grh.paylen = htobe16(static_cast<std::uint16_t>(kUdpBytes + packet.size() + kIcrcBytes));
    grh.next_hdr = kUdp;
    grh.hop_limit = kHops;
    grh.sgid = link_local_gid(guid_base_ | from.node);
    grh.dgid = link_local_gid(guid_base_ | lid_);
    static_assert(sizeof grh == kGrhBytes);
    device.receive(from, packet, now, reinterpret_cast<const std::byte*>(&grh));
}

bool ShmFabric::arm() {
    bool is_empty = true;
    for (const auto& link : in_)
        link->ring.arm();
    fences_.before_recheck();  // SYNC vhca_sleep: pairs with RingSender::must_ring()
    for (const auto& link : in_) {
        // A ring that came to its end is work, too.
        is_empty = is_empty && link->ring.is_empty() && !link->is_closing;
    }
    if (!is_empty)
        for (const auto& link : in_)
            link->ring.disarm();
    return is_empty;
}

void ShmFabric::sweep() {
    has_dead_ = false;
    std::erase_if(in_, [](const auto& link) { return link->is_dead; });
}

void ShmFabric::abandon() {
    is_abandoned_ = true;
    last_ = nullptr;
    listener_.reset();
    epoll_.reset();
    unknown_.clear();
    in_.clear();
    out_by_fd_.clear();
    out_.clear();
}

}  // namespace tagwire::vhca
