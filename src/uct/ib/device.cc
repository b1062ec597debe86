// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/device.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "ucs/log/log.hpp"

namespace tagwire::ib {

namespace {

constexpr std::uint16_t kPkeyFullMember = 0x8000;
constexpr int kGidsMax = 256;  // an address vector has 8 bits for the index

bool is_ipv4(const ibv_gid& gid) {
    constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0;
}

bool is_link_local(const ibv_gid& gid) {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

bool is_zero(const ibv_gid& gid) {
    return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
}

// Preference of a GID on Ethernet, the highest is taken; 0: not usable.
int rank_of(const ibv_gid_entry& entry) {
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || is_zero(entry.gid))
        return 0;
    if (is_ipv4(entry.gid))
        return 3;
    return is_link_local(entry.gid) ? 1 : 2;
}

int gid_count(const Port& port) {
    return std::min(port.attr.gid_tbl_len, kGidsMax);
}

bool is_roce_v1(const VerbsTable& verbs, ibv_context* context, const Port& port) {
    ibv_gid_entry entry{};
    const int error = verbs.query_gid_ex(
        context, port.number, static_cast<std::uint32_t>(port.gid_index), &entry, 0, sizeof entry);
    return error == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V1;
}

int choose_gid(const VerbsTable& verbs, ibv_context* context, const Port& port) {
    int best = 0;
    int best_rank = 0;
    for (int index = 0; port.is_ethernet && index < gid_count(port); ++index) {
        ibv_gid_entry entry{};
        const int error = verbs.query_gid_ex(
            context, port.number, static_cast<std::uint32_t>(index), &entry, 0, sizeof entry);
        if (error == 0 && rank_of(entry) > best_rank) {
            best = index;
            best_rank = rank_of(entry);
        }
    }
    return best;
}

// A full member's entry before a limited member's, since limited members do not hear one another;
// of equal ones the first. No member at all is left to the default, the first entry.
bool choose_pkey(const VerbsTable& verbs, ibv_context* context, int wanted, Port* port) {
    bool has_one = false;
    for (int index = 0; index < port->attr.pkey_tbl_len; ++index) {
        __be16 entry = 0;
        if (verbs.query_pkey(context, port->number, index, &entry) != 0)
            continue;
        const std::uint16_t pkey = be16toh(entry);
        const bool is_full = (pkey & kPkeyFullMember) != 0;
        const bool is_fit = wanted == -1 ? is_full : (pkey & ~kPkeyFullMember) == wanted;
        if (!is_fit || (has_one && !is_full))
            continue;
        port->pkey_index = static_cast<std::uint16_t>(index);
        port->pkey = pkey;
        if (is_full)
            return true;
        has_one = true;
    }
    return has_one || wanted == -1;
}

// Partitions as TAGWIRE_IB_PKEY names them.
std::string partitions_of(const VerbsTable& verbs, ibv_context* context, const Port& port) {
    std::string list;
    for (int index = 0; index < port.attr.pkey_tbl_len; ++index) {
        __be16 entry = 0;
        const bool is_read = verbs.query_pkey(context, port.number, index, &entry) == 0;
        const int partition = be16toh(entry) & ~kPkeyFullMember;
        if (is_read && partition != 0)
            list += fmt::format("{}{:#06x}", list.empty() ? "" : ", ", partition);
    }
    return list.empty() ? "none" : list;
}

const char* state_text(ibv_port_state state) {
    switch (state) {
        case IBV_PORT_INIT:
        case IBV_PORT_ARMED:
            return "is not active yet (is a subnet manager running?)";
        case IBV_PORT_ACTIVE_DEFER:
            return "is losing its link";
        default:
            return "is down";
    }
}

}  // namespace

ucs_status_t Device::port(std::uint8_t number, const PortChoice& choice, Port* port_p,
                          std::string* problem_p) const {
    const int gid_index = choice.gid_index;
    const std::string name = "port " + std::to_string(number);
    const auto answer = [&](ucs_status_t status, const std::string& problem) {
        if (problem_p != nullptr)
            *problem_p = name + " " + problem;
        return status;
    };
    Port port;
    port.number = number;
    if (number == 0 || number > port_count())
        return answer(UCS_ERR_NO_DEVICE,
                      "does not exist: there are " + std::to_string(port_count()));
    if (const int error = verbs().query_port_attr(context_, number, &port.attr); error != 0)
        return answer(UCS_ERR_NO_DEVICE, std::string("cannot be queried: ") + std::strerror(error));
    if (port.attr.state != IBV_PORT_ACTIVE)
        return answer(UCS_ERR_UNREACHABLE, state_text(port.attr.state));
    if (gid_index >= gid_count(port))
        return answer(UCS_ERR_INVALID_PARAM, "has no GID " + std::to_string(gid_index) +
                                                 ", only 0 to " +
                                                 std::to_string(gid_count(port) - 1));
    port.is_ethernet = port.attr.link_layer == IBV_LINK_LAYER_ETHERNET;
    port.gid_index = gid_index >= 0 ? gid_index : choose_gid(verbs(), context_, port);
    if (verbs().query_gid(context_, number, port.gid_index, &port.gid) != 0 || is_zero(port.gid)) {
        return answer(UCS_ERR_UNREACHABLE,
                      "has an empty GID " + std::to_string(port.gid_index) +
                          (port.is_ethernet ? " (give its network interface an address)" : ""));
    }
    port.is_roce_v1 = port.is_ethernet && is_roce_v1(verbs(), context_, port);
    if (!choose_pkey(verbs(), context_, choice.pkey, &port)) {
        return answer(UCS_ERR_UNREACHABLE,
                      fmt::format("is no member of partition {:#06x}; its partitions: {}",
                                  choice.pkey, partitions_of(verbs(), context_, port)));
    }
    *port_p = port;
    return UCS_OK;
}

int Device::index_of_gid(const Port& port) const {
    const auto holds = [&](int index) {
        ibv_gid_entry entry{};
        const int error = verbs().query_gid_ex(
            context_, port.number, static_cast<std::uint32_t>(index), &entry, 0, sizeof entry);
        const bool is_roce_v1 = port.is_ethernet && entry.gid_type == IBV_GID_TYPE_ROCE_V1;
        return error == 0 && is_roce_v1 == port.is_roce_v1 &&
               std::memcmp(entry.gid.raw, port.gid.raw, sizeof port.gid.raw) == 0;
    };
    if (holds(port.gid_index))
        return port.gid_index;
    for (int index = 0; index < gid_count(port); ++index)
        if (holds(index))
            return index;
    return -1;
}

Device::Device(const ListedDevice& listed, ibv_context* context)
    : name_(listed.name),
      library_(listed.library),
      context_(context),
      numa_node_(listed.numa_node) {}

Device::~Device() {
    if (verbs().close_device(context_) != 0)
        TW_LOG_WARN("%s: ibv_close_device failed: %s", name_.c_str(), std::strerror(errno));
}

ucs_status_t Device::open(const ListedDevice& listed, ibv_device* device,
                          std::unique_ptr<Device>* device_p, std::string* problem_p) {
    errno = 0;
    ibv_context* context = listed.library->verbs.open_device(device);
    if (context == nullptr) {
        const int error = errno;
        *problem_p = std::string("cannot be opened: ") + std::strerror(error);
        if (error == EACCES || error == EPERM)
            *problem_p += std::string(" (is /dev/infiniband/") + device->dev_name + " accessible?)";
        return UCS_ERR_NO_DEVICE;
    }
    std::unique_ptr<Device> opened(new Device(listed, context));
    if (const int error = opened->verbs().query_device_attr(context, &opened->attr_); error != 0) {
        *problem_p = std::string("cannot be queried: ") + std::strerror(error);
        return UCS_ERR_NO_DEVICE;
    }
    *device_p = std::move(opened);
    return UCS_OK;
}

ucs_status_t call_failed(const Device& device, const char* call, int error) {
    TW_LOG_ERROR("%s: %s failed: %s", device.name().c_str(), call, std::strerror(error));
    return error == ENOMEM ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR;
}

}  // namespace tagwire::ib
