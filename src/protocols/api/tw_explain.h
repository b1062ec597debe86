// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Explained protocols: which one a message uses, why, and at which estimated cost.
///
/// Also stores the measurements behind the estimate. docs/reference/messaging.md, "How a protocol
/// is chosen", has the rules. Included by tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_EXPLAIN_H
#define TAGWIRE_PROTOCOLS_API_TW_EXPLAIN_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_PROTOCOLS_MAX 8   ///< Limit of tw_explanation_t.protocols.
#define TW_COST_TERMS_MAX 8  ///< No cost has more terms.

/// Kind of a message's buffer.
typedef enum tw_buffer_kind {
    TW_BUFFER_PLAIN,   ///< Ordinary memory.
    TW_BUFFER_MAPPED,  ///< Memory with a handle of tw_mem_map(), at both sides.
    TW_BUFFER_LIST     ///< A gather list.
} tw_buffer_kind_t;

/// A part of a cost. Names are constants of the library.
typedef struct tw_cost_term {
    const char* name;  ///< "overhead", "latency", "data", "registration", ...
    double ns;
} tw_cost_term_t;

/// Cost that a message would have by one protocol.
typedef struct tw_protocol_cost {
    const char* name;      ///< short, bcopy, parts, rndv_get, rndv_put, rndv_copy or rndv_striped.
    const char* obstacle;  ///< Why it cannot be used; NULL: it can.
    int is_measured;       ///< 1: measured on this machine, 0: modelled.
    double ns;  ///< From the call until both sides are done with their buffers: sum of the terms.
    unsigned term_count;
    tw_cost_term_t terms[TW_COST_TERMS_MAX];
    uint64_t reserved[2] TW_CXX_DEFAULT({});  ///< Room for later versions; 0.
} tw_protocol_cost_t;

/// The protocol of a message, and the reason for it. The program sets struct_bytes.
typedef struct tw_explanation {
    size_t struct_bytes
        TW_CXX_DEFAULT(sizeof(struct tw_explanation));  ///< sizeof(tw_explanation_t).
    char transport[16];
    char device[32];
    size_t length;
    tw_buffer_kind_t buffer;
    size_t rndv_from;  ///< Shortest message that goes by rendezvous; SIZE_MAX: none.
    /// Shortest data that is divided over several rails, if it is read or written; SIZE_MAX: none.
    size_t striped_from;
    unsigned chosen;   ///< Index into `protocols`.
    const char* rule;  ///< Reason for the choice, a sentence.
    char knob[192];    ///< The setting that it rests on, with its value: "TAGWIRE_...=8192".
    /// File of the measured costs, or what the receiver of an endpoint has measured; "" when
    /// nothing was measured.
    char source[256];
    unsigned protocol_count;
    tw_protocol_cost_t protocols[TW_PROTOCOLS_MAX];
    /// Kind of copies by which the sender brings such a message into shared memory, if it is copied
    /// through it: "libc", "vector" or "nontemporal"; of an endpoint the one in use now.
    /// NULL: not shared memory.
    const char* copy_in;
    const char* copy_out;  ///< Kind of the receiver's copy out of shared memory.
    char copy_kinds[64];   ///< Kinds of copies that this processor has: "libc nontemporal vector".
} tw_explanation_t;

/// Explains how a message of a worker goes over one of its transports.
///
/// `transport` is named with or without its device ("sm", "rc:mlx5_0:1"), `length` is in bytes.
///
/// \retval TW_OK  *explanation is filled; its texts are constants of the library.
/// \retval TW_ERR_NO_ELEM  The worker has not opened this transport.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or `buffer` is no kind of buffer.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_worker_explain(tw_worker_h worker, const char* transport, size_t length,
                                          tw_buffer_kind_t buffer, tw_explanation_t* explanation);

/// Explains how a message of an endpoint goes over the transport that the endpoint uses.
///
/// \retval TW_OK  *explanation is filled; its texts are constants of the library.
/// \retval TW_ERR_NOT_CONNECTED  The endpoint has not chosen a transport yet, or has failed.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, or `buffer` is no kind of buffer.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_ep_explain(tw_ep_h ep, size_t length, tw_buffer_kind_t buffer,
                                      tw_explanation_t* explanation);

// ---- Measured costs. `tagwire tune` uses these calls.

/// One measurement.
typedef struct tw_cost_sample {
    const char* transport;
    const char* device;
    /// A protocol, "registration": what tw_mem_map() costs there, or "copy_in_" or "copy_out_" and
    /// a kind of copies: a message whose sender or receiver copies so.
    const char* what;
    size_t length;  ///< Length of the message, in bytes.
    double ns;
    uint64_t reserved[2] TW_CXX_DEFAULT({});  ///< Room for later versions; 0.
} tw_cost_sample_t;

/// Stores measured costs of this machine in a file.
///
/// `path` NULL: the file of tw_calibration_path(). The measurements replace those that the file had
/// of the same devices; those of other devices stay. Contexts read the file when they are created.
/// Any thread.
///
/// \retval TW_OK  Stored.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL, a protocol does not exist, a time is not a
///     positive number, `reserved` is not 0, or neither XDG_CONFIG_HOME nor HOME says where
///     the file is.
/// \retval TW_ERR_IO_ERROR  The file cannot be written; the log says why.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_calibration_store(const char* path, const tw_cost_sample_t* samples,
                                             size_t count);

/// Writes the path of the file in which the library looks for measured costs by default.
///
/// `path` has *length_p bytes; *length_p gets the length of the path with its terminating 0.
/// Any thread.
///
/// \retval TW_OK  Written.
/// \retval TW_ERR_BUFFER_TOO_SMALL  More bytes are needed; *length_p says how many.
/// \retval TW_ERR_NO_ELEM  Neither XDG_CONFIG_HOME nor HOME says where.
/// \retval TW_ERR_INVALID_PARAM  An argument is NULL.
/// \retval TW_ERR_NO_MEMORY  Out of memory.
TAGWIRE_API tw_status_t tw_calibration_path(char* path, size_t* length_p);

#ifdef __cplusplus
}
#endif

#endif
