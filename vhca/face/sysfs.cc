// SPDX-License-Identifier: BSD-3-Clause
// The files that programs look for under /sys/class/infiniband: generated for virtual devices, read
// from the system for others. librdmacm asks for the ABI version of rdma_cm.
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca {
namespace {

std::string guid_text(std::uint64_t guid) {
    std::array<char, 20> out{};
    std::snprintf(out.data(), out.size(), "%04x:%04x:%04x:%04x",
                  static_cast<unsigned>(guid >> 48 & 0xffff),
                  static_cast<unsigned>(guid >> 32 & 0xffff),
                  static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
    return out.data();
}

// Files of the port and its one GID.
std::string port_file(unsigned device, std::string_view name) {
    constexpr std::string_view kPort = "ports/1/";
    Engine* engine = nullptr;
    if (!name.starts_with(kPort) || attach_engine(device, &engine) != 0)
        return {};
    name.remove_prefix(kPort.size());
    if (name == "link_layer")
        return engine->port().is_ethernet() ? "Ethernet" : "InfiniBand";
    if (name == "gid_attrs/types/0")
        return engine->port().is_ethernet() ? "RoCE v2" : "IB/RoCE v1";
    if (name == "gid_attrs/ndevs/0" && engine->port().interface() != nullptr)
        return engine->port().interface()->name;
    return {};
}

// Empty: no such file.
std::string our_file(unsigned device, std::string_view name) {
    if (name == "node_type")
        return "1: CA";
    if (name == "node_guid" || name == "sys_image_guid")
        return guid_text(device_guid(device));
    if (name == "fw_ver")
        return tagwire_vhca_version();
    if (name == "board_id")
        return hardware_profile().board_id;
    if (name == "hca_type")
        return hardware_profile().hca_type;
    return port_file(device, name);
}

int copy_out(std::string_view text, char* out, std::size_t out_bytes) {
    if (out_bytes == 0) {
        errno = EINVAL;
        return -1;
    }
    const std::size_t bytes = std::min(text.size(), out_bytes - 1);
    std::memcpy(out, text.data(), bytes);
    out[bytes] = '\0';
    return static_cast<int>(bytes);
}

int read_file(const std::string& path, char* out, std::size_t out_bytes) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    const ssize_t got = read(fd, out, out_bytes);
    close(fd);
    if (got <= 0)
        return -1;
    const auto bytes = static_cast<std::size_t>(got);
    if (out[bytes - 1] == '\n') {
        out[bytes - 1] = '\0';
        return static_cast<int>(got - 1);
    }
    if (bytes < out_bytes) {
        out[bytes] = '\0';
        return static_cast<int>(got);
    }
    return -1;  // no room for the end
}

}  // namespace
}  // namespace tagwire::vhca

using namespace tagwire::vhca;

const char* tagwire_vhca_ibv_get_sysfs_path(void) {
    return "/sys";
}

int tagwire_vhca_ibv_read_sysfs_file(const char* directory, const char* file, char* out,
                                     std::size_t out_bytes) {
    if (std::string_view(file) == "class/misc/rdma_cm/abi_version")
        return copy_out(std::to_string(RDMA_USER_CM_ABI_VERSION), out, out_bytes);
    unsigned device = 0;
    while (device < device_count() && std::string_view(directory) != device_at(device)->ibdev_path)
        ++device;
    if (device == device_count())
        return read_file(std::string(directory) + "/" + file, out, out_bytes);
    const std::string text = our_file(device, file);
    if (text.empty()) {
        errno = ENOENT;
        return -1;
    }
    return copy_out(text, out, out_bytes);
}
