// SPDX-License-Identifier: BSD-3-Clause
// Set-up and end of links between nodes: sockets, hellos, refusals.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>

#include "ucs/log/log.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "ucs/time/clock.hpp"
#include "vhca/fabric/shm_fabric.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::uint64_t kUnreachablePauseNs = 200'000;
constexpr std::uint64_t kRefusedPauseNs = 1'000'000'000;

bool is_same_user(int fd) {
    ucs::PeerCredentials peer{};
    return ucs::unix_peer_credentials(fd, &peer) == UCS_OK && peer.uid == ::geteuid();
}

// For the log; what a peer wrote may be anything.
std::string text_of(const Release& release) {
    std::string text;
    for (const char c : release) {
        if (c == '\0')
            break;
        text += c > ' ' && c <= '~' ? c : '?';
    }
    return text;
}

}  // namespace

// ---- Our connections to others -----------------------------------------------------------------

ShmFabric::OutLink* ShmFabric::connect(std::uint16_t lid) {
    const auto paused = paused_until_ns_.find(lid);
    if (paused != paused_until_ns_.end()) {
        if (ucs::clock_now_ns() < paused->second)
            return nullptr;
        paused_until_ns_.erase(paused);
    }
    std::unique_ptr<OutLink> link(new (std::nothrow) OutLink);
    if (link == nullptr)
        return nullptr;
    link->lid = lid;
    const ucs_status_t status = lid == lid_ ? make_loopback(*link) : reach(*link);
    if (status != UCS_OK) {
        paused_until_ns_[lid] =
            ucs::clock_now_ns() +
            (status == UCS_ERR_REJECTED ? kRefusedPauseNs : kUnreachablePauseNs);
        return nullptr;
    }
    ++counters_.links_out;
    OutLink* made = link.get();
    if (made->socket)
        out_by_fd_[made->socket.get()] = made;
    out_[lid] = std::move(link);
    return made;
}

ucs_status_t ShmFabric::make_segment(OutLink& link, ucs::UniqueFd* fd_p) {
    ucs_status_t status = ucs::memfd_create_sealed("tagwire-vhca", kSegmentBytes, fd_p);
    if (status == UCS_OK)
        status = ucs::map_shared(fd_p->get(), kSegmentBytes, &link.memory);
    if (status != UCS_OK)
        return status;
    std::byte* base = link.memory.base();
    new (base) SegmentHead{.version = kFabricVersion, .bytes = kSegmentBytes};
    new (base + kConsumerOffset) Consumer<>;
    new (base + kSleepOffset) Sleep<>;
    link.ring = Sender(ring_in(base), fences_);
    return UCS_OK;
}

// Both ends are ours and lie in one mapping, which the out link owns.
ucs_status_t ShmFabric::make_loopback(OutLink& link) {
    ucs::UniqueFd fd;
    const ucs_status_t status = make_segment(link, &fd);
    if (status != UCS_OK)
        return status;
    auto in = std::make_unique<InLink>();
    in->lid = lid_;
    in->ring = Receiver(ring_in(link.memory.base()), fences_);
    in->ring.spare_sender();
    in_.push_back(std::move(in));
    ++counters_.links_in;
    return UCS_OK;
}

ucs_status_t ShmFabric::reach(OutLink& link) {
    const ucs::UnixAddress address{"", node_socket_name(::geteuid(), link.lid)};
    ucs_status_t status = ucs::unix_connect(address, &link.socket);
    if (status != UCS_OK)
        return status;
    if (!is_same_user(link.socket.get())) {
        TW_LOG_WARN("virtual HCA: the socket of LID %u belongs to another user", link.lid);
        ++counters_.refused;
        return UCS_ERR_REJECTED;
    }
    ucs::UniqueFd segment;
    if ((status = make_segment(link, &segment)) != UCS_OK)
        return status;
    const Hello hello{.segment_bytes = kSegmentBytes,
                      .lid = lid_,
                      .has_membarrier = fences_.has_membarrier ? 1U : 0U};
    const int fd = segment.get();
    status = ucs::unix_send(link.socket.get(), std::as_bytes(std::span(&hello, 1)), &fd, 1);
    if (status != UCS_OK)
        return status;
    return watch(link.socket.get()) ? UCS_OK : UCS_ERR_IO_ERROR;
}

void ShmFabric::serve_out(OutLink& link) {
    std::array<std::byte, 64> buffer;
    ucs::ReceivedMessage message;
    const ucs_status_t status = ucs::unix_receive(link.socket.get(), buffer, &message);
    if (status == UCS_ERR_NO_PROGRESS)
        return;
    Refusal refusal;
    if (status == UCS_OK && message.bytes >= sizeof refusal) {
        std::memcpy(&refusal, buffer.data(), sizeof refusal);
        if (refusal.magic == kHelloMagic)
            tell_version(link.lid, refusal);
        ++counters_.refused;
        drop_out(link, kRefusedPauseNs);
        return;
    }
    drop_out(link, 0);  // hung up; the next packet looks for a new node of that LID
}

// ---- The connections of others to us -----------------------------------------------------------

void ShmFabric::service() {
    std::array<epoll_event, 16> events;
    int count = 0;
    do {
        count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        for (int i = 0; i < count; ++i)
            serve(events[static_cast<std::size_t>(i)].data.fd);
    } while (count == static_cast<int>(events.size()));
    if (has_dead_)
        sweep();
}

void ShmFabric::serve(int fd) {
    if (fd == listener_.get()) {
        accept_all();
        return;
    }
    if (const auto out = out_by_fd_.find(fd); out != out_by_fd_.end()) {
        serve_out(*out->second);
        return;
    }
    if (unknown_.contains(fd)) {
        serve_unknown(fd);
        return;
    }
    const auto in = std::find_if(in_.begin(), in_.end(),
                                 [fd](const auto& link) { return link->socket.get() == fd; });
    if (in != in_.end())
        serve_in(**in);
}

void ShmFabric::accept_all() {
    // A bound per visit: the rest makes epoll report again.
    for (std::size_t i = 0; i < kUnknownMax; ++i) {
        ucs::UniqueFd socket;
        if (ucs::unix_accept(listener_.get(), &socket) != UCS_OK)
            return;
        const int fd = socket.get();
        const bool is_full = unknown_.size() >= kUnknownMax || in_.size() >= kLinksMax;
        if (is_full || !is_same_user(fd) || !watch(fd)) {
            ++counters_.refused;
            continue;
        }
        unknown_[fd] = std::move(socket);
        serve_unknown(fd);
    }
}

void ShmFabric::serve_unknown(int fd) {
    std::array<std::byte, 256> buffer;
    ucs::ReceivedMessage message;
    const ucs_status_t status = ucs::unix_receive(fd, buffer, &message);
    if (status == UCS_ERR_NO_PROGRESS)
        return;
    Hello hello;
    const bool is_hello = status == UCS_OK && message.bytes >= sizeof(Refusal);
    if (is_hello)
        std::memcpy(&hello, buffer.data(), std::min(message.bytes, sizeof hello));
    const bool is_ours = is_hello && hello.magic == kHelloMagic;
    const bool is_same_version = is_ours && hello.version == kFabricVersion &&
                                 hello.segment_bytes == kSegmentBytes && hello.release == kRelease;
    if (is_ours && !is_same_version) {
        tell_version(hello.lid, {.version = hello.version,
                                 .segment_bytes = hello.segment_bytes,
                                 .release = hello.release});
        const Refusal refusal{.segment_bytes = kSegmentBytes};
        static_cast<void>(ucs::unix_send(fd, std::as_bytes(std::span(&refusal, 1)), nullptr, 0));
    }
    if (!is_same_version || message.bytes != sizeof hello || message.fd_count != 1 ||
        !admit(fd, hello, message.fds[0])) {
        ++counters_.refused;
    }
    unknown_.erase(fd);  // closes it, unless it was admitted
}

void ShmFabric::tell_version(unsigned lid, const Refusal& theirs) {
    if (std::exchange(has_told_version_, true))
        return;
    TW_LOG_ERROR(
        "virtual HCA: refused: LID %u runs tagwire %s (version %u of the shared-memory fabric, "
        "rings of %llu bytes), this process tagwire %s (version %u, %zu bytes)",
        lid, text_of(theirs.release).c_str(), theirs.version,
        static_cast<unsigned long long>(theirs.segment_bytes), text_of(kRelease).c_str(),
        kFabricVersion, kSegmentBytes);
}

bool ShmFabric::admit(int fd, const Hello& hello, const ucs::UniqueFd& segment) {
    if (hello.lid == 0 || hello.lid > kLidMax || hello.lid == lid_)
        return false;
    auto link = std::make_unique<InLink>();
    if (ucs::memfd_check_sealed(segment.get(), kSegmentBytes) != UCS_OK ||
        ucs::map_shared(segment.get(), kSegmentBytes, &link->memory) != UCS_OK) {
        return false;
    }
    link->lid = static_cast<std::uint16_t>(hello.lid);
    link->ring = Receiver(ring_in(link->memory.base()), fences_);
    if (fences_.has_membarrier && hello.has_membarrier != 0)
        link->ring.spare_sender();
    // A node that came back under its LID: what its former life sent is still delivered first.
    for (const auto& former : in_)
        former->is_closing = former->is_closing || former->lid == link->lid;
    link->socket = std::move(unknown_[fd]);
    in_.push_back(std::move(link));
    ++counters_.links_in;
    return true;
}

void ShmFabric::serve_in(InLink& link) {
    std::array<std::byte, 64> buffer;
    ucs::ReceivedMessage message;
    ucs_status_t status = UCS_OK;
    for (int i = 0; i < 64 && status == UCS_OK; ++i) {
        status = ucs::unix_receive(link.socket.get(), buffer, &message);
        counters_.knocks_received += status == UCS_OK ? 1 : 0;
    }
    if (status != UCS_OK && status != UCS_ERR_NO_PROGRESS) {
        link.is_closing = true;
        link.socket.reset();
    }
}

}  // namespace tagwire::vhca
