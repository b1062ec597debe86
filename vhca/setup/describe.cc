// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/setup/describe.hpp"

#include <endian.h>
#include <tagwire_version.h>

#include <algorithm>
#include <cstring>

#include "vhca/core/tm_header.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca {
namespace {

int to_int(std::uint32_t value) {
    return static_cast<int>(std::min<std::uint32_t>(value, INT32_MAX));
}

void fill_limits(const DeviceConfig& config, ibv_device_attr* attr) {
    attr->max_qp = to_int(config.qp_max);
    attr->max_qp_wr = to_int(config.qp_wr_max);
    attr->max_sge = to_int(config.sge_max);
    attr->max_sge_rd = to_int(config.sge_max);
    attr->max_cq = 1 << 24;
    attr->max_cqe = to_int(config.cqe_max);
    attr->max_mr = 1 << 24;
    attr->max_pd = 1 << 24;
    attr->max_ah = INT32_MAX;
    attr->max_qp_rd_atom = config.rd_atom_max;
    attr->max_qp_init_rd_atom = config.rd_atom_max;
    attr->max_res_rd_atom = to_int(config.qp_max * config.rd_atom_max);
    attr->max_srq = to_int(config.qp_max);
    attr->max_srq_wr = to_int(config.srq_wr_max);
    attr->max_srq_sge = to_int(config.srq_sge_max);
}

}  // namespace

void describe_device(const DeviceConfig& config, ibv_device_attr* attr) {
    *attr = {};
    std::strncpy(attr->fw_ver, TAGWIRE_VERSION_STRING, sizeof attr->fw_ver - 1);
    attr->node_guid = htobe64(config.guid);
    attr->sys_image_guid = htobe64(config.guid);
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = ~std::uint64_t{0xfff};
    attr->vendor_id = hardware_profile().vendor_id;
    attr->vendor_part_id = hardware_profile().vendor_part_id;
    attr->device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR |
                             IBV_DEVICE_CHANGE_PHY_PORT | IBV_DEVICE_PORT_ACTIVE_EVENT |
                             IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                             IBV_DEVICE_SRQ_RESIZE;
    attr->atomic_cap = config.has_atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
    attr->max_pkeys = kPkeyTableEntries;
    attr->local_ca_ack_delay = 16;
    attr->phys_port_cnt = config.ports;
    fill_limits(config, attr);
}

ibv_tm_caps tm_caps_of(const DeviceConfig& config) {
    if (config.tm_tags_max == 0)
        return {};
    return {.max_rndv_hdr_size = kRendezvousBytesMax,
            .max_num_tags = config.tm_tags_max,
            .flags = IBV_TM_CAP_RC,
            .max_ops = config.qp_wr_max,
            .max_sge = 1};
}

void describe_port(Engine& engine, unsigned port, ibv_port_attr* attr) {
    *attr = {};
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = IBV_MTU_4096;
    attr->active_mtu = engine.device().config().active_mtu;
    attr->gid_tbl_len = engine.device().config().gids;
    attr->port_cap_flags = 0;
    attr->max_msg_sz = engine.device().config().message_bytes_max;
    attr->pkey_tbl_len = kPkeyTableEntries;
    attr->lid = engine.port().is_ethernet() ? std::uint16_t{0} : engine.port().lid();
    attr->sm_lid = 1;
    attr->max_vl_num = 1;
    attr->subnet_timeout = 18;
    attr->active_width = 2;   // 4X
    attr->active_speed = 32;  // EDR
    attr->phys_state = 5;     // LinkUp
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    if (engine.port().is_ethernet()) {  // as RoCE cards say it
        attr->link_layer = IBV_LINK_LAYER_ETHERNET;
        attr->flags = IBV_QPF_GRH_REQUIRED;
        attr->sm_lid = 0;
        attr->subnet_timeout = 0;
    }
    if (port != 1 || !engine.device().is_link_up()) {
        attr->state = IBV_PORT_DOWN;
        attr->phys_state = 2;  // Polling
        if (port != 1)
            attr->lid = attr->sm_lid = 0;
    }
}

bool is_port(Engine& engine, unsigned port) {
    return port >= 1 && port <= engine.device().config().ports;
}

bool is_path(Engine& engine, const ibv_ah_attr& attr) {
    constexpr unsigned kServiceLevels = 16;
    // Values of enum ibv_rate: 0 is the port's own, 1 is none, and there is none beyond the last.
    constexpr unsigned kRateMin = IBV_RATE_2_5_GBPS, kRateMax = IBV_RATE_1200_GBPS;
    const bool is_rate =
        attr.static_rate == 0 || (attr.static_rate >= kRateMin && attr.static_rate <= kRateMax);
    if (attr.sl >= kServiceLevels || !is_rate)
        return false;
    // The only entry of the GID table that holds a GID is the first.
    return attr.is_global == 0 ? !engine.port().is_ethernet() : attr.grh.sgid_index == 0;
}

}  // namespace tagwire::vhca
