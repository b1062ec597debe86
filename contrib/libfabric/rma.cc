// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations that do not end within their call, or are not usual; usual ones are in
// rma_datapath.hpp.
#include <algorithm>
#include <cstring>
#include <utility>

#include "rma_datapath.hpp"

namespace tagwire::fi {

namespace {

/// `count` elements of `iov` that make up the bytes [from, from + length) of a list.
std::size_t slice(const RmaOperation& operation, std::size_t from, std::size_t length,
                  tw_iov_t* iov) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < operation.count && length > 0; ++i) {
        const iovec& element = operation.iov[i];
        if (from >= element.iov_len) {
            from -= element.iov_len;
            continue;
        }
        const std::size_t bytes = std::min(length, element.iov_len - from);
        iov[count++] = {static_cast<std::byte*>(element.iov_base) + from, bytes};
        length -= bytes;
        from = 0;
    }
    return count;
}

template <class Element>
std::size_t sum_of(const Element* list, std::size_t count, std::size_t Element::*length) {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < count; ++i)
        sum += list[i].*length;
    return sum;
}

}  // namespace

// ---- Set-up

void Rma::fold() {
    const std::uint64_t flags = owner_.tx.op_flags;
    const bool is_usual = owner_.tx.reports(flags);
    no_reads_ = is_usual && owner_.counters.reads == nullptr ? 0 : 1;
    no_writes_ = is_usual && owner_.counters.writes == nullptr && (flags & FI_INJECT) == 0 ? 0 : 1;
    injects_ = owner_.counters.writes == nullptr;
    read_.flags = flag_if((flags & FI_MORE) != 0, TW_OP_MORE);
    write_.flags = op_flags_of(flags);
    write_imm_.flags = write_.flags | TW_OP_IMM;
    read_.complete = write_.complete = write_imm_.complete = on_piece;
    inject_.flags = TW_OP_INJECT;
    inject_imm_.flags = TW_OP_INJECT | TW_OP_IMM;
    inject_.context = inject_imm_.context = this;
    inject_.complete = inject_imm_.complete = on_inject;
    next();  // so that there is one to begin with
}

RmaOperation* Rma::next() {
    if (free_ == nullptr)
        without_exceptions([&] {
            free_ = &operations_.emplace_back();
            free_->rma = this;
            free_->ready = on_key;
            return 0;
        });
    return free_;
}

void Rma::put(RmaOperation& done) {
    done.copy.reset();
    done.context = nullptr;
    done.next = free_;
    free_ = &done;
    --unfinished_;
}

void Rma::begin_usual(const TransferArgs& args, tw_request_h request, const RemoteKey& remote,
                      bool is_read, bool has_imm) {
    RmaOperation& begun = *free_;
    const iovec iov = {args.buf, args.length};
    const fi_rma_iov element = {args.address, args.length, args.key};
    fill(begun,
         {&iov, nullptr, 1, &element, 1, args.peer, args.imm, args.context,
          owner_.tx.op_flags | (has_imm ? FI_REMOTE_CQ_DATA : 0), true},
         is_read);
    begun.peer = &Ep::peer_of(owner_.known_peer(args.peer));
    begun.requests[0] = request;
    begun.serial_max = remote.serial;
    begun.at = begun.pending = 1;
    take(begun);
    next();
}

void Rma::fill(RmaOperation& operation, const Transfer& what, bool is_read) {
    operation.context = what.context;
    operation.mem = what.count == 1
                        ? mem_of(what.desc == nullptr ? nullptr : *what.desc, what.iov->iov_len)
                        : mem_of_list(what.desc, what.count);
    operation.imm = what.imm;
    operation.flags = what.flags;
    operation.op_flags = op_flags_of(what.flags) & ~std::uint32_t{TW_OP_IMM};
    if (is_read)
        operation.op_flags &= std::uint32_t{TW_OP_MORE | TW_OP_FENCE};
    operation.serial_max = 0;
    operation.is_read = is_read;
    operation.is_reported = what.is_reported;
    operation.is_repeated = operation.is_parked = operation.tells = false;
    operation.sends_data = (what.flags & FI_REMOTE_CQ_DATA) != 0 && what.remote_count > 1;
    operation.status = TW_OK;
    operation.error = 0;
    operation.pending = 0;
    operation.at = 0;
    operation.told = 0;
    operation.count = what.count;
    operation.remote_count = what.remote_count;
    std::fill_n(operation.requests, what.remote_count, nullptr);
    std::copy_n(what.iov, what.count, operation.iov);
    std::copy_n(what.remote, what.remote_count, operation.remote);
}

// ---- Calls

template <bool kIsRead>
ssize_t Rma::transfer(const Transfer& what) {
    if ((what.flags & ~(kIsRead ? kReadFlags : kWriteFlags)) != 0)
        return -FI_EBADFLAGS;
    if (what.count > TW_IOV_MAX || what.remote_count == 0 || what.remote_count > kRmaIovMax)
        return -FI_EINVAL;
    const std::size_t length = sum_of(what.iov, what.count, &iovec::iov_len);
    if (length != sum_of(what.remote, what.remote_count, &fi_rma_iov::len))
        return -FI_EINVAL;
    if ((what.flags & FI_INJECT) != 0 && length > owner_.inject_bytes_max)
        return -FI_EMSGSIZE;
    ssize_t error = 0;
    tw_ep_h const ep = owner_.peer(what.peer, &error);
    if (ep == nullptr)
        return error;
    RmaOperation* const operation = next();
    if (operation == nullptr)
        return -FI_ENOMEM;
    if (owner_.tx.cq != nullptr && owner_.tx.cq->refuses())
        return owner_.try_again();
    fill(*operation, what, kIsRead);
    operation->peer = &Ep::peer_of(ep);
    if ((what.flags & FI_FENCE) != 0) {
        if (const ssize_t refusal = check_fence(*operation); refusal != 0)
            return refusal == -FI_EAGAIN ? owner_.try_again() : refusal;
    }
    take(*operation);
    return begin(*operation);
}

template ssize_t Rma::transfer<false>(const Transfer& what);
template ssize_t Rma::transfer<true>(const Transfer& what);

/// A fenced operation does not wait for keys, and passes neither those that do nor atomics without
/// a reply.
ssize_t Rma::check_fence(const RmaOperation& operation) {
    Peer& peer = *operation.peer;
    for (std::size_t i = 0; i < operation.remote_count; ++i) {
        const std::uint64_t key = operation.remote[i].key;
        if (owner_.keys.find(peer.ep, key) == nullptr)
            return owner_.keys.ask_for_fenced(peer, key);
    }
    return peer.waiting == 0 && !owner_.atomics.is_pending(peer.ep) ? 0 : -FI_EAGAIN;
}

ssize_t Rma::begin(RmaOperation& operation) {
    const Outcome outcome = proceed(operation);
    const bool has_begun = operation.at > 0;
    if (outcome == Outcome::kUnderWay)
        return 0;
    if (outcome == Outcome::kNoResource && has_begun) {
        hold(operation);
        return 0;
    }
    if (outcome == Outcome::kNoResource) {
        put(operation);
        return owner_.try_again();
    }
    if (operation.error == 0 || has_begun) {
        finish(operation);
        return 0;
    }
    if (repeat(operation))
        return 0;
    const int error = operation.error;
    put(operation);
    return -error;
}

// ---- Pieces: one for each element of remote memory

Rma::Outcome Rma::proceed(RmaOperation& operation) {
    while (operation.at < operation.remote_count && operation.error == 0) {
        const std::uint64_t key = operation.remote[operation.at].key;
        const RemoteKey* const remote = owner_.keys.find(operation.peer->ep, key);
        if (remote == nullptr) {
            operation.error = wait(operation, key);
            if (operation.error == 0)
                return Outcome::kUnderWay;
            operation.status = status_of(operation.error);
            break;
        }
        operation.serial_max = std::max(operation.serial_max, remote->serial);
        const tw_status_t status = call(operation, *remote);
        if (status == TW_ERR_NO_RESOURCE)
            return Outcome::kNoResource;
        if (status != TW_INPROGRESS)
            operation.requests[operation.at] = nullptr;
        if (status == TW_OK || status == TW_INPROGRESS) {
            ++operation.at;
            operation.pending += status == TW_INPROGRESS ? 1 : 0;
        } else {
            operation.status = status;
            operation.error = operation.error != 0 ? operation.error : error_of(status);
        }
    }
    return operation.pending > 0 ? Outcome::kUnderWay : Outcome::kOver;
}

tw_status_t Rma::call(RmaOperation& operation, const RemoteKey& remote) {
    const fi_rma_iov& element = operation.remote[operation.at];
    operation.error =
        remote.check(element.addr, element.len, operation.is_read ? kGivesReads : kGivesWrites);
    if (operation.error != 0)
        return TW_ERR_INVALID_ADDR;
    const bool has_data = (operation.flags & FI_REMOTE_CQ_DATA) != 0;
    if (KeyService::is_counted(remote, operation.is_read ? Access::kRead : Access::kWrite))
        operation.tells = true;
    operation.sends_data |= has_data && (operation.tells || (remote.flags & kHasNoBytes) != 0);
    if ((remote.flags & kHasNoBytes) != 0)
        return TW_OK;

    tw_op_t op;
    fi::fill(op, operation.op_flags);
    if (operation.at > 0)
        op.flags &= ~std::uint32_t{TW_OP_FENCE};
    if (operation.at + 1 < operation.remote_count)
        op.flags |= TW_OP_MORE;
    if (!operation.is_read && (operation.tells || operation.sends_data))
        op.flags |= TW_OP_DELIVERY_COMPLETE;
    else if (has_data)
        op.flags |= TW_OP_IMM;
    op.imm = operation.imm;
    op.context = &operation;
    op.complete = on_piece;
    op.mem = operation.mem;
    std::size_t from = 0;
    for (std::size_t i = 0; i < operation.at; ++i)
        from += operation.remote[i].len;
    tw_iov_t iov[TW_IOV_MAX];
    const std::size_t count = slice(operation, from, element.len, iov);
    tw_request_h* const request_p = &operation.requests[operation.at];
    const std::uint64_t address = remote.origin + element.addr;
    tw_ep_h const ep = operation.peer->ep;
    if (count > 1)
        return operation.is_read ? tw_getv(ep, iov, count, address, remote.key, &op, request_p)
                                 : tw_putv(ep, iov, count, address, remote.key, &op, request_p);
    const tw_iov_t only = count == 0 ? tw_iov_t{} : iov[0];
    return operation.is_read
               ? tw_get(ep, only.base, only.length, address, remote.key, &op, request_p)
               : tw_put(ep, only.base, only.length, address, remote.key, &op, request_p);
}

void Rma::on_piece(const tw_completion_t* done) {
    auto& operation = *static_cast<RmaOperation*>(done->context);
    --operation.pending;
    std::replace(operation.requests, operation.requests + operation.remote_count, done->request,
                 tw_request_h{nullptr});
    if (done->status != TW_OK && operation.error == 0) {
        operation.status = done->status;
        operation.error = done->status == TW_ERR_INVALID_ADDR ? FI_EACCES : error_of(done->status);
    }
    if (operation.pending == 0 && !operation.is_parked)
        operation.rma->finish(operation);
}

/// From progress.
void Rma::advance(RmaOperation& operation) {
    const Outcome outcome = proceed(operation);
    if (outcome == Outcome::kNoResource)
        hold(operation);
    else if (outcome == Outcome::kOver)
        finish(operation);
}

// ---- Waiting

/// The program's buffer is its own again when an injecting call returns.
int Rma::copy_data(RmaOperation& operation) {
    return without_exceptions([&] {
        const std::size_t length = sum_of(operation.iov, operation.count, &iovec::iov_len);
        operation.copy = std::make_unique<std::byte[]>(length);
        std::size_t at = 0;
        for (std::size_t i = 0; i < operation.count; ++i) {
            const iovec& element = operation.iov[i];
            if (element.iov_len > 0)
                std::memcpy(operation.copy.get() + at, element.iov_base, element.iov_len);
            at += element.iov_len;
        }
        operation.iov[0] = {operation.copy.get(), length};
        operation.count = 1;
        operation.mem = nullptr;
        return 0;
    });
}

/// 0, or a positive errno.
int Rma::wait(RmaOperation& operation, std::uint64_t key) {
    int error = 0;
    if ((operation.flags & FI_INJECT) != 0 && operation.copy == nullptr)
        error = copy_data(operation);
    if (error == 0)
        error = owner_.keys.wait_for(*operation.peer, key, operation);
    operation.is_parked = error == 0;
    return -error;
}

void Rma::on_key(KeyWaiter& waiter, const RemoteKey*, int error) {
    auto& operation = static_cast<RmaOperation&>(waiter);
    operation.is_parked = false;
    if (operation.error == 0 && error != 0) {
        operation.error = error;
        operation.status = TW_ERR_INVALID_ADDR;
        operation.is_repeated = true;
    }
    operation.rma->advance(operation);
}

void Rma::hold(RmaOperation& operation) {
    if ((operation.flags & FI_INJECT) != 0 && operation.copy == nullptr)
        operation.error = -copy_data(operation);
    hold_at(held_last_, operation);
    owner_.backlog_changed();
}

void Rma::hold_at(RmaOperation** link, RmaOperation& operation) {
    operation.is_parked = true;
    operation.next = *link;
    *link = &operation;
    if (held_last_ == link)
        held_last_ = &operation.next;
    ++operation.peer->waiting;
}

RmaOperation& Rma::unhold(RmaOperation** link) {
    RmaOperation& operation = **link;
    *link = operation.next;
    if (held_last_ == &operation.next)
        held_last_ = link;
    operation.is_parked = false;
    --operation.peer->waiting;
    return operation;
}

void Rma::resume() {
    lacks_memory_ = false;
    while (has_held() && !lacks_memory_) {
        RmaOperation& operation = unhold(&held_first_);
        const Outcome outcome = proceed(operation);
        if (outcome == Outcome::kNoResource)
            return hold_at(&held_first_, operation);
        if (outcome == Outcome::kOver)
            finish(operation);
    }
}

/// It has pieces that have not begun, and none of them will.
void Rma::leave_waiting(RmaOperation& operation) {
    operation.error = FI_ECANCELED;
    operation.status = TW_ERR_CANCELED;
    for (RmaOperation** link = &held_first_; *link != nullptr; link = &(*link)->next)
        if (*link == &operation) {
            unhold(link);
            return owner_.backlog_changed();
        }
    owner_.keys.leave(*operation.peer, operation.remote[operation.at].key, operation);
    operation.is_parked = false;
}

int Rma::cancel(const void* context) {
    // One that has ended has no context, nor has one that injects.
    const auto found = std::ranges::find_if(operations_, [context](const RmaOperation& operation) {
        return context != nullptr && operation.context == context && operation.error == 0;
    });
    if (found == operations_.end())
        return -FI_ENOENT;
    RmaOperation& operation = *found;
    if (operation.is_parked && operation.at == operation.remote_count)
        return 0;  // it is done, and the target is still to be told
    if (operation.is_parked)
        leave_waiting(operation);
    if (operation.pending == 0) {
        finish(operation);
        return 0;
    }
    // A request may end within the call, and the operation with the last of them.
    tw_status_t status = TW_OK;
    for (std::size_t i = 0; i < operation.remote_count && status == TW_OK; ++i)
        if (operation.requests[i] != nullptr)
            status = tw_request_cancel(operation.requests[i]);
    return -error_of(status);
}

void Rma::drop(const Peer& peer, int error) {
    for (RmaOperation** link = &held_first_; *link != nullptr;) {
        if ((*link)->peer != &peer) {
            link = &(*link)->next;
            continue;
        }
        RmaOperation& operation = unhold(link);
        operation.error = operation.error != 0 ? operation.error : error;
        if (operation.pending == 0)
            finish(operation);
    }
    owner_.backlog_changed();
}

// ---- Ends

/// True: it goes on, with keys that are asked for anew.
bool Rma::repeat(RmaOperation& operation) {
    const bool has_data =
        (operation.flags & FI_INJECT) == 0 || operation.copy != nullptr || operation.at == 0;
    if (operation.status != TW_ERR_INVALID_ADDR || operation.is_repeated || !has_data ||
        (operation.flags & FI_FENCE) != 0)
        return false;
    operation.is_repeated = true;
    for (std::size_t i = 0; i < operation.remote_count; ++i)
        owner_.keys.forget(operation.peer->ep, operation.remote[i].key, operation.serial_max);
    operation.status = TW_OK;
    operation.error = 0;
    operation.at = 0;
    advance(operation);
    return true;
}

void Rma::finish(RmaOperation& operation) {
    if (operation.error != 0) {
        if (repeat(operation))
            return;
        fail(operation.is_read, operation.context, operation.error, operation.status);
        put(operation);
        return;
    }
    if ((operation.sends_data || operation.tells) && !tell(operation)) {
        lacks_memory_ = true;
        hold_at(held_last_, operation);
        return owner_.backlog_changed();
    }
    const bool is_read = operation.is_read;
    if (Cntr* cntr = is_read ? owner_.counters.reads : owner_.counters.writes; cntr != nullptr)
        cntr->count_success();
    if (operation.is_reported)
        owner_.tx.cq->push(
            {operation.context, FI_RMA | (is_read ? FI_READ : FI_WRITE), 0, nullptr, 0, 0});
    put(operation);
}

/// Each region counts for itself, once however many elements are in it. False: there is no memory
/// to tell of the next one.
bool Rma::tell(RmaOperation& operation) {
    std::uint64_t keys[kRmaIovMax];
    std::uint64_t* keys_end = keys;
    for (std::size_t i = 0; i < operation.remote_count; ++i) {
        const std::uint64_t key = operation.remote[i].key;
        if (std::find(keys, keys_end, key) == keys_end)
            *keys_end++ = key;
    }
    if (!operation.tells)
        keys_end = keys + 1;  // the data only
    for (; keys + operation.told != keys_end; ++operation.told) {
        const bool is_further = operation.told > 0;
        const KeyService::Notice notice = {
            .is_read = operation.is_read,
            .is_further = is_further,
            .has_data = operation.sends_data && !is_further,
            .imm = operation.imm,
            .length = sum_of(operation.remote, operation.remote_count, &fi_rma_iov::len)};
        if (!owner_.key_service.tell(*operation.peer, keys[operation.told], notice))
            return false;
    }
    return true;
}

void Rma::fail(bool is_read, void* context, int error, tw_status_t status) {
    if (Cntr* cntr = is_read ? owner_.counters.reads : owner_.counters.writes; cntr != nullptr)
        cntr->count_error();
    if (owner_.tx.cq == nullptr)
        return;
    fi_cq_err_entry entry{};
    entry.op_context = context;
    entry.flags = FI_RMA | (is_read ? FI_READ : FI_WRITE);
    entry.err = error;
    entry.prov_errno = status;
    owner_.tx.cq->push_error(entry);
}

void Rma::on_inject(const tw_completion_t* done) {
    if (done->status == TW_OK)
        return;
    const bool is_refusal = done->status == TW_ERR_INVALID_ADDR;
    static_cast<Rma*>(done->context)
        ->fail(false, nullptr, is_refusal ? FI_EACCES : error_of(done->status), done->status);
}

}  // namespace tagwire::fi
