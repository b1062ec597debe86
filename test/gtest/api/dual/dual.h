/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Common code of the dual programs. Each program is compiled twice from the same text: against
 * UCX's headers and libraries, and against tagwire's; it runs over the transport named on its
 * command line and prints what it saw. The outputs must be equal, so they hold behaviour only and
 * no limit or address of one library.
 */
#ifndef DUAL_H
#define DUAL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct/api/uct.h>

#define STEPS_MAX 1000000

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("FAILED %s line %d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define CHECK_OK(call)                                                                     \
    do {                                                                                   \
        const ucs_status_t check_status = (call);                                          \
        if (check_status != UCS_OK) {                                                      \
            printf("FAILED line %d: %s: status %d\n", __LINE__, #call, (int)check_status); \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* Two interfaces of one process, each with an endpoint to the other. */
typedef struct {
    uct_iface_h iface;
    uct_iface_attr_t attr;
    uct_ep_h ep;
} side_t;

typedef struct {
    ucs_async_context_t* async;
    uct_worker_h worker;
    uct_component_h component;
    uct_md_h md;
    uct_md_attr_t md_attr;
    side_t a;
    side_t b;
} pair_t;

void pair_open(pair_t* pair, const char* tl_name, uint64_t features);
void pair_close(pair_t* pair);

/* Progresses until *counter is at least `goal`. */
void pair_wait(pair_t* pair, const volatile int* counter, int goal);

/* Flushes both endpoints. */
void pair_flush(pair_t* pair);

static inline const char* yes_no(int condition) {
    return condition ? "yes" : "no";
}

#endif
