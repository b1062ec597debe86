// SPDX-License-Identifier: BSD-3-Clause
// Queries: the addresses, the path and the device of an identity.
#include <endian.h>
#include <rdma/ib_user_sa.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <span>

#include "vhca/cm/manager.hpp"

namespace tagwire::vhca::cm {

using driver::read_user;
using driver::UserSpan;
using driver::write_user;

namespace {

constexpr std::uint32_t kAnyIndex = ~std::uint32_t{0};  // of the device: programs go by its GUID
constexpr std::uint8_t kPathRate = 3;                   // 10 Gbit/s, IBV_RATE_10_GBPS
constexpr std::uint8_t kPathLifetime = 16, kExactly = 2;

template <typename T>
void put_address(const Address& from, T* to) {
    std::memcpy(to, &from.storage(), std::min(from.bytes(), sizeof *to));
}

ib_user_path_rec path_record(const Manager& manager, const Identity& identity) {
    const LocalPort port = manager.network().port();
    ib_user_path_rec record{};
    std::memcpy(record.sgid, &port.gid, sizeof record.sgid);
    std::memcpy(record.dgid, &identity.peer.gid, sizeof record.dgid);
    record.slid = htobe16(port.lid);
    record.dlid = htobe16(identity.peer.lid);
    record.pkey = htobe16(0xffff);
    record.reversible = 1;
    record.hop_limit = port.is_ethernet ? 64 : 0;
    record.traffic_class = identity.type_of_service;
    record.numb_path = 1;
    record.mtu_selector = record.rate_selector = record.packet_life_time_selector = kExactly;
    record.mtu = port.mtu;
    record.rate = kPathRate;
    record.packet_life_time = kPathLifetime;
    return record;
}

/// The same as the subnet administrator would send it.
std::array<std::uint32_t, 16> packed(const Identity& identity, const ib_user_path_rec& record) {
    std::array<std::uint8_t, 64> bytes{};
    const std::uint64_t service = htobe64(identity.service_id);
    std::memcpy(&bytes[0], &service, sizeof service);
    std::memcpy(&bytes[8], record.dgid, 16);
    std::memcpy(&bytes[24], record.sgid, 16);
    std::memcpy(&bytes[40], &record.dlid, 2);
    std::memcpy(&bytes[42], &record.slid, 2);
    bytes[47] = record.hop_limit;
    bytes[48] = record.traffic_class;
    bytes[49] = 0x80 | 1;  // reversible, one path
    std::memcpy(&bytes[50], &record.pkey, 2);
    bytes[54] = static_cast<std::uint8_t>(unsigned{record.mtu_selector} << 6 | record.mtu);
    bytes[55] = static_cast<std::uint8_t>(record.rate_selector << 6 | record.rate);
    bytes[56] =
        static_cast<std::uint8_t>(record.packet_life_time_selector << 6 | record.packet_life_time);
    std::array<std::uint32_t, 16> words;
    std::memcpy(words.data(), bytes.data(), sizeof words);
    return words;
}

bool has_path(const Identity& identity) {
    return identity.state >= State::kRouted;
}

}  // namespace

int Channel::query_route(const Command& call) {
    rdma_ucm_query in;
    rdma_ucm_query_route_resp out{};
    if (call.out_bytes < offsetof(rdma_ucm_query_route_resp, ibdev_index))
        return ENOSPC;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    Identity* identity = nullptr;
    if (const int error = find(in.id, &identity); error != 0)
        return error;
    put_address(identity->source, &out.src_addr);
    put_address(identity->destination, &out.dst_addr);
    if (identity->has_device) {
        out.node_guid = htobe64(manager_.network().port().guid);
        out.port_num = 1;
        out.ibdev_index = kAnyIndex;
        out.num_paths = has_path(*identity) ? 1 : 0;
        out.ib_route[0] = path_record(manager_, *identity);
    }
    return write_user({in.response, call.out_bytes}, out);
}

namespace {

rdma_ucm_query_addr_resp device_response(const Manager& manager, const Identity& identity) {
    rdma_ucm_query_addr_resp out{};
    if (identity.has_device) {
        out.node_guid = htobe64(manager.network().port().guid);
        out.port_num = 1;
        out.pkey = htobe16(0xffff);
        out.ibdev_index = kAnyIndex;
    }
    return out;
}

rdma_ucm_query_addr_resp address_response(const Manager& manager, const Identity& identity) {
    rdma_ucm_query_addr_resp out = device_response(manager, identity);
    out.src_size = static_cast<std::uint16_t>(identity.source.bytes());
    out.dst_size = static_cast<std::uint16_t>(identity.destination.bytes());
    put_address(identity.source, &out.src_addr);
    put_address(identity.destination, &out.dst_addr);
    return out;
}

rdma_ucm_query_addr_resp gid_response(const Manager& manager, const Identity& identity) {
    rdma_ucm_query_addr_resp out = device_response(manager, identity);
    const auto address_of = [&](const Address& from, const ibv_gid& gid) {
        if (from.family() == AF_IB)
            return from;
        SockaddrIb address{};
        address.sib_family = AF_IB;
        address.sib_pkey = out.pkey;
        if (identity.has_device)
            std::memcpy(&address.sib_addr, &gid, sizeof gid);
        address.sib_sid = htobe64(service_of(identity, from));
        return Address::of(address);
    };
    out.src_size = out.dst_size = sizeof(SockaddrIb);
    put_address(address_of(identity.source, manager.network().port().gid), &out.src_addr);
    put_address(address_of(identity.destination, identity.peer.gid), &out.dst_addr);
    return out;
}

}  // namespace

int Channel::query(const Command& call) {
    rdma_ucm_query in;
    if (read_user(call.in, &in) != 0)
        return EFAULT;
    Identity* identity = nullptr;
    if (const int error = find(in.id, &identity); error != 0)
        return error;
    const UserSpan to{in.response, call.out_bytes};
    if (in.option == RDMA_USER_CM_QUERY_PATH) {
        struct {
            std::uint32_t num_paths, reserved;  // rdma_ucm_query_path_resp
            ib_path_rec_data path;
        } out{};
        constexpr std::size_t kHeadBytes = sizeof(rdma_ucm_query_path_resp);
        static_assert(sizeof out == kHeadBytes + sizeof out.path);
        if (call.out_bytes < kHeadBytes)
            return ENOSPC;
        out.num_paths = has_path(*identity) ? 1 : 0;
        out.path.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
        const auto words = packed(*identity, path_record(manager_, *identity));
        std::copy(words.begin(), words.end(), std::begin(out.path.path_rec));
        const bool fits = has_path(*identity) && call.out_bytes >= sizeof out;
        return write_user({in.response, fits ? sizeof out : kHeadBytes}, out);
    }
    if (in.option != RDMA_USER_CM_QUERY_ADDR && in.option != RDMA_USER_CM_QUERY_GID)
        return ENOSYS;
    if (call.out_bytes < offsetof(rdma_ucm_query_addr_resp, ibdev_index))
        return ENOSPC;
    return write_user(to, in.option == RDMA_USER_CM_QUERY_ADDR
                              ? address_response(manager_, *identity)
                              : gid_response(manager_, *identity));
}

}  // namespace tagwire::vhca::cm
