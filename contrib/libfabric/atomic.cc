// SPDX-License-Identifier: BSD-3-Clause
#include "atomic.hpp"

#include <rdma/fi_errno.h>

#include "atomic_caller.hpp"
#include "ep.hpp"

namespace tagwire::fi {

namespace {

AtomicList list_of(const fi_ioc* list, std::size_t count) {
    return {list, list == nullptr ? 0 : count};
}

/// The arguments that all calls of a kind have, but lists and flags.
struct Target {
    fi_addr_t to;
    std::uint64_t address;
    std::uint64_t key;
    fi_datatype datatype;
    fi_op op;
    void* context;
};

struct Lists {
    AtomicList operands;
    AtomicList compares;
    AtomicList results;
};

/// A call with one remote segment, of as many elements as `counted` has.
ssize_t start(fid_ep* handle, AtomicKind kind, const Lists& lists, AtomicList counted,
              const Target& target) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    std::size_t count = 0;
    for (const fi_ioc& part : counted) {
        if (part.count > kAtomicBytesMax)
            return -FI_EMSGSIZE;
        count += part.count;
    }
    const fi_rma_ioc segment = {target.address, count, target.key};
    return ep.atomics.begin({.kind = kind,
                             .op = static_cast<unsigned>(target.op),
                             .datatype = static_cast<unsigned>(target.datatype),
                             .operands = lists.operands,
                             .compares = lists.compares,
                             .results = lists.results,
                             .targets = {&segment, 1},
                             .to = target.to,
                             .context = target.context,
                             .flags = ep.tx.op_flags,
                             .is_reported = ep.tx.reports(ep.tx.op_flags)});
}

ssize_t start(fid_ep* handle, AtomicKind kind, const fi_msg_atomic& msg, const Lists& lists,
              std::uint64_t flags) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    return ep.atomics.begin({.kind = kind,
                             .op = static_cast<unsigned>(msg.op),
                             .datatype = static_cast<unsigned>(msg.datatype),
                             .operands = lists.operands,
                             .compares = lists.compares,
                             .results = lists.results,
                             .targets = {msg.rma_iov, msg.rma_iov_count},
                             .to = msg.addr,
                             .context = msg.context,
                             .flags = flags,
                             .is_reported = ep.tx.reports(flags)});
}

// ---- fi_atomic()

ssize_t atomic_write(fid_ep* ep, const void* buf, std::size_t count, void*, fi_addr_t to,
                     std::uint64_t addr, std::uint64_t key, fi_datatype datatype, fi_op op,
                     void* context) {
    const fi_ioc operands = {const_cast<void*>(buf), count};
    return start(ep, AtomicKind::kWrite, {{&operands, 1}, {}, {}}, {&operands, 1},
                 {to, addr, key, datatype, op, context});
}

ssize_t atomic_writev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count, fi_addr_t to,
                      std::uint64_t addr, std::uint64_t key, fi_datatype datatype, fi_op op,
                      void* context) {
    const AtomicList operands = list_of(iov, count);
    return start(ep, AtomicKind::kWrite, {operands, {}, {}}, operands,
                 {to, addr, key, datatype, op, context});
}

ssize_t atomic_writemsg(fid_ep* ep, const fi_msg_atomic* msg, std::uint64_t flags) {
    return start(ep, AtomicKind::kWrite, *msg, {list_of(msg->msg_iov, msg->iov_count), {}, {}},
                 flags);
}

ssize_t atomic_inject(fid_ep* handle, const void* buf, std::size_t count, fi_addr_t to,
                      std::uint64_t addr, std::uint64_t key, fi_datatype datatype, fi_op op) {
    Ep& ep = ep_of(handle);
    const Guard guard(ep.domain);
    const fi_ioc operands = {const_cast<void*>(buf), count};
    const fi_rma_ioc segment = {addr, count, key};
    return ep.atomics.begin({.kind = AtomicKind::kWrite,
                             .op = static_cast<unsigned>(op),
                             .datatype = static_cast<unsigned>(datatype),
                             .operands = {&operands, 1},
                             .compares = {},
                             .results = {},
                             .targets = {&segment, 1},
                             .to = to,
                             .context = nullptr,
                             .flags = FI_INJECT,
                             .is_reported = false});
}

// ---- fi_fetch_atomic()

ssize_t atomic_readwrite(fid_ep* ep, const void* buf, std::size_t count, void*, void* result, void*,
                         fi_addr_t to, std::uint64_t addr, std::uint64_t key, fi_datatype datatype,
                         fi_op op, void* context) {
    const fi_ioc operands = {const_cast<void*>(buf), count};
    const fi_ioc results = {result, count};
    return start(ep, AtomicKind::kFetch, {{&operands, 1}, {}, {&results, 1}}, {&results, 1},
                 {to, addr, key, datatype, op, context});
}

ssize_t atomic_readwritev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count, fi_ioc* resultv,
                          void**, std::size_t result_count, fi_addr_t to, std::uint64_t addr,
                          std::uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const AtomicList results = list_of(resultv, result_count);
    return start(ep, AtomicKind::kFetch, {list_of(iov, count), {}, results}, results,
                 {to, addr, key, datatype, op, context});
}

ssize_t atomic_readwritemsg(fid_ep* ep, const fi_msg_atomic* msg, fi_ioc* resultv, void**,
                            std::size_t result_count, std::uint64_t flags) {
    return start(ep, AtomicKind::kFetch, *msg,
                 {list_of(msg->msg_iov, msg->iov_count), {}, list_of(resultv, result_count)},
                 flags);
}

// ---- fi_compare_atomic()

ssize_t atomic_compwrite(fid_ep* ep, const void* buf, std::size_t count, void*, const void* compare,
                         void*, void* result, void*, fi_addr_t to, std::uint64_t addr,
                         std::uint64_t key, fi_datatype datatype, fi_op op, void* context) {
    const fi_ioc operands = {const_cast<void*>(buf), count};
    const fi_ioc compares = {const_cast<void*>(compare), count};
    const fi_ioc results = {result, count};
    return start(ep, AtomicKind::kCompare, {{&operands, 1}, {&compares, 1}, {&results, 1}},
                 {&operands, 1}, {to, addr, key, datatype, op, context});
}

ssize_t atomic_compwritev(fid_ep* ep, const fi_ioc* iov, void**, std::size_t count,
                          const fi_ioc* comparev, void**, std::size_t compare_count,
                          fi_ioc* resultv, void**, std::size_t result_count, fi_addr_t to,
                          std::uint64_t addr, std::uint64_t key, fi_datatype datatype, fi_op op,
                          void* context) {
    const AtomicList operands = list_of(iov, count);
    return start(ep, AtomicKind::kCompare,
                 {operands, list_of(comparev, compare_count), list_of(resultv, result_count)},
                 operands, {to, addr, key, datatype, op, context});
}

ssize_t atomic_compwritemsg(fid_ep* ep, const fi_msg_atomic* msg, const fi_ioc* comparev, void**,
                            std::size_t compare_count, fi_ioc* resultv, void**,
                            std::size_t result_count, std::uint64_t flags) {
    return start(ep, AtomicKind::kCompare, *msg,
                 {list_of(msg->msg_iov, msg->iov_count), list_of(comparev, compare_count),
                  list_of(resultv, result_count)},
                 flags);
}

// ---- Which operations there are

template <AtomicKind kKind>
int atomic_valid(fid_ep*, fi_datatype datatype, fi_op op, std::size_t* count) {
    const auto type = static_cast<unsigned>(datatype);
    if (find_atomic(kKind, static_cast<unsigned>(op), type) == nullptr)
        return -FI_EOPNOTSUPP;
    if (count != nullptr)
        *count = kAtomicBytesMax / atomic_bytes_of(type);
    return 0;
}

fi_ops_atomic atomic_ops = {.size = sizeof(fi_ops_atomic),
                            .write = atomic_write,
                            .writev = atomic_writev,
                            .writemsg = atomic_writemsg,
                            .inject = atomic_inject,
                            .readwrite = atomic_readwrite,
                            .readwritev = atomic_readwritev,
                            .readwritemsg = atomic_readwritemsg,
                            .compwrite = atomic_compwrite,
                            .compwritev = atomic_compwritev,
                            .compwritemsg = atomic_compwritemsg,
                            .writevalid = atomic_valid<AtomicKind::kWrite>,
                            .readwritevalid = atomic_valid<AtomicKind::kFetch>,
                            .compwritevalid = atomic_valid<AtomicKind::kCompare>};

template <int kError>
fi_ops_atomic refusing_ops = {.size = sizeof(fi_ops_atomic),
                              .write = Refusing<kError>(),
                              .writev = Refusing<kError>(),
                              .writemsg = Refusing<kError>(),
                              .inject = Refusing<kError>(),
                              .readwrite = Refusing<kError>(),
                              .readwritev = Refusing<kError>(),
                              .readwritemsg = Refusing<kError>(),
                              .compwrite = Refusing<kError>(),
                              .compwritev = Refusing<kError>(),
                              .compwritemsg = Refusing<kError>(),
                              .writevalid = atomic_valid<AtomicKind::kWrite>,
                              .readwritevalid = atomic_valid<AtomicKind::kFetch>,
                              .compwritevalid = atomic_valid<AtomicKind::kCompare>};

}  // namespace

void set_atomic_table(Ep& ep) {
    if ((ep.tx_caps & FI_ATOMIC) == 0)
        ep.atomic = &refusing_ops<FI_EOPNOTSUPP>;
    else
        ep.atomic = ep.is_enabled ? &atomic_ops : &refusing_ops<FI_EOPBADSTATE>;
}

int query_atomic(fid_domain*, fi_datatype datatype, fi_op op, fi_atomic_attr* attr,
                 std::uint64_t flags) {
    constexpr std::uint64_t kKinds = FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC;
    if ((flags & FI_TAGGED) != 0)
        return -FI_EOPNOTSUPP;
    if ((flags & ~kKinds) != 0 || (flags & kKinds) == kKinds)
        return -FI_EBADFLAGS;
    const AtomicKind kind = (flags & FI_COMPARE_ATOMIC) != 0 ? AtomicKind::kCompare
                            : (flags & FI_FETCH_ATOMIC) != 0 ? AtomicKind::kFetch
                                                             : AtomicKind::kWrite;
    const auto type = static_cast<unsigned>(datatype);
    if (find_atomic(kind, static_cast<unsigned>(op), type) == nullptr)
        return -FI_EOPNOTSUPP;
    attr->size = atomic_bytes_of(type);
    attr->count = kAtomicBytesMax / attr->size;
    return 0;
}

}  // namespace tagwire::fi
