// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_component.hpp"

#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/sm/sm_md.hpp"

namespace tagwire::sm {

namespace {

ucs_status_t query_md_resources(const uct::Component&, std::vector<std::string>* names) {
    names->emplace_back("sm");
    return UCS_OK;
}

ucs_status_t md_open(const uct::Component& component, const char* name, const void* values,
                     uct::Md** md_p) {
    if (std::strcmp(name, "sm") != 0) {
        TW_LOG_ERROR("component sm has no memory domain \"%s\", only \"sm\"", name);
        return UCS_ERR_NO_DEVICE;
    }
    return SmMd::open(component, *static_cast<const SmMdOptions*>(values), md_p);
}

ucs_status_t rkey_unpack(const uct::Component&, const void* packed, uct_rkey_t* rkey_p,
                         void** handle_p) {
    std::string reason;
    const auto rkey =
        parse_rkey(std::span(static_cast<const std::byte*>(packed), sizeof(PackedRkey)), &reason);
    if (!rkey) {
        TW_LOG_ERROR("rkey_unpack: %s", reason.c_str());
        return UCS_ERR_INVALID_PARAM;
    }
    auto* key = new SmRemoteKey{{}, *rkey};
    *rkey_p = reinterpret_cast<uct_rkey_t>(key);
    *handle_p = key;
    return UCS_OK;
}

ucs_status_t rkey_ptr(const uct::Component&, uct_rkey_t, void* handle, std::uint64_t remote_addr,
                      void** local_p) {
    const PackedRkey& rkey = static_cast<const SmRemoteKey*>(handle)->packed;
    if (rkey.arena_offset == kNoOffset)
        return UCS_ERR_UNSUPPORTED;
    if (remote_addr < rkey.address || remote_addr - rkey.address > rkey.length)
        return UCS_ERR_INVALID_ADDR;
    const auto arena = ArenaMapping::find(rkey.arena_id);
    // Its descriptor comes with the connection to its owner.
    if (!arena)
        return UCS_ERR_NO_RESOURCE;
    std::byte* local = arena->at(rkey.arena_offset + (remote_addr - rkey.address), 0);
    if (local == nullptr)
        return UCS_ERR_INVALID_ADDR;
    *local_p = local;
    return UCS_OK;
}

ucs_status_t rkey_release(const uct::Component&, uct_rkey_t, void* handle) {
    delete static_cast<SmRemoteKey*>(handle);
    return UCS_OK;
}

const ucs::OptionTable* iface_options(const char* tl_name) {
    return std::strcmp(tl_name, "sm") == 0 ? &sm_options() : nullptr;
}

}  // namespace

const uct::Component& component() {
    static const uct::Component instance{
        .name = "sm",
        .rkey_packed_bytes = sizeof(PackedRkey),
        .md_options = &sm_md_options(),
        .transports =
            [] { return std::vector{uct::Transport{.name = "sm", .first_contact_rank = 30}}; },
        .query_md_resources = query_md_resources,
        .md_open = md_open,
        .rkey_unpack = rkey_unpack,
        .rkey_ptr = rkey_ptr,
        .rkey_release = rkey_release,
        .iface_options = iface_options,
    };
    return instance;
}

}  // namespace tagwire::sm
