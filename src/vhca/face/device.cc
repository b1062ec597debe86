// SPDX-License-Identifier: BSD-3-Clause
// The list of devices, and what a device says of itself.
#include <tagwire_version.h>

#include <endian.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "vhca/core/tm_header.hpp"
#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/face/sink.hpp"
#include "vhca/setup/look.hpp"

namespace tagwire::vhca {
namespace {

// Real libmlx5 looks at what libibverbs keeps behind the public part; zeros mean "not mine".
struct ListedDevice {
    ibv_device device;
    std::byte behind[1024];
};

using ListedDevices = std::array<ListedDevice, Engine::kMax>;

template <std::size_t n>
void put(char (&out)[n], const char* before, unsigned index) {
    std::snprintf(out, n, "%svhca%u", before, index);
}

ListedDevices make_devices() {
    ListedDevices all{};
    for (unsigned i = 0; i < all.size(); ++i) {
        ibv_device& device = all[i].device;
        device.node_type = IBV_NODE_CA;
        device.transport_type = IBV_TRANSPORT_IB;
        put(device.name, "", i);
        put(device.dev_name, "tagwire-", i);
        put(device.dev_path, "/sys/class/infiniband_verbs/tagwire-", i);
        put(device.ibdev_path, "/sys/class/infiniband/", i);
    }
    return all;
}

ListedDevices& devices() {
    static ListedDevices listed = make_devices();
    return listed;
}

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

void fill_device(const DeviceConfig& config, ibv_device_attr* attr) {
    *attr = {};
    std::strncpy(attr->fw_ver, TAGWIRE_VERSION_STRING, sizeof attr->fw_ver - 1);
    attr->node_guid = htobe64(config.guid);
    attr->sys_image_guid = htobe64(config.guid);
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = ~std::uint64_t{0xfff};
    attr->vendor_id = look().vendor_id;
    attr->vendor_part_id = look().vendor_part_id;
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

void fill_tm_caps(const DeviceConfig& config, ibv_tm_caps* caps) {
    if (config.tm_tags_max != 0) {
        *caps = {.max_rndv_hdr_size = kRendezvousBytesMax,
                 .max_num_tags = config.tm_tags_max,
                 .flags = IBV_TM_CAP_RC,
                 .max_ops = config.qp_wr_max,
                 .max_sge = 1};
    }
}

}  // namespace

int attach_engine(unsigned index, Engine** engine_p) {
    return attach_engine(index, face_sink(), nullptr, engine_p);
}

std::uint64_t device_guid(unsigned index) {
    Engine* engine = nullptr;
    return attach_engine(index, &engine) == 0 ? engine->guid() : guid_without_engine();
}

ibv_device* device_at(unsigned index) {
    return &devices()[index].device;
}

std::optional<unsigned> index_of(const ibv_device* device) {
    for (unsigned i = 0; i < device_count(); ++i) {
        if (device == device_at(i)) {
            return i;
        }
    }
    return std::nullopt;
}

int query_device_ex_op(ibv_context* context, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, std::size_t bytes) {
    if (input != nullptr && input->comp_mask != 0) {
        return EINVAL;
    }
    if (bytes < sizeof(ibv_device_attr)) {
        return EINVAL;
    }
    ibv_device_attr_ex full{};
    fill_device(face(context).engine->device().config(), &full.orig_attr);
    if (look().has_timestamps) {
        full.completion_timestamp_mask = UINT64_MAX;
        full.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
    }
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
    fill_tm_caps(face(context).engine->device().config(), &full.tm_caps);
    std::memset(attr, 0, bytes);
    std::memcpy(attr, &full, std::min(bytes, sizeof full));
    return 0;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_device** tagwire_vhca_ibv_get_device_list(int* count_p) {
    const unsigned count = device_count();
    auto** list = static_cast<ibv_device**>(std::calloc(count + 1, sizeof(void*)));
    if (list == nullptr) {
        return fail(ENOMEM);
    }
    for (unsigned i = 0; i < count; ++i) {
        list[i] = device_at(i);
    }
    if (count_p != nullptr) {
        *count_p = static_cast<int>(count);
    }
    return list;
}

void tagwire_vhca_ibv_free_device_list(ibv_device** list) {
    std::free(list);
}

const char* tagwire_vhca_ibv_get_device_name(ibv_device* device) {
    return device->name;
}

int tagwire_vhca_ibv_get_device_index(ibv_device* device) {
    return static_cast<int>(index_of(device).value_or(0));
}

__be64 tagwire_vhca_ibv_get_device_guid(ibv_device* device) {
    return htobe64(device_guid(index_of(device).value_or(0)));
}

int tagwire_vhca_ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    fill_device(face(context).engine->device().config(), attr);
    return 0;
}

const char* tagwire_vhca_version(void) {
    return TAGWIRE_VERSION_STRING;
}
