// SPDX-License-Identifier: BSD-3-Clause
// Extension of rdma-core's interfaces by the virtual HCA: tag matching over DC. Programs find the
// function with dlsym() in libtagwire-vhca.so; no card's library has it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

/// A DCT may have a tag-matching SRQ.
inline constexpr std::uint32_t TAGWIRE_VHCA_TM_DC = 1;
/// The device carries out a rendezvous that came to such a DCT: it reads the data from the DCT that
/// the request's RAVH names, and sends the FIN there. Without it a match completes with
/// IBV_WC_TM_RNDV_INCOMPLETE, and software carries it out.
inline constexpr std::uint32_t TAGWIRE_VHCA_TM_DC_RENDEZVOUS = 2;

struct tagwire_vhca_tm_caps {
    std::uint32_t flags;  // TAGWIRE_VHCA_TM_*
};

/// Header after TMH and RVH in a rendezvous request over DC; network byte order.
struct tagwire_vhca_ravh {
    std::uint32_t sl_dctn;  // service level in the highest byte, number of the sender's DCT below
    std::uint32_t reserved;
    std::uint64_t dc_access_key;
};

extern "C" [[gnu::visibility("default")]] int tagwire_vhca_query_tm(ibv_context* context,
                                                                    tagwire_vhca_tm_caps* caps);
