// SPDX-License-Identifier: BSD-3-Clause
// The calls of fi_rma(3).
#include "rma_datapath.hpp"

namespace tagwire::fi {

namespace {

struct General {
    std::uint64_t flags;
    bool is_reported;
};

/// The way of a call without flags of its own.
General by_default(const Ep& ep, bool is_read) {
    const std::uint64_t flags = ep.tx.op_flags & (is_read ? kReadFlags : kWriteFlags);
    return {flags, ep.tx.reports(flags)};
}

template <bool kIsRead>
ssize_t transfer_one(Ep& ep, const TransferArgs& args, const General& how) {
    const iovec iov = {args.buf, args.length};
    const fi_rma_iov remote = {args.address, args.length, args.key};
    return ep.one_sided.transfer<kIsRead>({&iov, &args.desc, 1, &remote, 1, args.peer, args.imm,
                                           args.context, how.flags, how.is_reported});
}

template <bool kIsRead>
[[gnu::noinline]] ssize_t rma_general(fid_ep* handle, const TransferArgs& args,
                                      std::uint64_t more_flags) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    General how = by_default(ep, kIsRead);
    how.flags |= more_flags;
    return transfer_one<kIsRead>(ep, args, how);
}

[[gnu::noinline]] ssize_t rma_inject_general(fid_ep* handle, const TransferArgs& args,
                                             std::uint64_t more_flags) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return transfer_one<false>(ep, args, {FI_INJECT | more_flags, false});
}

template <bool kIsRead>
ssize_t rma_list(fid_ep* handle, const Transfer& what) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    const General how = by_default(ep, kIsRead);
    // The list of the peer has one element, of the length of the other.
    fi_rma_iov remote = *what.remote;
    for (std::size_t i = 0; i < what.count; ++i)
        remote.len += what.iov[i].iov_len;
    Transfer whole = what;
    whole.remote = &remote;
    whole.flags = how.flags;
    whole.is_reported = how.is_reported;
    return ep.one_sided.transfer<kIsRead>(whole);
}

template <bool kIsRead>
ssize_t rma_msg(fid_ep* handle, const fi_msg_rma* msg, std::uint64_t flags) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.one_sided.transfer<kIsRead>({msg->msg_iov, msg->desc, msg->iov_count, msg->rma_iov,
                                           msg->rma_iov_count, msg->addr, msg->data, msg->context,
                                           flags, ep.tx.reports(flags)});
}

template <bool kIsRead>
ssize_t rma_vector(fid_ep* ep, const iovec* iov, void** desc, std::size_t count, fi_addr_t peer,
                   std::uint64_t addr, std::uint64_t key, void* context) {
    const fi_rma_iov remote = {addr, 0, key};
    return rma_list<kIsRead>(ep, {iov, desc, count, &remote, 1, peer, 0, context, 0, false});
}

// Calls without flags: usual ones take the fast path.

template <bool kLocked, class Entry>
ssize_t rma_read(fid_ep* ep, void* buf, std::size_t len, void* desc, fi_addr_t peer,
                 std::uint64_t addr, std::uint64_t key, void* context) {
    const TransferArgs args = {buf, len, desc, peer, addr, key, 0, context};
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).one_sided.try_transfer<true, false, Entry>(args, &answer)) [[unlikely]]
        return rma_general<true>(ep, args, 0);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t rma_write(fid_ep* ep, const void* buf, std::size_t len, void* desc, fi_addr_t peer,
                  std::uint64_t addr, std::uint64_t key, void* context) {
    const TransferArgs args = {const_cast<void*>(buf), len, desc, peer, addr, key, 0, context};
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).one_sided.try_transfer<false, false, Entry>(args, &answer)) [[unlikely]]
        return rma_general<false>(ep, args, 0);
    return answer;
}

template <bool kLocked, class Entry>
ssize_t rma_writedata(fid_ep* ep, const void* buf, std::size_t len, void* desc, std::uint64_t data,
                      fi_addr_t peer, std::uint64_t addr, std::uint64_t key, void* context) {
    const TransferArgs args = {const_cast<void*>(buf), len, desc, peer, addr, key, data, context};
    ssize_t answer = 0;
    if ((kLocked && has_threads()) ||
        !ep_of(ep).one_sided.try_transfer<false, true, Entry>(args, &answer)) [[unlikely]]
        return rma_general<false>(ep, args, FI_REMOTE_CQ_DATA);
    return answer;
}

template <bool kLocked>
ssize_t rma_inject(fid_ep* ep, const void* buf, std::size_t len, fi_addr_t peer, std::uint64_t addr,
                   std::uint64_t key) {
    const TransferArgs args = {const_cast<void*>(buf), len, nullptr, peer, addr, key, 0, nullptr};
    ssize_t answer = 0;
    if ((kLocked && has_threads()) || !ep_of(ep).one_sided.try_inject<false>(args, &answer))
        [[unlikely]]
        return rma_inject_general(ep, args, 0);
    return answer;
}

template <bool kLocked>
ssize_t rma_injectdata(fid_ep* ep, const void* buf, std::size_t len, std::uint64_t data,
                       fi_addr_t peer, std::uint64_t addr, std::uint64_t key) {
    const TransferArgs args = {
        const_cast<void*>(buf), len, nullptr, peer, addr, key, data, nullptr};
    ssize_t answer = 0;
    if ((kLocked && has_threads()) || !ep_of(ep).one_sided.try_inject<true>(args, &answer))
        [[unlikely]]
        return rma_inject_general(ep, args, FI_REMOTE_CQ_DATA);
    return answer;
}

template <bool kLocked, class Entry>
fi_ops_rma rma_ops = {
    .size = sizeof(fi_ops_rma),
    .read = rma_read<kLocked, Entry>,
    .readv = rma_vector<true>,
    .readmsg = rma_msg<true>,
    .write = rma_write<kLocked, Entry>,
    .writev = rma_vector<false>,
    .writemsg = rma_msg<false>,
    .inject = rma_inject<kLocked>,
    .writedata = rma_writedata<kLocked, Entry>,
    .injectdata = rma_injectdata<kLocked>,
};

}  // namespace

fi_ops_rma* Rma::table(bool is_locked, bool is_whole) {
    if (is_whole)
        return is_locked ? &rma_ops<true, fi_cq_tagged_entry> : &rma_ops<false, fi_cq_tagged_entry>;
    return is_locked ? &rma_ops<true, fi_cq_entry> : &rma_ops<false, fi_cq_entry>;
}

}  // namespace tagwire::fi
