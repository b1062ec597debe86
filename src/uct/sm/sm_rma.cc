// SPDX-License-Identifier: BSD-3-Clause
// Put, get and atomics. The location of the remote memory decides how an operation is done:
//   in the peer's arena        direct loads and stores, done when the call returns
//   registered, readable       process_vm_readv/writev, one step now and the rest in progress; of
//                              a long get the peer may copy parts (both_copy.hpp)
//   registered, not readable   messages; the peer does it in its progress
// Atomics on registered memory are always executed by the peer, so that they are atomic with its
// own and with those of others on the same memory.
#include <atomic>
#include <cstring>

#include "ucs/log/log.hpp"
#include "uct/sm/atomics.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"
#include "uct/sm/sm_target.hpp"

namespace tagwire::sm {

ucs_status_t SmEp::resolve(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                           Target* target_p) {
    const ucs_status_t status = find_target(rkey, remote_addr, length, target_p);
    if (status == UCS_ERR_INVALID_PARAM || status == UCS_ERR_INVALID_ADDR) [[unlikely]]
        say_why(rkey, remote_addr, length);
    return status;
}

void SmEp::say_why(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length) const {
    if (rkey == UCT_INVALID_RKEY || rkey == 0) {
        TW_LOG_ERROR("remote access: rkey is UCT_INVALID_RKEY or 0");
        return;
    }
    const PackedRkey& packed = reinterpret_cast<const SmRemoteKey*>(rkey)->packed;
    if (packed.covers(remote_addr, length)) {
        TW_LOG_ERROR("the remote key belongs to another memory domain than the endpoint's peer");
        return;
    }
    TW_LOG_ERROR("remote access to [0x%llx, +%zu) is outside of its key's range [0x%llx, +%llu)",
                 static_cast<unsigned long long>(remote_addr), length,
                 static_cast<unsigned long long>(packed.address),
                 static_cast<unsigned long long>(packed.length));
}

ucs_status_t SmEp::find_target(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                               Target* target_p) {
    Link& l = link();
    if (rkey == UCT_INVALID_RKEY || rkey == 0)
        return UCS_ERR_INVALID_PARAM;
    const auto* key = reinterpret_cast<const SmRemoteKey*>(rkey);
    const PackedRkey& packed = key->packed;
    if (!packed.covers(remote_addr, length))
        return UCS_ERR_INVALID_ADDR;
    if (l.failure != UCS_OK)
        return l.failure;
    if (l.fence_waits && l.blocking_ops > 0)
        return UCS_ERR_NO_RESOURCE;
    if (l.state != LinkState::kReady || group_.blocks_sends()) {
        l.iface.count(SmCounter::kNoResource);
        return UCS_ERR_NO_RESOURCE;
    }
    if (packed.arena_id != l.arena->id())
        return UCS_ERR_INVALID_PARAM;
    target_p->key = key;
    target_p->direct = nullptr;
    if (packed.arena_offset != kNoOffset) {
        target_p->direct =
            l.arena->at(packed.arena_offset + (remote_addr - packed.address), length);
        if (target_p->direct == nullptr)
            return UCS_ERR_INVALID_ADDR;
    } else if (l.copy_path == CopyPath::kSelf) {
        target_p->direct = reinterpret_cast<std::byte*>(remote_addr);
    }
    target_p->guard = KeyGuard(*l.arena, packed);
    return UCS_OK;
}

// A transfer that is not loads and stores. UCS_OK when the first step was all of it.
ucs_status_t SmEp::start_transfer(OpKind kind, const uct_iov_t* iov, std::size_t iovcnt,
                                  std::size_t bytes, std::uint64_t remote_addr,
                                  const Target& target, uct_completion_t* comp) {
    SmIface& owner = link().iface;
    const bool by_messages = link().copy_path == CopyPath::kMessages;
    if (by_messages)
        kind = kind == OpKind::kCopyGet ? OpKind::kPull : OpKind::kPush;
    ucs_status_t status = target.check();
    if (status != UCS_OK || bytes == 0)
        return status;
    if (by_messages && (status = make_room(1, kind == OpKind::kPush ? 1 : 0)) != UCS_OK)
        return status;
    Op* op = owner.ops.create(link(), kind, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->iov.assign(iov, iovcnt);
    op->cursor = op->iov.cursor();
    op->remote = remote_addr;
    op->left = op->length = bytes;
    op->key = target.key->packed.key;
    op->guard = target.guard;
    link().ops.push_back(*op);
    if (kind == OpKind::kPull) {
        link().send_control(Kind::kPull, PullBody{remote_addr, bytes, 0, op->key, kNoOp, op->id});
        return UCS_INPROGRESS;
    }
    if (kind == OpKind::kCopyGet && iovcnt == 1 && iov->count == 1)
        owner.both.ask_owner(*op, static_cast<std::byte*>(iov->buffer));
    link().set_steps(*op, true);
    owner.add_work(link());
    return owner.remote.step_first(*op);
}

// ---- Put

ucs_status_t SmEp::put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                             uct_rkey_t rkey) {
    if (length > link().iface.seg_bytes()) {
        TW_LOG_ERROR("put_short: %u exceeds the limit of %zu", length, link().iface.seg_bytes());
        return UCS_ERR_INVALID_PARAM;
    }
    if (length == 0)
        return link().failure;  // nothing moves, so no key is needed
    Target target;
    const ucs_status_t status = resolve(rkey, remote_addr, length, &target);
    if (status != UCS_OK)
        return status;
    if (target.direct != nullptr)
        return target.write(link(), [&] { std::memcpy(target.direct, buffer, length); });
    const uct_iov_t iov{const_cast<void*>(buffer), length, nullptr, 0, 1};
    if (link().copy_path == CopyPath::kMessages) {
        // The buffer is the caller's again when we return, so all of it must go now.
        const ucs_status_t enough = link().controls.empty() ? make_room(1, 1) : UCS_ERR_NO_RESOURCE;
        if (enough != UCS_OK)
            return enough;
    }
    const ucs_status_t done =
        start_transfer(OpKind::kCopyPut, &iov, 1, length, remote_addr, target, nullptr);
    return done == UCS_INPROGRESS ? UCS_OK : done;
}

ssize_t SmEp::put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                        uct_rkey_t rkey) {
    Target target;
    ucs_status_t status = resolve(rkey, remote_addr, 0, &target);
    if (status != UCS_OK || (status = target.check()) != UCS_OK)
        return status;
    const std::size_t limit = link().iface.seg_bytes();
    std::byte packed[32768 + kCacheLine];
    // The length is known only afterwards, and the remote memory may be shorter: so it is packed
    // aside first.
    if (link().copy_path == CopyPath::kMessages && target.direct == nullptr) {
        status = link().controls.empty() ? make_room(1, 1) : UCS_ERR_NO_RESOURCE;
        if (status != UCS_OK)
            return status;
    }
    const std::size_t bytes = pack(packed, arg);
    if (bytes > limit) {
        TW_LOG_ERROR("put_bcopy: %zu packed bytes exceed the limit of %zu", bytes, limit);
        return UCS_ERR_INVALID_PARAM;
    }
    if ((status = resolve(rkey, remote_addr, bytes, &target)) != UCS_OK)
        return status;
    if (target.direct != nullptr) {
        status = target.write(link(), [&] { std::memcpy(target.direct, packed, bytes); });
        return status < 0 ? static_cast<ssize_t>(status) : static_cast<ssize_t>(bytes);
    }
    const uct_iov_t iov{packed, bytes, nullptr, 0, 1};
    status = start_transfer(OpKind::kCopyPut, &iov, 1, bytes, remote_addr, target, nullptr);
    return status < 0 ? static_cast<ssize_t>(status) : static_cast<ssize_t>(bytes);
}

ucs_status_t SmEp::put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t* comp) {
    return zcopy(OpKind::kCopyPut, iov, iovcnt, remote_addr, rkey, comp);
}

ucs_status_t SmEp::zcopy(OpKind kind, const uct_iov_t* iov, std::size_t iovcnt,
                         std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp) {
    if (iovcnt > kIovMax) {
        TW_LOG_ERROR("%s: %zu iov elements exceed the limit of %zu",
                     kind == OpKind::kCopyPut ? "put_zcopy" : "get_zcopy", iovcnt, kIovMax);
        return UCS_ERR_INVALID_PARAM;
    }
    const std::size_t bytes = iov_bytes(iov, iovcnt);
    if (bytes == 0)
        return link().failure;
    Target target;
    const ucs_status_t status = resolve(rkey, remote_addr, bytes, &target);
    if (status != UCS_OK)
        return status;
    if (target.direct == nullptr)
        return start_transfer(kind, iov, iovcnt, bytes, remote_addr, target, comp);
    IovCursor cursor(iov, iovcnt);
    const ucs_status_t done =
        kind == OpKind::kCopyPut
            ? target.write(link(), [&] { cursor.gather(target.direct, bytes); })
            : target.read([&] { cursor.scatter(target.direct, bytes); });
    if (done == UCS_OK)
        link().iface.count(SmCounter::kDirectBytes, bytes);
    return done;
}

// ---- Get

ucs_status_t SmEp::get_short(void* buffer, unsigned length, std::uint64_t remote_addr,
                             uct_rkey_t rkey) {
    if (length > link().iface.seg_bytes()) {
        TW_LOG_ERROR("get_short: %u exceeds the limit of %zu", length, link().iface.seg_bytes());
        return UCS_ERR_INVALID_PARAM;
    }
    if (length == 0)
        return link().failure;
    Target target;
    const ucs_status_t status = resolve(rkey, remote_addr, length, &target);
    if (status != UCS_OK)
        return status;
    if (target.direct != nullptr)
        return target.read([&] { std::memcpy(buffer, target.direct, length); });
    const uct_iov_t iov{buffer, length, nullptr, 0, 1};
    // UCS_INPROGRESS: the peer sends the data in its progress, and a flush tells when it is there.
    return start_transfer(OpKind::kCopyGet, &iov, 1, length, remote_addr, target, nullptr);
}

ucs_status_t SmEp::get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                             std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp) {
    const std::size_t limit = link().iface.seg_bytes();
    if (length > limit) {
        TW_LOG_ERROR("get_bcopy: %zu exceeds the limit of %zu", length, limit);
        return UCS_ERR_INVALID_PARAM;
    }
    Target target;
    ucs_status_t status = resolve(rkey, remote_addr, length, &target);
    if (status != UCS_OK)
        return status;
    if (target.direct != nullptr || length == 0) {
        const std::byte nothing{};  // the callback may hand the pointer to memcpy
        return target.read([&] { unpack(arg, length == 0 ? &nothing : target.direct, length); });
    }
    if (link().copy_path != CopyPath::kMessages) {
        std::byte copy[32768];
        const uct_iov_t iov{copy, length, nullptr, 0, 1};
        status = start_transfer(OpKind::kCopyGet, &iov, 1, length, remote_addr, target, nullptr);
        if (status == UCS_OK)
            unpack(arg, copy, length);
        if (status != UCS_INPROGRESS)
            return status;
        return UCS_ERR_IO_ERROR;  // one step is always enough for this size
    }
    status = start_transfer(OpKind::kCopyGet, nullptr, 0, length, remote_addr, target, comp);
    if (status == UCS_INPROGRESS) {
        Op& op = *link().ops.back();
        op.unpack = unpack;
        op.unpack_arg = arg;
    }
    return status;
}

ucs_status_t SmEp::get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                             uct_rkey_t rkey, uct_completion_t* comp) {
    return zcopy(OpKind::kCopyGet, iov, iovcnt, remote_addr, rkey, comp);
}

// ---- Atomics

template <class T>
ucs_status_t SmEp::atomic(unsigned opcode, T value, T compare, std::uint64_t remote_addr,
                          uct_rkey_t rkey, T* result, uct_completion_t* comp) {
    if (opcode >= UCT_ATOMIC_OP_LAST) {
        TW_LOG_ERROR("atomic opcode %u is not a uct_atomic_op_t", opcode);
        return UCS_ERR_UNSUPPORTED;
    }
    if (remote_addr % sizeof(T) != 0) {
        TW_LOG_ERROR("atomic: remote address 0x%llx is not aligned to %zu bytes",
                     static_cast<unsigned long long>(remote_addr), sizeof(T));
        return UCS_ERR_INVALID_ADDR;
    }
    Target target;
    ucs_status_t status = resolve(rkey, remote_addr, sizeof(T), &target);
    if (status != UCS_OK)
        return status;
    if (target.direct != nullptr) {
        return target.write(link(), [&] {
            const T before = apply_atomic<T>(target.direct, opcode, value, compare);
            if (result != nullptr)
                *result = before;
        });
    }
    if ((status = target.check()) != UCS_OK || (status = make_room(1, 0)) != UCS_OK)
        return status;
    Op* op = link().iface.ops.create(link(), OpKind::kAtomic, this, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->result = result;
    op->result_bytes = sizeof(T);
    link().ops.push_back(*op);
    link().send_control(
        Kind::kAtomic,
        AtomicBody{remote_addr, value, compare, target.key->packed.key, op->id, opcode, sizeof(T)});
    return UCS_INPROGRESS;
}

namespace {

// A post has no result and no completion: under way is as good as done.
ucs_status_t posted(ucs_status_t status) {
    return status == UCS_INPROGRESS ? UCS_OK : status;
}

}  // namespace

ucs_status_t SmEp::atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                  std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                                  uct_completion_t* comp) {
    return atomic<std::uint64_t>(UCT_ATOMIC_OP_CSWAP, swap, compare, remote_addr, rkey, result,
                                 comp);
}

ucs_status_t SmEp::atomic_cswap32(std::uint32_t compare, std::uint32_t swap,
                                  std::uint64_t remote_addr, uct_rkey_t rkey, std::uint32_t* result,
                                  uct_completion_t* comp) {
    return atomic<std::uint32_t>(UCT_ATOMIC_OP_CSWAP, swap, compare, remote_addr, rkey, result,
                                 comp);
}

ucs_status_t SmEp::atomic32_post(unsigned opcode, std::uint32_t value, std::uint64_t remote_addr,
                                 uct_rkey_t rkey) {
    if (opcode > UCT_ATOMIC_OP_XOR)
        return UCS_ERR_UNSUPPORTED;
    return posted(atomic<std::uint32_t>(opcode, value, 0, remote_addr, rkey, nullptr, nullptr));
}

ucs_status_t SmEp::atomic64_post(unsigned opcode, std::uint64_t value, std::uint64_t remote_addr,
                                 uct_rkey_t rkey) {
    if (opcode > UCT_ATOMIC_OP_XOR)
        return UCS_ERR_UNSUPPORTED;
    return posted(atomic<std::uint64_t>(opcode, value, 0, remote_addr, rkey, nullptr, nullptr));
}

ucs_status_t SmEp::atomic32_fetch(unsigned opcode, std::uint32_t value, std::uint32_t* result,
                                  std::uint64_t remote_addr, uct_rkey_t rkey,
                                  uct_completion_t* comp) {
    if (opcode > UCT_ATOMIC_OP_SWAP)
        return UCS_ERR_UNSUPPORTED;
    return atomic<std::uint32_t>(opcode, value, 0, remote_addr, rkey, result, comp);
}

ucs_status_t SmEp::atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                  std::uint64_t remote_addr, uct_rkey_t rkey,
                                  uct_completion_t* comp) {
    if (opcode > UCT_ATOMIC_OP_SWAP)
        return UCS_ERR_UNSUPPORTED;
    return atomic<std::uint64_t>(opcode, value, 0, remote_addr, rkey, result, comp);
}

}  // namespace tagwire::sm
