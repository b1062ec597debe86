// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// The transport API: components, memory domains, workers, interfaces and endpoints.
///
/// Source-compatible with UCX 1.13's UCT: a program written for that compiles against this header
/// and links with libtagwire. docs/reference/uct-compat.md lists the differences.
///
///     uct_query_components -> component -- uct_md_open -> md -- uct_iface_open -> iface
///                                                                          |    ^
///                                                        uct_ep_create -> ep    |
///                          ucs_async_context_create -> uct_worker_create -> worker
///
/// Close in the opposite order. A call that would close an object still in use (an md with
/// interfaces) refuses and logs. uct_iface_close() alone does not: it warns, ends outstanding
/// operations on the remaining endpoints, and destroys them.
///
/// \par Arguments
/// Outputs are written on success only. Every refusal of an argument is logged with its reason and
/// returns UCS_ERR_INVALID_PARAM unless the call lists another status.
///
/// \par Threads
/// Components may be queried by any thread. A memory domain may be used by any thread at any time.
/// A worker, its interfaces and their endpoints belong to one thread (UCS_THREAD_MODE_SINGLE) or to
/// the thread that holds the program's lock (SERIALIZED, and MULTI but for the *_safe calls).
#ifndef TAGWIRE_UCT_API_UCT_H
#define TAGWIRE_UCT_API_UCT_H

#if defined(UCT_H_)
#error \
    "This translation unit already includes UCX's <uct/api/uct.h>: use either UCX's or tagwire's."
#endif

#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>

#include <ucs/async/async_fwd.h>
#include <ucs/datastruct/callbackq.h>
#include <ucs/datastruct/linear_func.h>
#include <ucs/memory/memory_type.h>
#include <ucs/stats/stats_fwd.h>
#include <ucs/sys/compiler_def.h>
#include <ucs/sys/topo/base/topo.h>
#include <ucs/type/cpu_set.h>
#include <ucs/type/status.h>
#include <ucs/type/thread_mode.h>
#include <uct/api/tl.h>
#include <uct/api/uct_attr.h>
#include <uct/api/uct_data.h>
#include <uct/api/uct_def.h>
#include <uct/api/version.h>

BEGIN_C_DECLS

/// Lower-case names, indexed by uct_alloc_method_t and uct_device_type_t.
TAGWIRE_API extern const char* uct_alloc_method_names[] TAGWIRE_SYMBOL(uct_alloc_method_names);
TAGWIRE_API extern const char* uct_device_type_names[] TAGWIRE_SYMBOL(uct_device_type_names);

// ---- Components

/// Lists the transport families of this library. Free the array with uct_release_component_list();
/// the handles in it stay valid. UCS_OK, UCS_ERR_NO_MEMORY.
TAGWIRE_API ucs_status_t uct_query_components(uct_component_h** components_p,
                                              unsigned* num_components_p)
    TAGWIRE_SYMBOL(uct_query_components);

/// Frees the list of uct_query_components(). NULL is ignored.
TAGWIRE_API void uct_release_component_list(uct_component_h* components)
    TAGWIRE_SYMBOL(uct_release_component_list);

/// Fills the fields that component_attr->field_mask names. UCS_OK, or the status of looking for
/// devices.
TAGWIRE_API ucs_status_t uct_component_query(uct_component_h component,
                                             uct_component_attr_t* component_attr)
    TAGWIRE_SYMBOL(uct_component_query);

// ---- Configuration. Values come from the built-in default, the configuration file and TAGWIRE_*
// of the environment, in this order (docs/reference/configuration.md), and can be changed here
// before the object is opened.

/// Reads the options of the component's memory domains. With `env_prefix`,
/// TAGWIRE_<env_prefix>_<NAME> goes before TAGWIRE_<NAME>; with `filename`, that file goes between
/// the configuration file and the environment. Both may be NULL. Free the result with
/// uct_config_release(). UCS_ERR_INVALID_PARAM also when a value is bad: the log tells the accepted
/// form.
TAGWIRE_API ucs_status_t uct_md_config_read(uct_component_h component, const char* env_prefix,
                                            const char* filename, uct_md_config_t** config_p)
    TAGWIRE_SYMBOL(uct_md_config_read);

/// Reads the options of a transport's interfaces; `tl_name` is one of uct_md_query_tl_resources(),
/// else UCS_ERR_NO_DEVICE. The rest is as for uct_md_config_read().
TAGWIRE_API ucs_status_t uct_md_iface_config_read(uct_md_h md, const char* tl_name,
                                                  const char* env_prefix, const char* filename,
                                                  uct_iface_config_t** config_p)
    TAGWIRE_SYMBOL(uct_md_iface_config_read);

/// Writes the text of one option into `value` (at most `max` bytes with the terminating 0). `name`
/// is the option's, with or without TAGWIRE_. UCS_ERR_NO_ELEM: no such option.
/// UCS_ERR_BUFFER_TOO_SMALL: `max` is too small.
TAGWIRE_API ucs_status_t uct_config_get(void* config, const char* name, char* value, size_t max)
    TAGWIRE_SYMBOL(uct_config_get);

/// Sets one option from text. UCS_ERR_NO_ELEM: no such option; the log has no error of it, so that
/// a program may try names of another library (level info tells the nearest name).
/// UCS_ERR_INVALID_PARAM: the text is not accepted; the log tells the accepted form.
TAGWIRE_API ucs_status_t uct_config_modify(void* config, const char* name, const char* value)
    TAGWIRE_SYMBOL(uct_config_modify);

/// Frees a configuration of uct_md_config_read() or uct_md_iface_config_read(). NULL is ignored.
TAGWIRE_API void uct_config_release(void* config) TAGWIRE_SYMBOL(uct_config_release);

// ---- Memory domains

/// Opens a memory domain that uct_component_query() named. The configuration is copied.
/// UCS_ERR_NO_DEVICE: no such name.
TAGWIRE_API ucs_status_t uct_md_open(uct_component_h component, const char* md_name,
                                     const uct_md_config_t* config, uct_md_h* md_p)
    TAGWIRE_SYMBOL(uct_md_open);

/// Closes a memory domain.
///
/// While interfaces are open on it the call does nothing but log an error. NULL is ignored.
TAGWIRE_API void uct_md_close(uct_md_h md) TAGWIRE_SYMBOL(uct_md_close);

/// Reads the properties of a memory domain.
///
/// \retval UCS_OK  *md_attr is filled.
/// \retval UCS_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API ucs_status_t uct_md_query(uct_md_h md, uct_md_attr_t* md_attr)
    TAGWIRE_SYMBOL(uct_md_query);

/// Lists transports and devices. Free the array with uct_release_tl_resource_list(). UCS_OK,
/// UCS_ERR_NO_MEMORY.
TAGWIRE_API ucs_status_t uct_md_query_tl_resources(uct_md_h md,
                                                   uct_tl_resource_desc_t** resources_p,
                                                   unsigned* num_resources_p)
    TAGWIRE_SYMBOL(uct_md_query_tl_resources);

/// Frees the list of uct_md_query_tl_resources(). NULL is ignored.
TAGWIRE_API void uct_release_tl_resource_list(uct_tl_resource_desc_t* resources)
    TAGWIRE_SYMBOL(uct_release_tl_resource_list);

/// Tells what memory `address` points to. UCS_ERR_UNSUPPORTED: the domain cannot tell;
/// UCS_ERR_INVALID_ADDR: it does not know this memory.
TAGWIRE_API ucs_status_t uct_md_mem_query(uct_md_h md, const void* address, size_t length,
                                          uct_md_mem_attr_t* mem_attr)
    TAGWIRE_SYMBOL(uct_md_mem_query);

/// Tells the memory type of an address.
///
/// As uct_md_mem_query(), the type alone.
TAGWIRE_API ucs_status_t uct_md_detect_memory_type(uct_md_h md, const void* addr, size_t length,
                                                   ucs_memory_type_t* mem_type_p)
    TAGWIRE_SYMBOL(uct_md_detect_memory_type);

/// Tells the domain how memory of a registration will be used. UCS_ERR_UNSUPPORTED without
/// UCT_MD_FLAG_ADVISE.
TAGWIRE_API ucs_status_t uct_md_mem_advise(uct_md_h md, uct_mem_h memh, void* addr, size_t length,
                                           uct_mem_advice_t advice)
    TAGWIRE_SYMBOL(uct_md_mem_advise);

/// Registers memory of the program for zero copy and remote access. `length` is not 0; `flags` are
/// UCT_MD_MEM_x. The memory stays the program's and must stay mapped until uct_md_mem_dereg().
/// UCS_ERR_UNSUPPORTED without UCT_MD_FLAG_REG.
TAGWIRE_API ucs_status_t uct_md_mem_reg(uct_md_h md, void* address, size_t length, unsigned flags,
                                        uct_mem_h* memh_p) TAGWIRE_SYMBOL(uct_md_mem_reg);

/// Ends a registration.
///
/// No operation of this process may be using it. Writes of peers that are under way at this moment
/// are waited for.
///
/// \retval UCS_OK  Ended; keys of it that peers hold are refused, and nothing is written by them.
/// \retval UCS_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API ucs_status_t uct_md_mem_dereg(uct_md_h md, uct_mem_h memh)
    TAGWIRE_SYMBOL(uct_md_mem_dereg);

/// Not available: there is no connection manager.
///
/// \return 0, always.
TAGWIRE_API int uct_md_is_sockaddr_accessible(uct_md_h md, const ucs_sock_addr_t* sockaddr,
                                              uct_sockaddr_accessibility_t mode)
    TAGWIRE_SYMBOL(uct_md_is_sockaddr_accessible);

/// Allocates at least `length` bytes by the first of `methods` that succeeds. Memory of
/// UCT_ALLOC_METHOD_MD is registered. Free it with uct_mem_free(). UCS_ERR_NO_MEMORY: no method
/// succeeded. UCS_ERR_INVALID_PARAM: length 0, no method, an unknown one, or bad flags.
TAGWIRE_API ucs_status_t uct_mem_alloc(size_t length, const uct_alloc_method_t* methods,
                                       unsigned num_methods, const uct_mem_alloc_params_t* params,
                                       uct_allocated_memory_t* mem) TAGWIRE_SYMBOL(uct_mem_alloc);

/// Frees memory of uct_mem_alloc().
///
/// \retval UCS_OK  Freed; memory of a domain is no longer registered.
/// \retval UCS_ERR_INVALID_PARAM  `mem` is NULL, or its method is unknown.
TAGWIRE_API ucs_status_t uct_mem_free(const uct_allocated_memory_t* mem)
    TAGWIRE_SYMBOL(uct_mem_free);

// ---- Remote keys

/// Writes the remote key of a registration into `rkey_buffer`: uct_md_attr_t.rkey_packed_size
/// bytes, to be sent to peers.
TAGWIRE_API ucs_status_t uct_md_mkey_pack(uct_md_h md, uct_mem_h memh, void* rkey_buffer)
    TAGWIRE_SYMBOL(uct_md_mkey_pack);

/// Makes a usable key of a packed one, which came from a peer: bytes that are no key are
/// UCS_ERR_INVALID_PARAM (logged), a key of another component is UCS_ERR_UNREACHABLE. Free it with
/// uct_rkey_release().
TAGWIRE_API ucs_status_t uct_rkey_unpack(uct_component_h component, const void* rkey_buffer,
                                         uct_rkey_bundle_t* rkey_ob)
    TAGWIRE_SYMBOL(uct_rkey_unpack);

/// Translates an address of the peer into a local one, for loads and stores.
///
/// Only with UCT_MD_FLAG_RKEY_PTR and for memory that the peer's domain allocated.
///
/// \retval UCS_OK  *addr_p is the local address of `remote_addr`.
/// \retval UCS_ERR_UNSUPPORTED  The peer's memory is not mapped here.
/// \retval UCS_ERR_INVALID_ADDR  The address is outside the range of the key.
TAGWIRE_API ucs_status_t uct_rkey_ptr(uct_component_h component, uct_rkey_bundle_t* rkey_ob,
                                      uint64_t remote_addr, void** addr_p)
    TAGWIRE_SYMBOL(uct_rkey_ptr);

/// Frees a remote key of uct_rkey_unpack().
///
/// \retval UCS_OK  Freed.
/// \retval UCS_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API ucs_status_t uct_rkey_release(uct_component_h component,
                                          const uct_rkey_bundle_t* rkey_ob)
    TAGWIRE_SYMBOL(uct_rkey_release);

// ---- Workers

/// Makes a progress engine. `async` must outlive it. Any thread mode is taken: see the top of this
/// file for what it means.
TAGWIRE_API ucs_status_t uct_worker_create(ucs_async_context_t* async,
                                           ucs_thread_mode_t thread_mode, uct_worker_h* worker_p)
    TAGWIRE_SYMBOL(uct_worker_create);

/// Destroys a worker.
///
/// While interfaces are open on it the call does nothing but log an error. NULL is ignored.
TAGWIRE_API void uct_worker_destroy(uct_worker_h worker) TAGWIRE_SYMBOL(uct_worker_destroy);

/// Adds a callback to uct_worker_progress(), from any thread. *id_p must be UCS_CALLBACKQ_ID_NULL
/// and gets the identifier; with another value the call does nothing. `flags` are
/// UCS_CALLBACKQ_FLAG_x.
TAGWIRE_API void uct_worker_progress_register_safe(uct_worker_h worker, ucs_callback_t func,
                                                   void* arg, unsigned flags,
                                                   uct_worker_cb_id_t* id_p)
    TAGWIRE_SYMBOL(uct_worker_progress_register_safe);

/// Removes a callback of uct_worker_progress_register_safe(), from any thread.
///
/// Sets *id_p to UCS_CALLBACKQ_ID_NULL; does nothing when it is that already.
TAGWIRE_API void uct_worker_progress_unregister_safe(uct_worker_h worker, uct_worker_cb_id_t* id_p)
    TAGWIRE_SYMBOL(uct_worker_progress_unregister_safe);

// ---- Interfaces

/// Opens a transport on a device. The configuration comes from uct_md_iface_config_read() for the
/// same transport and is copied. UCS_ERR_NO_DEVICE: the domain does not have this transport and
/// device. UCS_ERR_UNSUPPORTED: an open mode or parameter that this library does not have.
TAGWIRE_API ucs_status_t uct_iface_open(uct_md_h md, uct_worker_h worker,
                                        const uct_iface_params_t* params,
                                        const uct_iface_config_t* config, uct_iface_h* iface_p)
    TAGWIRE_SYMBOL(uct_iface_open);

/// Closes an interface; its endpoints must be destroyed. NULL is ignored.
TAGWIRE_API void uct_iface_close(uct_iface_h iface) TAGWIRE_SYMBOL(uct_iface_close);

/// Reads the capabilities, limits and performance of an interface.
///
/// \retval UCS_OK  *iface_attr is filled.
/// \retval UCS_ERR_INVALID_PARAM  An argument is NULL.
TAGWIRE_API ucs_status_t uct_iface_query(uct_iface_h iface, uct_iface_attr_t* iface_attr)
    TAGWIRE_SYMBOL(uct_iface_query);

/// Writes the address of the device that an interface uses.
///
/// Takes uct_iface_attr_t.device_addr_len bytes: the same for all interfaces of a device.
TAGWIRE_API ucs_status_t uct_iface_get_device_address(uct_iface_h iface, uct_device_addr_t* addr)
    TAGWIRE_SYMBOL(uct_iface_get_device_address);

/// Writes the address of an interface.
///
/// Takes uct_iface_attr_t.iface_addr_len bytes. UCS_ERR_UNSUPPORTED without
/// UCT_IFACE_FLAG_CONNECT_TO_IFACE.
TAGWIRE_API ucs_status_t uct_iface_get_address(uct_iface_h iface, uct_iface_addr_t* addr)
    TAGWIRE_SYMBOL(uct_iface_get_address);

/// Tells whether endpoints to another interface can be made, as far as can be told from here.
///
/// `dev_addr` and `iface_addr` may come from anywhere. tagwire_uct_iface_is_reachable_reason() also
/// says why not.
///
/// \return 1: it is reachable; 0: it is not, or an argument is NULL.
TAGWIRE_API int uct_iface_is_reachable(const uct_iface_h iface, const uct_device_addr_t* dev_addr,
                                       const uct_iface_addr_t* iface_addr)
    TAGWIRE_SYMBOL(uct_iface_is_reachable);

/// Reads the descriptor that becomes readable for armed events.
///
/// It belongs to the interface. UCS_ERR_UNSUPPORTED without UCT_IFACE_FLAG_EVENT_FD.
TAGWIRE_API ucs_status_t uct_iface_event_fd_get(uct_iface_h iface, int* fd_p)
    TAGWIRE_SYMBOL(uct_iface_event_fd_get);

/// Asks for a signal on the descriptor at the next of `events` (UCT_EVENT_x). UCS_OK: armed, wait.
/// UCS_ERR_BUSY: something has happened already: progress, then arm again.
TAGWIRE_API ucs_status_t uct_iface_event_arm(uct_iface_h iface, unsigned events)
    TAGWIRE_SYMBOL(uct_iface_event_arm);

/// Allocates memory suitable for the interface and registers it. Free it with uct_iface_mem_free().
TAGWIRE_API ucs_status_t uct_iface_mem_alloc(uct_iface_h iface, size_t length, unsigned flags,
                                             const char* name, uct_allocated_memory_t* mem)
    TAGWIRE_SYMBOL(uct_iface_mem_alloc);

/// Frees memory of uct_iface_mem_alloc().
TAGWIRE_API void uct_iface_mem_free(const uct_allocated_memory_t* mem)
    TAGWIRE_SYMBOL(uct_iface_mem_free);

/// Sets the handler for active messages with `id` (below UCT_AM_ID_MAX), in place of the former
/// one; NULL removes it: such messages are dropped, and a warning says so. `flags` are
/// UCT_CB_FLAG_x; handlers run inside progress in any case. UCS_ERR_UNSUPPORTED: the interface has
/// no active messages.
TAGWIRE_API ucs_status_t uct_iface_set_am_handler(uct_iface_h iface, uint8_t id,
                                                  uct_am_callback_t cb, void* arg, uint32_t flags)
    TAGWIRE_SYMBOL(uct_iface_set_am_handler);

/// Not available: messages are not traced.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_iface_set_am_tracer(uct_iface_h iface, uct_am_tracer_t tracer,
                                                 void* arg) TAGWIRE_SYMBOL(uct_iface_set_am_tracer);

// ---- Endpoints

/// Makes an endpoint: connected to an interface when both addresses are given
/// (UCT_IFACE_FLAG_CONNECT_TO_IFACE), else for uct_ep_connect_to_ep()
/// (UCT_IFACE_FLAG_CONNECT_TO_EP). Does not wait for the peer. UCS_ERR_UNSUPPORTED: the interface
/// does not connect this way. UCS_ERR_UNREACHABLE, UCS_ERR_INVALID_ADDR: the address leads nowhere.
TAGWIRE_API ucs_status_t uct_ep_create(const uct_ep_params_t* params, uct_ep_h* ep_p)
    TAGWIRE_SYMBOL(uct_ep_create);

/// Destroys an endpoint.
///
/// Outstanding operations end first, with UCS_ERR_CANCELED; requests still pending are an error of
/// the caller. As in UCX, delivery is not promised: messages that uct_ep_flush() with
/// UCT_FLUSH_FLAG_LOCAL has not covered may be lost over a device (rc, dc, ud), the last ones
/// first, although their sends returned UCS_OK. Flushed ones arrive. NULL is ignored.
TAGWIRE_API void uct_ep_destroy(uct_ep_h ep) TAGWIRE_SYMBOL(uct_ep_destroy);

/// Writes the address of an endpoint.
///
/// Takes uct_iface_attr_t.ep_addr_len bytes. UCS_ERR_UNSUPPORTED without
/// UCT_IFACE_FLAG_CONNECT_TO_EP.
TAGWIRE_API ucs_status_t uct_ep_get_address(uct_ep_h ep, uct_ep_addr_t* addr)
    TAGWIRE_SYMBOL(uct_ep_get_address);

/// Connects to the peer's endpoint. UCS_ERR_UNSUPPORTED without UCT_IFACE_FLAG_CONNECT_TO_EP.
TAGWIRE_API ucs_status_t uct_ep_connect_to_ep(uct_ep_h ep, const uct_device_addr_t* dev_addr,
                                              const uct_ep_addr_t* ep_addr)
    TAGWIRE_SYMBOL(uct_ep_connect_to_ep);

/// Checks whether the peer of an endpoint is alive.
///
/// UCS_OK: it is alive. UCS_INPROGRESS: `comp` will tell. Another status: it is gone. `flags`
/// is 0. UCS_ERR_UNSUPPORTED without UCT_IFACE_FLAG_EP_CHECK.
TAGWIRE_API ucs_status_t uct_ep_check(const uct_ep_h ep, unsigned flags, uct_completion_t* comp)
    TAGWIRE_SYMBOL(uct_ep_check);

// ---- Connection manager: not available. The functions exist so that programs that can optionally
// connect by socket address compile and link.

/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_ep_connect(uct_ep_h ep, const uct_ep_connect_params_t* params)
    TAGWIRE_SYMBOL(uct_ep_connect);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_ep_disconnect(uct_ep_h ep, unsigned flags)
    TAGWIRE_SYMBOL(uct_ep_disconnect);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_iface_accept(uct_iface_h iface, uct_conn_request_h conn_request)
    TAGWIRE_SYMBOL(uct_iface_accept);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_iface_reject(uct_iface_h iface, uct_conn_request_h conn_request)
    TAGWIRE_SYMBOL(uct_iface_reject);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_cm_open(uct_component_h component, uct_worker_h worker,
                                     const uct_cm_config_t* config, uct_cm_h* cm_p)
    TAGWIRE_SYMBOL(uct_cm_open);
/// Not available: there is no connection manager.
///
/// Does nothing.
TAGWIRE_API void uct_cm_close(uct_cm_h cm) TAGWIRE_SYMBOL(uct_cm_close);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_cm_query(uct_cm_h cm, uct_cm_attr_t* cm_attr)
    TAGWIRE_SYMBOL(uct_cm_query);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_cm_config_read(uct_component_h component, const char* env_prefix,
                                            const char* filename, uct_cm_config_t** config_p)
    TAGWIRE_SYMBOL(uct_cm_config_read);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_cm_client_ep_conn_notify(uct_ep_h ep)
    TAGWIRE_SYMBOL(uct_cm_client_ep_conn_notify);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_listener_create(uct_cm_h cm, const struct sockaddr* saddr,
                                             socklen_t socklen, const uct_listener_params_t* params,
                                             uct_listener_h* listener_p)
    TAGWIRE_SYMBOL(uct_listener_create);
/// Not available: there is no connection manager.
///
/// Does nothing.
TAGWIRE_API void uct_listener_destroy(uct_listener_h listener) TAGWIRE_SYMBOL(uct_listener_destroy);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_listener_reject(uct_listener_h listener,
                                             uct_conn_request_h conn_request)
    TAGWIRE_SYMBOL(uct_listener_reject);
/// Not available: there is no connection manager.
///
/// \retval UCS_ERR_UNSUPPORTED  Always.
TAGWIRE_API ucs_status_t uct_listener_query(uct_listener_h listener,
                                            uct_listener_attr_t* listener_attr)
    TAGWIRE_SYMBOL(uct_listener_query);

END_C_DECLS

#endif
