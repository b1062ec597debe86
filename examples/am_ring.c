/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Four processes in a ring pass a token by active messages, in plain C.
 *
 * The parent is rank 0 and forks the others. Each rank hands its address to its left neighbour over
 * a pipe, because it will receive from there, and connects to its right neighbour. The handler of
 * an arriving message answers from inside: it sends the token on.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uct/api/uct.h>

enum { RANKS = 4, LAPS = 250, AM_TOKEN = 1, ADDRESS_MAX = 256 };

typedef struct {
    int rank;
    int hops;     /* how often the token came by */
    int is_stuck; /* the token could not be passed on yet */
    int failed;
    uint64_t token;
    uct_md_h md;
    ucs_async_context_t* async;
    uct_worker_h worker;
    uct_iface_h iface;
    uct_iface_attr_t attr;
    uct_ep_h right;
} rank_t;

static void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK) {
        fprintf(stderr, "am_ring: %s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

/* Opens the memory domain of shared memory. It has one transport, sm, on one device, memory. */
static void open_md(rank_t* r) {
    uct_component_h* components;
    unsigned count, i;

    check(uct_query_components(&components, &count), "query components");
    for (i = 0; i < count && r->md == NULL; ++i) {
        uct_component_attr_t attr;
        uct_md_config_t* config;

        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        check(uct_component_query(components[i], &attr), "query a component");
        if (strcmp(attr.name, "sm") != 0)
            continue;
        check(uct_md_config_read(components[i], NULL, NULL, &config), "read the configuration");
        check(uct_md_open(components[i], "sm", config, &r->md), "open the memory domain");
        uct_config_release(config);
    }
    uct_release_component_list(components);
    if (r->md == NULL)
        check(UCS_ERR_NO_DEVICE, "shared memory");
}

/* UCS_ERR_NO_RESOURCE means that there was no room and nothing happened: run() tries again after
   progress. (uct_ep_pending_add() is the other way.) */
static void pass_on(rank_t* r) {
    const ucs_status_t status = uct_ep_am_short(r->right, AM_TOKEN, r->token, NULL, 0);

    r->is_stuck = status == UCS_ERR_NO_RESOURCE;
    if (!r->is_stuck)
        check(status, "send");
}

/* Runs inside uct_worker_progress(). The first 8 bytes of a short message are its header. */
static ucs_status_t on_token(void* arg, void* data, size_t length, unsigned flags) {
    rank_t* r = arg;

    (void)length;
    (void)flags;
    memcpy(&r->token, data, sizeof r->token);
    ++r->hops;
    if (r->rank != 0 || r->hops < LAPS) {
        ++r->token;
        pass_on(r);
    } else {
        printf("the token went %d times around %d processes: %d hops, it says %llu\n", LAPS, RANKS,
               LAPS * RANKS, (unsigned long long)r->token);
    }
    return UCS_OK; /* done with `data` */
}

/* A neighbour died. Told once, after everything that it had sent. */
static ucs_status_t on_error(void* arg, uct_ep_h ep, ucs_status_t status) {
    rank_t* r = arg;

    (void)ep;
    fprintf(stderr, "am_ring: rank %d lost its neighbour: %s\n", r->rank,
            ucs_status_string(status));
    r->failed = 1;
    return UCS_OK;
}

static void open_iface(rank_t* r) {
    uct_iface_config_t* config;
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                      UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG,
        .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
        .mode.device.tl_name = "sm",
        .mode.device.dev_name = "memory",
        .err_handler = on_error,
        .err_handler_arg = r,
    };

    check(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &r->async), "create a context");
    check(uct_worker_create(r->async, UCS_THREAD_MODE_SINGLE, &r->worker), "create a worker");
    check(uct_md_iface_config_read(r->md, "sm", NULL, NULL, &config), "read the configuration");
    check(uct_iface_open(r->md, r->worker, &params, config, &r->iface), "open an interface");
    uct_config_release(config);
    check(uct_iface_query(r->iface, &r->attr), "query the interface");
    check(uct_iface_set_am_handler(r->iface, AM_TOKEN, on_token, r, 0), "set the handler");
    uct_iface_progress_enable(r->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

/* Writes its own address for the left neighbour, reads the right one's, and connects to it. */
static void connect_right(rank_t* r, int to_left, int from_right) {
    char address[ADDRESS_MAX];
    const size_t dev_bytes = r->attr.device_addr_len, bytes = dev_bytes + r->attr.iface_addr_len;
    uct_ep_params_t params = {
        .field_mask =
            UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR,
        .iface = r->iface,
        .dev_addr = (const uct_device_addr_t*)address,
        .iface_addr = (const uct_iface_addr_t*)(address + dev_bytes),
    };

    if (bytes > sizeof address)
        check(UCS_ERR_BUFFER_TOO_SMALL, "address");
    check(uct_iface_get_device_address(r->iface, (uct_device_addr_t*)address), "device address");
    check(uct_iface_get_address(r->iface, (uct_iface_addr_t*)(address + dev_bytes)), "address");
    if (write(to_left, address, bytes) != (ssize_t)bytes ||
        read(from_right, address, bytes) != (ssize_t)bytes)
        check(UCS_ERR_IO_ERROR, "exchange of addresses");
    check(uct_ep_create(&params, &r->right), "connect");
}

static int run(int rank, int to_left, int from_right, const int* finish) {
    rank_t r = {.rank = rank, .token = 1};
    char none;

    open_md(&r);
    open_iface(&r);
    connect_right(&r, to_left, from_right);
    if (rank == 0)
        pass_on(&r);
    while ((r.hops < LAPS || r.is_stuck) && !r.failed) {
        if (uct_worker_progress(r.worker) == 0)
            sched_yield(); /* polite where cores are fewer than processes */
        if (r.is_stuck)
            pass_on(&r);
    }
    /* Whoever leaves early has failed in the eyes of its left neighbour, so the others stay until
       rank 0 has the token and closes its end of this pipe. */
    close(finish[1]);
    if (rank != 0 && !r.failed && read(finish[0], &none, 1) != 0)
        r.failed = 1;
    uct_ep_destroy(r.right);
    uct_iface_close(r.iface);
    uct_worker_destroy(r.worker);
    ucs_async_context_destroy(r.async);
    uct_md_close(r.md);
    return r.failed;
}

int main(void) {
    int pipes[RANKS][2]; /* pipes[i]: from rank i to its left neighbour */
    int finish[2];
    int rank, status, failed;

    check(pipe(finish) == 0 ? UCS_OK : UCS_ERR_IO_ERROR, "pipe");
    for (rank = 0; rank < RANKS; ++rank)
        check(pipe(pipes[rank]) == 0 ? UCS_OK : UCS_ERR_IO_ERROR, "pipe");
    for (rank = 1; rank < RANKS; ++rank) {
        const pid_t child = fork(); /* before anything is open: handles do not cross a fork */

        if (child < 0)
            return 1;
        if (child == 0)
            _exit(run(rank, pipes[rank][1], pipes[(rank + 1) % RANKS][0], finish));
    }
    failed = run(0, pipes[0][1], pipes[1][0], finish);
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
