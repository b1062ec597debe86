// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/lending.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "ucs/sys/process_proof.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/loan.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

static_assert(kIovMax <= ucs::kProvedPiecesMax);

// ---- The loan

void Loan::make(SmMd& md) {
    uct_mem_h made = nullptr;
    if (md.mem_reg(nullptr, 0, 0, &made) != UCS_OK)
        return;
    handle_ = static_cast<MemHandle*>(made);
    md_ = &md;
    pid_ = ::getpid();
}

void Loan::release() {
    MemHandle* const ended = std::exchange(handle_, nullptr);
    if (pid_ == ::getpid())
        md_->mem_dereg(ended);
    else
        md_->abandon(ended);
}

// ---- Owner

ucs_status_t SmLending::lend(uct_ep_h ep, const void* buffer, std::size_t length,
                             tagwire_uct_loan_t* loan_p) {
    Link& link = static_cast<SmEp*>(ep)->link();
    if (link.failure != UCS_OK || link.state != LinkState::kReady)
        return UCS_ERR_UNSUPPORTED;
    const std::uint64_t offset = iface_.sm_md().arena().offset_of(buffer, length);
    const bool is_in_arena = offset != kNoOffset;
    if (!is_in_arena && link.copy_path != CopyPath::kProcessVm && link.copy_path != CopyPath::kSelf)
        return UCS_ERR_UNSUPPORTED;
    const MemHandle* const handle = link.loan.give(iface_.sm_md());
    if (handle == nullptr)
        return UCS_ERR_UNSUPPORTED;
    const std::uint64_t place =
        is_in_arena ? offset | kPlaceInArena : reinterpret_cast<std::uintptr_t>(buffer);
    *loan_p = {place, handle->generation, handle->key, 0};
    return UCS_OK;
}

namespace {

/// The peer of one is that of the other. Two interfaces that connect to each other at a time have
/// two connections.
bool have_same_peer(const Link& one, const Link& other) {
    return one.process != nullptr && one.process == other.process &&
           one.peer_name == other.peer_name;
}

}  // namespace

const std::byte* SmLending::find(const Link& link, std::uint32_t id, std::uint64_t address,
                                 std::uint64_t length) const {
    tagwire_uct_lent_t lent{};
    if (handler_ == nullptr || handler_(handler_arg_, id, &lent) != UCS_OK ||
        lent.ep->iface != &iface_ ||
        !have_same_peer(static_cast<const SmEp*>(lent.ep)->link(), link))
        return nullptr;
    const std::uint64_t offset = address - reinterpret_cast<std::uintptr_t>(lent.buffer);
    if (offset > lent.length || length > lent.length - offset)
        return nullptr;
    return static_cast<const std::byte*>(lent.buffer) + offset;
}

// ---- Reader

/// In this call of progress. The first read of a call is always permitted, whatever its length.
bool SmLending::may_read(Link& link, std::size_t bytes) const {
    const std::uint64_t call = iface_.rings.calls();
    if (std::exchange(link.read_call, call) != call)
        link.read_bytes = 0;
    if (link.read_bytes > 0 && link.read_bytes + bytes > kReadBytesMax)
        return false;
    link.read_bytes += bytes;
    return true;
}

ucs_status_t SmLending::read(uct_ep_h ep, const uct_iov_t* iov, std::size_t iovcnt,
                             const tagwire_uct_loan_t& loan, uct_completion_t* comp) {
    Link& link = static_cast<SmEp*>(ep)->link();
    if (link.failure != UCS_OK)
        return link.failure;
    if (link.state != LinkState::kReady)
        return UCS_ERR_UNSUPPORTED;
    const std::size_t bytes = iov_bytes(iov, iovcnt);
    PackedRkey key{};
    key.key = loan.key;
    key.generation = loan.generation;
    const KeyGuard guard(*link.arena, key);
    if (!guard.is_good()) {
        iface_.count(SmCounter::kLentEnded);
        return UCS_ERR_CANCELED;
    }
    if (is_long(link, iovcnt, bytes, loan))
        return comp == nullptr
                   ? UCS_ERR_BUSY
                   : begin_long(*static_cast<SmEp*>(ep), iov, iovcnt, loan, guard, comp);
    if (!may_read(link, bytes))
        return UCS_ERR_NO_RESOURCE;
    return end_of(guard, copy(link, IovCursor(iov, iovcnt), bytes, loan.place));
}

ucs_status_t SmLending::end_of(const KeyGuard& guard, ucs_status_t status) {
    if (status != UCS_OK && status != UCS_ERR_INVALID_ADDR) [[unlikely]]
        return status;
    // The owner may have unmapped the buffer as well, once it had taken it back.
    if (guard.status() != UCS_OK) [[unlikely]] {
        iface_.count(SmCounter::kLentEnded);
        return UCS_ERR_CANCELED;
    }
    if (status == UCS_OK)
        iface_.count(SmCounter::kLentReads);
    return status;
}

bool SmLending::is_in_stream(const Link& link) const {
    return link.stepping > 0 || iface_.rings.calls() - link.read_call < kCallsInStream;
}

/// One that takes several system calls, or that the owner is to help with.
bool SmLending::is_long(const Link& link, std::size_t iovcnt, std::size_t bytes,
                        const tagwire_uct_loan_t& loan) const {
    const bool has_help =
        loan.id != 0 && iovcnt == 1 && iface_.both.is_worth_asking(bytes, is_in_stream(link));
    return (has_help || bytes > kReadBytesMax) && (loan.place & kPlaceInArena) == 0 &&
           link.copy_path == CopyPath::kProcessVm;
}

ucs_status_t SmLending::begin_long(SmEp& ep, const uct_iov_t* iov, std::size_t iovcnt,
                                   const tagwire_uct_loan_t& loan, const KeyGuard& guard,
                                   uct_completion_t* comp) {
    Link& link = ep.link();
    if (iovcnt > kIovMax)
        return UCS_ERR_UNSUPPORTED;
    if (link.fence_waits && link.blocking_ops > 0)
        return UCS_ERR_NO_RESOURCE;
    Op* const op = iface_.ops.create(link, OpKind::kCopyGet, &ep, comp);
    if (op == nullptr)
        return UCS_ERR_NO_RESOURCE;
    op->iov.assign(iov, iovcnt);
    op->cursor = op->iov.cursor();
    op->remote = loan.place;
    op->left = op->length = iov_bytes(iov, iovcnt);
    op->key = loan.id;
    op->guard = guard;
    op->is_lent = true;
    link.ops.push_back(*op);
    if (loan.id != 0 && iovcnt == 1 && iov->count == 1)
        iface_.both.ask_owner(*op, static_cast<std::byte*>(iov->buffer));
    link.set_steps(*op, true);
    iface_.add_work(link);
    if (!may_read(link, std::min<std::uint64_t>(op->left, kCopyStepBytes)))
        return UCS_INPROGRESS;
    return iface_.remote.step_first(*op);
}

ucs_status_t SmLending::copy(Link& link, IovCursor cursor, std::size_t bytes, std::uint64_t place) {
    const std::byte* from = nullptr;
    if ((place & kPlaceInArena) != 0) {
        from = link.arena->at(place & ~kPlaceInArena, bytes);
        if (from == nullptr)
            return UCS_ERR_INVALID_ADDR;
    } else if (link.copy_path == CopyPath::kSelf) {
        from = reinterpret_cast<const std::byte*>(place);
    } else if (link.copy_path == CopyPath::kProcessVm) {
        return copy_from_process(link, cursor, bytes, place);
    } else {
        return UCS_ERR_UNSUPPORTED;
    }
    cursor.scatter(from, bytes);
    iface_.count(SmCounter::kDirectBytes, bytes);
    return UCS_OK;
}

ucs_status_t SmLending::copy_from_process(Link& link, IovCursor cursor, std::size_t bytes,
                                          std::uint64_t address) {
    for (std::size_t done = 0; done < bytes;) {
        iovec local[kIovMax];
        std::size_t count = 0;
        const std::size_t now = cursor.pieces(local, kIovMax, bytes - done, &count);
        const ucs_status_t status =
            ucs::process_read_proved(link.peer.pid, link.proof, local, count, address + done, now);
        if (status == UCS_ERR_REJECTED) {
            link.copy_path = CopyPath::kMessages;
            link.copy_reason = "process_vm_readv is not permitted any more";
            return UCS_ERR_UNSUPPORTED;
        }
        if (status != UCS_OK)
            return status;
        iface_.count(SmCounter::kProcessVmBytes, now);
        done += now;
    }
    return UCS_OK;
}

}  // namespace tagwire::sm
