// SPDX-License-Identifier: BSD-3-Clause
// Examples of the manual pages: memory and one-sided operations. Included by manual_pages.c.
#ifndef TAGWIRE_EXAMPLES_MANUAL_PAGES_MEMORY_H
#define TAGWIRE_EXAMPLES_MANUAL_PAGES_MEMORY_H

#include <string.h>
#include <tagwire.h>

static void check(tw_status_t status, const char* what);
static void finish(tw_status_t status, const tw_request_h* request);

static void send_from_mapped_memory(tw_context_h context, tw_worker_h worker, tw_ep_h ep,
                                    void* buffer, size_t bytes) {
    tw_mem_h mem;
    tw_mem_params_t params = {TW_INIT(tw_mem_params_t), .access = TW_ACCESS_NONE};
    check(tw_mem_map(context, buffer, bytes, &params, &mem), "tw_mem_map");
    const tw_op_t op = {TW_INIT(tw_op_t), .mem = mem};
    tw_request_h sent = NULL, received = NULL;
    char* in = malloc(bytes);
    const tw_status_t posted = tw_tag_recv(worker, in, bytes, 15, 0, NULL, &received);
    const tw_status_t status = tw_tag_send(ep, buffer, bytes, 15, &op, &sent);
    finish(posted, &received);
    finish(status, &sent);
    check(tw_mem_unmap(context, mem), "tw_mem_unmap");
    check(tw_mem_invalidate(context, in, bytes), "tw_mem_invalidate");  // before it is given back
    free(in);
}

// The owner sends the packed key and the address to the peers that may use the memory.
static size_t pack_key(tw_mem_h mem, char key[TW_KEY_BYTES_MAX]) {
    size_t length = TW_KEY_BYTES_MAX;
    check(tw_mem_pack(mem, key, &length), "tw_mem_pack");
    return length;
}

static void put_and_get(tw_worker_h worker, tw_ep_h ep, const void* packed, size_t length) {
    tw_key_h key;
    tw_key_attr_t attr = {TW_INIT(tw_key_attr_t)};
    check(tw_key_unpack(worker, packed, length, &key), "tw_key_unpack");
    check(tw_key_query(key, &attr), "tw_key_query");
    uint64_t out = 40, in = 0, one = 1, before = 0, two = 2;
    const tw_op_t fenced = {TW_INIT(tw_op_t), .flags = TW_OP_FENCE};
    const tw_iov_t from = {&out, sizeof out}, to = {&in, sizeof in};
    tw_request_h request = NULL;
    finish(tw_put(ep, &out, sizeof out, attr.address, key, NULL, &request), &request);
    finish(tw_get(ep, &in, sizeof in, attr.address, key, &fenced, &request), &request);
    finish(tw_putv(ep, &from, 1, attr.address, key, &fenced, &request), &request);
    finish(tw_getv(ep, &to, 1, attr.address, key, &fenced, &request), &request);
    finish(tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &one, attr.address, key, &fenced, &request),
           &request);
    finish(tw_atomic_fetch(ep, TW_ATOMIC_ADD, TW_UINT64, &one, &before, attr.address, key, &fenced,
                           &request),
           &request);
    finish(
        tw_atomic_cswap(ep, TW_UINT64, &one, &two, &before, attr.address, key, &fenced, &request),
        &request);
    tw_key_free(key);
}

static void put_and_get_lists(tw_worker_h worker, tw_ep_h ep, tw_key_h key, uint64_t address) {
    uint64_t out[4] = {1, 2, 3, 4}, in[4] = {0};
    const tw_piece_t pieces[] = {{&out[0], address + 64, sizeof out[0], key, NULL},
                                 {&out[3], address + 96, sizeof out[3], key, NULL}};
    const tw_stride_t stride = {.local = &in[0],
                                .remote = address + 64,
                                .length = sizeof in[0],
                                .count = 2,
                                .local_distance = sizeof in[0],
                                .remote_distance = 32,
                                .key = key};
    const tw_list_t to = {TW_INIT(tw_list_t), .pieces = pieces, .piece_count = 2};
    const tw_list_t from = {TW_INIT(tw_list_t), .strides = &stride, .stride_count = 1};
    const tw_op_t fenced = {TW_INIT(tw_op_t), .flags = TW_OP_FENCE};
    tw_request_h request = NULL;
    finish(tw_put_list(ep, &to, NULL, &request), &request);
    finish(tw_get_list(ep, &from, &fenced, &request), &request);
    printf("read %llu and %llu\n", (unsigned long long)in[0], (unsigned long long)in[1]);
    // Again and again.
    tw_prepared_h prepared;
    check(tw_prepare(worker, TW_RMA_PUT, &to, &prepared), "tw_prepare");
    for (int i = 0; i < 3; ++i)
        finish(tw_run_prepared(ep, prepared, &fenced, &request), &request);
    tw_prepared_free(prepared);
}

static void explain_key(tw_ep_h ep, tw_key_h key, uint64_t address) {
    void* local = NULL;
    if (tw_key_pointer(ep, key, address, &local) == TW_OK)
        printf("loads and stores reach it at %p\n", local);
    tw_rma_explanation_t way = {TW_INIT(tw_rma_explanation_t)};
    if (tw_key_explain(ep, key, TW_RMA_PUT, TW_ATOMIC_ADD, 4096, 0, &way) == TW_OK)
        printf("a put of 4 KiB goes by %s: %s\n", way.way, way.reason);
}

static void* allocate(tw_context_h context, size_t bytes, tw_mem_h* mem_p) {
    void* memory = NULL;
    check(tw_mem_alloc(context, bytes, NULL, &memory, mem_p), "tw_mem_alloc");
    return memory;
}

#endif
