// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// Flags, attributes and parameters of the transport API. Included by uct.h; names, numbers, fields
/// and their order are UCX 1.13's.
///
/// Structures with a `field_mask` are filled by the program: only fields whose bit is set are read
/// (or written, for attributes); a bit without a meaning here is refused with
/// UCS_ERR_INVALID_PARAM.
#ifndef TAGWIRE_UCT_API_UCT_ATTR_H
#define TAGWIRE_UCT_API_UCT_ATTR_H

#include <stdint.h>
#include <sys/socket.h>

#include <ucs/datastruct/linear_func.h>
#include <ucs/memory/memory_type.h>
#include <ucs/stats/stats_fwd.h>
#include <ucs/sys/topo/base/topo.h>
#include <ucs/time/time_def.h>
#include <ucs/type/cpu_set.h>
#include <ucs/type/status.h>
#include <uct/api/uct_def.h>

BEGIN_C_DECLS

// ---- Components and devices

typedef struct tagwire_uct_md_resource_desc {
    char md_name[UCT_MD_NAME_MAX];
} uct_md_resource_desc_t;

enum tagwire_uct_component_attr_field {
    UCT_COMPONENT_ATTR_FIELD_NAME = UCS_BIT(0),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT = UCS_BIT(1),
    UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES = UCS_BIT(2),
    UCT_COMPONENT_ATTR_FIELD_FLAGS = UCS_BIT(3)
};

/// Result of uct_component_query(). Ask for the count first, then point `md_resources` at an array
/// of that many elements and ask for MD_RESOURCES.
typedef struct tagwire_uct_component_attr {
    uint64_t field_mask;  ///< enum tagwire_uct_component_attr_field, set by the caller.
    char name[UCT_COMPONENT_NAME_MAX];
    unsigned md_resource_count;
    uct_md_resource_desc_t* md_resources;  ///< The caller's array; NULL is one of none.
    uint64_t flags;                        ///< UCT_COMPONENT_FLAG_x.
} uct_component_attr_t;

enum tagwire_uct_component_flag {
    UCT_COMPONENT_FLAG_CM =
        UCS_BIT(0)  ///< Has a connection manager. No component of tagwire has one.
};

typedef enum tagwire_uct_device_type {
    UCT_DEVICE_TYPE_NET,
    UCT_DEVICE_TYPE_SHM,
    UCT_DEVICE_TYPE_ACC,
    UCT_DEVICE_TYPE_SELF,
    UCT_DEVICE_TYPE_LAST
} uct_device_type_t;

/// A transport on a device: what an interface can be opened on.
typedef struct tagwire_uct_tl_resource_desc {
    char tl_name[UCT_TL_NAME_MAX];
    char dev_name[UCT_DEVICE_NAME_MAX];
    uct_device_type_t dev_type;
    ucs_sys_device_t sys_device;  ///< UCS_SYS_DEVICE_ID_UNKNOWN when the device has no bus address.
} uct_tl_resource_desc_t;

#define UCT_TL_RESOURCE_DESC_FMT "%s/%s"
#define UCT_TL_RESOURCE_DESC_ARG(resource) (resource)->tl_name, (resource)->dev_name

// ---- Interface capabilities (uct_iface_attr_t.cap)

/// Operations of the atomic calls; UCS_BIT(op) is the bit in cap.atomicNN.op_flags and fop_flags.
typedef enum tagwire_uct_atomic_op {
    UCT_ATOMIC_OP_ADD,
    UCT_ATOMIC_OP_AND,
    UCT_ATOMIC_OP_OR,
    UCT_ATOMIC_OP_XOR,
    UCT_ATOMIC_OP_SWAP,
    UCT_ATOMIC_OP_CSWAP,
    UCT_ATOMIC_OP_LAST
} uct_atomic_op_t;

// cap.flags: operations
#define UCT_IFACE_FLAG_AM_SHORT UCS_BIT(0)
#define UCT_IFACE_FLAG_AM_BCOPY UCS_BIT(1)
#define UCT_IFACE_FLAG_AM_ZCOPY UCS_BIT(2)
#define UCT_IFACE_FLAG_PENDING UCS_BIT(3)
#define UCT_IFACE_FLAG_PUT_SHORT UCS_BIT(4)
#define UCT_IFACE_FLAG_PUT_BCOPY UCS_BIT(5)
#define UCT_IFACE_FLAG_PUT_ZCOPY UCS_BIT(6)
#define UCT_IFACE_FLAG_GET_SHORT UCS_BIT(8)
#define UCT_IFACE_FLAG_GET_BCOPY UCS_BIT(9)
#define UCT_IFACE_FLAG_GET_ZCOPY UCS_BIT(10)
#define UCT_IFACE_FLAG_ATOMIC_CPU \
    UCS_BIT(30)  ///< Atomic together with the processor's own atomics.
#define UCT_IFACE_FLAG_ATOMIC_DEVICE \
    UCS_BIT(31)  ///< Atomic among operations of the same device only.

// cap.flags: errors that are reported instead of being undefined
#define UCT_IFACE_FLAG_ERRHANDLE_SHORT_BUF UCS_BIT(32)
#define UCT_IFACE_FLAG_ERRHANDLE_BCOPY_BUF UCS_BIT(33)
#define UCT_IFACE_FLAG_ERRHANDLE_ZCOPY_BUF UCS_BIT(34)
#define UCT_IFACE_FLAG_ERRHANDLE_AM_ID UCS_BIT(35)
#define UCT_IFACE_FLAG_ERRHANDLE_REMOTE_MEM UCS_BIT(36)
#define UCT_IFACE_FLAG_ERRHANDLE_BCOPY_LEN UCS_BIT(37)
#define UCT_IFACE_FLAG_ERRHANDLE_PEER_FAILURE UCS_BIT(38)
#define UCT_IFACE_FLAG_EP_CHECK UCS_BIT(39)

// cap.flags: connection establishment
#define UCT_IFACE_FLAG_CONNECT_TO_IFACE UCS_BIT(40)
#define UCT_IFACE_FLAG_CONNECT_TO_EP UCS_BIT(41)
#define UCT_IFACE_FLAG_CONNECT_TO_SOCKADDR UCS_BIT(42)

// cap.flags: callbacks
#define UCT_IFACE_FLAG_AM_DUP UCS_BIT(43)    ///< An active message may be delivered twice.
#define UCT_IFACE_FLAG_CB_SYNC UCS_BIT(44)   ///< Callbacks run inside progress.
#define UCT_IFACE_FLAG_CB_ASYNC UCS_BIT(45)  ///< Callbacks may run from any context.
#define UCT_IFACE_FLAG_EP_KEEPALIVE UCS_BIT(46)

// cap.flags: tagged messages
#define UCT_IFACE_FLAG_TAG_EAGER_SHORT UCS_BIT(50)
#define UCT_IFACE_FLAG_TAG_EAGER_BCOPY UCS_BIT(51)
#define UCT_IFACE_FLAG_TAG_EAGER_ZCOPY UCS_BIT(52)
#define UCT_IFACE_FLAG_TAG_RNDV_ZCOPY UCS_BIT(53)

// cap.event_flags
#define UCT_IFACE_FLAG_EVENT_SEND_COMP UCS_BIT(0)
#define UCT_IFACE_FLAG_EVENT_RECV UCS_BIT(1)
#define UCT_IFACE_FLAG_EVENT_RECV_SIG UCS_BIT(2)
#define UCT_IFACE_FLAG_EVENT_FD UCS_BIT(3)
#define UCT_IFACE_FLAG_EVENT_ASYNC_CB UCS_BIT(4)

/// Events for uct_iface_event_arm().
enum tagwire_uct_iface_event_types {
    UCT_EVENT_SEND_COMP = UCS_BIT(0),
    UCT_EVENT_RECV = UCS_BIT(1),
    UCT_EVENT_RECV_SIG = UCS_BIT(2)
};

/// Flags of uct_ep_flush() and uct_iface_flush(). See also TAGWIRE_UCT_FLUSH_FLAG_REMOTE in
/// <uct/api/tagwire_uct.h>.
enum tagwire_uct_flush_flags { UCT_FLUSH_FLAG_LOCAL = 0, UCT_FLUSH_FLAG_CANCEL = UCS_BIT(0) };

/// Flags of uct_iface_progress_enable() and uct_iface_progress_disable().
enum tagwire_uct_progress_types {
    UCT_PROGRESS_SEND = UCS_BIT(0),
    UCT_PROGRESS_RECV = UCS_BIT(1),
    UCT_PROGRESS_THREAD_SAFE = UCS_BIT(7)
};

/// Flags of the bcopy and zcopy sends.
enum tagwire_uct_msg_flags {
    UCT_SEND_FLAG_SIGNALED = UCS_BIT(0),   ///< Wakes a receiver armed for UCT_EVENT_RECV_SIG.
    UCT_SEND_FLAG_PEER_CHECK = UCS_BIT(1)  ///< Also looks whether the peer is alive.
};

enum tagwire_uct_cb_flags {
    UCT_CB_FLAG_RESERVED = UCS_BIT(1),
    UCT_CB_FLAG_ASYNC = UCS_BIT(2)  ///< The callback may be called from any context.
};

// ---- Opening an interface

enum tagwire_uct_iface_open_mode {
    UCT_IFACE_OPEN_MODE_DEVICE = UCS_BIT(0),
    UCT_IFACE_OPEN_MODE_SOCKADDR_SERVER = UCS_BIT(1),  ///< UCS_ERR_UNSUPPORTED.
    UCT_IFACE_OPEN_MODE_SOCKADDR_CLIENT = UCS_BIT(2)   ///< UCS_ERR_UNSUPPORTED.
};

enum tagwire_uct_iface_params_field {
    UCT_IFACE_PARAM_FIELD_CPU_MASK = UCS_BIT(0),
    UCT_IFACE_PARAM_FIELD_OPEN_MODE = UCS_BIT(1),
    UCT_IFACE_PARAM_FIELD_DEVICE = UCS_BIT(2),
    UCT_IFACE_PARAM_FIELD_SOCKADDR = UCS_BIT(3),
    UCT_IFACE_PARAM_FIELD_STATS_ROOT = UCS_BIT(4),
    UCT_IFACE_PARAM_FIELD_RX_HEADROOM = UCS_BIT(5),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG = UCS_BIT(6),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER = UCS_BIT(7),
    UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS = UCS_BIT(8),
    UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG = UCS_BIT(9),
    UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB = UCS_BIT(10),
    UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG = UCS_BIT(11),
    UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB = UCS_BIT(12),
    UCT_IFACE_PARAM_FIELD_ASYNC_EVENT_ARG = UCS_BIT(13),
    UCT_IFACE_PARAM_FIELD_ASYNC_EVENT_CB = UCS_BIT(14),
    UCT_IFACE_PARAM_FIELD_KEEPALIVE_INTERVAL = UCS_BIT(15),
    UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT = UCS_BIT(16),
    UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET = UCS_BIT(17),
    UCT_IFACE_PARAM_FIELD_FEATURES = UCS_BIT(18)
};

/// Operations that the program is going to use; the interface allocates nothing for the rest.
enum tagwire_uct_iface_feature {
    UCT_IFACE_FEATURE_AM = UCS_BIT(0),
    UCT_IFACE_FEATURE_PUT = UCS_BIT(1),
    UCT_IFACE_FEATURE_GET = UCS_BIT(2),
    UCT_IFACE_FEATURE_AMO32 = UCS_BIT(3),
    UCT_IFACE_FEATURE_AMO64 = UCS_BIT(4),
    UCT_IFACE_FEATURE_TAG = UCS_BIT(5),
    UCT_IFACE_FEATURE_LAST = UCS_BIT(6)
};

/// Parameters of uct_iface_open(). Everything is copied; the strings need not outlive the call.
struct tagwire_uct_iface_params {
    uint64_t field_mask;  ///< UCT_IFACE_PARAM_FIELD_x. OPEN_MODE and DEVICE are required.
    /// Processors whose neighbourhood the interface's memory should be in.
    ucs_cpu_set_t cpu_mask;
    uint64_t open_mode;  ///< UCT_IFACE_OPEN_MODE_DEVICE.
    union {
        struct {
            const char* tl_name;
            const char* dev_name;
        } device;
        struct {
            ucs_sock_addr_t listen_sockaddr;
            void* conn_request_arg;
            uct_sockaddr_conn_request_callback_t conn_request_cb;
            uint32_t cb_flags;
        } sockaddr;
    } mode;
    ucs_stats_node_t* stats_root;  ///< Not used: see <ucs/stats/stats_fwd.h>.
    size_t rx_headroom;  ///< Bytes that the user may write before the data of a kept descriptor.
    void* err_handler_arg;
    uct_error_handler_t err_handler;  ///< Without one, a failed endpoint is logged.
    uint32_t err_handler_flags;       ///< UCT_CB_FLAG_x.
    void* eager_arg;                  ///< First argument of eager_cb.
    uct_tag_unexp_eager_cb_t eager_cb;
    void* rndv_arg;  ///< First argument of rndv_cb, independent of eager_arg.
    /// Both tag callbacks, or none: then the interface has no tagged messages.
    uct_tag_unexp_rndv_cb_t rndv_cb;
    void* async_event_arg;
    /// Never called: no interface has UCT_IFACE_FLAG_EVENT_ASYNC_CB.
    uct_async_event_cb_t async_event_cb;
    ucs_time_t keepalive_interval;  ///< Nanoseconds between looks at a silent peer.
    size_t am_alignment;  ///< Alignment of received data in descriptors: a power of two, default 1.
    /// Byte of the data that is aligned: below am_alignment (so 0 where that is not given),
    /// default 0.
    size_t am_align_offset;
    uint64_t features;  ///< UCT_IFACE_FEATURE_x; all of them when the field is not given.
};

/// Bandwidth that one process gets: dedicated + shared / processes per node. Bytes per second.
typedef struct tagwire_uct_ppn_bandwidth {
    double dedicated;
    double shared;
} uct_ppn_bandwidth_t;

/// Result of uct_iface_query(). A limit of an operation that the interface lacks is 0. All lengths
/// in bytes.
struct tagwire_uct_iface_attr {
    struct {
        struct {
            size_t max_short;
            size_t max_bcopy;
            size_t min_zcopy;
            size_t max_zcopy;        ///< Sum of all elements of the list.
            size_t opt_zcopy_align;  ///< Buffer alignment that is fastest.
            size_t align_mtu;        ///< Granularity of that alignment.
            size_t max_iov;          ///< Elements in a list.
        } put;

        struct {
            size_t max_short;
            size_t max_bcopy;
            size_t min_zcopy;
            size_t max_zcopy;
            size_t opt_zcopy_align;
            size_t align_mtu;
            size_t max_iov;
        } get;

        struct {
            size_t max_short;  ///< The 8 bytes of header included.
            size_t max_bcopy;
            size_t min_zcopy;
            size_t max_zcopy;  ///< The header included.
            size_t opt_zcopy_align;
            size_t align_mtu;
            size_t max_hdr;  ///< Header of uct_ep_am_zcopy().
            size_t max_iov;
        } am;

        struct {
            struct {
                size_t min_recv;         ///< A posted buffer must be at least this long.
                size_t max_zcopy;        ///< A posted buffer may be at most this long.
                size_t max_iov;          ///< Elements of a posted list.
                size_t max_outstanding;  ///< Receives posted at a time; one more is
                                         ///< UCS_ERR_EXCEEDS_LIMIT.
            } recv;

            struct {
                size_t max_short;
                size_t max_bcopy;
                size_t max_zcopy;
                size_t max_iov;
            } eager;

            struct {
                size_t max_zcopy;
                /// Header of uct_ep_tag_rndv_zcopy() and uct_ep_tag_rndv_request().
                size_t max_hdr;
                size_t max_iov;
            } rndv;
        } tag;

        struct {
            uint64_t op_flags;   ///< UCS_BIT(uct_atomic_op_t) that the posting calls take.
            uint64_t fop_flags;  ///< UCS_BIT() of those that fetch, compare-and-swap included.
        } atomic32, atomic64;

        uint64_t flags;        ///< UCT_IFACE_FLAG_x.
        uint64_t event_flags;  ///< UCT_IFACE_FLAG_EVENT_x.
    } cap;

    size_t device_addr_len;
    size_t iface_addr_len;
    size_t ep_addr_len;
    size_t max_conn_priv;                     ///< 0.
    struct sockaddr_storage listen_sockaddr;  ///< All zero.
    double overhead;                          ///< Processor time of one operation, seconds.
    uct_ppn_bandwidth_t bandwidth;
    ucs_linear_func_t latency;  ///< Seconds, over the number of endpoints in use.
    uint8_t priority;
    size_t max_num_eps;
    /// Paths that endpoints to one peer can use: path_index is below this.
    unsigned dev_num_paths;
};

// ---- Endpoints

enum tagwire_uct_ep_params_field {
    UCT_EP_PARAM_FIELD_IFACE = UCS_BIT(0),
    UCT_EP_PARAM_FIELD_USER_DATA = UCS_BIT(1),
    UCT_EP_PARAM_FIELD_DEV_ADDR = UCS_BIT(2),
    UCT_EP_PARAM_FIELD_IFACE_ADDR = UCS_BIT(3),
    UCT_EP_PARAM_FIELD_SOCKADDR = UCS_BIT(4),
    UCT_EP_PARAM_FIELD_SOCKADDR_CB_FLAGS = UCS_BIT(5),
    UCT_EP_PARAM_FIELD_SOCKADDR_PACK_CB = UCS_BIT(6),
    UCT_EP_PARAM_FIELD_CM = UCS_BIT(7),
    UCT_EP_PARAM_FIELD_CONN_REQUEST = UCS_BIT(8),
    UCT_EP_PARAM_FIELD_SOCKADDR_CONNECT_CB_CLIENT = UCS_BIT(9),
    UCT_EP_PARAM_FIELD_SOCKADDR_NOTIFY_CB_SERVER = UCS_BIT(10),
    UCT_EP_PARAM_FIELD_SOCKADDR_DISCONNECT_CB = UCS_BIT(11),
    UCT_EP_PARAM_FIELD_PATH_INDEX = UCS_BIT(12),
    UCT_EP_PARAM_FIELD_CM_RESOLVE_CB = UCS_BIT(13),
    UCT_EP_PARAM_FIELD_PRIV_DATA = UCS_BIT(14),
    UCT_EP_PARAM_FIELD_PRIV_DATA_LENGTH = UCS_BIT(15),
    UCT_EP_PARAM_FIELD_LOCAL_SOCKADDR = UCS_BIT(16)
};

enum tagwire_uct_ep_connect_params_field {
    UCT_EP_CONNECT_PARAM_FIELD_PRIVATE_DATA = UCS_BIT(0),
    UCT_EP_CONNECT_PARAM_FIELD_PRIVATE_DATA_LENGTH = UCS_BIT(1)
};

/// Parameters of uct_ep_create(). Addresses are copied. Fields of the connection manager (sockaddr
/// and below, but path_index) are refused with UCS_ERR_UNSUPPORTED.
struct tagwire_uct_ep_params {
    uint64_t field_mask;  ///< UCT_EP_PARAM_FIELD_x. IFACE is required.
    uct_iface_h iface;
    void* user_data;
    const uct_device_addr_t* dev_addr;   ///< With iface_addr: connect to that interface.
    const uct_iface_addr_t* iface_addr;  ///< Neither: an endpoint for uct_ep_connect_to_ep().
    const ucs_sock_addr_t* sockaddr;
    uint32_t sockaddr_cb_flags;
    uct_cm_ep_priv_data_pack_callback_t sockaddr_pack_cb;
    uct_cm_h cm;
    uct_conn_request_h conn_request;
    uct_cm_ep_client_connect_callback_t sockaddr_cb_client;
    uct_cm_ep_server_conn_notify_callback_t sockaddr_cb_server;
    uct_ep_disconnect_cb_t disconnect_cb;
    unsigned path_index;  ///< Below uct_iface_attr_t.dev_num_paths.
    uct_cm_ep_resolve_callback_t cm_resolve_cb;
    const void* private_data;
    size_t private_data_length;
    const ucs_sock_addr_t* local_sockaddr;
};

struct tagwire_uct_ep_connect_params {
    uint64_t field_mask;
    const void* private_data;
    size_t private_data_length;
};

// ---- Memory domains

typedef enum tagwire_uct_alloc_method {
    UCT_ALLOC_METHOD_THP,   ///< Heap memory aligned for transparent huge pages.
    UCT_ALLOC_METHOD_MD,    ///< A memory domain of the list, registered by it.
    UCT_ALLOC_METHOD_HEAP,  ///< malloc'ed memory, aligned to a page.
    UCT_ALLOC_METHOD_MMAP,  ///< An anonymous mapping.
    UCT_ALLOC_METHOD_HUGE,  ///< An anonymous mapping of huge pages from the system's pool.
    UCT_ALLOC_METHOD_LAST,
    UCT_ALLOC_METHOD_DEFAULT = UCT_ALLOC_METHOD_LAST
} uct_alloc_method_t;

typedef enum tagwire_uct_sockaddr_accessibility {
    UCT_SOCKADDR_ACC_LOCAL,
    UCT_SOCKADDR_ACC_REMOTE
} uct_sockaddr_accessibility_t;

/// uct_md_attr_t.cap.flags.
enum tagwire_uct_md_flag {
    UCT_MD_FLAG_ALLOC = UCS_BIT(0),
    UCT_MD_FLAG_REG = UCS_BIT(1),
    UCT_MD_FLAG_NEED_MEMH = UCS_BIT(2),  ///< Local buffers of zero copy need a handle.
    UCT_MD_FLAG_NEED_RKEY = UCS_BIT(3),  ///< Remote access needs an unpacked remote key.
    UCT_MD_FLAG_ADVISE = UCS_BIT(4),
    UCT_MD_FLAG_FIXED = UCS_BIT(5),
    UCT_MD_FLAG_RKEY_PTR = UCS_BIT(6),  ///< uct_rkey_ptr() works for memory that the md allocated.
    UCT_MD_FLAG_SOCKADDR = UCS_BIT(7),
    UCT_MD_FLAG_INVALIDATE = UCS_BIT(8)
};

/// Flags of allocation and registration. Peers have the rights that are named and no others; with
/// no UCT_MD_MEM_ACCESS_REMOTE_* no key leads to the memory. A peer reads the data of a rendezvous:
/// a handle given to tag_rndv_zcopy on rc and dc needs UCT_MD_MEM_ACCESS_REMOTE_GET.
enum tagwire_uct_md_mem_flags {
    UCT_MD_MEM_FLAG_NONBLOCK = UCS_BIT(0),
    UCT_MD_MEM_FLAG_FIXED = UCS_BIT(1),
    UCT_MD_MEM_FLAG_LOCK = UCS_BIT(2),
    UCT_MD_MEM_FLAG_HIDE_ERRORS = UCS_BIT(3),  ///< A refusal is not logged as an error.
    UCT_MD_MEM_ACCESS_REMOTE_PUT = UCS_BIT(5),
    UCT_MD_MEM_ACCESS_REMOTE_GET = UCS_BIT(6),
    UCT_MD_MEM_ACCESS_REMOTE_ATOMIC = UCS_BIT(7),
    UCT_MD_MEM_ACCESS_LOCAL_READ = UCS_BIT(8),
    UCT_MD_MEM_ACCESS_LOCAL_WRITE = UCS_BIT(9),
    UCT_MD_MEM_ACCESS_ALL = (UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET |
                             UCT_MD_MEM_ACCESS_REMOTE_ATOMIC | UCT_MD_MEM_ACCESS_LOCAL_READ |
                             UCT_MD_MEM_ACCESS_LOCAL_WRITE),
    UCT_MD_MEM_ACCESS_RMA = (UCT_MD_MEM_ACCESS_REMOTE_PUT | UCT_MD_MEM_ACCESS_REMOTE_GET |
                             UCT_MD_MEM_ACCESS_LOCAL_READ | UCT_MD_MEM_ACCESS_LOCAL_WRITE)
};

typedef enum tagwire_uct_mem_advice { UCT_MADV_NORMAL = 0, UCT_MADV_WILLNEED } uct_mem_advice_t;

/// Result of uct_md_query(). Bitmaps of memory types hold UCS_BIT(ucs_memory_type_t).
struct tagwire_uct_md_attr {
    struct {
        uint64_t max_alloc;  ///< Bytes in one allocation.
        size_t max_reg;      ///< Bytes in one registration.
        uint64_t flags;      ///< UCT_MD_FLAG_x.
        uint64_t reg_mem_types;
        uint64_t detect_mem_types;
        uint64_t alloc_mem_types;
        uint64_t access_mem_types;
    } cap;
    ucs_linear_func_t reg_cost;  ///< Seconds to register, over the number of bytes.
    char component_name[UCT_COMPONENT_NAME_MAX];
    size_t rkey_packed_size;   ///< Bytes that uct_md_mkey_pack() writes.
    ucs_cpu_set_t local_cpus;  ///< Processors near the device.
};

typedef enum tagwire_uct_md_mem_attr_field {
    UCT_MD_MEM_ATTR_FIELD_MEM_TYPE = UCS_BIT(0),
    UCT_MD_MEM_ATTR_FIELD_SYS_DEV = UCS_BIT(1),
    UCT_MD_MEM_ATTR_FIELD_BASE_ADDRESS = UCS_BIT(2),
    UCT_MD_MEM_ATTR_FIELD_ALLOC_LENGTH = UCS_BIT(3)
} uct_md_mem_attr_field_t;

/// Result of uct_md_mem_query().
typedef struct tagwire_uct_md_mem_attr {
    uint64_t field_mask;  ///< UCT_MD_MEM_ATTR_FIELD_x, set by the caller.
    ucs_memory_type_t mem_type;
    ucs_sys_device_t sys_dev;
    void* base_address;   ///< Start of the allocation that the buffer is in.
    size_t alloc_length;  ///< Length of that allocation.
} uct_md_mem_attr_t;

/// Memory from uct_mem_alloc() or uct_iface_mem_alloc(). Keep it unchanged until it is freed.
typedef struct tagwire_uct_allocated_memory {
    void* address;
    size_t length;              ///< At least what was asked for.
    uct_alloc_method_t method;  ///< The one that succeeded.
    ucs_memory_type_t mem_type;
    uct_md_h md;     ///< Method MD: its domain.
    uct_mem_h memh;  ///< Method MD: the registration.
} uct_allocated_memory_t;

/// An unpacked remote key. `rkey` goes into the operations.
typedef struct tagwire_uct_rkey_bundle {
    uct_rkey_t rkey;
    void* handle;
    void* type;
} uct_rkey_bundle_t;

typedef enum tagwire_uct_mem_alloc_params_field {
    UCT_MEM_ALLOC_PARAM_FIELD_FLAGS = UCS_BIT(0),
    UCT_MEM_ALLOC_PARAM_FIELD_ADDRESS = UCS_BIT(1),
    UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE = UCS_BIT(2),
    UCT_MEM_ALLOC_PARAM_FIELD_MDS = UCS_BIT(3),
    UCT_MEM_ALLOC_PARAM_FIELD_NAME = UCS_BIT(4)
} uct_mem_alloc_params_field_t;

/// Parameters of uct_mem_alloc().
typedef struct tagwire_uct_mem_alloc_params {
    uint64_t field_mask;  ///< UCT_MEM_ALLOC_PARAM_FIELD_x.
    unsigned flags;       ///< UCT_MD_MEM_x; local read and write by default.
    void* address;        ///< A wish, or with UCT_MD_MEM_FLAG_FIXED a demand; NULL by default.
    ucs_memory_type_t mem_type;  ///< UCS_MEMORY_TYPE_HOST by default.
    struct {
        const uct_md_h* mds;
        unsigned count;
    } mds;             ///< Domains that UCT_ALLOC_METHOD_MD tries, in this order.
    const char* name;  ///< For messages and traces.
} uct_mem_alloc_params_t;

// ---- Operations in flight

/// Counts operations and calls back when the last one has ended. The program fills it: `func`,
/// `count` = operations that will be counted, `status` = UCS_OK. It stays with the transport from
/// an operation's UCS_INPROGRESS until `func` ran. An operation that returns another status did not
/// count. One structure may serve many operations.
struct tagwire_uct_completion {
    uct_completion_callback_t func;
    int count;
    ucs_status_t status;  ///< The first failure, else UCS_OK.
};

/// A retry that waits for resources: see uct_ep_pending_add().
struct tagwire_uct_pending_req {
    uct_pending_callback_t func;
    char priv[UCT_PENDING_REQ_PRIV_LEN];  ///< The transport's while queued.
};

/// A posted receive: see uct_iface_tag_recv_zcopy(). The callbacks run inside progress and may call
/// any operation but progress. Exactly one of completed_cb and rndv_cb runs for a receive that was
/// not cancelled by force.
struct tagwire_uct_tag_context {
    /// A message matched: the receive left the list. Runs before completed_cb or rndv_cb.
    void (*tag_consumed_cb)(uct_tag_context_t* self);

    /// The receive ended. `stag`, `imm` and `length` are the sender's (imm is 0 for a rendezvous).
    /// When `inline_data` is not NULL the message is there, for the length of the call, instead of
    /// in the posted buffer. UCS_OK; UCS_ERR_MESSAGE_TRUNCATED: the message is longer than the
    /// buffer, nothing was written; UCS_ERR_CANCELED; UCS_ERR_CONNECTION_RESET: the sender died in
    /// the middle of a rendezvous.
    void (*completed_cb)(uct_tag_context_t* self, uct_tag_t stag, uint64_t imm, size_t length,
                         void* inline_data, ucs_status_t status);

    /// A software rendezvous request (uct_ep_tag_rndv_request()) matched; the layer above moves the
    /// data. `header` is the sender's: in the posted buffer, or, with UCT_TAG_RECV_CB_INLINE_DATA,
    /// in memory valid during the call.
    void (*rndv_cb)(uct_tag_context_t* self, uct_tag_t stag, const void* header,
                    unsigned header_length, ucs_status_t status, unsigned flags);

    char priv[UCT_TAG_PRIV_LEN];  ///< The transport's while posted.
};

/// `flags` of uct_tag_context_t.rndv_cb.
enum tagwire_uct_tag_recv_cb_flags { UCT_TAG_RECV_CB_INLINE_DATA = UCS_BIT(0) };

// ---- Connection manager (see uct_def.h)

enum tagwire_uct_cm_attr_field { UCT_CM_ATTR_FIELD_MAX_CONN_PRIV = UCS_BIT(0) };

enum tagwire_uct_listener_attr_field { UCT_LISTENER_ATTR_FIELD_SOCKADDR = UCS_BIT(0) };

enum tagwire_uct_listener_params_field {
    UCT_LISTENER_PARAM_FIELD_BACKLOG = UCS_BIT(0),
    UCT_LISTENER_PARAM_FIELD_CONN_REQUEST_CB = UCS_BIT(1),
    UCT_LISTENER_PARAM_FIELD_USER_DATA = UCS_BIT(2)
};

struct tagwire_uct_cm_attr {
    uint64_t field_mask;
    size_t max_conn_priv;
};

struct tagwire_uct_listener_attr {
    uint64_t field_mask;
    struct sockaddr_storage sockaddr;
};

struct tagwire_uct_listener_params {
    uint64_t field_mask;
    int backlog;
    uct_cm_listener_conn_request_callback_t conn_request_cb;
    void* user_data;
};

END_C_DECLS

#endif
