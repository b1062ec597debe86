// SPDX-License-Identifier: BSD-3-Clause
// Events that the device reports for a tag list.
#include <algorithm>

#include "ucs/debug/check.hpp"
#include "uct/ib/tag_list.hpp"
#include "uct/ib/tag_list_ids.hpp"

namespace tagwire::ib {

namespace {

constexpr unsigned kIsMatch = IBV_WC_TM_MATCH, kIsData = IBV_WC_TM_DATA_VALID;

ucs_status_t status_of_receive(ibv_wc_status status) {
    return status == IBV_WC_LOC_LEN_ERR ? UCS_ERR_MESSAGE_TRUNCATED : UCS_ERR_CONNECTION_RESET;
}

}  // namespace

TagEvent TagList::handle(const Completion& completion) {
    if (TagEntry* entry = take_whole(completion); entry != nullptr) {
        fill(*entry, completion);
        return {TagEvent::Kind::kArrived, true, UCS_OK, entry};
    }
    return handle_rare(completion);
}

TagEvent TagList::handle_rare(const Completion& completion) {
    const WrKind kind = kind_of(completion.wr_id);
    if (kind == WrKind::kSync && sync_posted_) {
        sync_posted_ = false;
        take_ack();
        return {};
    }
    const auto index = static_cast<std::uint32_t>(completion.wr_id);
    if (index >= depth_ || entries_[index].ticket != ticket_of(completion.wr_id))
        return on_stray();
    TagEntry& entry = entries_[index];
    switch (kind) {
        case WrKind::kReceive:
            return on_message(entry, completion);
        case WrKind::kAdd:
            return on_added(entry, completion);
        case WrKind::kDelete:
            return on_deleted(entry, completion);
        default:
            return on_stray();
    }
}

TagEvent TagList::on_message(TagEntry& entry, const Completion& completion) {
    const unsigned flags = completion.flags;
    const bool is_first = entry.state == State::kPosted;
    if (!is_first && entry.state != State::kConsumed)
        return on_stray();
    if (completion.status != IBV_WC_SUCCESS)
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
    if ((flags & kIsData) != 0) {
        entry.byte_len = completion.byte_len;
        return tell(entry.incomplete ? TagEvent::Kind::kIncomplete : TagEvent::Kind::kArrived,
                    entry, UCS_OK, is_first);
    }
    if (!is_first || (flags & kIsMatch) == 0)
        return on_stray();
    entry.state = State::kConsumed;
    ++consumed_;
    if (entry.forced)
        return {TagEvent::Kind::kNone, true, UCS_OK, nullptr};
    return {TagEvent::Kind::kConsumed, true, UCS_OK, &entry};
}

TagEvent TagList::on_failed_message(TagEntry& entry, const Completion& completion) {
    if (completion.status != IBV_WC_TM_RNDV_INCOMPLETE) {
        return tell(TagEvent::Kind::kFailed, entry, status_of_receive(completion.status),
                    entry.state == State::kPosted);
    }
    // For the list it is a match like any other, in one or two completions.
    entry.incomplete = true;
    Completion match = completion;
    match.status = IBV_WC_SUCCESS;
    return on_message(entry, match);
}

TagEvent TagList::on_added(TagEntry& entry, const Completion& completion) {
    if ((entry.acks & kAddAck) == 0)
        return on_stray();
    take_ack();
    entry.acks &= static_cast<std::uint8_t>(~kAddAck);
    const bool is_newest = step_ == Step::kAsked && newest_asked_ == wr_id_of(entry);
    if (completion.status != IBV_WC_SUCCESS) {
        if (entry.state == State::kPosted)
            return tell(TagEvent::Kind::kFailed, entry, UCS_ERR_IO_ERROR);
    } else if ((completion.flags & IBV_WC_TM_SYNC_REQ) != 0) {
        step_ = is_newest ? Step::kOut : step_;
        sync_wanted_ = sync_wanted_ || unsynced() != 0;
    } else if (is_newest) {
        step_ = Step::kIn;
    }
    if (entry.state == State::kDone)
        release(entry);
    return {};
}

TagEvent TagList::on_deleted(TagEntry& entry, const Completion& completion) {
    if ((entry.acks & kDelAck) == 0)
        return on_stray();
    take_ack();
    entry.acks &= static_cast<std::uint8_t>(~kDelAck);
    if (completion.status == IBV_WC_SUCCESS && entry.state == State::kPosted)
        return tell(TagEvent::Kind::kCanceled, entry, UCS_ERR_CANCELED);
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
    // Nobody is told, but a sender whose rendezvous went with it waits to hear of its end.
    if (entry.forced && kind != TagEvent::Kind::kIncomplete) {
        end(entry);
        return {TagEvent::Kind::kNone, was_consumed_now, UCS_OK, nullptr};
    }
    entry.state = kind == TagEvent::Kind::kIncomplete ? State::kContinued : State::kTold;
    return {kind, was_consumed_now, status, &entry};
}

bool TagList::waits_for(std::uint32_t qp_num) const {
    return consumed_ != 0 && std::any_of(entries_.begin(), entries_.end(), [=](const auto& entry) {
               return entry.state == State::kConsumed && entry.qp_num == qp_num;
           });
}

}  // namespace tagwire::ib
