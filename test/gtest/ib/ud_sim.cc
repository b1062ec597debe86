// SPDX-License-Identifier: BSD-3-Clause
#include "ud_sim.hpp"

#include <endian.h>
#include <algorithm>

namespace tagwire::ud::sim {

// ---- The wire

void Wire::send(std::uint32_t qp_num, const std::vector<std::byte>& datagram) {
    int copies = chance(params_.loss) ? 0 : 1;
    copies += chance(params_.duplication) ? 1 : 0;
    for (int i = 0; i < copies; ++i) {
        const std::uint64_t jitter = params_.jitter_ns == 0 ? 0 : random() % params_.jitter_ns;
        in_flight_.push({now + params_.delay_ns + jitter, order_++, qp_num, datagram});
    }
}

void Wire::step() {
    std::uint64_t next = in_flight_.empty() ? kNever : in_flight_.top().at;
    for (const auto& [qp_num, machine] : machines) {
        next = std::min(next, machine->node().next_deadline());
        if (machine->node().has_waiting())
            next = std::min(next, now + 1000);
    }
    now = next == kNever ? kNever : std::max(now, next);
    if (now == kNever)
        return;
    while (!in_flight_.empty() && in_flight_.top().at <= now) {
        const InFlight arriving = in_flight_.top();
        in_flight_.pop();
        if (const auto found = machines.find(arriving.qp_num); found != machines.end())
            found->second->arrived(arriving.datagram);
    }
    for (const auto& [qp_num, machine] : machines) {
        machine->node().settle();
        machine->node().expire(now);
        if (machine->node().has_waiting())
            machine->node().resume(now);
    }
}

bool Wire::run(const std::function<bool()>& done, std::uint64_t for_ns) {
    const std::uint64_t start = now;
    while (!done()) {
        if (now == kNever || now - start > for_ns) {
            now = now == kNever ? start : now;
            return done();
        }
        step();
    }
    return true;
}

// ---- A machine

Machine::Machine(Wire& wire, std::uint32_t qp_num, NodeParams params)
    : wire_(wire), qp_num_(qp_num), node_(*this, [&] {
          params.cookie = static_cast<std::uint32_t>(wire.random()) | 1U;
          return params;
      }()) {
    wire_.machines[qp_num] = this;
}

// As kill -9: nobody is told.
Machine::~Machine() {
    wire_.machines.erase(qp_num_);
    for (auto& stream : streams_)
        stream->sender.drop_all([this](void* packet) { release(packet); });
}

Stream& Machine::open(std::uint32_t qp_num, std::uint32_t cookie) {
    SenderParams params = node_.params().sender;
    params.first_psn = static_cast<std::uint32_t>(wire_.random());
    auto& stream = streams_.emplace_back(std::make_unique<Stream>(params, wire_.now));
    stream->name = wire_.random();
    stream->peer = get_peer(qp_num, cookie);
    EXPECT_TRUE(node_.open(*stream));
    node_.pump(*stream, wire_.now);
    return *stream;
}

void Machine::close(Stream& stream) {
    node_.close(stream);
    put_peer(*std::exchange(stream.peer, nullptr));
}

bool Machine::push(Stream& stream) {
    if (!stream.sender.has_room())
        return false;
    stream.sender.push(new Payload{{}, stream.name, stream.pushed++});
    ++buffers_out;
    node_.pump(stream, wire_.now);
    return true;
}

void Machine::arrived(const std::vector<std::byte>& datagram) {
    auto* message = new std::byte[datagram.size() + 1];  // an empty one is one, too
    std::copy(datagram.begin(), datagram.end(), message);
    ++buffers_out;
    node_.arrived(message, static_cast<std::uint32_t>(datagram.size()), wire_.now);
}

bool Machine::can_send(bool) const {
    return !wire_.chance(wire_.params().refusal);
}

void Machine::send_control(SimPeer& peer, const Header& header) {
    std::vector<std::byte> datagram(kControlBytesMax);
    const Header packed = pack(header);
    std::memcpy(datagram.data(), &packed, sizeof packed);
    ReturnAddress from{};
    from.interface.qp_num = qp_num_;
    from.interface.cookie = node_.params().cookie;
    std::memcpy(datagram.data() + sizeof packed, &from, sizeof from);
    wire_.send(peer.qp_num, std::move(datagram));
}

void Machine::send_data(SimPeer& peer, const Header& header, void* packet) {
    auto* payload = static_cast<Payload*>(packet);
    const bool is_again = payload->header.to_cookie != 0;
    if (is_again && wire_.chance(wire_.params().as_it_is)) {
        if (header.ack_id != 0)
            node_.did_not_tell();
    } else {
        payload->header = pack(header);
    }
    std::vector<std::byte> datagram(sizeof *payload);
    std::memcpy(datagram.data(), payload, sizeof *payload);
    wire_.send(peer.qp_num, std::move(datagram));
}

void Machine::release(void* packet) {
    --buffers_out;
    delete static_cast<Payload*>(packet);
}

void Machine::deliver(std::uint8_t, void* message, std::uint32_t bytes) {
    ASSERT_EQ(sizeof(Payload), bytes);
    Payload payload;
    std::memcpy(&payload, message, sizeof payload);
    EXPECT_EQ(payload.number, received[payload.stream]) << "lost, twice or out of order";
    ++received[payload.stream];
    drop(message);
}

void Machine::drop(void* message) {
    --buffers_out;
    delete[] static_cast<std::byte*>(message);
}

SimPeer* Machine::peer_of(const void* message) {
    ReturnAddress from;
    std::memcpy(&from, static_cast<const std::byte*>(message) + kHeaderBytes, sizeof from);
    return get_peer(from.interface.qp_num, from.interface.cookie);
}

SimPeer* Machine::get_peer(std::uint32_t qp_num, std::uint32_t cookie) {
    auto& peer = peers_[{qp_num, cookie}];
    if (peer == nullptr)
        peer = std::make_unique<SimPeer>(SimPeer{.cookie = cookie, .qp_num = qp_num});
    ++peer->users;
    return peer.get();
}

void Machine::put_peer(SimPeer& peer) {
    if (--peer.users == 0)
        peers_.erase({peer.qp_num, peer.cookie});
}

Liveness Machine::liveness(const SimPeer& peer) const {
    if (!wire_.params().is_one_host)
        return Liveness::kUnknown;
    const auto found = wire_.machines.find(peer.qp_num);
    const bool is_there =
        found != wire_.machines.end() && found->second->node().params().cookie == peer.cookie;
    return is_there ? Liveness::kAlive : Liveness::kDead;
}

void Machine::failed(Outbound& outbound, Failure failure) {
    auto& stream = static_cast<Stream&>(outbound);
    ++stream.failures;
    stream.failure = failure;
}

}  // namespace tagwire::ud::sim
