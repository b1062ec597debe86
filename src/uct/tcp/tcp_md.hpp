// SPDX-License-Identifier: BSD-3-Clause
// The memory domain of tcp: keeps track of the memory that peers may use. Registering needs no
// system call. Threads: any.
#pragma once

#include <vector>

#include "uct/base_md.hpp"
#include "uct/tcp/devices.hpp"
#include "uct/tcp/registrations.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {

/// The object that uct_rkey_t points to.
struct TcpRemoteKey : ucs::FromReserve {
    PackedRkey packed;
};

class TcpMd : public uct::Md {
  public:
    explicit TcpMd(const uct::Component& family) : Md(family) {}
    ~TcpMd() override;

    ucs_status_t query(uct_md_attr_t* attr) override;
    ucs_status_t query_tl_resources(std::vector<uct::TlDevice>* devices) override;
    ucs_status_t iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                            const void* iface_values, uct_iface_h* iface_p) override;
    ucs_status_t mem_reg(void* address, std::size_t length, unsigned flags,
                         uct_mem_h* memh_p) override;
    ucs_status_t mem_dereg(uct_mem_h memh) override;
    ucs_status_t mkey_pack(uct_mem_h memh, void* packed) override;

    [[nodiscard]] Registrations& registrations() { return registrations_; }
    [[nodiscard]] DeviceList& devices() { return devices_; }

  private:
    Registrations registrations_;
    DeviceList devices_;
};

}  // namespace tagwire::tcp
