// SPDX-License-Identifier: BSD-3-Clause
// Address handles, and multicast, which this device does not have.
#include <endian.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca {

void dispose(FaceAh& ah) {
    delete &ah;
}

int remove(FaceAh& ah) {
    FaceContext& owner = face(ah.ah.context);
    const auto guard = owner.engine->lock();
    --face(ah.ah.pd).core->users;
    owner.ahs.erase(ah);
    return 0;
}

namespace {

// RoCE version 2: an IPv4 header at the end of the space. The answer goes where it came from.
bool attr_from_ipv4(const ibv_grh& grh, ibv_ah_attr* attr) {
    std::array<unsigned char, 20> header;
    std::memcpy(header.data(), reinterpret_cast<const char*>(&grh) + kGrhBytes - header.size(),
                header.size());
    constexpr unsigned char kVersionAndLength = 0x45;
    if (header[0] != kVersionAndLength)
        return false;
    attr->is_global = 1;
    attr->grh.dgid.raw[10] = attr->grh.dgid.raw[11] = 0xff;
    std::memcpy(&attr->grh.dgid.raw[12], &header[12], 4);
    attr->grh.traffic_class = header[1];
    attr->grh.hop_limit = header[8];
    return true;
}

}  // namespace
}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_ah* tagwire_vhca_ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    Engine& engine = *face(pd->context).engine;
    if (!is_port(engine, attr->port_num) || !is_path(engine, *attr))
        return fail(EINVAL);
    auto* made = new (std::nothrow) FaceAh{};
    if (made == nullptr)
        return fail(ENOMEM);
    FaceContext& owner = face(pd->context);
    {
        const auto guard = owner.engine->lock();
        ++face(pd).core->users;
        owner.ahs.push_back(*made);
    }
    made->ah.context = pd->context;
    made->ah.pd = pd;
    made->route = owner.engine->port().route_of(*attr);
    return &made->ah;
}

int tagwire_vhca_ibv_destroy_ah(ibv_ah* ah) {
    remove(face(ah));
    dispose(face(ah));
    return 0;
}

// Follows ibv_init_ah_from_wc(3): the answer goes where the message came from.
int tagwire_vhca_ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc,
                                     ibv_grh* grh, ibv_ah_attr* attr) {
    if (!is_port(*face(context).engine, port)) {
        errno = EINVAL;
        return -1;
    }
    *attr = {};
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (face(context).engine->port().is_ethernet()) {
        attr->sl = 0;  // what a completion has there is no service level
        if ((wc->wc_flags & IBV_WC_GRH) == 0) {
            errno = EINVAL;
            return -1;
        }
        if (attr_from_ipv4(*grh, attr))
            return 0;
    }
    if ((wc->wc_flags & IBV_WC_GRH) != 0) {
        const std::uint32_t version_class_flow = be32toh(grh->version_tclass_flow);
        attr->is_global = 1;
        attr->grh.dgid = grh->sgid;
        attr->grh.sgid_index = 0;
        attr->grh.flow_label = version_class_flow & 0xfffff;
        attr->grh.traffic_class = static_cast<std::uint8_t>(version_class_flow >> 20 & 0xff);
        attr->grh.hop_limit = grh->hop_limit;
    }
    return 0;
}

ibv_ah* tagwire_vhca_ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                           std::uint8_t port) {
    ibv_ah_attr attr;
    if (tagwire_vhca_ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0)
        return nullptr;
    return tagwire_vhca_ibv_create_ah(pd, &attr);
}

int tagwire_vhca_ibv_attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
    return EOPNOTSUPP;
}

int tagwire_vhca_ibv_detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
    return EOPNOTSUPP;
}
