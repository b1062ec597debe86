/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Put, get and atomics on memory that the domain allocated, reached through a packed and unpacked
 * key.
 */
#include "dual.h"

enum { BYTES = 65536 };

typedef struct {
    pair_t pair;
    uct_allocated_memory_t memory;
    uct_rkey_bundle_t key;
    uint8_t* target;
    uint64_t address;
    volatile int completed;
    uct_completion_t comp;
} state_t;

static void on_completion(uct_completion_t* self) {
    state_t* state = (state_t*)((char*)self - offsetof(state_t, comp));
    CHECK(self->status == UCS_OK);
    ++state->completed;
}

static uct_completion_t* next_completion(state_t* state) {
    state->comp.func = on_completion;
    state->comp.count = 1;
    state->comp.status = UCS_OK;
    state->completed = 0;
    return &state->comp;
}

static void finish(state_t* state, ucs_status_t status) {
    CHECK(status == UCS_OK || status == UCS_INPROGRESS);
    if (status == UCS_INPROGRESS)
        pair_wait(&state->pair, &state->completed, 1);
}

/* Resources may be missing at first: one library needs progress before it reaches the peer's
 * memory. */
#define RETRY(result, call)                          \
    do {                                             \
        int retry_step = 0;                          \
        do {                                         \
            CHECK(retry_step++ < STEPS_MAX);         \
            (result) = (call);                       \
            uct_worker_progress(state->pair.worker); \
        } while ((result) == UCS_ERR_NO_RESOURCE);   \
    } while (0)

static void map_memory(state_t* state) {
    const uct_alloc_method_t method = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params;
    void* packed;

    memset(&params, 0, sizeof(params));
    params.field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS | UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                        UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS | UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                        UCT_MEM_ALLOC_PARAM_FIELD_NAME;
    params.flags = UCT_MD_MEM_ACCESS_ALL;
    params.mem_type = UCS_MEMORY_TYPE_HOST;
    params.mds.mds = &state->pair.md;
    params.mds.count = 1;
    params.name = "dual";
    CHECK_OK(uct_mem_alloc(BYTES, &method, 1, &params, &state->memory));
    CHECK(state->memory.length >= BYTES && state->memory.method == UCT_ALLOC_METHOD_MD);
    CHECK(state->memory.md == state->pair.md && state->memory.memh != UCT_MEM_HANDLE_NULL);
    packed = malloc(state->pair.md_attr.rkey_packed_size);
    CHECK_OK(uct_md_mkey_pack(state->pair.md, state->memory.memh, packed));
    CHECK_OK(uct_rkey_unpack(state->pair.component, packed, &state->key));
    free(packed);
    state->target = state->memory.address;
    state->address = (uintptr_t)state->memory.address;
    memset(state->target, 0, BYTES);
}

static size_t pack_pattern(void* dest, void* arg) {
    const size_t length = *(const size_t*)arg;
    memset(dest, (int)(length % 251), length);
    return length;
}

static void unpack_copy(void* arg, const void* data, size_t length) {
    memcpy(arg, data, length);
}

static void put_and_get(state_t* state) {
    const uct_iface_attr_t* attr = &state->pair.a.attr;
    const size_t longest =
        attr->cap.put.max_bcopy < BYTES / 2 ? attr->cap.put.max_bcopy : BYTES / 2;
    const size_t sizes[] = {1, 8, 100, 4096, longest};
    uint8_t* copy = malloc(BYTES);
    unsigned i, puts = 0, gets = 0;
    ucs_status_t status;
    ssize_t sent;

    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        size_t length = sizes[i];
        RETRY(sent, uct_ep_put_bcopy(state->pair.a.ep, pack_pattern, &length, state->address + 16,
                                     state->key.rkey));
        CHECK(sent == (ssize_t)length);
        pair_flush(&state->pair);
        CHECK(state->target[16] == length % 251 && state->target[16 + length - 1] == length % 251);
        CHECK(state->target[15] == 0);
        ++puts;
        if (length > attr->cap.get.max_bcopy)
            continue;
        memset(copy, 0, BYTES);
        finish(state,
               uct_ep_get_bcopy(state->pair.a.ep, unpack_copy, copy, length, state->address + 16,
                                state->key.rkey, next_completion(state)));
        CHECK(memcmp(copy, state->target + 16, length) == 0 && copy[length] == 0);
        ++gets;
    }
    RETRY(status, uct_ep_put_short(state->pair.b.ep, "twelve bytes", 12, state->address + 40000,
                                   state->key.rkey));
    CHECK(status == UCS_OK);
    pair_flush(&state->pair);
    CHECK(memcmp(state->target + 40000, "twelve bytes", 12) == 0);
    free(copy);
    printf("put short, %u buffered puts and %u buffered gets moved the right bytes\n", puts, gets);
}

static void posted_atomics(state_t* state) {
    static const struct {
        uct_atomic_op_t op;
        uint64_t value;
        uint64_t result;
    } cases[] = {{UCT_ATOMIC_OP_ADD, 5, 0xf0 + 5},
                 {UCT_ATOMIC_OP_AND, 0x3c, 0x30},
                 {UCT_ATOMIC_OP_OR, 0x0f, 0xff},
                 {UCT_ATOMIC_OP_XOR, 0xff, 0x0f}};
    volatile uint64_t* word = (volatile uint64_t*)(void*)state->target;
    volatile uint32_t* half = (volatile uint32_t*)(void*)(state->target + 64);
    unsigned i;

    for (i = 0; i < sizeof(cases) / sizeof(*cases); ++i) {
        *word = 0xf0;
        *half = 0xf0;
        CHECK_OK(uct_ep_atomic64_post(state->pair.a.ep, cases[i].op, cases[i].value, state->address,
                                      state->key.rkey));
        CHECK_OK(uct_ep_atomic32_post(state->pair.a.ep, cases[i].op, (uint32_t)cases[i].value,
                                      state->address + 64, state->key.rkey));
        pair_flush(&state->pair);
        CHECK(*word == cases[i].result && *half == cases[i].result);
    }
    printf("posted atomics: %u operations in 32 and 64 bits\n", i);
}

static void fetching_atomics(state_t* state) {
    volatile uint64_t* word = (volatile uint64_t*)(void*)state->target;
    volatile uint32_t* half = (volatile uint32_t*)(void*)(state->target + 64);
    uint64_t old64 = 0;
    uint32_t old32 = 0;

    *word = UINT64_MAX;
    finish(state, uct_ep_atomic64_fetch(state->pair.a.ep, UCT_ATOMIC_OP_ADD, 2, &old64,
                                        state->address, state->key.rkey, next_completion(state)));
    CHECK(old64 == UINT64_MAX && *word == 1);
    finish(state, uct_ep_atomic64_fetch(state->pair.a.ep, UCT_ATOMIC_OP_SWAP, 77, &old64,
                                        state->address, state->key.rkey, next_completion(state)));
    CHECK(old64 == 1 && *word == 77);
    finish(state, uct_ep_atomic_cswap64(state->pair.a.ep, 76, 5, state->address, state->key.rkey,
                                        &old64, next_completion(state)));
    CHECK(old64 == 77 && *word == 77);
    finish(state, uct_ep_atomic_cswap64(state->pair.a.ep, 77, 5, state->address, state->key.rkey,
                                        &old64, next_completion(state)));
    CHECK(old64 == 77 && *word == 5);
    *half = 7;
    half[1] = 99;
    finish(state,
           uct_ep_atomic32_fetch(state->pair.a.ep, UCT_ATOMIC_OP_ADD, UINT32_MAX, &old32,
                                 state->address + 64, state->key.rkey, next_completion(state)));
    CHECK(old32 == 7 && *half == 6 && half[1] == 99);
    finish(state, uct_ep_atomic_cswap32(state->pair.a.ep, 6, 1, state->address + 64,
                                        state->key.rkey, &old32, next_completion(state)));
    CHECK(old32 == 6 && *half == 1);
    printf("fetching atomics: add wraps, swap and compare-and-swap return the old value\n");
}

int main(int argc, char** argv) {
    static state_t state;
    CHECK(argc == 2);
    pair_open(&state.pair, argv[1],
              UCT_IFACE_FEATURE_PUT | UCT_IFACE_FEATURE_GET | UCT_IFACE_FEATURE_AMO32 |
                  UCT_IFACE_FEATURE_AMO64);
    printf("md allocates host memory: %s\n",
           yes_no((state.pair.md_attr.cap.flags & UCT_MD_FLAG_ALLOC) != 0 &&
                  (state.pair.md_attr.cap.alloc_mem_types & UCS_BIT(UCS_MEMORY_TYPE_HOST)) != 0));
    map_memory(&state);
    put_and_get(&state);
    posted_atomics(&state);
    fetching_atomics(&state);
    CHECK_OK(uct_rkey_release(state.pair.component, &state.key));
    CHECK_OK(uct_mem_free(&state.memory));
    pair_close(&state.pair);
    printf("done\n");
    return 0;
}
