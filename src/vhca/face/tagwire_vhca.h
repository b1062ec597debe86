/* SPDX-License-Identifier: BSD-3-Clause */
/* What the virtual HCA offers beyond rdma-core's interfaces. Programs find the function with
 * dlsym() in libtagwire-vhca.so; a card has nothing of the kind. */
#ifndef TAGWIRE_VHCA_H
#define TAGWIRE_VHCA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_context;

/* A DCT may have a tag-matching SRQ. */
#define TAGWIRE_VHCA_TM_DC 1u
/* The device carries out a rendezvous that came to such a DCT: it reads the data from the DCT that
 * the request's RAVH names, and sends the FIN there. Without it a match completes with
 * IBV_WC_TM_RNDV_INCOMPLETE. */
#define TAGWIRE_VHCA_TM_DC_RENDEZVOUS 2u

struct tagwire_vhca_tm_caps {
    uint32_t flags; /* TAGWIRE_VHCA_TM_* */
};

/* What follows TMH and RVH in a rendezvous request over DC; network byte order. */
struct tagwire_vhca_ravh {
    uint32_t sl_dctn; /* service level in the highest byte, number of the sender's DCT below */
    uint32_t reserved;
    uint64_t dc_access_key;
};

/* 0. */
int tagwire_vhca_query_tm(struct ibv_context *context, struct tagwire_vhca_tm_caps *caps);

#ifdef __cplusplus
}
#endif
#endif
