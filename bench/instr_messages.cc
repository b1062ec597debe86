// SPDX-License-Identifier: BSD-3-Clause
// How many instructions does one short message cost? Run under callgrind with two counts; the
// difference of the totals divided by the difference of the counts is the cost of one, free of
// set-up (bench/compare.py does that).
//
// Usage: instr_messages am|tag COUNT. One process, one interface, an endpoint to itself. `am`:
// 8-byte short active messages; `tag`: 8-byte short tagged messages, each with a receive posted for
// it and matched. The functions send_one() and receive_one() are kept apart so that the profile
// splits the cost into the two sides.
#include <uct/api/uct.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::uint8_t kAmId = 1;

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
    uct_ep_h ep = nullptr;
};

/// The first interface of shared memory of the first component that has one.
void open_interface(Loopback* loopback) {
    uct_component_h* components = nullptr;
    unsigned count = 0;
    must(uct_query_components(&components, &count), "uct_query_components");
    uct_md_resource_desc_t md_resource{};
    uct_component_attr_t attr{};
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attr.md_resources = &md_resource;
    must(uct_component_query(components[0], &attr), "uct_component_query");
    uct_md_config_t* md_config = nullptr;
    must(uct_md_config_read(components[0], nullptr, nullptr, &md_config), "uct_md_config_read");
    must(uct_md_open(components[0], md_resource.md_name, md_config, &loopback->md), "uct_md_open");
    uct_config_release(md_config);
    uct_release_component_list(components);

    uct_tl_resource_desc_t* resources = nullptr;
    must(uct_md_query_tl_resources(loopback->md, &resources, &count), "uct_md_query_tl_resources");
    must(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &loopback->async),
         "ucs_async_context_create");
    must(uct_worker_create(loopback->async, UCS_THREAD_MODE_SINGLE, &loopback->worker),
         "uct_worker_create");
    uct_iface_config_t* config = nullptr;
    must(uct_md_iface_config_read(loopback->md, resources[0].tl_name, nullptr, nullptr, &config),
         "uct_md_iface_config_read");
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resources[0].tl_name;
    params.mode.device.dev_name = resources[0].dev_name;
    params.eager_cb = &on_unexpected_eager;
    params.rndv_cb = &on_unexpected_rndv;
    must(uct_iface_open(loopback->md, loopback->worker, &params, config, &loopback->iface),
         "uct_iface_open");
    uct_config_release(config);
    uct_release_tl_resource_list(resources);
    uct_iface_progress_enable(loopback->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    must(uct_iface_set_am_handler(loopback->iface, kAmId, &on_am, nullptr, 0),
         "uct_iface_set_am_handler");
}

void connect_to_itself(Loopback* loopback) {
    uct_iface_attr_t attr{};
    must(uct_iface_query(loopback->iface, &attr), "uct_iface_query");
    std::vector<std::uint64_t> device(attr.device_addr_len / 8 + 1);
    std::vector<std::uint64_t> address(attr.iface_addr_len / 8 + 1);
    auto* const device_address = reinterpret_cast<uct_device_addr_t*>(device.data());
    auto* const iface_address = reinterpret_cast<uct_iface_addr_t*>(address.data());
    must(uct_iface_get_device_address(loopback->iface, device_address), "device address");
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
    std::uint64_t data = 0;
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
    const uct_iov_t iov{&receive->data, sizeof(receive->data), UCT_MEM_HANDLE_NULL, 0, 1};
    must(uct_iface_tag_recv_zcopy(loopback.iface, tag, ~uct_tag_t{0}, &iov, 1, &receive->context),
         "uct_iface_tag_recv_zcopy");
}

[[gnu::noinline]] void progress_until(const Loopback& loopback, std::uint64_t count) {
    while (received < count) {
        uct_worker_progress(loopback.worker);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: instr_messages am|tag COUNT\n");
        return 2;
    }
    const bool tagged = std::strcmp(argv[1], "tag") == 0;
    const std::uint64_t count = std::strtoull(argv[2], nullptr, 10);
    Loopback loopback;
    open_interface(&loopback);
    connect_to_itself(&loopback);
    Receive receive;
    receive.context.tag_consumed_cb = &on_consumed;
    receive.context.completed_cb = &on_completed;
    receive.context.rndv_cb = &on_rndv;
    for (std::uint64_t i = 0; i < count; ++i) {
        if (tagged) {
            post_receive(loopback, i, &receive);
            send_tagged(loopback, i);
        } else {
            send_am(loopback);
        }
        progress_until(loopback, i + 1);
    }
    std::printf("%llu messages\n", static_cast<unsigned long long>(received));
    uct_ep_destroy(loopback.ep);
    uct_iface_close(loopback.iface);
    uct_worker_destroy(loopback.worker);
    ucs_async_context_destroy(loopback.async);
    uct_md_close(loopback.md);
    return 0;
}
