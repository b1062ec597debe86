// SPDX-License-Identifier: BSD-3-Clause
// Devices on a simulated fabric, with the memory, queues and events that a test needs.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vhca/core/objects.hpp"
#include "vhca/fabric/sim_fabric.hpp"

namespace tagwire::vhca {

/// Remembers what a device said.
class Events final : public EventSink {
  public:
    void cq_event(Cq& cq) override {
        cqs.push_back(&cq);
        if (at_cq_event)
            at_cq_event();
    }
    void qp_event(ibv_event_type type, Qp& qp) override { qps.emplace_back(type, &qp); }
    void srq_event(ibv_event_type type, Srq& srq) override { srqs.emplace_back(type, &srq); }
    void cq_error(Cq& cq) override { broken.push_back(&cq); }
    void device_event(ibv_event_type type, unsigned port) override {
        of_device.emplace_back(type, port);
    }

    [[nodiscard]] std::size_t count(ibv_event_type type) const {
        std::size_t sum = 0;
        for (const auto& [seen, qp] : qps)
            sum += seen == type ? 1U : 0U;
        return sum;
    }

    std::function<void()> at_cq_event;  // in the middle of what the device does
    std::vector<Cq*> cqs, broken;
    std::vector<std::pair<ibv_event_type, Qp*>> qps;
    std::vector<std::pair<ibv_event_type, Srq*>> srqs;
    std::vector<std::pair<ibv_event_type, unsigned>> of_device;
};

constexpr unsigned kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct NodeOptions {
    DeviceConfig device;
    std::uint32_t cqe = 1024;
    std::size_t memory_bytes = 1 << 16;
};

/// A device, its protection domain, one CQ for everything and one region of memory.
class Host {
  public:
    Host(SimFabric& fabric, std::size_t number, const NodeOptions& options)
        : fabric_(fabric),
          number_(number),
          device(fabric.add_node(options.device, events)),
          memory(options.memory_bytes) {
        EXPECT_EQ(device.create_pd(nullptr, &pd), 0);
        EXPECT_EQ(device.create_cq({.cqe = options.cqe}, &cq), 0);
        EXPECT_EQ(device.create_mr(*pd, memory.data(), memory.size(), address(0), kAllAccess, &mr),
                  0);
    }

    [[nodiscard]] std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(memory.data()) + offset;
    }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t bytes) const {
        return {address(offset), static_cast<std::uint32_t>(bytes), mr->key};
    }
    [[nodiscard]] std::string text(std::size_t offset, std::size_t bytes) const {
        return {reinterpret_cast<const char*>(memory.data()) + offset, bytes};
    }
    void write(std::size_t offset, const std::string& text) {
        std::memcpy(memory.data() + offset, text.data(), text.size());
    }
    [[nodiscard]] std::uint64_t& word(std::size_t offset) {
        return *reinterpret_cast<std::uint64_t*>(memory.data() + offset);
    }

    Qp& create_qp(QpConfig config);
    std::optional<Completion> poll() {
        Completion completion;
        return cq->poll(&completion) ? std::optional(completion) : std::nullopt;
    }
    /// Steps the fabric until a completion is there.
    Completion wait() {
        EXPECT_TRUE(fabric_.run([this] { return !cq->is_empty(); })) << "no completion";
        return poll().value_or(Completion{});
    }
    [[nodiscard]] Route route() const { return SimFabric::route(number_); }

  private:
    SimFabric& fabric_;
    std::size_t number_;

  public:
    Events events;
    Device& device;
    std::vector<std::byte> memory;
    Pd* pd = nullptr;
    Cq* cq = nullptr;
    Mr* mr = nullptr;
};

/// Attributes of a connection; the defaults are patient.
struct Connection {
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint32_t psn = 0x1000;  // of a's packets; b's begin 0x100 later
    std::uint8_t timeout = 10, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 1;
    std::uint8_t rd_atomic = 4;       // both sides, requester
    std::uint8_t dest_rd_atomic = 4;  // both sides, responder
    unsigned access = kAllAccess;
};

struct WorldOptions {
    SimConfig fabric;
    NodeOptions node;
    std::uint64_t seed = 1;
    ibv_qp_type type = IBV_QPT_RC;
    ibv_qp_cap cap{64, 64, 4, 4, 64};
    bool signals_all = false;
    bool uses_srq = false;  // b receives from an SRQ
    Connection connection;
};

constexpr std::uint32_t kQkey = 0x1234;

/// Two hosts, a and b, with a connected queue pair each.
class World {
  public:
    explicit World(const WorldOptions& options = {});

    void connect(Qp& from, Route to, std::uint32_t remote_qpn, std::uint32_t psn,
                 std::uint32_t remote_psn);
    int to_init(Qp& qp);
    int to_rtr(Qp& qp, Route to, std::uint32_t remote_qpn, std::uint32_t remote_psn);
    int to_rts(Qp& qp, std::uint32_t psn);
    int to_state(Qp& qp, ibv_qp_state state, int mask = 0, ibv_qp_attr attr = {});

    /// From a; `offset` and `bytes` are those of a's memory.
    int send(std::uint64_t wr_id, std::size_t offset, std::size_t bytes, SendWork work = {});
    /// Into b's memory.
    int receive(std::uint64_t wr_id, std::size_t offset, std::size_t bytes);
    /// RDMA or atomic of a on b's memory.
    [[nodiscard]] SendWork remote(ibv_wr_opcode opcode, std::size_t remote_offset) const;

    /// Until nothing happens any more.
    void settle() {
        fabric.run([] { return false; });
    }

    WorldOptions options;
    SimFabric fabric;
    Host a, b;
    Srq* srq = nullptr;
    Qp* qa = nullptr;
    Qp* qb = nullptr;
};

}  // namespace tagwire::vhca
