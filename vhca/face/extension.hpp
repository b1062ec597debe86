// SPDX-License-Identifier: BSD-3-Clause
// Extensions of rdma-core's interfaces by the virtual HCA: tag matching over DC, and incidents for
// tests. Programs find the functions with dlsym() in libtagwire-vhca.so; no library of a card has
// them.
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

/// Makes the device of `context` meet an incident, for all contexts of this process:
/// "device-fatal", "port-down", "port-up", "lid-change", "gid-change", "pkey-change", "sm-change",
/// "reregister" or "srq-error" (vhca/README.md). Any thread. 0, or an errno value: EINVAL for
/// a name that is none, EIO when the device is dead.
extern "C" [[gnu::visibility("default")]] int tagwire_vhca_inject(ibv_context* context,
                                                                  const char* incident);
