// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ib_component.hpp"

#include <endian.h>

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/describe.hpp"
#include "uct/ib/ib_md.hpp"
#include "uct/ib/options.hpp"
#include "uct/ib/transport.hpp"

namespace tagwire::ib {

namespace {

ucs_status_t query_md_resources(const uct::Component&, std::vector<std::string>* names) {
    for (const ListedDevice& device : list_devices())
        if (device.is_admitted && device.problem.empty())
            names->push_back(device.name);
    return UCS_OK;
}

ucs_status_t md_open(const uct::Component& component, const char* name, const void* values,
                     uct::Md** md_p) {
    return IbMd::open(component, name, *static_cast<const IbMdOptions*>(values), md_p);
}

ucs_status_t rkey_unpack(const uct::Component&, const void* packed, uct_rkey_t* rkey_p,
                         void** handle_p) {
    PackedRkey key;
    std::memcpy(&key, packed, sizeof key);
    if (le32toh(key.magic) != kRkeyMagic) {
        TW_LOG_ERROR("rkey_unpack: not a verbs key: its magic is 0x%08x, expected 0x%08x",
                     le32toh(key.magic), kRkeyMagic);
        return UCS_ERR_INVALID_PARAM;
    }
    *rkey_p = le32toh(key.rkey);
    *handle_p = nullptr;
    return UCS_OK;
}

ucs_status_t rkey_ptr(const uct::Component&, uct_rkey_t, void*, std::uint64_t, void**) {
    return UCS_ERR_UNSUPPORTED;
}

ucs_status_t rkey_release(const uct::Component&, uct_rkey_t, void*) {
    return UCS_OK;
}

std::vector<uct::Transport> tls() {
    std::vector<uct::Transport> all;
    for (const Transport* transport : transports())
        all.push_back(transport->tl);
    return all;
}

const ucs::OptionTable* iface_options(const char* tl_name) {
    for (const Transport* transport : transports())
        if (std::strcmp(transport->tl.name, tl_name) == 0)
            return transport->options();
    return nullptr;
}

std::string sentence_of(const ListedDevice& listed) {
    if (!listed.is_admitted)
        return "left out by TAGWIRE_IB_DEVICES";
    std::unique_ptr<Device> device;
    if (!listed.problem.empty() || Device::open(listed.name, &device) != UCS_OK)
        return listed.problem.empty() ? "cannot be opened any more" : listed.problem;
    const unsigned ports = device->port_count();
    return "ok, " + std::to_string(ports) + (ports == 1 ? " port" : " ports");
}

std::string sentence_of(const VerbsLibrary& library) {
    if (!library.problem.empty())
        return "not used: " + library.problem;
    const std::string reason = why_empty(library);
    return reason.empty() ? library.path : library.path + ", no devices: " + reason;
}

void describe(const uct::Component&, const uct::DescribeSink& sink) {
    for (const VerbsLibrary& library : verbs_libraries()) {
        sink.text(library.origin == VerbsOrigin::kSystem ? "library system" : "library virtual",
                  sentence_of(library));
    }
    for (const ListedDevice& listed : list_devices())
        sink.text(("device " + listed.name).c_str(), sentence_of(listed));
}

}  // namespace

const uct::Component& component() {
    static const uct::Component instance{
        .name = "ib",
        .rkey_packed_bytes = sizeof(PackedRkey),
        .common_options = &library_options(),
        .md_options = &md_options(),
        .transports = tls,
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

}  // namespace tagwire::ib
