// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/tcp_component.hpp"

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/describe.hpp"
#include "uct/tcp/devices.hpp"
#include "uct/tcp/options.hpp"
#include "uct/tcp/tcp_md.hpp"

namespace tagwire::tcp {

namespace {

ucs_status_t query_md_resources(const uct::Component&, std::vector<std::string>* names) {
    names->emplace_back("tcp");
    return UCS_OK;
}

ucs_status_t md_open(const uct::Component& component, const char* name, const void*,
                     uct::Md** md_p) {
    if (std::strcmp(name, "tcp") != 0) {
        TW_LOG_ERROR("component tcp has no memory domain \"%s\", only \"tcp\"", name);
        return UCS_ERR_NO_DEVICE;
    }
    *md_p = new TcpMd(component);
    return UCS_OK;
}

ucs_status_t rkey_unpack(const uct::Component&, const void* packed, uct_rkey_t* rkey_p,
                         void** handle_p) {
    PackedRkey rkey;
    std::memcpy(&rkey, packed, sizeof rkey);
    if (rkey.magic != kRkeyMagic || rkey.address + rkey.length < rkey.address) {
        TW_LOG_ERROR("rkey_unpack: not a key of tcp: its magic is 0x%08x, expected 0x%08x",
                     rkey.magic, kRkeyMagic);
        return UCS_ERR_INVALID_PARAM;
    }
    auto* key = new TcpRemoteKey{{}, rkey};
    *rkey_p = reinterpret_cast<uct_rkey_t>(key);
    *handle_p = key;
    return UCS_OK;
}

ucs_status_t rkey_ptr(const uct::Component&, uct_rkey_t, void*, std::uint64_t, void**) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t rkey_release(const uct::Component&, uct_rkey_t, void* handle) {
    delete static_cast<TcpRemoteKey*>(handle);
    return UCS_OK;
}

const ucs::OptionTable* iface_options(const char* tl_name) {
    return std::strcmp(tl_name, "tcp") == 0 ? &tcp_option_table() : nullptr;
}

void describe(const uct::Component&, const uct::DescribeSink& sink) {
    for (const Device& device : list_devices()) {
        const std::string key = "interface_" + device.name;
        const Speed rate = speed_of(device);
        const std::string speed =
            std::to_string(static_cast<std::uint64_t>(rate.bytes_per_s * 8e-6)) + " Mb/s";
        sink.text(key.c_str(), !device.problem.empty()
                                   ? "not used: " + device.problem
                                   : "ok, " + text_of(device.address) + ", " + speed +
                                         (rate.is_assumed ? " (assumed)" : ""));
    }
}

}  // namespace

const uct::Component& component() {
    static const uct::Component instance{
        .name = "tcp",
        .rkey_packed_bytes = sizeof(PackedRkey),
        .common_options = &device_option_table(),
        .transports =
            [] { return std::vector{uct::Transport{.name = "tcp", .first_contact_rank = 5}}; },
        .query_md_resources = query_md_resources,
        .md_open = md_open,
        .rkey_unpack = rkey_unpack,
        .rkey_ptr = rkey_ptr,
        .rkey_release = rkey_release,
        .iface_options = iface_options,
        .describe = describe,
    };
    return instance;
}

}  // namespace tagwire::tcp
