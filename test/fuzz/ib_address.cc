// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target of the device addresses of verbs transports, which are untrusted. An accepted address
// must be safe to make a path from, whatever the local port is.
#include <algorithm>
#include <array>
#include <string>

#include "input.hpp"
#include "target.hpp"
#include "uct/ib/address.hpp"

namespace tagwire::fuzz::ib_address_fuzz {
namespace {

void use(const ib::PortAddress& peer, Input* input) {
    ib::Port own;
    own.is_ethernet = input->take<std::uint8_t>() % 2 != 0;
    own.pkey = input->take<std::uint16_t>();
    input->take_into(std::as_writable_bytes(std::span(own.gid.raw)));
    own.attr.active_mtu = static_cast<ibv_mtu>(1 + input->below(5));
    std::string reason;
    if (!ib::is_reachable(own, peer, &reason)) {
        require(!reason.empty());
        return;
    }
    const ibv_ah_attr path = ib::path_to(own, peer, 0, 0);
    require(own.is_ethernet ? path.is_global == 1 : path.dlid != 0 && path.dlid < 0xc000);
    const ibv_mtu mtu = ib::path_mtu(own, peer);
    require(mtu >= IBV_MTU_256 && mtu <= own.attr.active_mtu);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    // Most inputs get a right checksum, so that they come as far as the fields.
    const bool is_raw = input.take<std::uint8_t>() % 4 == 0;
    std::array<std::byte, sizeof(ib::PortAddress)> bytes{};
    const std::size_t given = is_raw ? std::min(input.rest().size(), bytes.size()) : bytes.size();
    input.take_into(std::span(bytes).first(given));
    if (!is_raw) {
        bytes.back() = std::byte{0};
        bytes.back() = std::byte{ib::checksum(bytes)};
    }
    std::string reason;
    if (const auto peer = ib::parse_port(std::span(bytes).first(given), &reason)) {
        require(given == bytes.size() && reason.empty());
        use(*peer, &input);
    } else {
        require(!reason.empty());
    }
}

}  // namespace

extern const Target kTarget{"ib_address", nullptr, run_input};

}  // namespace tagwire::fuzz::ib_address_fuzz
