/* SPDX-License-Identifier: BSD-3-Clause */
#include "dual.h"

static int find_transport(pair_t* pair, const char* tl_name, uct_tl_resource_desc_t* found) {
    uct_tl_resource_desc_t* resources;
    unsigned count, i;
    int is_found = 0;

    CHECK_OK(uct_md_query_tl_resources(pair->md, &resources, &count));
    for (i = 0; i < count && !is_found; ++i) {
        if (strcmp(resources[i].tl_name, tl_name) == 0) {
            *found = resources[i];
            is_found = 1;
        }
    }
    uct_release_tl_resource_list(resources);
    return is_found;
}

static int open_md(pair_t* pair, uct_component_h component, const char* tl_name,
                   uct_tl_resource_desc_t* found) {
    uct_component_attr_t attr;
    uct_md_config_t* config;
    unsigned i;

    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    CHECK_OK(uct_component_query(component, &attr));
    if (attr.md_resource_count == 0)
        return 0;
    attr.md_resources = calloc(attr.md_resource_count, sizeof(*attr.md_resources));
    attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    CHECK_OK(uct_component_query(component, &attr));
    pair->md = NULL;
    for (i = 0; i < attr.md_resource_count; ++i) {
        CHECK_OK(uct_md_config_read(component, NULL, NULL, &config));
        CHECK_OK(uct_md_open(component, attr.md_resources[i].md_name, config, &pair->md));
        uct_config_release(config);
        if (find_transport(pair, tl_name, found))
            break;
        uct_md_close(pair->md);
        pair->md = NULL;
    }
    free(attr.md_resources);
    return pair->md != NULL;
}

static void find_md(pair_t* pair, const char* tl_name, uct_tl_resource_desc_t* found) {
    uct_component_h* components;
    unsigned count, i;

    CHECK_OK(uct_query_components(&components, &count));
    for (i = 0; i < count; ++i) {
        if (open_md(pair, components[i], tl_name, found)) {
            pair->component = components[i];
            break;
        }
    }
    if (i == count) {
        printf("no transport %s\n", tl_name);
        exit(1);
    }
    uct_release_component_list(components);
    CHECK_OK(uct_md_query(pair->md, &pair->md_attr));
}

static void open_side(pair_t* pair, side_t* side, const uct_tl_resource_desc_t* resource,
                      uint64_t features) {
    uct_iface_config_t* config;
    uct_iface_params_t params;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                        UCT_IFACE_PARAM_FIELD_STATS_ROOT | UCT_IFACE_PARAM_FIELD_RX_HEADROOM |
                        UCT_IFACE_PARAM_FIELD_CPU_MASK | UCT_IFACE_PARAM_FIELD_FEATURES;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resource->tl_name;
    params.mode.device.dev_name = resource->dev_name;
    params.stats_root = ucs_stats_get_root();
    params.rx_headroom = 16;
    params.features = features;
    UCS_CPU_ZERO(&params.cpu_mask);
    CHECK_OK(uct_md_iface_config_read(pair->md, resource->tl_name, NULL, NULL, &config));
    CHECK_OK(uct_iface_open(pair->md, pair->worker, &params, config, &side->iface));
    uct_config_release(config);
    CHECK_OK(uct_iface_query(side->iface, &side->attr));
    uct_iface_progress_enable(side->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

static void connect_side(side_t* side, side_t* peer) {
    uct_device_addr_t* dev_addr = malloc(peer->attr.device_addr_len + 1);
    uct_iface_addr_t* iface_addr = malloc(peer->attr.iface_addr_len + 1);
    uct_ep_params_t params;

    CHECK_OK(uct_iface_get_device_address(peer->iface, dev_addr));
    CHECK_OK(uct_iface_get_address(peer->iface, iface_addr));
    CHECK(uct_iface_is_reachable(side->iface, dev_addr, iface_addr));
    memset(&params, 0, sizeof(params));
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = side->iface;
    params.dev_addr = dev_addr;
    params.iface_addr = iface_addr;
    CHECK_OK(uct_ep_create(&params, &side->ep));
    free(dev_addr);
    free(iface_addr);
}

void pair_open(pair_t* pair, const char* tl_name, uint64_t features) {
    uct_tl_resource_desc_t resource;

    memset(pair, 0, sizeof(*pair));
    CHECK_OK(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &pair->async));
    CHECK_OK(uct_worker_create(pair->async, UCS_THREAD_MODE_SINGLE, &pair->worker));
    find_md(pair, tl_name, &resource);
    open_side(pair, &pair->a, &resource, features);
    open_side(pair, &pair->b, &resource, features);
    connect_side(&pair->a, &pair->b);
    connect_side(&pair->b, &pair->a);
}

void pair_close(pair_t* pair) {
    uct_ep_destroy(pair->a.ep);
    uct_ep_destroy(pair->b.ep);
    uct_iface_close(pair->a.iface);
    uct_iface_close(pair->b.iface);
    uct_md_close(pair->md);
    uct_worker_destroy(pair->worker);
    ucs_async_context_destroy(pair->async);
}

void pair_wait(pair_t* pair, const volatile int* counter, int goal) {
    int step;
    for (step = 0; *counter < goal; ++step) {
        CHECK(step < STEPS_MAX);
        uct_worker_progress(pair->worker);
    }
}

static void flush_ep(pair_t* pair, uct_ep_h ep) {
    ucs_status_t status;
    int step = 0;
    do {
        CHECK(step++ < STEPS_MAX);
        status = uct_ep_flush(ep, UCT_FLUSH_FLAG_LOCAL, NULL);
        uct_worker_progress(pair->worker);
    } while (status == UCS_INPROGRESS || status == UCS_ERR_NO_RESOURCE);
    CHECK(status == UCS_OK);
}

void pair_flush(pair_t* pair) {
    flush_ep(pair, pair->a.ep);
    flush_ep(pair, pair->b.ep);
}
