// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/tcp_md.hpp"

#include <cstring>
#include <memory>

#include "ucs/log/log.hpp"
#include "uct/tcp/devices.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

namespace {

constexpr unsigned kRemoteAccess =
    UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET | UCT_MD_MEM_ACCESS_REMOTE_ATOMIC;

}  // namespace

TcpMd::~TcpMd() {
    registrations_.for_each([](Registration& registration) {
        TW_LOG_WARN("memory domain closed while %p (%zu bytes) was still registered",
                    static_cast<void*>(registration.address), registration.length);
        delete &registration;
    });
}

ucs_status_t TcpMd::query(uct_md_attr_t* attr) {
    attr->cap.max_alloc = 0;
    attr->cap.max_reg = SIZE_MAX;
    attr->cap.flags = UCT_MD_FLAG_REG | UCT_MD_FLAG_NEED_RKEY;
    attr->cap.reg_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.alloc_mem_types = 0;
    attr->cap.access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    attr->cap.detect_mem_types = 0;
    attr->reg_cost = ucs_linear_func_make(50e-9, 0);
    CPU_ZERO(&attr->local_cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        UCS_CPU_SET(cpu, &attr->local_cpus);
    return UCS_OK;
}

ucs_status_t TcpMd::query_tl_resources(std::vector<uct::TlDevice>* devices) {
    const DeviceList::Devices listed = devices_.renew();
    for (const Device& device : *listed)
        if (device.problem.empty())
            devices->push_back(
                {"tcp", device.name,
                 device.address.is_loopback ? UCT_DEVICE_TYPE_SELF : UCT_DEVICE_TYPE_NET,
                 UCS_SYS_DEVICE_ID_UNKNOWN});
    return UCS_OK;
}

ucs_status_t TcpMd::iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                               const void* iface_values, uct_iface_h* iface_p) {
    return TcpIface::open(*this, worker, params, *static_cast<const TcpOptions*>(iface_values),
                          iface_p);
}

ucs_status_t TcpMd::mem_reg(void* address, std::size_t length, unsigned flags, uct_mem_h* memh_p) {
    auto registration = std::make_unique<Registration>();
    registration->address = static_cast<std::byte*>(address);
    registration->length = length;
    registration->flags = flags & kRemoteAccess;
    if (!registrations_.add(*registration)) {
        TW_LOG_ERROR("the memory domain of tcp is full of registrations: release some first");
        return UCS_ERR_EXCEEDS_LIMIT;
    }
    *memh_p = registration.release();
    return UCS_OK;
}

ucs_status_t TcpMd::mem_dereg(uct_mem_h memh) {
    const std::unique_ptr<Registration> registration(static_cast<Registration*>(memh));
    registrations_.remove(*registration);
    return UCS_OK;
}

ucs_status_t TcpMd::mkey_pack(uct_mem_h memh, void* packed) {
    const auto& registration = *static_cast<const Registration*>(memh);
    const PackedRkey rkey{kRkeyMagic, registration.key.index, registration.key.generation,
                          reinterpret_cast<std::uintptr_t>(registration.address),
                          registration.length};
    std::memcpy(packed, &rkey, sizeof rkey);
    return UCS_OK;
}

}  // namespace tagwire::tcp
