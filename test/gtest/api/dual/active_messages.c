/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Active messages both ways: short and buffered, every size that matters, contents checked by the
 * receiver, a handler that answers from inside, a kept descriptor, and a handler that is replaced.
 */
#include "dual.h"

enum { ID_DATA = 3, ID_PING = 4, ID_KEEP = 31, ROUNDS = 200 };

typedef struct {
    pair_t pair;
    volatile int received;
    size_t expected_bytes;
    uint64_t expected_header;
    volatile int pings_left;
    volatile int pings_seen;
    void* kept;
    unsigned kept_flags;
    size_t kept_bytes;
} state_t;

static void fill(uint8_t* bytes, size_t length, unsigned seed) {
    size_t i;
    for (i = 0; i < length; ++i)
        bytes[i] = (uint8_t)(seed + i * 7);
}

static int is_filled(const uint8_t* bytes, size_t length, unsigned seed) {
    size_t i;
    for (i = 0; i < length; ++i)
        if (bytes[i] != (uint8_t)(seed + i * 7))
            return 0;
    return 1;
}

static size_t pack_bytes(void* dest, void* arg) {
    const size_t length = *(const size_t*)arg;
    fill(dest, length, (unsigned)length);
    return length;
}

static ucs_status_t on_short(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    uint64_t header;
    (void)flags;
    CHECK(length == state->expected_bytes + sizeof(header));
    memcpy(&header, data, sizeof(header));
    CHECK(header == state->expected_header);
    CHECK(is_filled((const uint8_t*)data + sizeof(header), state->expected_bytes, 1));
    ++state->received;
    return UCS_OK;
}

static ucs_status_t on_bcopy(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    (void)flags;
    CHECK(length == state->expected_bytes);
    CHECK(is_filled(data, length, (unsigned)length));
    ++state->received;
    return UCS_OK;
}

static void send_short(state_t* state, uct_ep_h ep, uint8_t id, const void* payload,
                       size_t length) {
    ucs_status_t status;
    int step = 0;
    do {
        CHECK(step++ < STEPS_MAX);
        status = uct_ep_am_short(ep, id, state->expected_header, payload, (unsigned)length);
        if (status != UCS_OK)
            uct_worker_progress(state->pair.worker);
    } while (status == UCS_ERR_NO_RESOURCE);
    CHECK(status == UCS_OK);
}

static void send_bcopy(state_t* state, uct_ep_h ep, uint8_t id, size_t length) {
    ssize_t sent;
    int step = 0;
    do {
        CHECK(step++ < STEPS_MAX);
        sent = uct_ep_am_bcopy(ep, id, pack_bytes, &length, 0);
        if (sent < 0)
            uct_worker_progress(state->pair.worker);
    } while (sent == UCS_ERR_NO_RESOURCE);
    CHECK(sent == (ssize_t)length);
}

static void short_sizes(state_t* state) {
    const size_t longest = state->pair.a.attr.cap.am.max_short - sizeof(uint64_t);
    const size_t sizes[] = {0, 1, 7, 8, longest - 1, longest};
    uint8_t* payload = malloc(longest + 1);
    unsigned i;

    CHECK_OK(uct_iface_set_am_handler(state->pair.b.iface, ID_DATA, on_short, state, 0));
    fill(payload, longest, 1);
    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        state->expected_bytes = sizes[i];
        state->expected_header = 0x1122334455667788ul + i;
        state->received = 0;
        send_short(state, state->pair.a.ep, ID_DATA, payload, sizes[i]);
        pair_wait(&state->pair, &state->received, 1);
    }
    free(payload);
    printf("short: %u sizes from 0 to the longest arrived whole\n", i);
}

static void bcopy_sizes(state_t* state) {
    const size_t longest = state->pair.a.attr.cap.am.max_bcopy;
    const size_t sizes[] = {0, 1, 64, 65, longest - 1, longest};
    unsigned i;

    CHECK_OK(
        uct_iface_set_am_handler(state->pair.b.iface, ID_DATA, on_bcopy, state, UCT_CB_FLAG_ASYNC));
    for (i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
        state->expected_bytes = sizes[i];
        state->received = 0;
        send_bcopy(state, state->pair.a.ep, ID_DATA, sizes[i]);
        pair_wait(&state->pair, &state->received, 1);
    }
    printf("bcopy: %u sizes from 0 to the longest arrived whole\n", i);
}

static ucs_status_t on_ping_b(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    (void)data, (void)length, (void)flags;
    ++state->pings_seen;
    send_short(state, state->pair.b.ep, ID_PING, NULL, 0); /* answers from inside the handler */
    return UCS_OK;
}

static ucs_status_t on_ping_a(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    (void)data, (void)length, (void)flags;
    ++state->received;
    if (--state->pings_left > 0)
        send_short(state, state->pair.a.ep, ID_PING, NULL, 0);
    return UCS_OK;
}

static void ping_pong(state_t* state) {
    CHECK_OK(uct_iface_set_am_handler(state->pair.a.iface, ID_PING, on_ping_a, state, 0));
    CHECK_OK(uct_iface_set_am_handler(state->pair.b.iface, ID_PING, on_ping_b, state, 0));
    state->received = 0;
    state->pings_left = ROUNDS;
    send_short(state, state->pair.a.ep, ID_PING, NULL, 0);
    pair_wait(&state->pair, &state->received, ROUNDS);
    printf("ping-pong: %d pings, %d answers\n", state->pings_seen, state->received);
}

static ucs_status_t on_keep(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    ++state->received;
    if (state->kept != NULL || !(flags & UCT_CB_PARAM_FLAG_DESC))
        return UCS_OK;
    state->kept = data;
    state->kept_bytes = length;
    return UCS_INPROGRESS;
}

static void kept_descriptor(state_t* state) {
    const size_t length = 100;
    int i;

    CHECK_OK(uct_iface_set_am_handler(state->pair.b.iface, ID_KEEP, on_keep, state, 0));
    state->received = 0;
    for (i = 0; i < 20; ++i)
        send_bcopy(state, state->pair.a.ep, ID_KEEP, length);
    pair_wait(&state->pair, &state->received, 20);
    if (state->kept != NULL) {
        CHECK(state->kept_bytes == length && is_filled(state->kept, length, (unsigned)length));
        memset((char*)state->kept - 16, 0xff, 16); /* the headroom is ours */
        uct_iface_release_desc((char*)state->kept - 16);
    }
    printf("a kept descriptor stayed whole under %d messages\n", i);
}

static void refused_handlers(state_t* state) {
    printf("handler with id UCT_AM_ID_MAX: status %d\n",
           (int)uct_iface_set_am_handler(state->pair.a.iface, UCT_AM_ID_MAX, on_keep, state, 0));
    printf("handler removed: status %d\n",
           (int)uct_iface_set_am_handler(state->pair.b.iface, ID_DATA, NULL, NULL, 0));
    state->received = 0;
    send_bcopy(state, state->pair.a.ep, ID_DATA, 8); /* dropped, and the next one is not */
    send_bcopy(state, state->pair.a.ep, ID_KEEP, 100);
    pair_wait(&state->pair, &state->received, 1);
    printf("a message without a handler is dropped, the next one arrives\n");
}

int main(int argc, char** argv) {
    static state_t state;
    CHECK(argc == 2);
    pair_open(&state.pair, argv[1], UCT_IFACE_FEATURE_AM);
    short_sizes(&state);
    bcopy_sizes(&state);
    ping_pong(&state);
    kept_descriptor(&state);
    refused_handlers(&state);
    pair_flush(&state.pair);
    pair_close(&state.pair);
    printf("done\n");
    return 0;
}
