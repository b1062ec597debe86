// SPDX-License-Identifier: BSD-3-Clause
// Out-of-line copies of the inline data-path calls.
#include <uct/api/tagwire_ffi.h>

extern "C" {

unsigned tagwire_uct_worker_progress(uct_worker_h worker) {
    return uct_worker_progress(worker);
}

void tagwire_uct_iface_progress_enable(uct_iface_h iface, unsigned flags) {
    uct_iface_progress_enable(iface, flags);
}

void tagwire_uct_iface_progress_disable(uct_iface_h iface, unsigned flags) {
    uct_iface_progress_disable(iface, flags);
}

unsigned tagwire_uct_iface_progress(uct_iface_h iface) {
    return uct_iface_progress(iface);
}

ucs_status_t tagwire_uct_iface_flush(uct_iface_h iface, unsigned flags, uct_completion_t* comp) {
    return uct_iface_flush(iface, flags, comp);
}

ucs_status_t tagwire_uct_iface_fence(uct_iface_h iface, unsigned flags) {
    return uct_iface_fence(iface, flags);
}

ucs_status_t tagwire_uct_ep_flush(uct_ep_h ep, unsigned flags, uct_completion_t* comp) {
    return uct_ep_flush(ep, flags, comp);
}

ucs_status_t tagwire_uct_ep_fence(uct_ep_h ep, unsigned flags) {
    return uct_ep_fence(ep, flags);
}

ucs_status_t tagwire_uct_ep_pending_add(uct_ep_h ep, uct_pending_req_t* req, unsigned flags) {
    return uct_ep_pending_add(ep, req, flags);
}

void tagwire_uct_ep_pending_purge(uct_ep_h ep, uct_pending_purge_callback_t cb, void* arg) {
    uct_ep_pending_purge(ep, cb, arg);
}

ucs_status_t tagwire_uct_ep_am_short(uct_ep_h ep, uint8_t id, uint64_t header, const void* payload,
                                     unsigned length) {
    return uct_ep_am_short(ep, id, header, payload, length);
}

ucs_status_t tagwire_uct_ep_am_short_iov(uct_ep_h ep, uint8_t id, const uct_iov_t* iov,
                                         size_t iovcnt) {
    return uct_ep_am_short_iov(ep, id, iov, iovcnt);
}

ssize_t tagwire_uct_ep_am_bcopy(uct_ep_h ep, uint8_t id, uct_pack_callback_t pack_cb, void* arg,
                                unsigned flags) {
    return uct_ep_am_bcopy(ep, id, pack_cb, arg, flags);
}

ucs_status_t tagwire_uct_ep_am_zcopy(uct_ep_h ep, uint8_t id, const void* header,
                                     unsigned header_length, const uct_iov_t* iov, size_t iovcnt,
                                     unsigned flags, uct_completion_t* comp) {
    return uct_ep_am_zcopy(ep, id, header, header_length, iov, iovcnt, flags, comp);
}

ucs_status_t tagwire_uct_ep_put_short(uct_ep_h ep, const void* buffer, unsigned length,
                                      uint64_t remote_addr, uct_rkey_t rkey) {
    return uct_ep_put_short(ep, buffer, length, remote_addr, rkey);
}

ssize_t tagwire_uct_ep_put_bcopy(uct_ep_h ep, uct_pack_callback_t pack_cb, void* arg,
                                 uint64_t remote_addr, uct_rkey_t rkey) {
    return uct_ep_put_bcopy(ep, pack_cb, arg, remote_addr, rkey);
}

ucs_status_t tagwire_uct_ep_put_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                      uint64_t remote_addr, uct_rkey_t rkey,
                                      uct_completion_t* comp) {
    return uct_ep_put_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t tagwire_uct_ep_get_short(uct_ep_h ep, void* buffer, unsigned length,
                                      uint64_t remote_addr, uct_rkey_t rkey) {
    return uct_ep_get_short(ep, buffer, length, remote_addr, rkey);
}

ucs_status_t tagwire_uct_ep_get_bcopy(uct_ep_h ep, uct_unpack_callback_t unpack_cb, void* arg,
                                      size_t length, uint64_t remote_addr, uct_rkey_t rkey,
                                      uct_completion_t* comp) {
    return uct_ep_get_bcopy(ep, unpack_cb, arg, length, remote_addr, rkey, comp);
}

ucs_status_t tagwire_uct_ep_get_zcopy(uct_ep_h ep, const uct_iov_t* iov, size_t iovcnt,
                                      uint64_t remote_addr, uct_rkey_t rkey,
                                      uct_completion_t* comp) {
    return uct_ep_get_zcopy(ep, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t tagwire_uct_ep_atomic_cswap64(uct_ep_h ep, uint64_t compare, uint64_t swap,
                                           uint64_t remote_addr, uct_rkey_t rkey, uint64_t* result,
                                           uct_completion_t* comp) {
    return uct_ep_atomic_cswap64(ep, compare, swap, remote_addr, rkey, result, comp);
}

ucs_status_t tagwire_uct_ep_atomic_cswap32(uct_ep_h ep, uint32_t compare, uint32_t swap,
                                           uint64_t remote_addr, uct_rkey_t rkey, uint32_t* result,
                                           uct_completion_t* comp) {
    return uct_ep_atomic_cswap32(ep, compare, swap, remote_addr, rkey, result, comp);
}

ucs_status_t tagwire_uct_ep_atomic32_post(uct_ep_h ep, uct_atomic_op_t opcode, uint32_t value,
                                          uint64_t remote_addr, uct_rkey_t rkey) {
    return uct_ep_atomic32_post(ep, opcode, value, remote_addr, rkey);
}

ucs_status_t tagwire_uct_ep_atomic64_post(uct_ep_h ep, uct_atomic_op_t opcode, uint64_t value,
                                          uint64_t remote_addr, uct_rkey_t rkey) {
    return uct_ep_atomic64_post(ep, opcode, value, remote_addr, rkey);
}

ucs_status_t tagwire_uct_ep_atomic32_fetch(uct_ep_h ep, uct_atomic_op_t opcode, uint32_t value,
                                           uint32_t* result, uint64_t remote_addr, uct_rkey_t rkey,
                                           uct_completion_t* comp) {
    return uct_ep_atomic32_fetch(ep, opcode, value, result, remote_addr, rkey, comp);
}

ucs_status_t tagwire_uct_ep_atomic64_fetch(uct_ep_h ep, uct_atomic_op_t opcode, uint64_t value,
                                           uint64_t* result, uint64_t remote_addr, uct_rkey_t rkey,
                                           uct_completion_t* comp) {
    return uct_ep_atomic64_fetch(ep, opcode, value, result, remote_addr, rkey, comp);
}

ucs_status_t tagwire_uct_ep_tag_eager_short(uct_ep_h ep, uct_tag_t tag, const void* data,
                                            size_t length) {
    return uct_ep_tag_eager_short(ep, tag, data, length);
}

ssize_t tagwire_uct_ep_tag_eager_bcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                       uct_pack_callback_t pack_cb, void* arg, unsigned flags) {
    return uct_ep_tag_eager_bcopy(ep, tag, imm, pack_cb, arg, flags);
}

ucs_status_t tagwire_uct_ep_tag_eager_zcopy(uct_ep_h ep, uct_tag_t tag, uint64_t imm,
                                            const uct_iov_t* iov, size_t iovcnt, unsigned flags,
                                            uct_completion_t* comp) {
    return uct_ep_tag_eager_zcopy(ep, tag, imm, iov, iovcnt, flags, comp);
}

ucs_status_ptr_t tagwire_uct_ep_tag_rndv_zcopy(uct_ep_h ep, uct_tag_t tag, const void* header,
                                               unsigned header_length, const uct_iov_t* iov,
                                               size_t iovcnt, unsigned flags,
                                               uct_completion_t* comp) {
    return uct_ep_tag_rndv_zcopy(ep, tag, header, header_length, iov, iovcnt, flags, comp);
}

ucs_status_t tagwire_uct_ep_tag_rndv_cancel(uct_ep_h ep, void* op) {
    return uct_ep_tag_rndv_cancel(ep, op);
}

ucs_status_t tagwire_uct_ep_tag_rndv_request(uct_ep_h ep, uct_tag_t tag, const void* header,
                                             unsigned header_length, unsigned flags) {
    return uct_ep_tag_rndv_request(ep, tag, header, header_length, flags);
}

ucs_status_t tagwire_uct_iface_tag_recv_zcopy(uct_iface_h iface, uct_tag_t tag, uct_tag_t tag_mask,
                                              const uct_iov_t* iov, size_t iovcnt,
                                              uct_tag_context_t* ctx) {
    return uct_iface_tag_recv_zcopy(iface, tag, tag_mask, iov, iovcnt, ctx);
}

ucs_status_t tagwire_uct_iface_tag_recv_cancel(uct_iface_h iface, uct_tag_context_t* ctx,
                                               int force) {
    return uct_iface_tag_recv_cancel(iface, ctx, force);
}

void tagwire_uct_completion_update_status(uct_completion_t* comp, ucs_status_t status) {
    uct_completion_update_status(comp, status);
}

}  // extern "C"
