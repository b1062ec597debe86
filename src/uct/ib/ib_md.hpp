// SPDX-License-Identifier: BSD-3-Clause
// The memory domain of one RDMA device: protection domain, registrations, remote keys.
//
// Threads: as uct::Md; registering and deregistering from several threads at a time is fine, too.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/base_md.hpp"
#include "uct/ib/async_events.hpp"
#include "uct/ib/device.hpp"

namespace tagwire::ib {

struct IbMdOptions;
enum class RelaxedOrdering : int;

/// The object that uct_mem_h points to.
struct Registration : ucs::FromReserve {
    ibv_mr* mr;
    void* mapping;  // what mem_alloc mapped; null for the user's own memory
    std::size_t bytes;
};

inline const Registration& registration_of(uct_mem_h memh) {
    return *static_cast<const Registration*>(memh);
}

/// A remote key as it travels: 8 bytes, little endian. Unpacked, uct_rkey_t is the rkey itself.
struct [[gnu::packed]] PackedRkey {
    std::uint32_t magic;  // kRkeyMagic, so that the key of another component is refused
    std::uint32_t rkey;
};
static_assert(sizeof(PackedRkey) == 8);
inline constexpr std::uint32_t kRkeyMagic = 0x6b697774;  // "twik"

/// 1 for "mlx5_0:1"; 0 when the name has no port.
std::uint8_t port_number_of(std::string_view dev_name);

class IbMd : public uct::Md {
  public:
    static ucs_status_t open(const uct::Component& family, const char* name,
                             const IbMdOptions& options, uct::Md** md_p);
    ~IbMd() override;

    ucs_status_t query(uct_md_attr_t* attr) override;
    ucs_status_t query_tl_resources(std::vector<uct::TlDevice>* devices) override;
    ucs_status_t iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                            const void* iface_values, uct_iface_h* iface_p) override;
    ucs_status_t mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                           unsigned flags, const char* name, uct_mem_h* memh_p) override;
    ucs_status_t mem_free(uct_mem_h memh) override;
    ucs_status_t mem_reg(void* address, std::size_t length, unsigned flags,
                         uct_mem_h* memh_p) override;
    ucs_status_t mem_dereg(uct_mem_h memh) override;
    ucs_status_t mkey_pack(uct_mem_h memh, void* packed) override;

    [[nodiscard]] Device& device() const { return *device_; }
    [[nodiscard]] const VerbsTable& verbs() const { return device_->verbs(); }
    [[nodiscard]] ibv_pd* pd() const { return pd_.get(); }
    [[nodiscard]] AsyncEvents& async() { return async_; }
    [[nodiscard]] const PortChoice& port_choice() const { return path_.choice; }
    [[nodiscard]] std::uint8_t traffic_class() const { return path_.traffic_class; }
    [[nodiscard]] std::uint8_t service_level() const { return path_.service_level; }
    [[nodiscard]] ibv_mtu mtu_max() const { return path_.mtu_max; }
    /// Gather elements of a request, one of them for its head.
    [[nodiscard]] unsigned tx_sges() const { return tx_sges_; }
    /// For IBV_ACCESS_x; null: errno says why.
    [[nodiscard]] ibv_mr* reg_mr(void* address, std::size_t bytes, int access) const;

  private:
    struct Path {
        PortChoice choice;
        std::uint8_t traffic_class = 0;
        std::uint8_t service_level = 0;
        ibv_mtu mtu_max = IBV_MTU_4096;
    };
    static ucs_status_t read_path(const IbMdOptions& options, Path* path_p);

    IbMd(const uct::Component& family, std::unique_ptr<Device> device, OwnedPd pd, const Path& path,
         const IbMdOptions& options);
    /// Null with an errno value; logged.
    ibv_mr* register_memory(void* address, std::size_t bytes, unsigned flags, int* error_p);
    ucs_status_t track(ibv_mr* mr, void* mapping, std::size_t bytes, uct_mem_h* memh_p);
    ucs_status_t forget(Registration* memory);

    std::unique_ptr<Device> device_;
    OwnedPd pd_;  // goes before the device
    AsyncEvents async_;
    Path path_;
    RelaxedOrdering ordering_;
    unsigned tx_sges_;
    std::mutex mutex_;
    ucs::ReserveHashSet<Registration*> registrations_;
};

}  // namespace tagwire::ib
