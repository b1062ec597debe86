/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A receiver that does not progress: sends end in UCS_ERR_NO_RESOURCE, pending requests take their
 * turn in order, a purge hands requests back, flush and fence end, nothing is lost or swapped.
 */
#include "dual.h"

enum { ID_NUMBER = 7, PENDING = 5, SENDS_MAX = 10000000 };

typedef struct {
    uct_pending_req_t uct;
    struct state* state;
    uint64_t number;
} request_t;

typedef struct state {
    pair_t pair;
    uint64_t next_sent;
    uint64_t next_expected;
    volatile int received;
    int retried;
    int purged;
    request_t requests[PENDING];
} state_t;

static ucs_status_t on_number(void* arg, void* data, size_t length, unsigned flags) {
    state_t* state = arg;
    uint64_t number;
    (void)flags;
    CHECK(length == sizeof(number));
    memcpy(&number, data, sizeof(number));
    CHECK(number == state->next_expected);
    ++state->next_expected;
    ++state->received;
    return UCS_OK;
}

static ucs_status_t on_retry(uct_pending_req_t* self) {
    request_t* request = (request_t*)(void*)self;
    const ucs_status_t status =
        uct_ep_am_short(request->state->pair.a.ep, ID_NUMBER, request->number, NULL, 0);
    if (status == UCS_OK)
        ++request->state->retried;
    return status;
}

static void on_purge(uct_pending_req_t* self, void* arg) {
    state_t* state = arg;
    CHECK(self == &state->requests[state->purged].uct);
    ++state->purged;
}

/* Only the sender's side makes progress, so that the receiver's queue fills. */
static void fill_up(state_t* state) {
    ucs_status_t status;
    do {
        CHECK(state->next_sent < SENDS_MAX);
        status = uct_ep_am_short(state->pair.a.ep, ID_NUMBER, state->next_sent, NULL, 0);
        if (status == UCS_OK)
            ++state->next_sent;
    } while (status == UCS_OK);
    CHECK(status == UCS_ERR_NO_RESOURCE);
    CHECK(uct_ep_am_short(state->pair.a.ep, ID_NUMBER, 0, NULL, 0) == UCS_ERR_NO_RESOURCE);
}

static void add_pending(state_t* state) {
    int i;
    for (i = 0; i < PENDING; ++i) {
        request_t* request = &state->requests[i];
        request->uct.func = on_retry;
        request->state = state;
        request->number = state->next_sent + (uint64_t)i;
        CHECK_OK(uct_ep_pending_add(state->pair.a.ep, &request->uct, 0));
    }
}

int main(int argc, char** argv) {
    static state_t state;
    CHECK(argc == 2);
    pair_open(&state.pair, argv[1], UCT_IFACE_FEATURE_AM);
    CHECK_OK(uct_iface_set_am_handler(state.pair.b.iface, ID_NUMBER, on_number, &state, 0));

    fill_up(&state);
    printf("a full queue answers no resource, again and again\n");
    add_pending(&state);
    uct_ep_pending_purge(state.pair.a.ep, on_purge, &state);
    printf("purged: %d of %d in order\n", state.purged, PENDING);

    add_pending(&state);
    state.next_sent += PENDING;
    pair_wait(&state.pair, &state.received, (int)state.next_sent);
    printf("retried: %d; every message arrived once and in order\n", state.retried);

    printf("ep fence: status %d\n", (int)uct_ep_fence(state.pair.a.ep, 0));
    printf("iface fence: status %d\n", (int)uct_iface_fence(state.pair.a.iface, 0));
    CHECK_OK(uct_ep_am_short(state.pair.a.ep, ID_NUMBER, state.next_sent, NULL, 0));
    ++state.next_sent;
    pair_flush(&state.pair);
    pair_wait(&state.pair, &state.received, (int)state.next_sent);
    printf("flush with nothing outstanding: status %d\n",
           (int)uct_iface_flush(state.pair.a.iface, UCT_FLUSH_FLAG_LOCAL, NULL));
    pair_close(&state.pair);
    printf("done\n");
    return 0;
}
