// SPDX-License-Identifier: BSD-3-Clause
// How many instructions does one short message cost? Run under callgrind with two counts; the
// difference of the costs divided by the difference of the counts is the cost of one, free of
// set-up (bench/instructions.py does that).
//
// Usage: instr_messages am|tag|idle COUNT [TRANSPORT [DEVICE]]
//
// One process, one interface, connected to itself. `am`: 8-byte short active messages; `tag`: short
// tagged messages of 8 bytes, each with a receive posted for it and matched; `idle`: progress calls
// that find nothing. The functions send_am(), send_tagged(), post_receive(), progress_until() are
// kept apart so that the profile splits the cost. Calls of progress that found nothing are printed:
// how many there are is chance, so their cost is subtracted.
//
// The same text compiles against UCX, as instr_messages_ucx.
#include <uct/api/uct.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::uint8_t kAmId = 1;
constexpr ucs_async_mode_t kAsyncMode = UCS_ASYNC_MODE_POLL;

void must(ucs_status_t status, const char* what) {
    if (status != UCS_OK) {
        std::fprintf(stderr, "instr_messages: %s: %s\n", what, ucs_status_string(status));
        std::exit(1);
    }
}

std::uint64_t received;

ucs_status_t on_am(void*, void*, std::size_t, unsigned) {
    ++received;
    return UCS_OK;
}

ucs_status_t on_unexpected_eager(void*, void*, std::size_t, unsigned, uct_tag_t, std::uint64_t,
                                 void**) {
    return UCS_OK;
}

ucs_status_t on_unexpected_rndv(void*, unsigned, std::uint64_t, const void*, unsigned,
                                std::uint64_t, std::size_t, const void*) {
    return UCS_OK;
}

struct Loopback {
    uct_md_h md = nullptr;
    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;
    uct_iface_h iface = nullptr;
    uct_iface_attr_t attr{};
    uct_ep_h ep = nullptr;
    uct_ep_h other = nullptr;  // what `ep` is connected to, where that is an endpoint
};

/// Whether this domain has the transport; `device` gets the first one that fits.
bool has_transport(uct_md_h md, const char* transport, std::string* device) {
    uct_tl_resource_desc_t* resources = nullptr;
    unsigned count = 0;
    must(uct_md_query_tl_resources(md, &resources, &count), "uct_md_query_tl_resources");
    bool found = false;
    for (unsigned i = 0; i < count && !found; ++i) {
        found = std::strcmp(resources[i].tl_name, transport) == 0 &&
                (device->empty() || *device == resources[i].dev_name);
        if (found) {
            *device = resources[i].dev_name;
        }
    }
    uct_release_tl_resource_list(resources);
    return found;
}

uct_md_h open_md(uct_component_h component, const char* name) {
    uct_md_config_t* config = nullptr;
    must(uct_md_config_read(component, nullptr, nullptr, &config), "uct_md_config_read");
    uct_md_h md = nullptr;
    const ucs_status_t status = uct_md_open(component, name, config, &md);
    uct_config_release(config);
    return status == UCS_OK ? md : nullptr;
}

/// The domain of this component that has the transport, if any.
uct_md_h find_in_component(uct_component_h component, const char* transport, std::string* device) {
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    must(uct_component_query(component, &attr), "uct_component_query");
    std::vector<uct_md_resource_desc_t> mds(attr.md_resource_count + 1);
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = mds.data();
    must(uct_component_query(component, &attr), "uct_component_query");
    for (unsigned i = 0; i < attr.md_resource_count; ++i) {
        const uct_md_h md = open_md(component, mds[i].md_name);
        if (md != nullptr && has_transport(md, transport, device)) {
            return md;
        }
        if (md != nullptr) {
            uct_md_close(md);
        }
    }
    return nullptr;
}

uct_md_h find_md(const char* transport, std::string* device) {
    uct_component_h* components = nullptr;
    unsigned count = 0;
    must(uct_query_components(&components, &count), "uct_query_components");
    uct_md_h md = nullptr;
    for (unsigned i = 0; i < count && md == nullptr; ++i) {
        md = find_in_component(components[i], transport, device);
    }
    uct_release_component_list(components);
    if (md == nullptr) {
        std::fprintf(stderr, "instr_messages: no %s %s here\n", transport, device->c_str());
        std::exit(1);
    }
    return md;
}

void open_interface(Loopback* loopback, const char* transport, std::string device) {
    loopback->md = find_md(transport, &device);
    must(ucs_async_context_create(kAsyncMode, &loopback->async), "ucs_async_context_create");
    must(uct_worker_create(loopback->async, UCS_THREAD_MODE_SINGLE, &loopback->worker),
         "uct_worker_create");
    uct_iface_config_t* config = nullptr;
    must(uct_md_iface_config_read(loopback->md, transport, nullptr, nullptr, &config),
         "uct_md_iface_config_read");
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = transport;
    params.mode.device.dev_name = device.c_str();
    params.eager_cb = &on_unexpected_eager;
    params.rndv_cb = &on_unexpected_rndv;
    must(uct_iface_open(loopback->md, loopback->worker, &params, config, &loopback->iface),
         "uct_iface_open");
    uct_config_release(config);
    uct_iface_progress_enable(loopback->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    must(uct_iface_set_am_handler(loopback->iface, kAmId, &on_am, nullptr, 0),
         "uct_iface_set_am_handler");
    must(uct_iface_query(loopback->iface, &loopback->attr), "uct_iface_query");
}

/// Room for an address of any transport, aligned.
using Address = std::vector<std::uint64_t>;

Address room(std::size_t bytes) {
    return Address(bytes / sizeof(std::uint64_t) + 1);
}

uct_ep_h make_endpoint(const Loopback& loopback) {
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = loopback.iface;
    uct_ep_h ep = nullptr;
    must(uct_ep_create(&params, &ep), "uct_ep_create");
    return ep;
}

void connect_to_endpoint(const Loopback& loopback, uct_ep_h from, uct_ep_h to,
                         const uct_device_addr_t* device) {
    Address address = room(loopback.attr.ep_addr_len);
    auto* const ep_address = reinterpret_cast<uct_ep_addr_t*>(address.data());
    must(uct_ep_get_address(to, ep_address), "uct_ep_get_address");
    must(uct_ep_connect_to_ep(from, device, ep_address), "uct_ep_connect_to_ep");
}

void connect_to_itself(Loopback* loopback) {
    Address device = room(loopback->attr.device_addr_len);
    auto* const device_address = reinterpret_cast<uct_device_addr_t*>(device.data());
    must(uct_iface_get_device_address(loopback->iface, device_address), "device address");
    if ((loopback->attr.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) == 0) {
        loopback->ep = make_endpoint(*loopback);
        loopback->other = make_endpoint(*loopback);
        connect_to_endpoint(*loopback, loopback->ep, loopback->other, device_address);
        connect_to_endpoint(*loopback, loopback->other, loopback->ep, device_address);
        return;
    }
    Address address = room(loopback->attr.iface_addr_len);
    auto* const iface_address = reinterpret_cast<uct_iface_addr_t*>(address.data());
    must(uct_iface_get_address(loopback->iface, iface_address), "interface address");
    uct_ep_params_t params{};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = loopback->iface;
    params.dev_addr = device_address;
    params.iface_addr = iface_address;
    must(uct_ep_create(&params, &loopback->ep), "uct_ep_create");
}

struct Receive {
    uct_tag_context_t context{};
    std::vector<std::uint64_t> data;  // as long as the interface wants a receive to be
    std::size_t bytes = 0;
    uct_mem_h memh = UCT_MEM_HANDLE_NULL;
};

void on_consumed(uct_tag_context_t*) {}

void on_completed(uct_tag_context_t*, uct_tag_t, std::uint64_t, std::size_t, void*,
                  ucs_status_t status) {
    must(status, "tagged receive");
    ++received;
}

void on_rndv(uct_tag_context_t*, uct_tag_t, const void*, unsigned, ucs_status_t, unsigned) {}

// The marks below are where the profile is cut: they must stay functions.
[[gnu::noinline]] void send_am(const Loopback& loopback) {
    const std::uint64_t header = 1;
    while (uct_ep_am_short(loopback.ep, kAmId, header, &header, 0) == UCS_ERR_NO_RESOURCE) {
        uct_worker_progress(loopback.worker);
    }
}

[[gnu::noinline]] void send_tagged(const Loopback& loopback, uct_tag_t tag) {
    const std::uint64_t data = 1;
    while (uct_ep_tag_eager_short(loopback.ep, tag, &data, sizeof(data)) == UCS_ERR_NO_RESOURCE) {
        uct_worker_progress(loopback.worker);
    }
}

[[gnu::noinline]] void post_receive(const Loopback& loopback, uct_tag_t tag, Receive* receive) {
    const uct_iov_t iov{receive->data.data(), receive->bytes, receive->memh, 0, 1};
    must(uct_iface_tag_recv_zcopy(loopback.iface, tag, ~uct_tag_t{0}, &iov, 1, &receive->context),
         "uct_iface_tag_recv_zcopy");
}

std::uint64_t empty_polls;

[[gnu::noinline]] void progress_until(const Loopback& loopback, std::uint64_t count) {
    while (received < count) {
        empty_polls += uct_worker_progress(loopback.worker) == 0 ? 1 : 0;
    }
}

[[gnu::noinline]] void progress_idle(const Loopback& loopback, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
        empty_polls += uct_worker_progress(loopback.worker) == 0 ? 1 : 0;
    }
}

void prepare_receive(const Loopback& loopback, Receive* receive) {
    receive->context.tag_consumed_cb = &on_consumed;
    receive->context.completed_cb = &on_completed;
    receive->context.rndv_cb = &on_rndv;
    receive->bytes = std::max<std::size_t>(loopback.attr.cap.tag.recv.min_recv, 8);
    receive->data.resize(receive->bytes / 8 + 1);
    uct_md_attr_t attr{};
    must(uct_md_query(loopback.md, &attr), "uct_md_query");
    if ((attr.cap.flags & UCT_MD_FLAG_NEED_MEMH) != 0) {
        must(uct_md_mem_reg(loopback.md, receive->data.data(), receive->bytes,
                            UCT_MD_MEM_ACCESS_ALL, &receive->memh),
             "uct_md_mem_reg");
    }
}

void run(const Loopback& loopback, const char* kind, std::uint64_t count) {
    if (std::strcmp(kind, "idle") == 0) {
        progress_idle(loopback, count);
        return;
    }
    const bool tagged = std::strcmp(kind, "tag") == 0;
    Receive receive;
    if (tagged) {
        prepare_receive(loopback, &receive);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
        if (tagged) {
            post_receive(loopback, i, &receive);
            send_tagged(loopback, i);
        } else {
            send_am(loopback);
        }
        progress_until(loopback, i + 1);
    }
    if (receive.memh != UCT_MEM_HANDLE_NULL) {
        must(uct_md_mem_dereg(loopback.md, receive.memh), "uct_md_mem_dereg");
    }
}

void close(Loopback* loopback) {
    uct_ep_destroy(loopback->ep);
    if (loopback->other != nullptr) {
        uct_ep_destroy(loopback->other);
    }
    uct_iface_close(loopback->iface);
    uct_worker_destroy(loopback->worker);
    ucs_async_context_destroy(loopback->async);
    uct_md_close(loopback->md);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3 || argc > 5) {
        std::fprintf(stderr, "usage: instr_messages am|tag|idle COUNT [TRANSPORT [DEVICE]]\n");
        return 2;
    }
    Loopback loopback;
    open_interface(&loopback, argc > 3 ? argv[3] : "sm", argc > 4 ? argv[4] : "");
    connect_to_itself(&loopback);
    run(loopback, argv[1], std::strtoull(argv[2], nullptr, 10));
    std::printf("%llu messages, %llu calls of progress found nothing\n",
                static_cast<unsigned long long>(received),
                static_cast<unsigned long long>(empty_polls));
    close(&loopback);
    return 0;
}
