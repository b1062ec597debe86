// SPDX-License-Identifier: BSD-3-Clause
// The devices' files of /sys. Their text is the kernel's, so that readers of a real card's files
// can read these.
#include <tagwire_version.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>

#include "ucs/log/log.hpp"
#include "ucs/sys/fd.hpp"
#include "vhca/driver/kernel.hpp"
#include "vhca/driver/tree.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr unsigned kPciVendor = 0x15b3;

template <typename... Args>
std::string text(const char* format, Args... args) {
    std::array<char, 256> out{};
    std::snprintf(out.data(), out.size(), format, args...);
    return out.data();
}

std::string copy_of(const char* path) {
    const ucs::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
    std::array<char, 4096> bytes{};
    const ssize_t got = fd ? ::read(fd.get(), bytes.data(), bytes.size()) : 0;
    std::string read(bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!read.empty() && read.back() == '\n')
        read.pop_back();
    return read;
}

/// Makes files; the first error stays.
class Writer {
  public:
    explicit Writer(std::string root) : root_(std::move(root)) {}
    [[nodiscard]] int error() const { return error_; }

    void folder(const std::string& path) {
        for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
            const std::string part = root_ + path.substr(0, end);
            if (::mkdir(part.c_str(), 0755) != 0)
                note(errno == EEXIST ? 0 : errno);
            if (end == std::string::npos)
                return;
        }
    }
    /// A line is added to `contents` as its end.
    void file(const std::string& path, const std::string& contents) {
        const ucs::UniqueFd fd(::open((root_ + path).c_str(),
                                      O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444));
        const std::string line = contents + "\n";
        if (!fd || ::write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
            note(errno);
    }
    void link(const std::string& path, const std::string& to) {
        if (::symlink(to.c_str(), (root_ + path).c_str()) != 0)
            note(errno);
    }

  private:
    void note(int error) { error_ = error_ == 0 ? error : error_; }
    std::string root_;
    int error_ = 0;
};

std::string guid_text(std::uint64_t guid) {
    return text("%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48 & 0xffff),
                static_cast<unsigned>(guid >> 32 & 0xffff),
                static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
}

std::string gid_text(const ibv_gid& gid) {
    std::string all;
    for (unsigned i = 0; i < sizeof gid.raw; i += 2)
        all += text("%s%02x%02x", i == 0 ? "" : ":", gid.raw[i], gid.raw[i + 1]);
    return all;
}

// Every index below the length of the table can be read; only the first entry of the first port
// holds.
void write_gids(Writer& writer, const std::string& port_path, unsigned port, Engine& engine) {
    writer.folder(port_path + "/gids");
    writer.folder(port_path + "/gid_attrs/types");
    writer.folder(port_path + "/gid_attrs/ndevs");
    for (unsigned i = 0; i < engine.device().config().gids; ++i) {
        const bool holds = port == 1 && i == 0;
        const std::string index = "/" + std::to_string(i);
        writer.file(port_path + "/gids" + index, gid_text(holds ? engine.port().gid() : ibv_gid{}));
        writer.file(port_path + "/gid_attrs/types" + index,
                    holds && engine.port().is_ethernet() ? "RoCE v2" : "IB/RoCE v1");
        if (holds && engine.port().interface() != nullptr)
            writer.file(port_path + "/gid_attrs/ndevs" + index, engine.port().interface()->name);
    }
}

void write_port(Writer& writer, const std::string& path, unsigned port, Engine& engine) {
    const bool is_up = port == 1;
    writer.folder(path + "/pkeys");
    writer.file(path + "/link_layer", engine.port().is_ethernet() ? "Ethernet" : "InfiniBand");
    writer.file(path + "/state", is_up ? "4: ACTIVE" : "1: DOWN");
    writer.file(path + "/phys_state", is_up ? "5: LinkUp" : "2: Polling");
    writer.file(path + "/rate", "100 Gb/sec (4X EDR)");
    writer.file(
        path + "/lid",
        text("0x%x", is_up && !engine.port().is_ethernet() ? unsigned{engine.port().lid()} : 0U));
    writer.file(path + "/lid_mask_count", "0");
    writer.file(path + "/sm_lid", is_up && !engine.port().is_ethernet() ? "0x1" : "0x0");
    writer.file(path + "/sm_sl", "0");
    writer.file(path + "/cap_mask", "0x00000000");
    for (unsigned i = 0; i < kPkeyTableEntries; ++i) {
        writer.file(path + "/pkeys/" + std::to_string(i),
                    text("0x%04x", unsigned{kDefaultPkeyEntry}));
    }
    write_gids(writer, path, port, engine);
}

void write_pci(Writer& writer, const std::string& path) {
    const unsigned part = hardware_profile().vendor_part_id;
    writer.folder(path);
    writer.file(path + "/vendor", text("0x%04x", kPciVendor));
    writer.file(path + "/device", text("0x%04x", part));
    writer.file(path + "/subsystem_vendor", text("0x%04x", kPciVendor));
    writer.file(path + "/subsystem_device", "0x0001");
    writer.file(path + "/class", "0x020700");
    writer.file(path + "/revision", "0x00");
    writer.file(path + "/modalias",
                text("pci:v%08Xd%08Xsv%08Xsd00000001bc02sc07i00", kPciVendor, part, kPciVendor));
    for (const char* which : {"current", "max"}) {
        writer.file(path + "/" + which + "_link_width", "16");
        writer.file(path + "/" + which + "_link_speed", "16.0 GT/s PCIe");
    }
    writer.file(path + "/numa_node", "-1");
    writer.file(path + "/local_cpulist", copy_of("/sys/devices/system/cpu/online"));
    const std::string cpus = copy_of("/sys/devices/system/node/node0/cpumap");
    if (!cpus.empty())
        writer.file(path + "/local_cpus", cpus);
    writer.file(path + "/uevent", text("DRIVER=mlx5_core\nPCI_ID=%04X:%04X", kPciVendor, part));
}

void write_device(Writer& writer, const std::string& path, unsigned index, Engine* engine) {
    writer.folder(path + "/ports");
    const std::string guid =
        guid_text(engine != nullptr ? engine->port().guid() : guid_without_engine());
    writer.file(path + "/node_type", "1: CA");
    writer.file(path + "/node_guid", guid);
    writer.file(path + "/sys_image_guid", guid);
    writer.file(path + "/node_desc", text("vhca%u tagwire", index));
    writer.file(path + "/fw_ver", TAGWIRE_VERSION_STRING);
    writer.file(path + "/board_id", hardware_profile().board_id);
    writer.file(path + "/hca_type", hardware_profile().hca_type);
    writer.file(path + "/hw_rev", "0");
    writer.file(path + "/uevent", text("NAME=vhca%u", index));
    for (unsigned port = 1; engine != nullptr && port <= engine->device().config().ports; ++port) {
        const std::string port_path = path + "/ports/" + std::to_string(port);
        writer.folder(port_path);
        write_port(writer, port_path, port, *engine);
    }
}

void write_verbs(Writer& writer, const std::string& path, unsigned index) {
    const dev_t number =
        files::device_number_of({.kind = DeviceNode::Kind::kUverbs, .index = index});
    writer.folder(path);
    writer.file(path + "/ibdev", text("vhca%u", index));
    writer.file(path + "/abi_version", "1");  // of mlx5
    writer.file(path + "/dev", text("%u:%u", major(number), minor(number)));
    writer.file(path + "/uevent", text("MAJOR=%u\nMINOR=%u\nDEVNAME=infiniband/uverbs%u",
                                       major(number), minor(number), index));
}

void write_all(Writer& writer, unsigned index, Engine* engine) {
    const std::string function = text("7477:00:00.%u", index);
    const std::string pci = "/devices/pci7477:00/" + function;
    const std::string device = text("/infiniband/vhca%u", index);
    const std::string verbs = text("/infiniband_verbs/uverbs%u", index);
    write_pci(writer, pci);
    write_device(writer, pci + device, index, engine);
    write_verbs(writer, pci + verbs, index);
    for (const std::string& one : {device, verbs}) {
        const std::string name = one.substr(1, one.find('/', 1) - 1);
        writer.link(pci + one + "/device", "../../../" + function);
        writer.link(pci + one + "/subsystem", "../../../../../class/" + name);
        writer.link("/class" + one, "../.." + pci + one);
    }
    writer.link("/bus/pci/devices/" + function, "../../.." + pci);
    writer.file(text("/dev/infiniband/uverbs%u", index), "");
}

}  // namespace

unsigned driver_device_count() {
    static const unsigned count = [] {
        if (!hardware_profile().is_mlx5) {
            TW_LOG_ERROR(
                "virtual HCA: TAGWIRE_VHCA_PROFILE is '%s', which is not an mlx5 device: the "
                "driver "
                "face needs one and shows no device",
                hardware_profile().name);
            return 0U;
        }
        return device_count();
    }();
    return count;
}

std::vector<Engine*> engines_of_tree() {
    std::vector<Engine*> engines(driver_device_count());
    for (unsigned index = 0; index < engines.size(); ++index)
        if (const int error = attach_driver(index, &engines[index]))
            TW_LOG_DEBUG("virtual HCA: vhca%u has no engine, errno %d", index, error);
    return engines;
}

int fill_tree(const std::string& root, std::span<Engine* const> engines) {
    Writer writer(root);
    for (const char* path :
         {"/class/infiniband", "/class/infiniband_verbs", "/bus/pci/devices", "/dev/infiniband"}) {
        writer.folder(path);
    }
    writer.file("/class/infiniband_verbs/abi_version", "6");
    for (unsigned i = 0; i < engines.size(); ++i)
        write_all(writer, i, engines[i]);
    return writer.error();
}

}  // namespace tagwire::vhca::driver
