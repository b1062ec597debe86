// SPDX-License-Identifier: BSD-3-Clause
// RDMA devices: those that the libraries list, and one that was opened.
//
// Threads: listing from any thread; an opened device belongs to its memory domain.
#pragma once

#include <infiniband/verbs.h>
#include <ucs/type/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "uct/ib/verbs.hpp"

namespace tagwire::ib {

/// A device that a library lists, usable or not.
struct ListedDevice {
    std::string name;  // "mlx5_0", "rxe0", "vhca0"
    const VerbsLibrary* library;
    std::string problem;  // why it cannot be used; empty when it can
    bool is_admitted;     // by TAGWIRE_IB_DEVICES
    int numa_node;        // -1 when unknown
};

/// All devices of both libraries, nearest to this process' CPUs first; those of the virtual HCA
/// come last. Opens and closes those that TAGWIRE_IB_DEVICES admits (no others) to see whether they
/// can be used, once for a device that can; the virtual HCA is not opened.
std::vector<ListedDevice> list_devices();

/// Why a library, though it is used, lists no device; empty when it lists one.
std::string why_empty(const VerbsLibrary& library);

/// As it is listed, without opening it. nullopt: not there or not admitted; `*others_p` gets the
/// names of those that are.
std::optional<ListedDevice> find_device(const std::string& name, std::string* others_p);

/// An active port with the address that we use on it.
struct Port {
    std::uint8_t number = 1;
    ibv_port_attr attr{};
    bool is_ethernet = false;  // RoCE: addressed by GID alone
    bool is_roce_v1 = false;   // of the chosen GID: frames of Ethernet, no IP
    int gid_index = 0;
    ibv_gid gid{};
    std::uint16_t pkey_index = 0;
    std::uint16_t pkey = 0xffff;

    [[nodiscard]] std::uint32_t mtu_bytes() const { return 128U << attr.active_mtu; }
};

/// The entries of a port's tables that were asked for; -1: the best one.
struct PortChoice {
    int gid_index = -1;
    int pkey = -1;  // without the membership bit
};

class Device {
  public:
    /// UCS_ERR_NO_DEVICE: no such device, or it cannot be opened; logged.
    static ucs_status_t open(const std::string& name, std::unique_ptr<Device>* device_p);
    /// As open() above, for a device that its library has listed just now; the caller logs the
    /// problem.
    static ucs_status_t open(const ListedDevice& listed, ibv_device* device,
                             std::unique_ptr<Device>* device_p, std::string* problem_p);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const VerbsLibrary& library() const { return *library_; }
    [[nodiscard]] const VerbsTable& verbs() const { return library_->verbs; }
    [[nodiscard]] unsigned port_count() const { return attr_.orig_attr.phys_port_cnt; }
    [[nodiscard]] VerbsOrigin origin() const { return library_->origin; }
    [[nodiscard]] ibv_context* context() const { return context_; }
    [[nodiscard]] const ibv_device_attr_ex& attr() const { return attr_; }
    /// Tag-matching SRQs over RC.
    [[nodiscard]] bool matches_tags() const {
        return attr_.tm_caps.max_num_tags > 0 && (attr_.tm_caps.flags & IBV_TM_CAP_RC) != 0;
    }
    /// The NUMA node it is attached to, -1 when unknown.
    [[nodiscard]] int numa_node() const { return numa_node_; }

    /// The port as it is now, with its GID and its partition chosen. The best GID is RoCE v2 with
    /// an IPv4 address where there is one, else RoCE v2, not link-local rather than so, else entry
    /// 0. The best partition is the first one that the port is a full member of; one that was asked
    /// for may have it as a limited member, which hears full members alone.
    /// UCS_ERR_NO_DEVICE: no such port; UCS_ERR_INVALID_PARAM: no such GID; UCS_ERR_UNREACHABLE: it
    /// is down, or no member of that partition, or the GID is empty.
    /// `problem_p` may be null.
    ucs_status_t port(std::uint8_t number, const PortChoice& choice, Port* port_p,
                      std::string* problem_p) const;
    /// Where the port's table has its GID now; -1: nowhere.
    [[nodiscard]] int index_of_gid(const Port& port) const;

  private:
    Device(const ListedDevice& listed, ibv_context* context);

    std::string name_;
    const VerbsLibrary* library_;
    ibv_context* context_;
    ibv_device_attr_ex attr_{};
    int numa_node_ = -1;
};

/// Logs that a verbs call on the device failed with an errno value: UCS_ERR_NO_MEMORY or
/// UCS_ERR_IO_ERROR.
ucs_status_t call_failed(const Device& device, const char* call, int error);

}  // namespace tagwire::ib
