// SPDX-License-Identifier: BSD-3-Clause
// UCT set-up of the measuring programs: a memory domain that has the transport, interfaces,
// addresses, endpoints. Only the public API, so that it compiles against UCX too. Failures of
// set-up end the program.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tagwire::bench {

inline constexpr ucs_async_mode_t kAsyncMode = UCS_ASYNC_MODE_POLL;

void must(ucs_status_t status, const char* what);

struct Side {
    uct_component_h component = nullptr;
    uct_md_h md = nullptr;
    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;
    std::string transport;
    std::string device;
};

/// `device` empty: the first one that has the transport.
Side open_side(const char* transport, const char* device);
void close_side(const Side& side);

/// With progress on, and with callbacks that ignore unexpected tagged messages, so that a device
/// may match tags.
uct_iface_h open_interface(const Side& side);
uct_iface_attr_t attributes(uct_iface_h iface);
bool connects_to_interface(uct_iface_h iface);

/// Room for an address of any transport, aligned.
using Address = std::vector<std::uint64_t>;

struct Target {
    Address device;
    Address iface;

    uct_device_addr_t* device_address() { return as<uct_device_addr_t>(device); }
    uct_iface_addr_t* iface_address() { return as<uct_iface_addr_t>(iface); }
    const uct_device_addr_t* device_address() const { return as<uct_device_addr_t>(device); }
    const uct_iface_addr_t* iface_address() const { return as<uct_iface_addr_t>(iface); }

  private:
    template <class Opaque>
    static Opaque* as(Address& address) {
        return reinterpret_cast<Opaque*>(address.data());
    }
    template <class Opaque>
    static const Opaque* as(const Address& address) {
        return reinterpret_cast<const Opaque*>(address.data());
    }
};

Target target_at(uct_iface_h iface);
/// Addresses of as many interfaces, each of which was open for as long as it takes to ask it.
std::vector<Target> past_targets(const Side& side, std::size_t count);

ucs_status_t make_endpoint(uct_iface_h iface, uct_ep_h* ep_p);
ucs_status_t make_endpoint_to(uct_iface_h iface, const Target& target, uct_ep_h* ep_p);
/// `address_bytes`: of an endpoint's address.
ucs_status_t connect(uct_ep_h from, uct_ep_h to, const Target& interface_of_to,
                     std::size_t address_bytes);

}  // namespace tagwire::bench
