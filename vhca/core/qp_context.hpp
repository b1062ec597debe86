// SPDX-License-Identifier: BSD-3-Clause
// The context of a queue pair: its attributes as ibv_modify_qp(3) sets them, and the addresses that
// its packets carry.
//
// A DC queue pair changes its peer from session to session, the attributes stay.
#pragma once

#include <cstdint>

#include "vhca/core/device.hpp"
#include "vhca/core/packet.hpp"

namespace tagwire::vhca {

/// Destination of a DC queue pair's packets, in addition to route and number.
struct DcPeer {
    std::uint32_t session = 0;
    std::uint8_t stream = 0;
};

class QpContext {
  public:
    explicit QpContext(ibv_qp_type type);

    /// As after ibv_create_qp(3), on a port of this MTU.
    void reset(ibv_mtu port_mtu);
    /// EINVAL: one of the attributes that `mask` names is beyond the limits.
    [[nodiscard]] static int check(const ibv_qp_attr& attr, int mask, const DeviceConfig& limits);
    void set(const ibv_qp_attr& attr, int mask, Route route);
    /// All attributes of another queue pair, but not its peer's route.
    void copy(const ibv_qp_attr& attr);
    void set_number(std::uint32_t number) { number_ = number; }
    /// Packets go there from now on, and come from there.
    void set_peer(Route route, std::uint32_t qpn, const DcPeer& peer);

    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] const ibv_qp_attr& attr() const { return attr_; }
    [[nodiscard]] Route route() const { return route_; }
    [[nodiscard]] const DcPeer& peer() const { return peer_; }
    [[nodiscard]] std::uint32_t mtu() const { return mtu_bytes_; }
    [[nodiscard]] unsigned transport() const { return transport_; }
    /// RC and DC.
    [[nodiscard]] bool is_reliable() const { return is_reliable_; }

    /// The opcode of this transport for one that is given for RC.
    [[nodiscard]] Opcode opcode(Opcode rc) const {
        return static_cast<Opcode>(transport_ | static_cast<unsigned>(rc));
    }
    /// From us to the peer.
    void address(Packet& packet) const {
        packet.qpn = attr_.dest_qp_num;
        packet.source_qpn = number_;
        packet.qkey = peer_.session;
        packet.stream = peer_.stream;
    }

  private:
    std::uint32_t number_ = 0;
    std::uint32_t mtu_bytes_ = 256;
    DcPeer peer_;
    std::uint8_t transport_;
    bool is_reliable_;
    Route route_;
    ibv_qp_attr attr_{};
};

}  // namespace tagwire::vhca
