// SPDX-License-Identifier: BSD-3-Clause
// Packets as datagrams, in batches.
#include <cerrno>
#include <cstring>

#include "vhca/core/packet.hpp"
#include "vhca/fabric/packet_trace.hpp"
#include "vhca/fabric/udp_fabric.hpp"

namespace tagwire::vhca {

namespace {

std::uint8_t class_of(const msghdr& header) {
    const cmsghdr* control = CMSG_FIRSTHDR(&header);
    if (control == nullptr || control->cmsg_level != IPPROTO_IP || control->cmsg_type != IP_TOS)
        return 0;
    std::uint8_t value = 0;
    std::memcpy(&value, CMSG_DATA(control), sizeof value);
    return value;
}

}  // namespace

// ---- Sending -----------------------------------------------------------------------------------

std::byte* UdpFabric::claim(Route, std::size_t) {
    if (count_ == kBatch && !flush()) [[unlikely]]
        return nullptr;
    return out_->bytes[count_].data();
}

void UdpFabric::commit(Route to, std::size_t bytes) {
    ++counters_.packets_sent;
    const auto target = static_cast<std::uint32_t>(to.node);
    if (target != to.node || target == 0 || target >= INADDR_UNSPEC_GROUP || !socket_)
        [[unlikely]] {
        ++counters_.vanished;
        return;
    }
    const UdpPath path{address_, target, kRocePort, kRocePort};
    std::byte* packet = out_->bytes[count_].data();
    put_icrc(packet + bytes, icrc_of(path, {packet, bytes}));
    sockaddr_in& peer = out_->peers[count_];
    peer.sin_family = AF_INET;
    peer.sin_port = htons(kRocePort);
    peer.sin_addr.s_addr = htonl(target);
    out_->pieces[count_].iov_len = bytes + kIcrcBytes;
    set_class(count_, to.service.traffic);
    ++count_;
}

void UdpFabric::set_class(unsigned index, std::uint8_t traffic_class) {
    msghdr& header = out_->messages[index].msg_hdr;
    header.msg_controllen = 0;
    if (traffic_class != 0) {
        header.msg_controllen = sizeof(Control);
        cmsghdr* control = CMSG_FIRSTHDR(&header);
        const int value = traffic_class;
        *control = {
            .cmsg_len = CMSG_LEN(sizeof value), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS};
        std::memcpy(CMSG_DATA(control), &value, sizeof value);
    }
}

bool UdpFabric::flush() {
    while (first_ != count_) {
        const int sent =
            ::sendmmsg(socket_.get(), &out_->messages[first_], count_ - first_, MSG_DONTWAIT);
        if (sent > 0) {
            first_ += static_cast<unsigned>(sent);
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            return false;
        } else if (errno != EINTR) {  // no way there, a firewall, too long for the path: lost
            ++counters_.vanished;
            ++first_;
        }
    }
    first_ = count_ = 0;
    return true;
}

// ---- Receiving ---------------------------------------------------------------------------------

unsigned UdpFabric::deliver(Device& device, Time now) {
    constexpr unsigned kRounds = 2;
    unsigned total = 0;
    for (unsigned round = 0; round < kRounds; ++round) {
        const int got =
            ::recvmmsg(socket_.get(), in_->messages.data(), kBatch, MSG_DONTWAIT, nullptr);
        const unsigned count = got > 0 ? static_cast<unsigned>(got) : 0;
        for (unsigned i = 0; i < count; ++i) {
            mmsghdr& message = in_->messages[i];
            const bool is_whole = (message.msg_hdr.msg_flags & MSG_TRUNC) == 0;
            take(device, now, {in_->peers[i], class_of(message.msg_hdr)},
                 {in_->bytes[i].data(), is_whole ? message.msg_len : 0});
            message.msg_hdr.msg_namelen = sizeof in_->peers[i];
            message.msg_hdr.msg_controllen = sizeof in_->controls[i];
        }
        total += count;
        if (count < kBatch)
            break;
    }
    return total;
}

void UdpFabric::take(Device& device, Time now, const Sender& from,
                     std::span<const std::byte> datagram) {
    const sockaddr_in& address = from.address;
    if (address.sin_family != AF_INET || ntohs(address.sin_port) != kRocePort) [[unlikely]] {
        ++counters_.foreign;
        return;
    }
    if (datagram.size() < kBthBytes + kIcrcBytes || datagram.size() > kDatagramBytesMax ||
        datagram.size() % 4 != 0) [[unlikely]] {
        ++counters_.malformed;
        return;
    }
    const UdpPath path{ntohl(address.sin_addr.s_addr), address_, kRocePort, kRocePort,
                       from.traffic_class};
    const auto packet = datagram.first(datagram.size() - kIcrcBytes);
    if (icrc_of(path, packet) != take_icrc(packet.data() + packet.size())) [[unlikely]] {
        ++counters_.bad_crc;
        return;
    }
    ++counters_.packets_received;
    const Route source{path.source};
    if (tap_ != nullptr) [[unlikely]]
        tap_->arrived({path.source, {0, path.traffic_class}}, packet);
    if (!is_datagram(packet)) {
        device.receive(source, packet, now);
        return;
    }
    // As RoCE cards do for IPv4: the header stands at the end of the space.
    std::array<std::byte, kGrhBytes> grh{};
    put_ipv4(grh.data() + kGrhBytes - kIpv4Bytes, path, kUdpBytes + datagram.size());
    device.receive(source, packet, now, grh.data());
}

}  // namespace tagwire::vhca
