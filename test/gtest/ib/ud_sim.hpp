// SPDX-License-Identifier: BSD-3-Clause
// A wire from a seed and machines on it that run the ud protocol (Node) on a virtual clock: loss,
// duplication, delay, reordering, crash and restart. Every message carries its stream and number,
// so a machine checks order and uniqueness as it receives.
//
// One thread. Use: make a Wire, machines on it, streams between them; run() until something holds.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <vector>

#include "uct/ib/ud/ud_node.hpp"

namespace tagwire::ud::sim {

struct WireParams {
    double loss = 0;
    double duplication = 0;
    std::uint64_t delay_ns = 5'000;
    std::uint64_t jitter_ns = 0;
    double as_it_is = 0;       // that the device still reads a packet that is sent again
    double refusal = 0;        // that there is no room to send just now
    bool is_one_host = false;  // a machine knows which others are there
};

class Machine;

class Wire {
  public:
    Wire(std::uint64_t seed, const WireParams& params) : random(seed), params_(params) {}

    void send(std::uint32_t qp_num, const std::vector<std::byte>& datagram);
    /// Lets everything happen until `done`, or nothing can happen any more, or the time is over.
    bool run(const std::function<bool()>& done, std::uint64_t for_ns);
    bool chance(double probability) {
        return std::uniform_real_distribution<double>(0, 1)(random) < probability;
    }
    [[nodiscard]] const WireParams& params() const { return params_; }
    void become(const WireParams& params) { params_ = params; }

    std::mt19937_64 random;
    std::uint64_t now = 1'000'000;
    // By queue pair number. A packet to one that is not there is lost.
    std::map<std::uint32_t, Machine*> machines;

  private:
    struct InFlight {
        std::uint64_t at;
        std::uint64_t order;
        std::uint32_t qp_num;
        std::vector<std::byte> datagram;
        bool operator>(const InFlight& other) const {
            return at != other.at ? at > other.at : order > other.order;
        }
    };
    void step();

    WireParams params_;
    std::uint64_t order_ = 0;
    std::priority_queue<InFlight, std::vector<InFlight>, std::greater<>> in_flight_;
};

struct SimPeer {
    std::uint32_t cookie;
    std::uint32_t owed = 0;
    std::uint32_t qp_num;
    unsigned users = 0;
};

struct Payload {
    Header header;
    std::uint64_t stream;
    std::uint64_t number;
};

/// A connection and what its user knows of it.
struct Stream : BasicOutbound<SimPeer> {
    using BasicOutbound::BasicOutbound;
    std::uint64_t name = 0;
    std::uint64_t pushed = 0;
    int failures = 0;
    Failure failure{};
};

class Machine {
  public:
    using Peer = SimPeer;
    using Outbound = BasicOutbound<SimPeer>;

    Machine(Wire& wire, std::uint32_t qp_num, NodeParams params);
    ~Machine();
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    Stream& open(const Machine& to) { return open(to.qp_num_, to.node().params().cookie); }
    Stream& open(std::uint32_t qp_num, std::uint32_t cookie);
    void close(Stream& stream);
    /// False: the window is full.
    bool push(Stream& stream);
    void arrived(const std::vector<std::byte>& datagram);
    [[nodiscard]] const Node<Machine>& node() const { return node_; }
    [[nodiscard]] Node<Machine>& node() { return node_; }
    [[nodiscard]] std::uint64_t counted(Event event) const {
        return counters_[static_cast<std::size_t>(event)];
    }

    std::map<std::uint64_t, std::uint64_t> received;  // by stream: how many
    std::size_t buffers_out = 0;

    // ---- Host
    bool can_send(bool is_control) const;
    void send_control(SimPeer& peer, const Header& header);
    void send_data(SimPeer& peer, const Header& header, void* packet);
    void release(void* packet);
    void deliver(std::uint8_t am_id, void* message, std::uint32_t bytes);
    void deliver_joined(std::uint8_t, std::span<const std::byte>) { FAIL() << "none was divided"; }
    void drop(void* message);
    SimPeer* peer_of(const void* message);
    void put_peer(SimPeer& peer);
    Liveness liveness(const SimPeer& peer) const;
    void advanced(Outbound&) {}
    void failed(Outbound& outbound, Failure failure);
    void count(Event event) { ++counters_[static_cast<std::size_t>(event)]; }

  private:
    SimPeer* get_peer(std::uint32_t qp_num, std::uint32_t cookie);

    Wire& wire_;
    std::uint32_t qp_num_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<SimPeer>> peers_;
    std::vector<std::unique_ptr<Stream>> streams_;
    std::uint64_t counters_[static_cast<std::size_t>(Event::kCount)] = {};
    Node<Machine> node_;
};

}  // namespace tagwire::ud::sim
