// SPDX-License-Identifier: BSD-3-Clause
// The list of a tag-matching SRQ: receives that the device holds (ibv_post_srq_ops(3)).
//
// An entry's life:
//
//              MATCH and DATA_VALID in one, an error, DEL acknowledged
//         .---------------------------------------------------------------.
//         |                                                               v
//   free -+-> posted -> consumed ------------------------------------> told -> done -> free
//    ^    ADD        MATCH  |   DATA_VALID, an error                    ^ finish()  acks
//    |                      '-> continued: the rendezvous is software's-'
//    |                            RNDV_INCOMPLETE                          finish()
//    '--- done needs the acknowledgements of ADD and DEL, which may come after the message
//
// A cancel posts a DEL, and the entry stays where it is: TM_DEL tells that it is cancelled, TM_ERR
// that a message won, whose completions came or come. One that is cancelled by force goes the same
// way, from posted or consumed to done, and nobody is told.
//
// Acknowledgements come of each SYNC, each DEL and now and then of an ADD: the next one counts for
// all operations before it. But only that of an ADD tells whether it is in step (2), so while
// unexpected messages come each ADD asks.
//
// Threads: owner of the interface.
// Invariants
//  (1) Entries in use <= depth(), operations outstanding on the device <= ops_max, and ADD and DEL
//      leave one operation for SYNC. So the device is never found full.
//  (2) Every operation carries the count of unexpected messages that software has handled (16 bits,
//      wrapping): until the device's count is the same, an ADD does not match (the phase). Unless
//      all are known to be in step, each unexpected message is followed by a SYNC.
//  (3) The handle that ADD returned names the entry until the last completion of its message, or
//      that of its DEL, was polled: the driver then gives it to the next ADD. So no DEL is posted
//      for an entry whose message is among the completions that were polled but not handled yet.
//  (4) Each entry that was not cancelled by force is told about exactly once more after kConsumed:
//      kArrived, kIncomplete, kCanceled or kFailed, or by fail_consumed() or take_all(); its user
//      answers by finish(), and may post again from then on.
//  (5) wr_ids carry the index and the generation of their entry. A completion that nobody waits for
//      is counted and changes nothing.
#pragma once

#include <infiniband/verbs.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucs/datastruct/address_set.hpp"
#include "ucs/debug/check.hpp"
#include "uct/ib/completion_queue.hpp"

namespace tagwire::ib {

struct alignas(64) TagEntry {
    enum class State : std::uint8_t { kFree, kPosted, kConsumed, kContinued, kTold, kDone };

    uct_tag_context_t* ctx;  // null: cancelled by force, or free
    void* buffer;
    std::uint64_t tag;       // of the message once consumed, before that of the receive
    std::uint32_t capacity;  // not 0: the buffer is among those in use
    std::uint32_t lkey;
    std::uint32_t qp_num;  // of the MATCH completion; 0 before
    // The next three are there when the message is.
    std::uint32_t app_ctx;
    std::uint32_t imm;       // if has_imm
    std::uint32_t byte_len;  // of the data without headers; kIncomplete: of TMH and what follows
    std::uint32_t handle;    // of the device
    std::uint32_t ticket;    // high half of its wr_id: the generation
    std::uint32_t next;      // in the list of the free
    State state;
    std::uint8_t acks;  // kAddAck, kDelAck: asked for and still to come
    bool has_imm;
    bool forced : 1;      // nobody is told
    bool deleting : 1;    // DEL was posted
    bool incomplete : 1;  // consumed by a rendezvous that does not fit
};
static_assert(sizeof(TagEntry) == 64);

/// The meaning of a completion for the list.
struct TagEvent {
    enum class Kind : std::uint8_t {
        kNone,        // bookkeeping, or the message of a receive that was cancelled by force
        kConsumed,    // `entry` was matched, its data is still to come
        kArrived,     // `entry` has its data: byte_len, tag, app_ctx, imm of the message
        kIncomplete,  // `entry` was matched by a rendezvous that does not fit; headers lie there
        kCanceled,    // `entry` was cancelled before a message came
        kFailed,      // `entry` will never get its data: `status`
    };
    Kind kind = Kind::kNone;
    bool was_consumed_now = false;  // a message was matched, by this very completion
    ucs_status_t status = UCS_OK;
    TagEntry* entry = nullptr;
};
static_assert(sizeof(TagEvent) == 16);  // fits two registers

class TagList {
  public:
    /// Most unexpected messages that may come before the device is told of them by a SYNC.
    static constexpr unsigned kUnsyncedMax = 1U << 14;
    /// At least each so-and-so-many-th ADD asks for an acknowledgement.
    static constexpr unsigned kSignalEvery = 32;

    /// Operations with which add() and cancel() never lack one. 2 are needed in any case.
    static constexpr unsigned ops_for(unsigned depth) { return 2 * depth + kSignalEvery; }

    /// Counts of operations; the owner of the interface shows them.
    struct Totals {
        std::uint64_t adds = 0, deletes = 0, syncs = 0;
        std::uint64_t strays = 0;  // completions that nobody waited for
    };

    TagList() = default;
    TagList(const TagList&) = delete;
    TagList& operator=(const TagList&) = delete;

    /// `depth` receives; `ops_max` as the SRQ was created with; `cq` is where its completions are
    /// polled. UCS_ERR_INVALID_PARAM, UCS_ERR_UNSUPPORTED (logged).
    ucs_status_t open(ibv_srq* srq, CompletionQueue& cq, unsigned depth, unsigned ops_max);

    /// Posts a receive. UCS_ERR_EXCEEDS_LIMIT: the list is full. UCS_ERR_ALREADY_EXISTS: a
    /// non-empty buffer at this address is in the list. UCS_ERR_NO_RESOURCE: no operation left.
    /// UCS_ERR_IO_ERROR (logged): the device refused.
    ucs_status_t add(uct_tag_t tag, uct_tag_t mask, void* buffer, std::size_t capacity,
                     std::uint32_t lkey, uct_tag_context_t* ctx);
    /// Not forced: kCanceled or a real result follows, once. Forced: nothing follows, and `ctx` and
    /// the buffer may be posted again; the device writes nothing there any more, because it has
    /// said that it has dropped the receive (which is waited for, a moment), or all of its message
    /// was there already and is dropped. UCS_ERR_BUSY, forced: its message is being written, or the
    /// device did not say; what follows is that of a cancel without force. The user of a
    /// kIncomplete entry looks at `forced` before it tells anybody. UCS_ERR_NO_ELEM: not in the
    /// list. UCS_ERR_NO_RESOURCE: no operation left. UCS_ERR_IO_ERROR as of add().
    ucs_status_t cancel(uct_tag_context_t* ctx, bool forced);

    /// Whether a completion with this wr_id is for handle(), whatever became of it (receive
    /// buffers have their address as wr_id).
    static constexpr bool is_own(std::uint64_t wr_id) { return (wr_id & kOwn) != 0; }
    /// A completion of the SRQ that concerns the list: TM_ADD, TM_DEL, TM_SYNC, TM_RECV with
    /// IBV_WC_TM_MATCH or IBV_WC_TM_DATA_VALID, and whatever failed with such a wr_id.
    TagEvent handle(const Completion& completion);
    /// The common one of them: a posted entry gets its whole message. The entry answered is told
    /// as with kArrived, but what it says of its message is in the completion, or there after
    /// fill(). Null: it is another completion, and nothing was done.
    TagEntry* take_whole(const Completion& completion) {
        constexpr unsigned kWhole = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
        const auto index = static_cast<std::uint32_t>(completion.wr_id);
        if (index >= depth_) [[unlikely]]
            return nullptr;
        TagEntry& entry = entries_[index];
        if (entry.ticket != completion.wr_id >> 32 || entry.state != State::kPosted ||
            entry.forced || completion.status != IBV_WC_SUCCESS ||
            (completion.flags & kWhole) != kWhole) [[unlikely]]
            return nullptr;
        entry.state = State::kTold;
        return &entry;
    }
    static void fill(TagEntry& entry, const Completion& completion) {
        entry.qp_num = completion.qp_num;
        entry.tag = completion.tag;
        entry.app_ctx = completion.app_ctx;
        entry.imm = completion.imm;
        entry.has_imm = (completion.flags & IBV_WC_WITH_IMM) != 0;
        entry.byte_len = completion.byte_len;
    }
    /// The entry of a kArrived, kIncomplete, kCanceled or kFailed event is done with. Before the
    /// callback of its receive runs, that may post again.
    void finish(TagEntry& entry) {
        TW_ASSERT(entry.state == State::kTold || entry.state == State::kContinued);
        end(entry);
    }

    /// One more unexpected tagged message was handled by software: `wc_flags` are those of its
    /// completion.
    void count_unexpected(unsigned wc_flags = 0) {
        ++unexpected_;
        asked_in_row_ = unasked_left_ = 0;
        // A device may go on asking for a while after it was told.
        const bool is_asked =
            (wc_flags & IBV_WC_TM_SYNC_REQ) != 0 && unsynced() >= kUnsyncedMax / 2;
        if (step_ >= Step::kUnknown || is_asked || unsynced() >= kUnsyncedMax) [[unlikely]]
            sync_wanted_ = true;
    }
    /// Posts a SYNC, if one is wanted. Only one at a time: so it is called from each progress.
    void sync_if_needed() {
        if (sync_wanted_) [[unlikely]]
            sync();
    }

    /// Entries that were matched by a message of this queue pair and wait for its data, which will
    /// not come: calls `end(entry)` for each, which answers by finish(). After the queue pair was
    /// reset or destroyed and the completion queue was found empty: so nothing writes any more.
    template <class End>
    void fail_consumed(std::uint32_t qp_num, End&& end);
    /// Whether entries wait for data of this queue pair.
    [[nodiscard]] bool waits_for(std::uint32_t qp_num) const;
    /// Ends all entries at tear-down, as fail_consumed(). After the SRQ was destroyed.
    template <class End>
    void take_all(End&& end);

    [[nodiscard]] unsigned depth() const { return depth_; }
    [[nodiscard]] unsigned size() const { return used_; }
    [[nodiscard]] unsigned ops_left() const { return ops_left_; }
    [[nodiscard]] const Totals& totals() const { return totals_; }

  private:
    using State = TagEntry::State;

    /// Whether the newest ADD, and so any ADD, still waits for a count, as far as is known.
    enum class Step : std::uint8_t {
        kIn,       // it does not, or there is none
        kAsked,    // its acknowledgement will tell
        kUnknown,  // no acknowledgement will come
        kOut,      // it did when it was posted
    };

    static constexpr std::uint64_t kOwn = std::uint64_t{1} << 63;  // no address has it
    static constexpr unsigned kAskedInRow = 8;  // ADDs after an unexpected message
    /// At the device, which needs microseconds; an emulated one may need a processor first, which
    /// it is left every so often, and after kFreeLooks each time.
    static constexpr unsigned kDropLooks = 1U << 17, kFreeLooks = 1U << 16, kLooksOfTurn = 1U << 8;

    // ---- Operations
    ucs_status_t post(ibv_ops_wr& wr, bool asks);
    ucs_status_t refused(const ibv_ops_wr& wr, int error);
    void note_added(TagEntry& entry, bool asks);
    void sync();
    void take_ack();
    [[nodiscard]] unsigned unsynced() const {
        return static_cast<std::uint16_t>(unexpected_ - synced_);
    }

    // ---- Completions
    TagEvent handle_rare(const Completion& completion);
    TagEvent on_message(TagEntry& entry, const Completion& completion);
    TagEvent on_failed_message(TagEntry& entry, const Completion& completion);
    TagEvent on_added(TagEntry& entry, const Completion& completion);
    TagEvent on_deleted(TagEntry& entry, const Completion& completion);
    TagEvent on_stray();
    TagEvent tell(TagEvent::Kind kind, TagEntry& entry, ucs_status_t status,
                  bool was_consumed_now = false);

    // ---- Entries
    TagEntry* find(const uct_tag_context_t* ctx);
    template <class Condition>
    [[nodiscard]] bool has_polled(Condition&& condition) const;
    [[nodiscard]] bool has_news(const TagEntry& entry) const;
    [[nodiscard]] bool writes_no_more(const TagEntry& entry) const;
    void end(TagEntry& entry) {
        if (entry.capacity != 0) {
            in_use_.erase(entry.buffer);
            entry.capacity = 0;
        }
        entry.ctx = nullptr;
        entry.state = State::kDone;
        release(entry);
    }
    /// Unless the device may still name it.
    void release(TagEntry& entry) {
        if (entry.acks != 0) [[unlikely]]
            return;
        entry.state = State::kFree;
        entry.next = free_;
        free_ = index_of(entry);
        if (--used_ == 0)
            step_ = Step::kIn;
    }
    [[nodiscard]] std::uint32_t index_of(const TagEntry& entry) const {
        return static_cast<std::uint32_t>(&entry - entries_.data());
    }
    [[nodiscard]] std::uint64_t wr_id_of(const TagEntry& entry) const {
        return std::uint64_t{entry.ticket} << 32 | index_of(entry);
    }

    int (*post_ops_)(ibv_srq*, ibv_ops_wr*, ibv_ops_wr**) = nullptr;
    ibv_srq* srq_ = nullptr;
    CompletionQueue* cq_ = nullptr;
    unsigned depth_ = 0;
    unsigned ops_left_ = 0;
    unsigned used_ = 0;          // entries that are not free
    unsigned consumed_ = 0;      // entries in that state
    unsigned asked_in_row_ = 0;  // ADDs since the last unexpected message, up to kAskedInRow
    unsigned unasked_left_ = 0;  // so many ADDs need not ask
    unsigned unasked_max_ = 0;
    std::uint32_t free_ = 0;  // the first free entry
    bool sync_wanted_ = false;
    bool sync_posted_ = false;
    Step step_ = Step::kIn;
    std::uint16_t unexpected_ = 0;    // handled by software
    std::uint16_t synced_ = 0;        // as the last operation said
    std::uint64_t newest_asked_ = 0;  // wr_id of the receive
    std::vector<TagEntry> entries_;
    ucs::AddressSet in_use_;  // buffers
    // ---- Acknowledgements to come, in order: how many operations each stands for
    std::vector<std::uint16_t> covered_;
    std::uint32_t acks_asked_ = 0, acks_taken_ = 0;
    std::uint16_t uncovered_ = 0;  // operations since the last one that asked
    ibv_sge element_{};            // of the next ADD
    ibv_ops_wr add_{};
    Totals totals_;
};

template <class End>
void TagList::fail_consumed(std::uint32_t qp_num, End&& end) {
    for (TagEntry& entry : entries_) {
        if (consumed_ == 0)
            return;
        if (entry.state != State::kConsumed || entry.qp_num != qp_num)
            continue;
        if (tell(TagEvent::Kind::kFailed, entry, UCS_ERR_CONNECTION_RESET).entry != nullptr)
            end(entry);
    }
}

template <class End>
void TagList::take_all(End&& end) {
    for (TagEntry& entry : entries_) {
        entry.acks = 0;
        if (entry.state == State::kDone) {
            release(entry);
        } else if (entry.state == State::kPosted || entry.state == State::kConsumed) {
            if (tell(TagEvent::Kind::kFailed, entry, UCS_ERR_CONNECTION_RESET).entry != nullptr)
                end(entry);
        }
    }
}

}  // namespace tagwire::ib
