// SPDX-License-Identifier: BSD-3-Clause
// Dynamically connected queue pairs (mlx5dv_create_qp(3)): the functions of libmlx5 that make them,
// and targets and initiators in their states.
//
// An initiator (DCI) sends to any target (DCT), each request to the one that it names; it has no
// receive side. A target only receives, for a shared receive queue. The functions are found when
// the program runs, in libmlx5 beside the system's libibverbs or in the virtual HCA.
//
// Threads: owner of the interface. Sources: mlx5dv_create_qp(3), mlx5dv_wr_post(3), ibv_wr_post(3).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <ucs/type/status.h>

#include <cstdint>
#include <string>

#include "uct/ib/ib_md.hpp"

namespace tagwire::dc {

struct DcVerbs {
    decltype(&::mlx5dv_is_supported) is_supported = nullptr;
    decltype(&::mlx5dv_query_device) query_device = nullptr;
    decltype(&::mlx5dv_create_qp) create_qp = nullptr;
    decltype(&::mlx5dv_qp_ex_from_ibv_qp_ex) to_mlx5 = nullptr;
    decltype(&::ibv_qp_to_qp_ex) to_extended = nullptr;
    decltype(&::mlx5dv_dci_stream_id_reset) reset_stream = nullptr;  // null in older libraries
};

/// Tag matching that the device offers for messages to a target.
struct DcTagMatching {
    bool is_offered = false;      // a target may have a tag-matching SRQ
    bool has_rendezvous = false;  // and the device carries out what comes there
};

/// DC verbs of the device's library. Null: `*reason_p` gets half a sentence ("is no mlx5 device").
const DcVerbs* dc_verbs_of(const ib::Device& device, std::string* reason_p);
/// Streams that a DCI of the device may have, as a power of two; 0: it has none. One that failed
/// does not stop the others, if twice as many are asked for as are used.
unsigned dc_streams_log_max(const ib::Device& device, const DcVerbs& dc);
/// Whether a stream that failed can be made to work again: libmlx5 does so by a command of
/// firmware, and says EOPNOTSUPP where the kernel gave it no DEVX. A DCI is made and tried. If it
/// cannot be made nothing is told: whoever makes the real ones says why.
bool can_reset_streams(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port);
/// Nothing of that is in rdma-core: only the virtual HCA tells.
DcTagMatching dc_tag_matching_of(const ib::Device& device);

/// Everything that a sender needs to reach a target: path, access key, number.
struct TargetAddress {
    ibv_ah* path;
    std::uint64_t key;
    std::uint32_t number;  // 24 bits
};

struct TargetParams {
    std::uint64_t key;
    ibv_srq* srq;
    ibv_cq* cq;
    void* context;  // the mailbox of its asynchronous events
    std::uint8_t rnr_timer_code;
};

/// A target that takes messages; its number (`qp_num`) is valid. Errors are logged.
ucs_status_t make_target(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port,
                         const TargetParams& params, ib::OwnedQp* qp_p);

struct InitiatorParams {
    ibv_cq* cq;
    void* context;
    unsigned depth;
    unsigned sges_max;
    std::uint32_t inline_bytes;  // wanted; what it has on return
    unsigned streams_log;        // 0: none
    std::uint8_t timeout_code;
    std::uint8_t retry_count;
    std::uint8_t rnr_retry;
    std::uint8_t reads;
    ibv_mtu mtu;
    bool is_first = false;  // one that cannot be made is one that asks for too much
};

struct Initiator {
    ib::OwnedQp qp{nullptr, nullptr};
    ibv_qp_ex* extended = nullptr;
    mlx5dv_qp_ex* mlx5 = nullptr;
    bool has_streams = false;
};

/// An initiator that is ready to send. Errors are logged; that of the first one with the limit that
/// it does not meet: UCS_ERR_EXCEEDS_LIMIT, or UCS_ERR_NO_MEMORY.
ucs_status_t make_initiator(const ib::IbMd& md, const DcVerbs& dc, const ib::Port& port,
                            InitiatorParams& params, Initiator* initiator_p);
/// From any state: what was posted is gone without a completion, and it is ready to send.
ucs_status_t restart(const ib::IbMd& md, const ib::Port& port, const InitiatorParams& params,
                     const Initiator& initiator);

/// A stream that failed works again; what was posted there has been flushed.
ucs_status_t restart_stream(const ib::IbMd& md, const DcVerbs& dc, const Initiator& initiator,
                            std::uint16_t stream);

}  // namespace tagwire::dc
