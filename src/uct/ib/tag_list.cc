// SPDX-License-Identifier: BSD-3-Clause
// Posting to the device; its answers are in tag_list_events.cc.
#include "uct/ib/tag_list.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/sys/step_aside.hpp"
#include "uct/ib/tag_list_ids.hpp"

namespace tagwire::ib {

namespace {

/// The private data of a receive in its context while posted.
struct Ticket {
    std::uint32_t index;
    std::uint32_t ticket;
};
static_assert(sizeof(Ticket) <= UCT_TAG_PRIV_LEN);

}  // namespace

ucs_status_t TagList::open(ibv_srq* srq, CompletionQueue& cq, unsigned depth, unsigned ops_max) {
    if (depth == 0 || ops_max < 2) {
        TW_LOG_ERROR("a tag list of %u receives and %u operations: at least 1 and 2 are needed",
                     depth, ops_max);
        return UCS_ERR_INVALID_PARAM;
    }
    const verbs_context* verbs = __extension__ verbs_get_ctx_op(srq->context, post_srq_ops);
    if (verbs == nullptr) {
        TW_LOG_ERROR("the device has no operations on tag lists (ibv_post_srq_ops)");
        return UCS_ERR_UNSUPPORTED;
    }
    post_ops_ = verbs->post_srq_ops;
    srq_ = srq;
    cq_ = &cq;
    depth_ = depth;
    ops_left_ = ops_max;
    // Ended entries may have up to spare - 1 operations outstanding; see ops_for().
    const unsigned spare = ops_max > 2 * depth ? ops_max - 2 * depth : 1;
    unasked_max_ = std::min(spare, kSignalEvery) - 1;
    covered_.resize(std::bit_ceil(ops_max));
    entries_.assign(depth, TagEntry{});
    for (unsigned i = 0; i != depth; ++i)
        entries_[i].next = i + 1 != depth ? i + 1 : kNoEntry;
    if (!in_use_.reserve(depth))
        return UCS_ERR_NO_MEMORY;
    free_ = 0;
    add_.opcode = IBV_WR_TAG_ADD;
    add_.tm.add.sg_list = &element_;
    return UCS_OK;
}

/// Fills the rest of `wr`. `asks`: for an acknowledgement.
[[gnu::always_inline]] inline ucs_status_t TagList::post(ibv_ops_wr& wr, bool asks) {
    if (ops_left_ < 2 && wr.opcode != IBV_WR_TAG_SYNC) [[unlikely]]
        return UCS_ERR_NO_RESOURCE;
    wr.flags = asks ? IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC : IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = unexpected_;
    ibv_ops_wr* bad = nullptr;
    if (const int error = post_ops_(srq_, &wr, &bad); error != 0) [[unlikely]]
        return refused(wr, error);
    --ops_left_;
    synced_ = unexpected_;
    sync_wanted_ = false;
    ++uncovered_;
    if (asks) {
        covered_[acks_asked_++ & (covered_.size() - 1)] = uncovered_;
        uncovered_ = 0;
    }
    return UCS_OK;
}

inline void TagList::note_added(TagEntry& entry, bool asks) {
    ++totals_.adds;
    ++used_;
    entry.handle = add_.tm.handle;
    entry.state = State::kPosted;
    entry.acks = asks ? kAddAck : 0;
    entry.has_imm = false;
    entry.forced = entry.deleting = entry.incomplete = false;
    if (!asks) [[likely]] {
        --unasked_left_;
        step_ = Step::kUnknown;
        return;
    }
    newest_asked_ = wr_id_of(entry);
    step_ = Step::kAsked;
    if (asked_in_row_ == kAskedInRow)
        unasked_left_ = unasked_max_;
    else
        ++asked_in_row_;
}

// The work left after the driver call should need little state from before it.
ucs_status_t TagList::add(uct_tag_t tag, uct_tag_t mask, void* buffer, std::size_t capacity,
                          std::uint32_t lkey, uct_tag_context_t* ctx) {
    const std::uint32_t index = free_;
    if (index == kNoEntry) [[unlikely]]
        return UCS_ERR_EXCEEDS_LIMIT;
    if (capacity != 0) [[likely]] {
        if (const ucs_status_t status = in_use_.insert(buffer); status != UCS_OK) [[unlikely]]
            return status;
    }
    // A free entry may be written to.
    TagEntry& entry = entries_[index];
    entry.ctx = ctx;
    entry.buffer = buffer;
    entry.tag = tag;
    entry.capacity = static_cast<std::uint32_t>(capacity);
    entry.lkey = lkey;
    entry.qp_num = 0;
    entry.ticket = next_ticket(entry.ticket);
    const Ticket kept{index, entry.ticket};
    std::memcpy(ctx->priv, &kept, sizeof kept);

    const std::uint64_t wr_id = std::uint64_t{entry.ticket} << 32 | index;
    element_ = {reinterpret_cast<std::uint64_t>(buffer), entry.capacity, lkey};
    add_.wr_id = wr_id | bits_of(WrKind::kAdd);
    add_.tm.add.recv_wr_id = wr_id;
    add_.tm.add.num_sge = capacity != 0 ? 1 : 0;
    add_.tm.add.tag = tag & mask;
    add_.tm.add.mask = mask;
    const bool asks = unasked_left_ == 0;
    if (const ucs_status_t status = post(add_, asks); status != UCS_OK) [[unlikely]] {
        if (entry.capacity != 0)
            in_use_.erase(buffer);
        return status;
    }
    note_added(entry, asks);
    free_ = entry.next;
    return UCS_OK;
}

ucs_status_t TagList::cancel(uct_tag_context_t* ctx, bool forced) {
    TagEntry* entry = find(ctx);
    if (entry == nullptr)
        return UCS_ERR_NO_ELEM;
    if (entry->state == State::kPosted && !entry->deleting && !has_news(*entry)) {
        ibv_ops_wr wr{};
        wr.wr_id = wr_id_of(*entry) | bits_of(WrKind::kDelete);
        wr.opcode = IBV_WR_TAG_DEL;
        wr.tm.handle = entry->handle;
        if (const ucs_status_t status = post(wr, true); status != UCS_OK)
            return status;
        ++totals_.deletes;
        entry->deleting = true;
        entry->acks |= kDelAck;
    }
    if (!forced)
        return UCS_OK;
    for (unsigned i = 0; !writes_no_more(*entry); ++i) {
        if (entry->state != State::kPosted || i == kDropLooks)
            return UCS_ERR_BUSY;
        cq_->look_ahead();
        if (i >= kFreeLooks || i % kLooksOfTurn == kLooksOfTurn - 1)
            ucs::step_aside();
    }
    entry->forced = true;
    entry->ctx = nullptr;
    if (entry->capacity != 0)
        in_use_.erase(entry->buffer);
    entry->capacity = 0;
    return UCS_OK;
}

/// By what was polled and not handled yet.
bool TagList::writes_no_more(const TagEntry& entry) const {
    if (entry.state == State::kContinued)
        return true;  // its user looks at `forced` before it goes on
    const std::uint64_t wr_id = wr_id_of(entry);
    return has_polled([=](const Completion& completion) {
        const bool is_done =
            completion.wr_id == wr_id &&
            (completion.status == IBV_WC_SUCCESS ? (completion.flags & IBV_WC_TM_DATA_VALID) != 0
                                                 : completion.status != IBV_WC_TM_RNDV_INCOMPLETE);
        const bool is_dropped = completion.wr_id == (wr_id | bits_of(WrKind::kDelete)) &&
                                completion.status == IBV_WC_SUCCESS;
        return is_done || is_dropped;
    });
}

TagEntry* TagList::find(const uct_tag_context_t* ctx) {
    Ticket kept;
    std::memcpy(&kept, ctx->priv, sizeof kept);
    if (kept.index >= depth_)
        return nullptr;
    TagEntry& entry = entries_[kept.index];
    const bool is_posted = entry.state == State::kPosted || entry.state == State::kConsumed ||
                           entry.state == State::kContinued;
    return is_posted && entry.ctx == ctx && entry.ticket == kept.ticket ? &entry : nullptr;
}

template <class Condition>
bool TagList::has_polled(Condition&& condition) const {
    return std::ranges::any_of(cq_->newest(), condition) ||
           std::ranges::any_of(cq_->ahead(), condition);
}

/// Its message was polled: there is nothing to delete.
bool TagList::has_news(const TagEntry& entry) const {
    return has_polled([wr_id = wr_id_of(entry)](const Completion& completion) {
        return completion.wr_id == wr_id;
    });
}

void TagList::sync() {
    if (unsynced() == 0) {
        sync_wanted_ = false;  // an operation said it meanwhile
        return;
    }
    if (sync_posted_ || ops_left_ == 0)
        return;
    ibv_ops_wr wr{};
    wr.wr_id = kOwn | bits_of(WrKind::kSync);
    wr.opcode = IBV_WR_TAG_SYNC;
    if (post(wr, true) == UCS_OK) {
        sync_posted_ = true;
        ++totals_.syncs;
    }
}

ucs_status_t TagList::refused(const ibv_ops_wr& wr, int error) {
    if (error == ENOMEM && wr.opcode == IBV_WR_TAG_ADD)
        return UCS_ERR_EXCEEDS_LIMIT;  // a place was lost with a queue pair
    sync_wanted_ = false;              // not again in each progress
    TW_LOG_ERROR(
        "ibv_post_srq_ops (operation %d, %u receives in the list, %u operations left) failed: %s",
        static_cast<int>(wr.opcode), used_, ops_left_, std::strerror(error));
    return UCS_ERR_IO_ERROR;
}

void TagList::take_ack() {
    ops_left_ += covered_[acks_taken_++ & (covered_.size() - 1)];
}

}  // namespace tagwire::ib
