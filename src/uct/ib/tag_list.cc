// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/tag_list.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::ib {

namespace {

// A wr_id:  1 | kind, 3 bits | generation, 28 bits | index, 32 bits
enum class WrKind : std::uint64_t { kReceive, kAdd, kDelete, kSync };
constexpr unsigned kKindShift = 60, kGenerationShift = 32;
constexpr std::uint32_t kGenerationMask = (1U << (kKindShift - kGenerationShift)) - 1;

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::uint8_t kAddAck = 1, kDelAck = 2;
constexpr unsigned kIsMatch = IBV_WC_TM_MATCH, kIsData = IBV_WC_TM_DATA_VALID;

WrKind kind_of(std::uint64_t wr_id) {
    return static_cast<WrKind>(wr_id >> kKindShift & 7);
}
constexpr std::uint64_t bits_of(WrKind kind) {
    return static_cast<std::uint64_t>(kind) << kKindShift;
}

/// What a receive keeps in its context while posted.
struct Ticket {
    std::uint32_t index;
    std::uint32_t generation;
};
static_assert(sizeof(Ticket) <= UCT_TAG_PRIV_LEN);

ucs_status_t status_of(ibv_wc_status status) {
    return status == IBV_WC_LOC_LEN_ERR ? UCS_ERR_MESSAGE_TRUNCATED : UCS_ERR_CONNECTION_RESET;
}

}  // namespace

ucs_status_t TagList::open(ibv_srq* srq, const CompletionQueue& cq, unsigned depth,
                           unsigned ops_max) {
    if (depth == 0 || ops_max < 2) {
        TW_LOG_ERROR("a tag list of %u receives and %u operations: at least 1 and 2 are needed",
                     depth, ops_max);
        return UCS_ERR_INVALID_PARAM;
    }
    srq_ = srq;
    cq_ = &cq;
    ops_left_ = ops_max;
    entries_.assign(depth, TagEntry{});
    free_.resize(depth);
    for (unsigned i = 0; i != depth; ++i)
        free_[i] = depth - 1 - i;
    const auto buckets = std::bit_ceil(std::max(2 * std::size_t{depth}, std::size_t{2}));
    buckets_.assign(buckets, kNone);
    bucket_shift_ = 64U - static_cast<unsigned>(std::countr_zero(buckets));
    return UCS_OK;
}

// ---- Operations

ucs_status_t TagList::add(uct_tag_t tag, uct_tag_t mask, void* buffer, std::size_t capacity,
                          std::uint32_t lkey, uct_tag_context_t* ctx) {
    if (free_.empty()) [[unlikely]]
        return UCS_ERR_EXCEEDS_LIMIT;
    if (capacity != 0 && has_buffer(buffer)) [[unlikely]]
        return UCS_ERR_ALREADY_EXISTS;
    const std::uint32_t index = free_.back();
    TagEntry& entry = entries_[index];
    const std::uint32_t generation = (entry.generation + 1) & kGenerationMask;
    const auto wr_id = kOwn | std::uint64_t{generation} << kGenerationShift | index;
    ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer), static_cast<std::uint32_t>(capacity),
                lkey};
    ibv_ops_wr wr;
    wr.wr_id = wr_id | bits_of(WrKind::kAdd);
    wr.opcode = IBV_WR_TAG_ADD;
    wr.tm.handle = 0;
    wr.tm.add = {wr_id, &sge, capacity != 0 ? 1 : 0, tag & mask, mask};
    if (const ucs_status_t status = post(wr); status != UCS_OK) [[unlikely]]
        return status;
    free_.pop_back();
    ++totals_.adds;
    entry = {.ctx = ctx,
             .buffer = buffer,
             .tag = tag,
             .capacity = static_cast<std::uint32_t>(capacity),
             .lkey = lkey,
             .qp_num = 0,
             .app_ctx = 0,
             .imm = 0,
             .byte_len = 0,
             .handle = wr.tm.handle,
             .generation = generation,
             .next = kNone,
             .state = State::kPosted,
             .acks = kAddAck,
             .has_imm = false,
             .forced = false,
             .deleting = false,
             .listed = false,
             .incomplete = false};
    if (capacity != 0)
        list_buffer(entry);
    const Ticket ticket{index, generation};
    std::memcpy(ctx->priv, &ticket, sizeof ticket);
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
        if (const ucs_status_t status = post(wr); status != UCS_OK)
            return status;
        ++totals_.deletes;
        entry->deleting = true;
        entry->acks |= kDelAck;
    }
    if (forced) {
        entry->forced = true;
        entry->ctx = nullptr;
        if (entry->state == State::kPosted && entry->listed)
            unlist_buffer(*entry);
    }
    return UCS_OK;
}

/// Its message was polled: there is nothing to delete.
bool TagList::has_news(const TagEntry& entry) const {
    return std::ranges::any_of(cq_->newest(), [wr_id = wr_id_of(entry)](const auto& completion) {
        return completion.wr_id == wr_id;
    });
}

std::uint64_t TagList::wr_id_of(const TagEntry& entry) const {
    return kOwn | bits_of(WrKind::kReceive) | std::uint64_t{entry.generation} << kGenerationShift |
           index_of(entry);
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
    if (post(wr) == UCS_OK) {
        sync_posted_ = true;
        ++totals_.syncs;
    }
}

/// Fills the rest of `wr`.
ucs_status_t TagList::post(ibv_ops_wr& wr) {
    if (ops_left_ < 2 && wr.opcode != IBV_WR_TAG_SYNC) [[unlikely]]
        return UCS_ERR_NO_RESOURCE;
    wr.next = nullptr;
    wr.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    wr.tm.unexpected_cnt = unexpected_;
    ibv_ops_wr* bad = nullptr;
    if (const int error = ibv_post_srq_ops(srq_, &wr, &bad); error != 0) [[unlikely]] {
        if (error == ENOMEM && wr.opcode == IBV_WR_TAG_ADD)
            return UCS_ERR_EXCEEDS_LIMIT;  // a place was lost with a queue pair
        sync_wanted_ = false;              // not again in each progress
        TW_LOG_ERROR(
            "ibv_post_srq_ops (operation %d, %u receives in the list, %u operations left) "
            "failed: %s",
            static_cast<int>(wr.opcode), size(), ops_left_, std::strerror(error));
        return UCS_ERR_IO_ERROR;
    }
    --ops_left_;
    synced_ = unexpected_;
    sync_wanted_ = false;
    return UCS_OK;
}

// ---- Completions

TagEntry* TagList::find(std::uint64_t wr_id) {
    const auto index = static_cast<std::uint32_t>(wr_id);
    const std::uint32_t generation = (wr_id >> kGenerationShift) & kGenerationMask;
    if (!is_own(wr_id) || index >= entries_.size() || entries_[index].generation != generation)
        return nullptr;
    return &entries_[index];
}

TagEntry* TagList::find(const uct_tag_context_t* ctx) {
    Ticket ticket;
    std::memcpy(&ticket, ctx->priv, sizeof ticket);
    if (ticket.index >= entries_.size())
        return nullptr;
    TagEntry& entry = entries_[ticket.index];
    const bool is_posted = entry.state == State::kPosted || entry.state == State::kConsumed ||
                           entry.state == State::kContinued;
    return is_posted && entry.ctx == ctx && entry.generation == ticket.generation ? &entry
                                                                                  : nullptr;
}

TagEvent TagList::handle(const Completion& completion) {
    const WrKind kind = kind_of(completion.wr_id);
    if (kind == WrKind::kSync) {
        if (!sync_posted_)
            return on_stray();
        sync_posted_ = false;
        ++ops_left_;
        return {};
    }
    TagEntry* entry = find(completion.wr_id);
    if (entry == nullptr) [[unlikely]]
        return on_stray();
    if (kind == WrKind::kReceive)
        return on_message(*entry, completion);
    return kind == WrKind::kAdd ? on_added(*entry, completion) : on_deleted(*entry, completion);
}

TagEvent TagList::on_message(TagEntry& entry, const Completion& completion) {
    const unsigned flags = completion.flags;
    const bool is_first = entry.state == State::kPosted;
    if (!is_first && entry.state != State::kConsumed) [[unlikely]]
        return on_stray();
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
        return on_failed_message(entry, completion);
    if ((flags & kIsMatch) != 0) {
        entry.qp_num = completion.qp_num;
        entry.tag = completion.tag;
        entry.app_ctx = completion.app_ctx;
    }
    if ((flags & IBV_WC_WITH_IMM) != 0) {
        entry.imm = completion.imm;
        entry.has_imm = true;
    }
    if ((flags & kIsData) != 0) [[likely]] {
        entry.byte_len = completion.byte_len;
        return tell(entry.incomplete ? TagEvent::Kind::kIncomplete : TagEvent::Kind::kArrived,
                    entry, UCS_OK, is_first);
    }
    if (!is_first || (flags & kIsMatch) == 0) [[unlikely]]
        return on_stray();
    entry.state = State::kConsumed;
    ++consumed_;
    if (entry.forced)
        return {};
    return {.kind = TagEvent::Kind::kConsumed, .was_consumed_now = true, .entry = &entry};
}

TagEvent TagList::on_failed_message(TagEntry& entry, const Completion& completion) {
    if (completion.status != IBV_WC_TM_RNDV_INCOMPLETE) {
        return tell(TagEvent::Kind::kFailed, entry, status_of(completion.status),
                    entry.state == State::kPosted);
    }
    // For the list it is a match like any other, in one or two completions.
    entry.incomplete = true;
    Completion match = completion;
    match.status = IBV_WC_SUCCESS;
    return on_message(entry, match);
}

TagEvent TagList::on_added(TagEntry& entry, const Completion& completion) {
    if ((entry.acks & kAddAck) == 0) [[unlikely]]
        return on_stray();
    ++ops_left_;
    entry.acks &= static_cast<std::uint8_t>(~kAddAck);
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        if (entry.state == State::kPosted)
            return tell(TagEvent::Kind::kFailed, entry, UCS_ERR_IO_ERROR);
    } else {
        is_out_of_step_ = (completion.flags & IBV_WC_TM_SYNC_REQ) != 0;
        sync_wanted_ = sync_wanted_ || (is_out_of_step_ && unsynced() != 0);
    }
    if (entry.state == State::kDone) [[unlikely]]
        release(entry);
    return {};
}

TagEvent TagList::on_deleted(TagEntry& entry, const Completion& completion) {
    if ((entry.acks & kDelAck) == 0)
        return on_stray();
    ++ops_left_;
    entry.acks &= static_cast<std::uint8_t>(~kDelAck);
    if (completion.status == IBV_WC_SUCCESS) {
        if ((completion.flags & IBV_WC_TM_SYNC_REQ) != 0 && unsynced() != 0)
            sync_wanted_ = true;
        if (entry.state == State::kPosted)
            return tell(TagEvent::Kind::kCanceled, entry, UCS_ERR_CANCELED);
    }
    if (entry.state == State::kDone)
        release(entry);
    return {};
}

TagEvent TagList::on_stray() {
    ++totals_.strays;
    return {};
}

// ---- Ends

/// Nothing more comes of `entry` but acknowledgements.
TagEvent TagList::tell(TagEvent::Kind kind, TagEntry& entry, ucs_status_t status,
                       bool was_consumed_now) {
    if (entry.state == State::kConsumed)
        --consumed_;
    if (entry.forced) [[unlikely]] {
        end(entry);
        return {};
    }
    entry.state = kind == TagEvent::Kind::kIncomplete ? State::kContinued : State::kTold;
    return {.kind = kind, .was_consumed_now = was_consumed_now, .status = status, .entry = &entry};
}

void TagList::finish(TagEntry& entry) {
    TW_ASSERT(entry.state == State::kTold || entry.state == State::kContinued);
    end(entry);
}

void TagList::end(TagEntry& entry) {
    if (entry.listed)
        unlist_buffer(entry);
    entry.ctx = nullptr;
    entry.state = State::kDone;
    release(entry);
}

/// Unless the device may still name it.
void TagList::release(TagEntry& entry) {
    if (entry.acks != 0)
        return;
    entry.state = State::kFree;
    free_.push_back(index_of(entry));
}

bool TagList::waits_for(std::uint32_t qp_num) const {
    return consumed_ != 0 && std::any_of(entries_.begin(), entries_.end(), [=](const auto& entry) {
               return entry.state == State::kConsumed && entry.qp_num == qp_num;
           });
}

// ---- Buffers in use

std::uint32_t& TagList::bucket_of(const void* buffer) {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    return buckets_[reinterpret_cast<std::uint64_t>(buffer) * kGolden >> bucket_shift_];
}

bool TagList::has_buffer(const void* buffer) {
    std::uint32_t at = bucket_of(buffer);
    while (at != kNone && entries_[at].buffer != buffer)
        at = entries_[at].next;
    return at != kNone;
}

void TagList::list_buffer(TagEntry& entry) {
    std::uint32_t& first = bucket_of(entry.buffer);
    entry.next = first;
    first = index_of(entry);
    entry.listed = true;
}

void TagList::unlist_buffer(TagEntry& entry) {
    std::uint32_t* at = &bucket_of(entry.buffer);
    while (*at != index_of(entry))
        at = &entries_[*at].next;
    *at = entry.next;
    entry.listed = false;
}

}  // namespace tagwire::ib
