// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_msg(3).
#include "datapath.hpp"

namespace tagwire::fi {

namespace {

[[gnu::noinline]] ssize_t msg_recv_general(fid_ep* handle, void* buf, std::size_t len, void* desc,
                                           fi_addr_t from, void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<false>({{buf, len, nullptr, 0, mem_of(desc, len)},
                              from,
                              0,
                              0,
                              context,
                              ep.rx.op_flags,
                              ep.rx.reports(ep.rx.op_flags)});
}

ssize_t msg_recvv(fid_ep* handle, const iovec* iov, void** desc, std::size_t count, fi_addr_t from,
                  void* context) {
    if (count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<false>({list_of(iov, desc, count), from, 0, 0, context, ep.rx.op_flags,
                              ep.rx.reports(ep.rx.op_flags)});
}

ssize_t msg_recvmsg(fid_ep* handle, const fi_msg* msg, std::uint64_t flags) {
    if (msg->iov_count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.receive<false>({list_of(msg->msg_iov, msg->desc, msg->iov_count), msg->addr, 0, 0,
                              msg->context, flags, ep.rx.reports(flags)});
}

[[gnu::noinline]] ssize_t msg_send_general(fid_ep* handle, const void* buf, std::size_t len,
                                           void* desc, fi_addr_t to, void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({{const_cast<void*>(buf), len, nullptr, 0, mem_of(desc, len)},
                           to,
                           0,
                           0,
                           context,
                           ep.tx.op_flags,
                           ep.tx.reports(ep.tx.op_flags)});
}

ssize_t msg_sendv(fid_ep* handle, const iovec* iov, void** desc, std::size_t count, fi_addr_t to,
                  void* context) {
    if (count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({list_of(iov, desc, count), to, 0, 0, context, ep.tx.op_flags,
                           ep.tx.reports(ep.tx.op_flags)});
}

ssize_t msg_sendmsg(fid_ep* handle, const fi_msg* msg, std::uint64_t flags) {
    if (msg->iov_count > TW_IOV_MAX)
        return -FI_EINVAL;
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({list_of(msg->msg_iov, msg->desc, msg->iov_count), msg->addr, 0,
                           msg->data, msg->context, flags, ep.tx.reports(flags)});
}

[[gnu::noinline]] ssize_t msg_inject_general(fid_ep* handle, const void* buf, std::size_t len,
                                             fi_addr_t to) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({{const_cast<void*>(buf), len}, to, 0, 0, nullptr, FI_INJECT, false});
}

[[gnu::noinline]] ssize_t msg_senddata_general(fid_ep* handle, const void* buf, std::size_t len,
                                               void* desc, std::uint64_t data, fi_addr_t to,
                                               void* context) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({{const_cast<void*>(buf), len, nullptr, 0, mem_of(desc, len)},
                           to,
                           0,
                           data,
                           context,
                           ep.tx.op_flags | FI_REMOTE_CQ_DATA,
                           ep.tx.reports(ep.tx.op_flags)});
}

[[gnu::noinline]] ssize_t msg_injectdata_general(fid_ep* handle, const void* buf, std::size_t len,
                                                 std::uint64_t data, fi_addr_t to) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.send<false>({{const_cast<void*>(buf), len},
                           to,
                           0,
                           data,
                           nullptr,
                           FI_INJECT | FI_REMOTE_CQ_DATA,
                           false});
}

// Calls without flags: usual ones take the fast path.

template <bool kLocked>
ssize_t msg_recv(fid_ep* ep, void* buf, std::size_t len, void* desc, fi_addr_t from,
                 void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_receive<false>({buf, len, desc, from, 0, 0, context}, &answer)) [[unlikely]]
        return msg_recv_general(ep, buf, len, desc, from, context);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t msg_send(fid_ep* ep, const void* buf, std::size_t len, void* desc, fi_addr_t to,
                 void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_send<false, false, Entry>({buf, len, desc, to, 0, 0, context}, &answer))
        [[unlikely]]
        return msg_send_general(ep, buf, len, desc, to, context);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t msg_senddata(fid_ep* ep, const void* buf, std::size_t len, void* desc, std::uint64_t data,
                     fi_addr_t to, void* context) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_send<false, true, Entry>({buf, len, desc, to, 0, data, context}, &answer))
        [[unlikely]]
        return msg_senddata_general(ep, buf, len, desc, data, to, context);
    return answer;
}

template <bool kLocked>
ssize_t msg_inject(fid_ep* ep, const void* buf, std::size_t len, fi_addr_t to) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_inject<false, false>({buf, len, nullptr, to, 0, 0, nullptr}, &answer))
        [[unlikely]]
        return msg_inject_general(ep, buf, len, to);
    return answer;
}

template <bool kLocked>
ssize_t msg_injectdata(fid_ep* ep, const void* buf, std::size_t len, std::uint64_t data,
                       fi_addr_t to) {
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).try_inject<false, true>({buf, len, nullptr, to, 0, data, nullptr}, &answer))
        [[unlikely]]
        return msg_injectdata_general(ep, buf, len, data, to);
    return answer;
}

template <bool kLocked, class Entry>
fi_ops_msg msg_ops = {
    .size = sizeof(fi_ops_msg),
    .recv = msg_recv<kLocked>,
    .recvv = msg_recvv,
    .recvmsg = msg_recvmsg,
    .send = msg_send<kLocked, Entry>,
    .sendv = msg_sendv,
    .sendmsg = msg_sendmsg,
    .inject = msg_inject<kLocked>,
    .senddata = msg_senddata<kLocked, Entry>,
    .injectdata = msg_injectdata<kLocked>,
};

}  // namespace

fi_ops_msg* Ep::msg_table(bool is_locked, bool is_whole) {
    if (is_whole)
        return is_locked ? &msg_ops<true, fi_cq_tagged_entry> : &msg_ops<false, fi_cq_tagged_entry>;
    return is_locked ? &msg_ops<true, fi_cq_entry> : &msg_ops<false, fi_cq_entry>;
}

}  // namespace tagwire::fi
