// SPDX-License-Identifier: BSD-3-Clause
//
// Explains which protocol a message uses, why, and at which estimated cost; stores the measurements
// behind the estimate. docs/reference/messaging.md, "How a protocol is chosen". Included by
// tagwire.h.
#ifndef TAGWIRE_PROTOCOLS_API_TW_EXPLAIN_H
#define TAGWIRE_PROTOCOLS_API_TW_EXPLAIN_H

#include <protocols/api/tw_def.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_PROTOCOLS_MAX 8   ///< There are no more protocols.
#define TW_COST_TERMS_MAX 8  ///< No cost has more terms.

/// Kind of a message's buffer.
typedef enum tw_buffer_kind {
    TW_BUFFER_PLAIN,   ///< Ordinary memory.
    TW_BUFFER_MAPPED,  ///< It has a handle of tw_mem_map(), at both sides.
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
    const char* obstacle;  ///< Why it cannot go so; NULL: it can.
    int is_measured;       ///< 1: measured on this machine, 0: modelled.
    double ns;  ///< From the call until both sides are done with their buffers: sum of the terms.
    unsigned term_count;
    tw_cost_term_t terms[TW_COST_TERMS_MAX];
} tw_protocol_cost_t;

/// The protocol of a message, and the reason for it.
typedef struct tw_explanation {
    char transport[16];
    char device[32];
    size_t length;
    tw_buffer_kind_t buffer;
    size_t rndv_from;  ///< Shortest message that goes by rendezvous; SIZE_MAX: none.
    /// Shortest data that is divided over several rails, if it is read or written; SIZE_MAX: none.
    size_t striped_from;
    unsigned chosen;   ///< In `protocols`.
    const char* rule;  ///< Reason for the choice, a sentence.
    char knob[192];    ///< The setting that it rests on, with its value: "TAGWIRE_...=8192".
    char source[256];  ///< Where measured costs are from: a file; "" when nothing was measured.
    unsigned protocol_count;
    tw_protocol_cost_t protocols[TW_PROTOCOLS_MAX];
} tw_explanation_t;

/// Explains how a message of `length` bytes goes over a transport of the worker, named with or
/// without its device ("sm", "rc:mlx5_0:1"). TW_ERR_NO_ELEM: the worker has not opened it.
TAGWIRE_API tw_status_t tw_worker_explain(tw_worker_h worker, const char* transport, size_t length,
                                          tw_buffer_kind_t buffer, tw_explanation_t* explanation);

/// The same over the transport that this endpoint uses. TW_ERR_NOT_CONNECTED: it has not chosen
/// one yet, or has failed.
TAGWIRE_API tw_status_t tw_ep_explain(tw_ep_h ep, size_t length, tw_buffer_kind_t buffer,
                                      tw_explanation_t* explanation);

// ---- Measured costs. `tagwire tune` uses these calls.

/// One measurement.
typedef struct tw_cost_sample {
    const char* transport;
    const char* device;
    const char* what;  ///< A protocol, or "registration": what tw_mem_map() costs there.
    size_t length;     ///< Length of the message, in bytes.
    double ns;
} tw_cost_sample_t;

/// Stores measurements in the file `path` (NULL: where the library looks), as this machine's.
/// They replace those that the file had of the same devices; those of others stay. Contexts read
/// the file when they are created. TW_ERR_INVALID_PARAM: there is no such protocol, or a time
/// cannot be. TW_ERR_IO_ERROR: the file cannot be written; the log says why.
TAGWIRE_API tw_status_t tw_calibration_store(const char* path, const tw_cost_sample_t* samples,
                                             size_t count);

/// Writes the path of the file in which the library looks by default into `path`, which has
/// *length_p bytes; *length_p gets those that it takes, with the NUL. TW_ERR_BUFFER_TOO_SMALL:
/// more are needed. TW_ERR_NO_ELEM: neither XDG_CONFIG_HOME nor HOME says where.
TAGWIRE_API tw_status_t tw_calibration_path(char* path, size_t* length_p);

#ifdef __cplusplus
}
#endif

#endif
