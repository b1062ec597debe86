// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Handles, limits, and callback types of the transport API. Included by uct.h; names and numbers
/// are UCX 1.13's.
///
/// Structure tags start with tagwire_ and stay behind the typedef names: C++ types of UCX and of
/// tagwire that live in one process must differ by name, because the linker merges same-named
/// template instances.
#ifndef TAGWIRE_UCT_API_UCT_DEF_H
#define TAGWIRE_UCT_API_UCT_DEF_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <ucs/config/types.h>
#include <ucs/type/status.h>

#define UCT_COMPONENT_NAME_MAX 16  ///< Bytes, the terminating 0 included, as in the next three.
#define UCT_TL_NAME_MAX 10
#define UCT_MD_NAME_MAX 16
#define UCT_DEVICE_NAME_MAX 32
#define UCT_PENDING_REQ_PRIV_LEN 40  ///< Bytes of a pending request that belong to the transport.
#define UCT_TAG_PRIV_LEN 32          ///< Bytes of a tag context that belong to the transport.
#define UCT_AM_ID_BITS 5
#define UCT_AM_ID_MAX \
    UCS_BIT(UCT_AM_ID_BITS)  ///< Active-message identifiers are 0..UCT_AM_ID_MAX-1.
#define UCT_MEM_HANDLE_NULL NULL
#define UCT_INVALID_RKEY ((uintptr_t)(-1))
#define UCT_INLINE_API static UCS_F_ALWAYS_INLINE

/// Kinds of events that an active-message tracer is told about.
enum tagwire_uct_am_trace_type {
    UCT_AM_TRACE_TYPE_SEND,
    UCT_AM_TRACE_TYPE_RECV,
    UCT_AM_TRACE_TYPE_SEND_DROP,
    UCT_AM_TRACE_TYPE_RECV_DROP,
    UCT_AM_TRACE_TYPE_LAST
};

/// Flags that receive callbacks get.
///
///       descriptor     data
///       |              |
///       +--------------+----------------------+
///       | rx_headroom  | payload              |
///       +--------------+----------------------+
enum tagwire_uct_cb_param_flags {
    /// `data` is in a descriptor: the callback may return UCS_INPROGRESS, keep it (and use the
    /// headroom before it), and
    /// give it back with uct_iface_release_desc(). Without this flag the data is gone when the
    /// callback returns.
    UCT_CB_PARAM_FLAG_DESC = UCS_BIT(0),
    UCT_CB_PARAM_FLAG_FIRST = UCS_BIT(1),  ///< First fragment of an unexpected eager message.
    UCT_CB_PARAM_FLAG_MORE = UCS_BIT(2)    ///< Further fragments of the message follow.
};

typedef struct tagwire_uct_component* uct_component_h;
typedef struct tagwire_uct_iface* uct_iface_h;
typedef struct tagwire_uct_iface_config uct_iface_config_t;
typedef struct tagwire_uct_md_config uct_md_config_t;
typedef struct tagwire_uct_cm_config uct_cm_config_t;
typedef struct tagwire_uct_ep* uct_ep_h;
typedef void* uct_mem_h;
typedef uintptr_t uct_rkey_t;
typedef struct tagwire_uct_md* uct_md_h;
typedef struct tagwire_uct_md_ops uct_md_ops_t;
typedef void* uct_rkey_ctx_h;
typedef struct tagwire_uct_iface_attr uct_iface_attr_t;
typedef struct tagwire_uct_iface_params uct_iface_params_t;
typedef struct tagwire_uct_ep_attr uct_ep_attr_t;
typedef struct tagwire_uct_md_attr uct_md_attr_t;
typedef struct tagwire_uct_completion uct_completion_t;
typedef struct tagwire_uct_pending_req uct_pending_req_t;
typedef struct tagwire_uct_worker* uct_worker_h;
typedef struct tagwire_uct_md uct_md_t;
typedef enum tagwire_uct_am_trace_type uct_am_trace_type_t;
typedef struct tagwire_uct_device_addr uct_device_addr_t;
typedef struct tagwire_uct_iface_addr uct_iface_addr_t;
typedef struct tagwire_uct_ep_addr uct_ep_addr_t;
typedef struct tagwire_uct_ep_params uct_ep_params_t;
typedef struct tagwire_uct_ep_connect_params uct_ep_connect_params_t;
typedef struct tagwire_uct_cm_attr uct_cm_attr_t;
typedef struct tagwire_uct_cm uct_cm_t;
typedef uct_cm_t* uct_cm_h;
typedef struct tagwire_uct_listener_attr uct_listener_attr_t;
typedef struct tagwire_uct_listener uct_listener_t;
typedef uct_listener_t* uct_listener_h;
typedef struct tagwire_uct_listener_params uct_listener_params_t;
typedef struct tagwire_uct_tag_context uct_tag_context_t;
typedef uint64_t uct_tag_t;
typedef int uct_worker_cb_id_t;
typedef void* uct_conn_request_h;

/// One element of a gather or scatter list: `count` pieces of `length` bytes whose beginnings are
/// `stride` bytes apart.
///
///       buffer
///       +-----------+-------+-----------+-------+-----------+
///       |  payload  |       |  payload  |       |  payload  |
///       +-----------+-------+-----------+-------+-----------+
///       |<-length-->|
///       |<----- stride ---->|
///
/// With `count` 1 (the usual case) `stride` is not read. When `length` or `count` is 0 the buffer
/// is not touched. The lengths of a whole list add up to at most max_zcopy of the operation.
typedef struct tagwire_uct_iov {
    void* buffer;
    size_t length;
    uct_mem_h memh;  ///< Local registration of the buffer; UCT_MEM_HANDLE_NULL unless the md says
                     ///< NEED_MEMH.
    size_t stride;
    unsigned count;
} uct_iov_t;

/// Active message arrived. Runs inside progress of the receiving worker; may call any operation but
/// progress. UCS_OK: done with the data. UCS_INPROGRESS (only with UCT_CB_PARAM_FLAG_DESC): the
/// callback keeps the data until it calls uct_iface_release_desc(). For messages of
/// uct_ep_am_short() the first 8 bytes are the header.
typedef ucs_status_t (*uct_am_callback_t)(void* arg, void* data, size_t length, unsigned flags);

/// Writes a description of a message into `buffer` (at most `max` bytes, 0-terminated) for a trace
/// log.
typedef void (*uct_am_tracer_t)(void* arg, uct_am_trace_type_t type, uint8_t id, const void* data,
                                size_t length, char* buffer, size_t max);

/// All operations counted by `self` have ended; self->status has the first failure. Runs inside
/// progress.
typedef void (*uct_completion_callback_t)(uct_completion_t* self);

/// Resources may be available again: retry the operation. UCS_OK removes the request from the queue
/// (the callback itself may free it). UCS_INPROGRESS keeps it: part was sent, more follows. Any
/// other status keeps it and ends this round of retries.
typedef ucs_status_t (*uct_pending_callback_t)(uct_pending_req_t* self);

/// An endpoint failed. Every operation outstanding on it has ended with the error before this runs,
/// once per endpoint, inside progress. The handler returns UCS_OK if it has handled the failure;
/// with any other status the failure is logged.
typedef ucs_status_t (*uct_error_handler_t)(void* arg, uct_ep_h ep, ucs_status_t status);

/// Takes back one request that was pending; it is no longer queued.
typedef void (*uct_pending_purge_callback_t)(uct_pending_req_t* self, void* arg);

/// Writes the message into `dest` and returns the bytes written, at most max_bcopy of the
/// operation.
typedef size_t (*uct_pack_callback_t)(void* dest, void* arg);

/// Takes `length` bytes that a buffered get brought.
typedef void (*uct_unpack_callback_t)(void* arg, const void* data, size_t length);

/// Unexpected eager message (or fragment): no posted receive matched it. Runs inside progress; may
/// call any operation but progress. `context` is one word per message, NULL in the first fragment
/// (UCT_CB_PARAM_FLAG_FIRST), and what the callback left there in the following ones. UCS_OK or
/// UCS_INPROGRESS as for uct_am_callback_t.
typedef ucs_status_t (*uct_tag_unexp_eager_cb_t)(void* arg, void* data, size_t length,
                                                 unsigned flags, uct_tag_t stag, uint64_t imm,
                                                 void** context);

/// Unexpected rendezvous: no posted receive matched it. `header` is what the sender passed;
/// `rkey_buf` is a packed remote key of the sender's buffer for uct_rkey_unpack(), or NULL for a
/// software rendezvous request, which has no buffer (`remote_addr` and `length` are 0 then). The
/// sender's operation ends when the receiver has answered it at a higher level; see docs. UCS_OK or
/// UCS_INPROGRESS as for uct_am_callback_t, about the header's memory.
typedef ucs_status_t (*uct_tag_unexp_rndv_cb_t)(void* arg, unsigned flags, uint64_t stag,
                                                const void* header, unsigned header_length,
                                                uint64_t remote_addr, size_t length,
                                                const void* rkey_buf);

/// New events for an interface with UCT_IFACE_FLAG_EVENT_ASYNC_CB. No transport of tagwire has that
/// capability.
typedef void (*uct_async_event_cb_t)(void* arg, unsigned flags);

// Client-server connection establishment. tagwire has no component with UCT_COMPONENT_FLAG_CM: the
// types are here so that programs which carry an optional connection-manager path compile, and the
// calls answer UCS_ERR_UNSUPPORTED.

enum tagwire_uct_cm_ep_priv_data_pack_args_field {
    UCT_CM_EP_PRIV_DATA_PACK_ARGS_FIELD_DEVICE_NAME = UCS_BIT(0)
};

enum tagwire_uct_cm_ep_resolve_args_field {
    UCT_CM_EP_RESOLVE_ARGS_FIELD_DEV_NAME = UCS_BIT(0),
    UCT_CM_EP_RESOLVE_ARGS_FIELD_STATUS = UCS_BIT(1)
};

enum tagwire_uct_cm_remote_data_field {
    UCT_CM_REMOTE_DATA_FIELD_DEV_ADDR = UCS_BIT(0),
    UCT_CM_REMOTE_DATA_FIELD_DEV_ADDR_LENGTH = UCS_BIT(1),
    UCT_CM_REMOTE_DATA_FIELD_CONN_PRIV_DATA = UCS_BIT(2),
    UCT_CM_REMOTE_DATA_FIELD_CONN_PRIV_DATA_LENGTH = UCS_BIT(3)
};

enum tagwire_uct_cm_listener_conn_request_args_field {
    UCT_CM_LISTENER_CONN_REQUEST_ARGS_FIELD_DEV_NAME = UCS_BIT(0),
    UCT_CM_LISTENER_CONN_REQUEST_ARGS_FIELD_CONN_REQUEST = UCS_BIT(1),
    UCT_CM_LISTENER_CONN_REQUEST_ARGS_FIELD_REMOTE_DATA = UCS_BIT(2),
    UCT_CM_LISTENER_CONN_REQUEST_ARGS_FIELD_CLIENT_ADDR = UCS_BIT(3)
};

enum tagwire_uct_cm_ep_client_connect_args_field {
    UCT_CM_EP_CLIENT_CONNECT_ARGS_FIELD_REMOTE_DATA = UCS_BIT(0),
    UCT_CM_EP_CLIENT_CONNECT_ARGS_FIELD_STATUS = UCS_BIT(1)
};

enum tagwire_uct_cm_ep_server_conn_notify_args_field {
    UCT_CM_EP_SERVER_CONN_NOTIFY_ARGS_FIELD_STATUS = UCS_BIT(0)
};

typedef struct tagwire_uct_cm_ep_priv_data_pack_args {
    uint64_t field_mask;
    char dev_name[UCT_DEVICE_NAME_MAX];
} uct_cm_ep_priv_data_pack_args_t;

typedef struct tagwire_uct_cm_ep_resolve_args {
    uint64_t field_mask;
    char dev_name[UCT_DEVICE_NAME_MAX];
    ucs_status_t status;
} uct_cm_ep_resolve_args_t;

typedef struct tagwire_uct_cm_remote_data {
    uint64_t field_mask;
    const uct_device_addr_t* dev_addr;
    size_t dev_addr_length;
    const void* conn_priv_data;
    size_t conn_priv_data_length;
} uct_cm_remote_data_t;

typedef struct tagwire_uct_cm_listener_conn_request_args {
    uint64_t field_mask;
    char dev_name[UCT_DEVICE_NAME_MAX];
    uct_conn_request_h conn_request;
    const uct_cm_remote_data_t* remote_data;
    ucs_sock_addr_t client_address;
} uct_cm_listener_conn_request_args_t;

typedef struct tagwire_uct_cm_ep_client_connect_args {
    uint64_t field_mask;
    const uct_cm_remote_data_t* remote_data;
    ucs_status_t status;
} uct_cm_ep_client_connect_args_t;

typedef struct tagwire_uct_cm_ep_server_conn_notify_args {
    uint64_t field_mask;
    ucs_status_t status;
} uct_cm_ep_server_conn_notify_args_t;

typedef void (*uct_sockaddr_conn_request_callback_t)(uct_iface_h iface, void* arg,
                                                     uct_conn_request_h conn_request,
                                                     const void* conn_priv_data, size_t length);
typedef void (*uct_cm_listener_conn_request_callback_t)(
    uct_listener_h listener, void* arg, const uct_cm_listener_conn_request_args_t* conn_req_args);
typedef void (*uct_cm_ep_server_conn_notify_callback_t)(
    uct_ep_h ep, void* arg, const uct_cm_ep_server_conn_notify_args_t* connect_args);
typedef void (*uct_cm_ep_client_connect_callback_t)(
    uct_ep_h ep, void* arg, const uct_cm_ep_client_connect_args_t* connect_args);
typedef void (*uct_ep_disconnect_cb_t)(uct_ep_h ep, void* arg);
typedef ssize_t (*uct_cm_ep_priv_data_pack_callback_t)(
    void* arg, const uct_cm_ep_priv_data_pack_args_t* pack_args, void* priv_data);
typedef ucs_status_t (*uct_cm_ep_resolve_callback_t)(void* user_data,
                                                     const uct_cm_ep_resolve_args_t* resolve_args);

#endif
