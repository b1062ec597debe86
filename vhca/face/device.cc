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

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/face/sink.hpp"
#include "vhca/setup/describe.hpp"
#include "vhca/setup/hardware_profile.hpp"

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

}  // namespace

int attach_engine(unsigned index, Engine** engine_p) {
    return attach_engine(index, face_sink(), nullptr, engine_p);
}

std::uint64_t device_guid(unsigned index) {
    Engine* engine = nullptr;
    return attach_engine(index, &engine) == 0 ? engine->port().guid() : guid_without_engine();
}

ibv_device* device_at(unsigned index) {
    return &devices()[index].device;
}

std::optional<unsigned> index_of(const ibv_device* device) {
    for (unsigned i = 0; i < device_count(); ++i)
        if (device == device_at(i))
            return i;
    return std::nullopt;
}

int query_device_ex_op(ibv_context* context, const ibv_query_device_ex_input* input,
                       ibv_device_attr_ex* attr, std::size_t bytes) {
    if (input != nullptr && input->comp_mask != 0)
        return EINVAL;
    if (bytes < sizeof(ibv_device_attr))
        return EINVAL;
    ibv_device_attr_ex full{};
    describe_device(face(context).engine->device().config(), &full.orig_attr);
    if (hardware_profile().has_timestamps) {
        full.completion_timestamp_mask = UINT64_MAX;
        full.hca_core_clock = 1'000'000;  // kHz: timestamps are nanoseconds
    }
    full.device_cap_flags_ex = full.orig_attr.device_cap_flags;
    full.phys_port_cnt_ex = full.orig_attr.phys_port_cnt;
    full.tm_caps = tm_caps_of(face(context).engine->device().config());
    std::memset(attr, 0, bytes);
    std::memcpy(attr, &full, std::min(bytes, sizeof full));
    return 0;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_device** tagwire_vhca_ibv_get_device_list(int* count_p) {
    const unsigned count = device_count();
    auto** list = static_cast<ibv_device**>(std::calloc(count + 1, sizeof(void*)));
    if (list == nullptr)
        return fail(ENOMEM);
    for (unsigned i = 0; i < count; ++i)
        list[i] = device_at(i);
    if (count_p != nullptr)
        *count_p = static_cast<int>(count);
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
    describe_device(face(context).engine->device().config(), attr);
    return 0;
}

const char* tagwire_vhca_version(void) {
    return TAGWIRE_VERSION_STRING;
}
