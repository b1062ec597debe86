// SPDX-License-Identifier: BSD-3-Clause

/// \file
/// The inline calls of <uct/api/uct_data.h> as symbols of the library, for languages that cannot
/// use a C header and for dlsym(). Same arguments, same statuses; C and C++ programs use the inline
/// ones.
#ifndef TAGWIRE_UCT_API_TAGWIRE_FFI_H
#define TAGWIRE_UCT_API_TAGWIRE_FFI_H

#include <uct/api/uct.h>

BEGIN_C_DECLS

TAGWIRE_API unsigned tagwire_uct_worker_progress(uct_worker_h worker);
TAGWIRE_API void tagwire_uct_iface_progress_enable(uct_iface_h iface, unsigned flags);
TAGWIRE_API void tagwire_uct_iface_progress_disable(uct_iface_h iface, unsigned flags);
TAGWIRE_API unsigned tagwire_uct_iface_progress(uct_iface_h iface);
TAGWIRE_API ucs_status_t tagwire_uct_iface_flush(uct_iface_h iface, unsigned flags,
                                                 uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_iface_fence(uct_iface_h iface, unsigned flags);
TAGWIRE_API ucs_status_t tagwire_uct_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_fence(uct_ep_h ep, unsigned flags);
TAGWIRE_API ucs_status_t tagwire_uct_ep_pending_add(uct_ep_h ep, uct_pending_req_t* req,
                                                    unsigned flags);
TAGWIRE_API void tagwire_uct_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb,
                                              void* arg);
TAGWIRE_API ucs_status_t tagwire_uct_ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header,
                                                 const void* payload, unsigned length);
TAGWIRE_API ucs_status_t tagwire_uct_ep_am_short_iov(uct_ep_h ep, uint8_t id, const uct_iov_t* iov,
                                                     size_t iovcnt);
TAGWIRE_API ssize_t tagwire_uct_ep_am_bcopy(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack_cb,
                                            void* arg, unsigned flags);
TAGWIRE_API ucs_status_t tagwire_uct_ep_am_zcopy(uct_ep_h ep, uint8_t id, const void* header,
                                                 unsigned header_length, const uct_iov_t* iov,
                                                 size_t iovcnt, unsigned flags,
                                                 uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_put_short(uct_ep_h ep, const void* buffer, unsigned length,
                                                  uint64_t remote_addr, uct_rkey_t rkey);
TAGWIRE_API ssize_t tagwire_uct_ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void* arg,
                                             uint64_t remote_addr, uct_rkey_t rkey);
TAGWIRE_API ucs_status_t tagwire_uct_ep_put_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_get_short(uct_ep_h ep, void* buffer, unsigned length,
                                                  uint64_t remote_addr, uct_rkey_t rkey);
TAGWIRE_API ucs_status_t tagwire_uct_ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack_cb,
                                                  void* arg, size_t length, uint64_t remote_addr,
                                                  uct_rkey_t rkey, uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_get_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                                  uint64_t remote_addr, uct_rkey_t rkey,
                                                  uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                                                       uint64_t remote_addr, uct_rkey_t rkey,
                                                       uint64_t* result, uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                                                       uint64_t remote_addr, uct_rkey_t rkey,
                                                       uint32_t* result, uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic32_post(uct_ep_h ep, uct_atomic_op_t opcode,
                                                      uint32_t value, uint64_t remote_addr,
                                                      uct_rkey_t rkey);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic64_post(uct_ep_h ep, uct_atomic_op_t opcode,
                                                      uint64_t value, uint64_t remote_addr,
                                                      uct_rkey_t rkey);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic32_fetch(uct_ep_h ep, uct_atomic_op_t opcode,
                                                       uint32_t value, uint32_t* result,
                                                       uint64_t remote_addr, uct_rkey_t rkey,
                                                       uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_atomic64_fetch(uct_ep_h ep, uct_atomic_op_t opcode,
                                                       uint64_t value, uint64_t* result,
                                                       uint64_t remote_addr, uct_rkey_t rkey,
                                                       uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_tag_eager_short(uct_ep_h ep, uct_tag_t tag,
                                                        const void* data, size_t length);
TAGWIRE_API ssize_t tagwire_uct_ep_tag_eager_bcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                                   uct_pack_callback_t pack_cb, void* arg,
                                                   unsigned flags);
TAGWIRE_API ucs_status_t tagwire_uct_ep_tag_eager_zcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                                        const uct_iov_t* iov, size_t iovcnt,
                                                        unsigned flags, uct_completion_t* comp);
TAGWIRE_API ucs_status_ptr_t tagwire_uct_ep_tag_rndv_zcopy(uct_ep_h ep, uct_tag_t tag,
                                                           const void* header,
                                                           unsigned header_length,
                                                           const uct_iov_t* iov, size_t iovcnt,
                                                           unsigned flags, uct_completion_t* comp);
TAGWIRE_API ucs_status_t tagwire_uct_ep_tag_rndv_cancel(uct_ep_h ep, void* op);
TAGWIRE_API ucs_status_t tagwire_uct_ep_tag_rndv_request(uct_ep_h ep, uct_tag_t tag,
                                                         const void* header, unsigned header_length,
                                                         unsigned flags);
TAGWIRE_API ucs_status_t tagwire_uct_iface_tag_recv_zcopy(uct_iface_h iface, uct_tag_t tag,
                                                          uct_tag_t tag_mask, const uct_iov_t* iov,
                                                          size_t iovcnt, uct_tag_context_t* ctx);
TAGWIRE_API ucs_status_t tagwire_uct_iface_tag_recv_cancel(uct_iface_h iface,
                                                           uct_tag_context_t* ctx, int force);
TAGWIRE_API void tagwire_uct_completion_update_status(uct_completion_t* comp, ucs_status_t status);

END_C_DECLS

#endif
