// SPDX-License-Identifier: BSD-3-Clause
// Set-up of the UDP fabric: socket, buffers, what the helper thread sleeps on.
#include "vhca/fabric/udp_fabric.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "ucs/log/log.hpp"

namespace tagwire::vhca {

namespace {

constexpr int kBufferBytesWanted = 4 << 20;

int tell(std::uint32_t address, int error) {
    const std::string text = ipv4_text(address);
    if (error == EADDRINUSE) {
        TW_LOG_ERROR(
            "virtual HCA: another process uses UDP port %u of %s; each process needs an address of "
            "its own: set --address (TAGWIRE_VHCA_ADDRESS)",
            kRocePort, text.c_str());
    } else {
        TW_LOG_ERROR(
            "virtual HCA: UDP port %u of %s cannot be used: %s; --address (TAGWIRE_VHCA_ADDRESS) "
            "must be an address of this machine",
            kRocePort, text.c_str(), std::strerror(error));
    }
    return error;
}

// A host's: not "any", multicast or broadcast.
bool is_host(std::uint32_t address) {
    return address != 0 && address < INADDR_UNSPEC_GROUP;
}

}  // namespace

ibv_mtu roce_mtu(std::uint32_t interface_bytes) {
    constexpr std::size_t kHeaders = kIpv4Bytes + kUdpBytes + kHeaderBytesMax + kIcrcBytes;
    int mtu = IBV_MTU_4096;
    while (mtu > IBV_MTU_256 && (std::size_t{128} << mtu) + kHeaders > interface_bytes)
        --mtu;
    return static_cast<ibv_mtu>(mtu);
}

int UdpFabric::open(const char* address, std::unique_ptr<UdpFabric>* fabric_p) {
    std::uint32_t number = 0;
    if (address[0] == '\0') {
        number = default_address();
    } else if (!parse_ipv4(address, &number) || !is_host(number)) {
        TW_LOG_ERROR("virtual HCA: TAGWIRE_VHCA_ADDRESS: '%s' is not the IPv4 address of a host",
                     address);
        return EINVAL;
    }
    std::unique_ptr<UdpFabric> fabric(new (std::nothrow) UdpFabric);
    if (fabric == nullptr || (fabric->out_ = make_batch()) == nullptr ||
        (fabric->in_ = make_batch()) == nullptr) {
        return ENOMEM;
    }
    if (const int error = fabric->bind(number); error != 0)
        return tell(number, error);
    fabric->interface_ = interface_of(number);
    fabric->set_buffers();
    fabric->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!fabric->epoll_ || fabric->watch(0, EPOLL_CTL_ADD) != 0)
        return errno;
    *fabric_p = std::move(fabric);
    return 0;
}

UdpFabric::~UdpFabric() = default;

std::unique_ptr<UdpFabric::Batch> UdpFabric::make_batch() {
    std::unique_ptr<Batch> batch(new (std::nothrow) Batch);
    for (unsigned i = 0; batch != nullptr && i < kBatch; ++i) {
        batch->peers[i] = {};
        batch->pieces[i] = {batch->bytes[i].data(), kDatagramBytesMax};
        msghdr& header = batch->messages[i].msg_hdr;
        header = {};
        header.msg_name = &batch->peers[i];
        header.msg_namelen = sizeof batch->peers[i];
        header.msg_iov = &batch->pieces[i];
        header.msg_iovlen = 1;
        header.msg_control = &batch->controls[i];
        header.msg_controllen = sizeof batch->controls[i];
    }
    return batch;
}

int UdpFabric::bind(std::uint32_t address) {
    socket_.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_)
        return errno;
    // Packets of one size, whole or not at all; the CRC counts on it (put_ipv4()).
    const int discovery = IP_PMTUDISC_DO, tells_class = 1;
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_port = htons(kRocePort);
    own.sin_addr.s_addr = htonl(address);
    if (::setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &discovery, sizeof discovery) !=
            0 ||
        ::setsockopt(socket_.get(), IPPROTO_IP, IP_RECVTOS, &tells_class, sizeof tells_class) !=
            0 ||
        ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0) {
        return errno;
    }
    address_ = address;
    return 0;
}

// As much as the system lets us have; the privileged way first.
void UdpFabric::set_buffers() {
    const auto ask = [this](int forced, int option) {
        const int bytes = kBufferBytesWanted;
        if (::setsockopt(socket_.get(), SOL_SOCKET, forced, &bytes, sizeof bytes) != 0)
            ::setsockopt(socket_.get(), SOL_SOCKET, option, &bytes, sizeof bytes);
    };
    ask(SO_RCVBUFFORCE, SO_RCVBUF);
    ask(SO_SNDBUFFORCE, SO_SNDBUF);
    int granted = 0;
    socklen_t bytes = sizeof granted;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &granted, &bytes);
    buffer_bytes_ = static_cast<std::uint32_t>(std::max(granted, 0));
}

// The system counts what it allocates: for a packet of 4 KiB, twice that.
std::uint32_t UdpFabric::packets_buffered(ibv_mtu mtu) const {
    return buffer_bytes_ / (2 * (128U << mtu) + 1024);
}

int UdpFabric::watch(unsigned events, int operation) {
    epoll_event event{};
    event.events = events | EPOLLONESHOT;
    return ::epoll_ctl(epoll_.get(), operation, socket_.get(), &event);
}

void UdpFabric::service() {
    epoll_event event;
    ::epoll_wait(epoll_.get(), &event, 1, 0);  // takes it; the watch is over
}

bool UdpFabric::is_neglected() const {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, 0) > 0;
}

bool UdpFabric::arm() {
    return !is_neglected() && watch(EPOLLIN, EPOLL_CTL_MOD) == 0;
}

void UdpFabric::abandon() {
    epoll_.reset();
    socket_.reset();
    first_ = count_ = 0;
}

}  // namespace tagwire::vhca
