// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_tagged(3).
#include "datapath.hpp"

namespace tagwire::fi {

namespace {

/// Buffers for many messages are for those without a tag.
std::uint64_t receive_flags(const Ep& ep) {
    return ep.rx.op_flags & ~std::uint64_t{FI_MULTI_RECV};
}

ssize_t tagged_recv(fid_ep* handle, void* buf, std::size_t len, void* desc, fi_addr_t from,
                    std::uint64_t tag, std::uint64_t ignore, void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<true>({{buf, len, nullptr, 0, mem_of(desc, len)},
                             from,
                             tag,
                             ignore,
                             context,
                             receive_flags(ep),
                             ep.rx.reports(ep.rx.op_flags)});
}

ssize_t tagged_recvv(fid_ep* handle, const iovec* iov, void** desc, std::size_t count,
                     fi_addr_t from, std::uint64_t tag, std::uint64_t ignore, void* context) {
    if (count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<true>({list_of(iov, desc, count), from, tag, ignore, context,
                             receive_flags(ep), ep.rx.reports(ep.rx.op_flags)});
}

ssize_t tagged_recvmsg(fid_ep* handle, const fi_msg_tagged* msg, std::uint64_t flags) {
    if (msg->iov_count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<true>({list_of(msg->msg_iov, msg->desc, msg->iov_count), msg->addr, msg->tag,
                             msg->ignore, msg->context, flags, ep.rx.reports(flags)});
}

ssize_t tagged_send(fid_ep* handle, const void* buf, std::size_t len, void* desc, fi_addr_t to,
                    std::uint64_t tag, void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({{const_cast<void*>(buf), len, nullptr, 0, mem_of(desc, len)},
                          to,
                          tag,
                          0,
                          context,
                          ep.tx.op_flags,
                          ep.tx.reports(ep.tx.op_flags)});
}

ssize_t tagged_sendv(fid_ep* handle, const iovec* iov, void** desc, std::size_t count, fi_addr_t to,
                     std::uint64_t tag, void* context) {
    if (count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({list_of(iov, desc, count), to, tag, 0, context, ep.tx.op_flags,
                          ep.tx.reports(ep.tx.op_flags)});
}

ssize_t tagged_sendmsg(fid_ep* handle, const fi_msg_tagged* msg, std::uint64_t flags) {
    if (msg->iov_count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({list_of(msg->msg_iov, msg->desc, msg->iov_count), msg->addr, msg->tag,
                          msg->data, msg->context, flags, ep.tx.reports(flags)});
}

ssize_t tagged_inject(fid_ep* handle, const void* buf, std::size_t len, fi_addr_t to,
                      std::uint64_t tag) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({{const_cast<void*>(buf), len}, to, tag, 0, nullptr, FI_INJECT, false});
}

ssize_t tagged_senddata(fid_ep* handle, const void* buf, std::size_t len, void* desc,
                        std::uint64_t data, fi_addr_t to, std::uint64_t tag, void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({{const_cast<void*>(buf), len, nullptr, 0, mem_of(desc, len)},
                          to,
                          tag,
                          data,
                          context,
                          ep.tx.op_flags | FI_REMOTE_CQ_DATA,
                          ep.tx.reports(ep.tx.op_flags)});
}

ssize_t tagged_injectdata(fid_ep* handle, const void* buf, std::size_t len, std::uint64_t data,
                          fi_addr_t to, std::uint64_t tag) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({{const_cast<void*>(buf), len},
                          to,
                          tag,
                          data,
                          nullptr,
                          FI_INJECT | FI_REMOTE_CQ_DATA,
                          false});
}

fi_ops_tagged tagged_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = tagged_recv,
    .recvv = tagged_recvv,
    .recvmsg = tagged_recvmsg,
    .send = tagged_send,
    .sendv = tagged_sendv,
    .sendmsg = tagged_sendmsg,
    .inject = tagged_inject,
    .senddata = tagged_senddata,
    .injectdata = tagged_injectdata,
};

}  // namespace

fi_ops_tagged* Ep::tagged_table() {
    return &tagged_ops;
}

}  // namespace tagwire::fi
