/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes that a program reads to decide: flags, lengths, names; the configuration calls;
 * registering worker callbacks.
 */
#include "dual.h"

static unsigned count_call(void* arg) {
    ++*(int*)arg;
    return 0;
}

static void interface_attributes(const pair_t* pair) {
    const uct_iface_attr_t* attr = &pair->a.attr;
    const uint64_t flags = attr->cap.flags;

    printf("am short and bcopy: %s\n",
           yes_no((flags & UCT_IFACE_FLAG_AM_SHORT) && (flags & UCT_IFACE_FLAG_AM_BCOPY)));
    printf("put short and bcopy, get bcopy: %s\n",
           yes_no((flags & UCT_IFACE_FLAG_PUT_SHORT) && (flags & UCT_IFACE_FLAG_PUT_BCOPY) &&
                  (flags & UCT_IFACE_FLAG_GET_BCOPY)));
    printf("pending: %s\n", yes_no((flags & UCT_IFACE_FLAG_PENDING) != 0));
    printf("callbacks in progress: %s\n", yes_no((flags & UCT_IFACE_FLAG_CB_SYNC) != 0));
    printf("connects to iface: %s, to ep: %s, to sockaddr: %s\n",
           yes_no((flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) != 0),
           yes_no((flags & UCT_IFACE_FLAG_CONNECT_TO_EP) != 0),
           yes_no((flags & UCT_IFACE_FLAG_CONNECT_TO_SOCKADDR) != 0));
    printf("atomics with the processor: %s\n", yes_no((flags & UCT_IFACE_FLAG_ATOMIC_CPU) != 0));
    printf("64-bit fetching operations: 0x%lx\n", (unsigned long)attr->cap.atomic64.fop_flags);
    printf("32-bit posted operations: 0x%lx\n", (unsigned long)attr->cap.atomic32.op_flags);
    printf("receive event by descriptor: %s\n",
           yes_no((attr->cap.event_flags & UCT_IFACE_FLAG_EVENT_FD) &&
                  (attr->cap.event_flags & UCT_IFACE_FLAG_EVENT_RECV)));
    printf("short and bcopy limits fit: %s\n",
           yes_no(attr->cap.am.max_short >= 8 && attr->cap.am.max_bcopy >= attr->cap.am.max_short));
    printf("has an interface address: %s, an endpoint address: %s\n",
           yes_no(attr->iface_addr_len > 0), yes_no(attr->ep_addr_len > 0));
    printf("costs are positive: %s\n",
           yes_no(attr->overhead > 0 && attr->latency.c > 0 &&
                  attr->bandwidth.dedicated + attr->bandwidth.shared > 0));
    printf("private connection data: %zu\n", attr->max_conn_priv);
    printf("paths: %u\n", attr->dev_num_paths);
}

static void resources(const pair_t* pair, const char* tl_name) {
    uct_tl_resource_desc_t* list;
    unsigned count, i;

    CHECK_OK(uct_md_query_tl_resources(pair->md, &list, &count));
    for (i = 0; i < count; ++i) {
        if (strcmp(list[i].tl_name, tl_name) != 0)
            continue;
        printf("device %s, type %d, system device %u\n", list[i].dev_name, (int)list[i].dev_type,
               (unsigned)list[i].sys_device);
    }
    uct_release_tl_resource_list(list);
}

static void configuration(const pair_t* pair, const char* tl_name) {
    uct_iface_config_t* config;
    char value[64] = "untouched";

    CHECK_OK(uct_md_iface_config_read(pair->md, tl_name, NULL, NULL, &config));
    printf("get of an unknown option: status %d, value %s\n",
           (int)uct_config_get(config, "NO_SUCH_OPTION", value, sizeof(value)), value);
    printf("modify of an unknown option: status %d\n",
           (int)uct_config_modify(config, "NO_SUCH_OPTION", "1"));
    uct_config_release(config);
}

static void worker_callbacks(pair_t* pair) {
    uct_worker_cb_id_t id = UCS_CALLBACKQ_ID_NULL;
    uct_worker_cb_id_t other = UCS_CALLBACKQ_ID_NULL;
    int calls = 0, other_calls = 0;

    uct_worker_progress_register_safe(pair->worker, count_call, &calls, 0, &id);
    uct_worker_progress_register_safe(pair->worker, count_call, &other_calls,
                                      UCS_CALLBACKQ_FLAG_ONESHOT, &other);
    uct_worker_progress(pair->worker);
    uct_worker_progress(pair->worker);
    uct_worker_progress(pair->worker);
    printf("a registered callback runs: %s, one shot ran: %d\n", yes_no(calls >= 2), other_calls);
    uct_worker_progress_unregister_safe(pair->worker, &id);
    uct_worker_progress(pair->worker);
    calls = 0;
    uct_worker_progress(pair->worker);
    printf("after unregister: %d calls, id %d\n", calls, id);
}

static void statuses(void) {
    printf("UCS_OK is called \"%s\"\n", ucs_status_string(UCS_OK));
    printf("pointers carry statuses: %d %d %d\n",
           (int)UCS_PTR_IS_ERR(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)),
           (int)UCS_PTR_STATUS(UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)), (int)UCS_PTR_STATUS(NULL));
}

static void refused_calls(pair_t* pair) {
    uct_mem_h memh = NULL;

    printf("registering nothing: status %d\n",
           (int)uct_md_mem_reg(pair->md, NULL, 0,
                               UCT_MD_MEM_ACCESS_ALL | UCT_MD_MEM_FLAG_HIDE_ERRORS, &memh));
}

int main(int argc, char** argv) {
    static pair_t pair;
    CHECK(argc == 2);
    pair_open(&pair, argv[1], UCT_IFACE_FEATURE_AM);
    interface_attributes(&pair);
    resources(&pair, argv[1]);
    configuration(&pair, argv[1]);
    worker_callbacks(&pair);
    statuses();
    refused_calls(&pair);
    pair_close(&pair);
    printf("done\n");
    return 0;
}
