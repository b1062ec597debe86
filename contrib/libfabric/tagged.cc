// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_tagged(3).
#include "datapath.hpp"

namespace tagwire::fi {

namespace {

/// Buffers for many messages are for those without a tag.
std::uint64_t receive_flags(const Ep& ep) {
    return ep.rx.op_flags & ~std::uint64_t{FI_MULTI_RECV};
}

[[gnu::noinline]] ssize_t tagged_recv_general(fid_ep* handle, void* buf, std::size_t len,
                                              void* desc, fi_addr_t from, std::uint64_t tag,
                                              std::uint64_t ignore, void* context) {
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

[[gnu::noinline]] ssize_t tagged_send_general(fid_ep* handle, const void* buf, std::size_t len,
                                              void* desc, fi_addr_t to, std::uint64_t tag,
                                              void* context) {
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

[[gnu::noinline]] ssize_t tagged_inject_general(fid_ep* handle, const void* buf, std::size_t len,
                                                fi_addr_t to, std::uint64_t tag) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<true>({{const_cast<void*>(buf), len}, to, tag, 0, nullptr, FI_INJECT, false});
}

[[gnu::noinline]] ssize_t tagged_senddata_general(fid_ep* handle, const void* buf, std::size_t len,
                                                  void* desc, std::uint64_t data, fi_addr_t to,
                                                  std::uint64_t tag, void* context) {
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

[[gnu::noinline]] ssize_t tagged_injectdata_general(fid_ep* handle, const void* buf,
                                                    std::size_t len, std::uint64_t data,
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

// Calls without flags: usual ones take the fast path.

template <bool kLocked>
ssize_t tagged_recv(fid_ep* ep, void* buf, std::size_t len, void* desc, fi_addr_t from,
                    std::uint64_t tag, std::uint64_t ignore, void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_receive<true>({buf, len, desc, from, tag, ignore, context}, &answer))
        [[unlikely]]
        return tagged_recv_general(ep, buf, len, desc, from, tag, ignore, context);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t tagged_send(fid_ep* ep, const void* buf, std::size_t len, void* desc, fi_addr_t to,
                    std::uint64_t tag, void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_send<true, false, Entry>({buf, len, desc, to, tag, 0, context}, &answer))
        [[unlikely]]
        return tagged_send_general(ep, buf, len, desc, to, tag, context);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t tagged_senddata(fid_ep* ep, const void* buf, std::size_t len, void* desc,
                        std::uint64_t data, fi_addr_t to, std::uint64_t tag, void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_send<true, true, Entry>({buf, len, desc, to, tag, data, context}, &answer))
        [[unlikely]]
        return tagged_senddata_general(ep, buf, len, desc, data, to, tag, context);
    return answer;
}

template <bool kLocked>
ssize_t tagged_inject(fid_ep* ep, const void* buf, std::size_t len, fi_addr_t to,
                      std::uint64_t tag) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_inject<true, false>({buf, len, nullptr, to, tag, 0, nullptr}, &answer))
        [[unlikely]]
        return tagged_inject_general(ep, buf, len, to, tag);
    return answer;
}

template <bool kLocked>
ssize_t tagged_injectdata(fid_ep* ep, const void* buf, std::size_t len, std::uint64_t data,
                          fi_addr_t to, std::uint64_t tag) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_inject<true, true>({buf, len, nullptr, to, tag, data, nullptr}, &answer))
        [[unlikely]]
        return tagged_injectdata_general(ep, buf, len, data, to, tag);
    return answer;
}

template <bool kLocked, class Entry>
fi_ops_tagged tagged_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = tagged_recv<kLocked>,
    .recvv = tagged_recvv,
    .recvmsg = tagged_recvmsg,
    .send = tagged_send<kLocked, Entry>,
    .sendv = tagged_sendv,
    .sendmsg = tagged_sendmsg,
    .inject = tagged_inject<kLocked>,
    .senddata = tagged_senddata<kLocked, Entry>,
    .injectdata = tagged_injectdata<kLocked>,
};

}  // namespace

fi_ops_tagged* Ep::tagged_table(bool is_locked, bool is_whole) {
    if (is_whole)
        return is_locked ? &tagged_ops<true, fi_cq_tagged_entry>
                         : &tagged_ops<false, fi_cq_tagged_entry>;
    return is_locked ? &tagged_ops<true, fi_cq_entry> : &tagged_ops<false, fi_cq_entry>;
}

}  // namespace tagwire::fi
