// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the data path: polling and delivery. Rendezvous are in sm_rndv.cc, requests
// to read, write or change memory in sm_remote.cc.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_iface.hpp"

namespace tagwire::sm {

namespace {

[[gnu::noinline, gnu::cold]] void complain_of_kept_message(unsigned id) {
    TW_LOG_ERROR("AM handler %u kept a message that came without UCT_CB_PARAM_FLAG_DESC", id);
}

}  // namespace

unsigned SmIface::progress() {
    ++in_progress_;
    answer_bell();
    unsigned count = 0;
    for (std::size_t i = 0; i < hot_.size(); ++i)
        count += poll_ring(*hot_[i]);
    if (has_work_) [[unlikely]]
        count += work();
    if (count == 0) {
        if (++idle_calls_ % kIdlePerLook == 0) [[unlikely]]
            count = idle();
    } else if (++busy_calls_ >= kBusyPerLook) [[unlikely]] {
        look_although_busy();
    }
    --in_progress_;
    if (reap_wanted_ && in_progress_ == 0) [[unlikely]]
        reap();
    return count;
}

// Somebody keeps us busy all the time: newcomers and deaths are looked at all the same, rarely.
void SmIface::look_although_busy() {
    busy_calls_ = 0;
    if (ucs::ticks_now() - next_look_ + look_ticks_ > 16 * look_ticks_) {
        look();
        bury_failed();
    }
}

void SmIface::answer_bell() {
    collect_bell(*bell_, [this](std::uint32_t bit) {
        for (std::size_t i = bit; i < links_.size(); i += kBellBits)
            if (links_[i] != nullptr)
                make_hot(*links_[i]);
    });
}

// False: the message stays where it is, either for lack of a descriptor or because the peer broke
// the rules.
[[gnu::always_inline]] inline bool SmIface::deliver(Link& link, Control control) {
    switch (static_cast<Kind>(control.kind())) {
        case Kind::kAm:
            if (control.length() > kAmInlineMax || control.id() >= UCT_AM_ID_MAX) [[unlikely]]
                break;
            if (invoke_am(control.id(), link.rx.body(), control.length(), 0) == UCS_INPROGRESS)
                [[unlikely]]
                complain_of_kept_message(control.id());
            return true;
        case Kind::kTagShort: {
            if (control.length() > sizeof(TagShortBody::data)) [[unlikely]]
                break;
            const auto* body = reinterpret_cast<const TagShortBody*>(link.rx.body());
            deliver_tag(body->tag, 0, body->data, control.length());
            return true;
        }
        case Kind::kTagImm: {
            if (control.length() > sizeof(TagImmBody::data)) [[unlikely]]
                break;
            const auto* body = reinterpret_cast<const TagImmBody*>(link.rx.body());
            deliver_tag(body->tag, body->imm, body->data, control.length());
            return true;
        }
        case Kind::kAmSeg:
            return deliver_am_seg(link, control);
        case Kind::kTagSeg:
            return deliver_tag_seg(link, control);
        case Kind::kRndv:
            return rndv.deliver(link, control);
        case Kind::kRndvRequest:
            return rndv.deliver_request(link, control);
        default:
            return deliver_control(link, control);
    }
    violation(link, "message with an impossible length or id");
    return false;
}

unsigned SmIface::poll_ring(Link& link) {
    unsigned count = 0;
    for (; count < kPollBudget; ++count) {
        const Control control = link.rx.peek();
        if (control.word == 0 || !deliver(link, control))
            break;
        link.rx.advance();
    }
    if (count > 0) {
        link.was_active = true;
        counters_.add(SmCounter::kDelivered, count);
    }
    return count;
}

bool SmIface::hand_over(Link& link, std::uint32_t seg, std::size_t bytes, void** data_p,
                        unsigned* flags_p) {
    *data_p = descs_.hand_over(*link.rx_segment, seg, bytes);
    *flags_p = UCT_CB_PARAM_FLAG_DESC;
    if (*data_p != link.rx_segment->buffer(seg) && *data_p != nullptr) [[unlikely]]
        counters_.add(SmCounter::kCopiedDescs);
    return *data_p != nullptr;
}

bool SmIface::deliver_am_seg(Link& link, Control control) {
    const std::uint32_t seg = reinterpret_cast<const AmSegBody*>(link.rx.body())->seg;
    const RingGeometry& geometry = link.rx_segment->geometry;
    if (seg >= geometry.seg_count || control.length() > geometry.seg_bytes ||
        control.id() >= UCT_AM_ID_MAX) {
        violation(link, "active message with an impossible buffer, length or id");
        return false;
    }
    void* data = nullptr;
    unsigned flags = 0;
    if (!hand_over(link, seg, control.length(), &data, &flags))
        return false;
    descs_.settle(*link.rx_segment, seg, data,
                  invoke_am(control.id(), data, control.length(), flags));
    return true;
}

// A whole message that lies in its slot.
void SmIface::deliver_tag(uct_tag_t tag, std::uint64_t imm, const std::byte* data,
                          std::size_t bytes) {
    PostedEntry* entry = tags_.match(tag);
    if (entry == nullptr) {
        if (tags_.depth() == 0) [[unlikely]]
            return refuse_tagged(data);
        counters_.add(SmCounter::kUnexpected);
        void* context = nullptr;
        // The callee may not write: the pointer is not const because UCT's is not.
        const ucs_status_t status = invoke_unexpected_eager(
            const_cast<std::byte*>(data), bytes, UCT_CB_PARAM_FLAG_FIRST, tag, imm, &context);
        if (status == UCS_INPROGRESS) [[unlikely]] {
            TW_LOG_ERROR(
                "the eager callback kept a message that came without UCT_CB_PARAM_FLAG_DESC");
        }
        return;
    }
    entry->ctx->tag_consumed_cb(entry->ctx);
    if (!entry->is_scattered()) [[likely]]
        copy_short(entry->buffer, data, std::min(bytes, entry->capacity()));
    else
        entry->scattered()->cursor().scatter(data, std::min(bytes, entry->capacity()));
    complete_entry(*entry, tag, imm, bytes, UCS_OK);
}

// Only the way to here is short: whose ring the message lies in is looked up.
[[gnu::noinline, gnu::cold]] void SmIface::refuse_tagged(const std::byte* data) {
    for (const auto& link : links_)
        if (link != nullptr && link->rx_segment != nullptr && link->rx_segment->has(data))
            static_cast<void>(takes_tags(*link));
}

bool SmIface::deliver_tag_seg(Link& link, Control control) {
    if (!takes_tags(link))
        return false;
    TagSegBody body;
    std::memcpy(&body, link.rx.body(), sizeof body);
    const RingGeometry& geometry = link.rx_segment->geometry;
    const std::uint32_t bytes = control.length();
    const bool first = (control.id() & kFirst) != 0;
    const bool more = (control.id() & kMore) != 0;
    const std::uint64_t left = first ? body.total : link.message_left;
    if (body.seg >= geometry.seg_count || bytes > geometry.seg_bytes || bytes > left ||
        more != (bytes < left) || first != (link.message_left == 0) ||
        body.total > std::uint64_t{kFragmentCountMax} * geometry.seg_bytes) {
        violation(link, "tagged fragment that does not fit its message");
        return false;
    }
    if (first) {
        // Before anything is matched: without memory the message stays where it is.
        IovCopy* copy = more ? iovs_.create() : nullptr;
        if (more && copy == nullptr)
            return false;
        PostedEntry* entry = tags_.consume(body.tag);
        link.message_entry = entry;
        link.message_total = body.total;
        if (entry != nullptr) {
            const uct_iov_t one{entry->buffer, entry->capacity(), nullptr, 0, 1};
            if (!more && !entry->is_scattered()) {
                std::memcpy(entry->buffer, link.rx_segment->buffer(body.seg),
                            std::min<std::size_t>(bytes, one.length));
                link.rx_segment->returns.give_back(body.seg);
                link.message_entry =
                    nullptr;  // no fragment follows, so closing must not free it again
                complete_entry(*entry, body.tag, body.imm, bytes, UCS_OK);
                return true;
            }
            if (!entry->is_scattered()) {
                copy->assign(&one, 1);
                entry->scatter(std::exchange(copy, nullptr), iovs_);
            }
            link.message_cursor = entry->scattered()->cursor();
        } else {
            link.message_context = nullptr;
        }
        if (copy != nullptr)
            iovs_.destroy(copy);
    }
    if (!deliver_fragment(link, body, bytes, more))
        return false;
    return true;
}

bool SmIface::deliver_fragment(Link& link, const TagSegBody& body, std::uint32_t bytes, bool more) {
    const bool first = link.message_left == 0;
    const std::uint64_t left = (first ? link.message_total : link.message_left) - bytes;
    if (PostedEntry* entry = link.message_entry) {
        link.message_cursor.scatter(link.rx_segment->buffer(body.seg),
                                    bytes);  // stops at the buffer's end
        link.rx_segment->returns.give_back(body.seg);
        link.message_left = left;
        if (!more) {
            link.message_entry = nullptr;
            complete_entry(*entry, body.tag, body.imm, link.message_total, UCS_OK);
        }
        return true;
    }
    void* data = nullptr;
    unsigned flags = 0;
    if (!hand_over(link, body.seg, bytes, &data, &flags))
        return false;
    link.message_left = left;
    if (first)
        counters_.add(SmCounter::kUnexpected);
    const unsigned all = flags | (first ? unsigned{UCT_CB_PARAM_FLAG_FIRST} : 0U) |
                         (more ? unsigned{UCT_CB_PARAM_FLAG_MORE} : 0U);
    descs_.settle(
        *link.rx_segment, body.seg, data,
        invoke_unexpected_eager(data, bytes, all, body.tag, body.imm, &link.message_context));
    return true;
}

// ---- Messages of operations

namespace {

template <class Body>
bool take_body(Link& link, Control control, Body* body_p) {
    if (control.length() != sizeof(Body)) {
        link.iface.violation(link, "message whose length is not that of its kind");
        return false;
    }
    std::memcpy(body_p, link.rx.body(), sizeof(Body));
    return true;
}

}  // namespace

// Each body is copied once, then checked, then used.
bool SmIface::deliver_control(Link& link, Control control) {
    const auto pass = [&]<class Body>(auto& part, void (std::remove_cvref_t<decltype(part)>::*to)(
                                                      Link&, const Body&)) {
        Body body;
        if (take_body(link, control, &body))
            (part.*to)(link, body);
    };
    switch (static_cast<Kind>(control.kind())) {
        case Kind::kRndvFin:
            pass(rndv, &Rendezvous::deliver_fin);
            break;
        case Kind::kRndvHelp:
            pass(both, &BothCopy::deliver_rndv_help);
            break;
        case Kind::kGetHelp:
            pass(both, &BothCopy::deliver_get_help);
            break;
        case Kind::kPull:
            pass(remote, &RemoteAccess::deliver_pull);
            break;
        case Kind::kPullData:
            pass(remote, &RemoteAccess::deliver_pull_data);
            break;
        case Kind::kPush:
            pass(remote, &RemoteAccess::deliver_push);
            break;
        case Kind::kPushAck:
            pass(remote, &RemoteAccess::deliver_push_ack);
            break;
        case Kind::kAtomic:
            pass(remote, &RemoteAccess::deliver_atomic);
            break;
        case Kind::kAtomicReply:
            pass(remote, &RemoteAccess::deliver_atomic_reply);
            break;
        default:
            violation(link, "message of an unknown kind");
            return false;
    }
    return !link.violated;
}

// ---- Posted receives

ucs_status_t SmIface::tag_recv_zcopy(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                     std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (iovcnt != 1 || iov->count != 1) [[unlikely]]
        return post_scattered(tag, mask, iov, iovcnt, ctx);
    PostedEntry* entry = nullptr;
    const ucs_status_t status =
        tags_.create(tag, mask, ctx, static_cast<std::byte*>(iov->buffer), iov->length, &entry);
    if (status != UCS_OK) [[unlikely]]
        return refuse_receive(status);
    tags_.post(*entry);
    return UCS_OK;
}

ucs_status_t SmIface::refuse_receive(ucs_status_t status) const {
    if (has_tag_callbacks())
        return status;
    TW_LOG_ERROR("tag_recv_zcopy: the interface was opened without tag callbacks");
    return UCS_ERR_UNSUPPORTED;
}

// No element, several, or one that repeats.
ucs_status_t SmIface::post_scattered(uct_tag_t tag, uct_tag_t mask, const uct_iov_t* iov,
                                     std::size_t iovcnt, uct_tag_context_t* ctx) {
    if (iovcnt > kIovMax) {
        TW_LOG_ERROR("tag_recv_zcopy: %zu iov elements, at most %zu are taken", iovcnt, kIovMax);
        return UCS_ERR_INVALID_PARAM;
    }
    PostedEntry* entry = nullptr;
    const ucs_status_t status =
        tags_.create(tag, mask, ctx, first_piece(iov, iovcnt), iov_bytes(iov, iovcnt), &entry);
    if (status != UCS_OK)
        return refuse_receive(status);
    if (iovcnt != 0) {
        IovCopy* copy = iovs_.create();
        if (copy == nullptr) {
            tags_.destroy(*entry);
            return UCS_ERR_NO_MEMORY;
        }
        copy->assign(iov, iovcnt);
        entry->scatter(copy, iovs_);
    }
    tags_.post(*entry);
    return UCS_OK;
}

ucs_status_t SmIface::tag_recv_cancel(uct_tag_context_t* ctx, int force) {
    const ucs_status_t status = tags_.cancel(
        *ctx, force != 0, [this](PostedEntry& entry) { return abandon_consumed(entry); });
    has_work_ |= tags_.has_cancelled();
    return status;
}

// Matched already, by a rendezvous or by the first of several fragments, and the user wants the
// buffer back at once. Data still to come is dropped, without a callback.
ucs_status_t SmIface::abandon_consumed(PostedEntry& entry) {
    Op* op = entry.op();
    uct_tag_context_t* ctx = std::exchange(entry.ctx, nullptr);
    if (op != nullptr && (op->mode == ReceiveMode::kBoth || op->mode == ReceiveMode::kLeaving)) {
        if (both.abandon(*op))
            return UCS_OK;
        entry.ctx = ctx;
        return UCS_ERR_BUSY;
    }
    if (op != nullptr) {
        rndv.finish_receive(*op, UCS_ERR_CANCELED);
        return UCS_OK;
    }
    for (const auto& link : links_)
        if (link != nullptr && link->message_entry == &entry)
            link->message_cursor = IovCursor();
    tags_.detach(entry);
    return UCS_OK;
}

// ---- Hot and cold

void SmIface::make_hot(Link& link) {
    if (link.is_hot || link.rx_segment == nullptr)
        return;
    link.rx.wake();
    link.is_hot = true;
    link.was_active = true;
    hot_.push_back(&link);
}

void SmIface::make_cold(Link& link) {
    if (!link.is_hot)
        return;
    link.is_hot = false;
    hot_.erase(std::find(hot_.begin(), hot_.end(), &link));
}

// Every so many calls of progress that found nothing.
unsigned SmIface::idle() {
    if (idle_calls_ % kIdlePerCooling == 0)
        cool();
    if (static_cast<std::int64_t>(ucs::ticks_now() - next_look_) < 0)
        return 0;
    const unsigned moved = look() ? 1 : 0;
    return moved + bury_failed();
}

void SmIface::cool() {
    // A ring whose sender skips its fence while we cannot run the barrier for it is never left
    // alone.
    if (hot_.size() <= kHotKept || sleeps_by_timer_)
        return;
    const std::size_t excess = hot_.size() - kHotKept;
    const auto kept = std::partition(hot_.begin(), hot_.end(), [](Link* link) {
        return std::exchange(link->was_active, false);
    });
    const std::size_t idle = static_cast<std::size_t>(hot_.end() - kept);
    std::span<Link*> sleepers(hot_);
    sleepers = sleepers.last(std::min(idle, excess));
    if (sleepers.empty())
        return;
    for (Link* link : sleepers)
        link->rx.announce_sleep();
    sleep_barrier();
    const auto asleep = std::remove_if(sleepers.begin(), sleepers.end(), [this](Link* link) {
        if (!link->rx.stays_asleep())
            return false;
        link->is_hot = false;
        counters_.add(SmCounter::kCooled);
        return true;
    });
    hot_.resize(hot_.size() - static_cast<std::size_t>(sleepers.end() - asleep));
}

// Between the announcement of sleep and the look for what came meanwhile, for all rings at once.
void SmIface::sleep_barrier() {
    if (has_membarrier_)
        ucs::global_barrier();
    ucs::full_barrier();
}

// ---- Work

void SmIface::add_work(Link& link) {
    has_work_ = true;
    if (link.in_work_list)
        return;
    link.in_work_list = true;
    working_.push_back(&link);
}

// One turn of a link: queued answers first, then one step of each kind of work. True: something
// moved.
bool SmIface::step_link(Link& link) {
    bool moved = false;
    while (!link.controls.empty() && link.failure == UCS_OK && link.claim(1) == UCS_OK) {
        const QueuedControl queued = link.controls.front();
        link.controls.pop_front();
        std::memcpy(link.tx.slot().body, queued.body, sizeof queued.body);
        link.tx.publish(queued.control);
        link.after_publish();
        moved = true;
    }
    if (!pending.empty() || link.fence_waits)
        link.tx.hold();
    if (link.failure != UCS_OK)
        return moved;
    while (!link.serves.empty() && remote.step_serve(link))
        moved = true;
    if (link.helping > 0)
        moved |= both.step_rndv_help(link);
    if (!link.get_helps.empty())
        moved |= both.step_get_help(link);
    if (link.stepping == 0)
        return moved;
    for (Op* op = link.receives.front(); op != nullptr; op = link.receives.next(*op)) {
        if (!op->needs_steps)
            continue;
        moved |= rndv.step_receive(*op);
        break;  // the oldest first; `op` may be gone
    }
    for (Op* op = link.ops.front(); op != nullptr; op = link.ops.next(*op)) {
        if (!op->needs_steps)
            continue;
        moved |= remote.step(*op);
        break;
    }
    return moved;
}

unsigned SmIface::work() {
    unsigned count = bury_failed() + tags_.report_cancelled();
    for (std::size_t i = 0; i < working_.size();) {
        Link& link = *working_[i];
        if (step_link(link))
            ++count;
        if (link.has_work()) {
            ++i;
            continue;
        }
        link.in_work_list = false;
        working_.erase(working_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    count += static_cast<unsigned>(pending.dispatch(kPollBudget));
    has_work_ = !working_.empty() || !failed_.empty() || tags_.has_cancelled() || !pending.empty();
    return count;
}

}  // namespace tagwire::sm
