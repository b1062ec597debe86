// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/engine_port.hpp"

#include <endian.h>

#include "vhca/fabric/shm_fabric.hpp"
#include "vhca/fabric/udp_fabric.hpp"

namespace tagwire::vhca {

namespace {

constexpr std::uint64_t kMappedPrefix = 0x0000ffff00000000;  // ::ffff:a.b.c.d

}  // namespace

const Interface* EnginePort::interface() const {
    return udp_ != nullptr ? &udp_->interface() : nullptr;
}

std::uint64_t EnginePort::node() const {
    return udp_ != nullptr ? udp_->address() : lid_;
}

Route EnginePort::route_of(const ibv_ah_attr& attr) const {
    const std::uint8_t traffic = attr.is_global != 0 ? attr.grh.traffic_class : std::uint8_t{0};
    return Route{.node = node_of(attr), .service = {.level = attr.sl, .traffic = traffic}};
}

std::uint64_t EnginePort::node_of(const ibv_ah_attr& attr) const {
    if (attr.port_num > 1)
        return 0;  // no cable
    if (udp_ != nullptr) {
        const std::uint64_t low = be64toh(attr.grh.dgid.global.interface_id);
        const bool is_ipv4 = attr.is_global != 0 && attr.grh.dgid.global.subnet_prefix == 0 &&
                             (low & ~kAddressBits) == kMappedPrefix;
        return is_ipv4 ? low & kAddressBits : 0;
    }
    if (attr.is_global != 0) {
        const std::uint64_t lid = be64toh(attr.grh.dgid.global.interface_id) & kLidBits;
        if (attr.grh.dgid.global.subnet_prefix == htobe64(kLinkLocalPrefix) && lid != 0)
            return lid;
    }
    return is_ethernet_ ? std::uint64_t{0} : attr.dlid;
}

ibv_gid EnginePort::gid() const {
    if (udp_ == nullptr)
        return link_local_gid(guid_);
    ibv_gid gid{};
    gid.global.interface_id = htobe64(kMappedPrefix | udp_->address());
    return gid;
}

}  // namespace tagwire::vhca
