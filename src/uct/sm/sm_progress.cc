// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of the data path: polling, and each message to the part that it is for.
#include <algorithm>
#include <bit>
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
    TW_LOG_ERROR(
        "the handler of active message %u returned UCS_INPROGRESS for a message without "
        "UCT_CB_PARAM_FLAG_DESC, which cannot be kept",
        id);
}

}  // namespace

// Even under constant load new and dead peers are looked for, rarely.
[[gnu::noinline, gnu::cold]] void SmIface::look_although_busy() {
    busy_left_ = busy_seen_ = kBusyPerLook;
    if (connections.is_look_overdue(ucs::ticks_now())) {
        connections.look();
        ends.bury_failed();
    }
}

// False: the message stays where it is, either for lack of a descriptor or because the peer broke
// the rules.
[[gnu::noinline]] bool SmIface::deliver(Link& link, Control control) {
    switch (static_cast<Kind>(control.kind())) {
        case Kind::kAm:
            break;  // receive() takes those that can be
        case Kind::kTagShort: {
            if (control.length() > sizeof(TagShortBody::data)) [[unlikely]]
                break;
            const auto* body = reinterpret_cast<const TagShortBody*>(link.rx.body());
            tags.deliver(body->tag, 0, body->data, control.length());
            return true;
        }
        case Kind::kTagImm: {
            if (control.length() > sizeof(TagImmBody::data)) [[unlikely]]
                break;
            const auto* body = reinterpret_cast<const TagImmBody*>(link.rx.body());
            tags.deliver(body->tag, body->imm, body->data, control.length());
            return true;
        }
        case Kind::kAmSeg:
            return deliver_am_seg(link, control);
        case Kind::kTagSeg:
            return tags.deliver_seg(link, control);
        case Kind::kRndv:
            return !link.is_paused() && rndv.deliver(link, control);
        case Kind::kRndvRequest:
            return rndv.deliver_request(link, control);
        default:
            return deliver_control(link, control);
    }
    ends.violation(link, "message with an impossible length or id");
    return false;
}

namespace {

/// An active message that is in its slot, of a length and id that can be.
[[gnu::always_inline]] inline bool is_short_am(Control control) {
    static_assert(std::has_single_bit(unsigned{UCT_AM_ID_MAX}));
    return control.is_of(Kind::kAm, UCT_AM_ID_MAX - 1) && control.length() <= kAmInlineMax;
}

}  // namespace

/// ... to its handler. Nothing but `link` is kept beyond the call.
[[gnu::always_inline]] inline void SmIface::deliver_short(Link& link, Control control) {
    if (link.iface.invoke_am(control.id(), link.rx.body(), control.length(), 0) == UCS_INPROGRESS)
        [[unlikely]]
        complain_of_kept_message(link.rx.peek().id());
    link.rx.advance();
}

/// The message that was seen, and those behind it; `count` have been delivered before.
[[gnu::always_inline]] inline unsigned SmIface::receive(Link& link, Control control,
                                                        unsigned count) {
    do {
        if (is_short_am(control)) [[likely]]
            deliver_short(link, control);
        else if (deliver(link, control))
            link.rx.advance();
        else
            break;
        ++count;
    } while (count < kPollBudget && link.rx.poll(&control));
    link.recent += count;
    counters_.add(SmCounter::kDelivered, count);
    return count;
}

unsigned SmIface::poll_ring(Link& link) {
    Control control{};
    return link.rx.poll(&control) ? receive(link, control, 0) : 0;
}

// Most calls find nothing: they end here, without saving registers for callbacks.
[[gnu::hot]] unsigned SmIface::progress() {
    Control control{};
    rings.count_call();
    for (Link* const link : rings.hot())
        if (link->rx.poll(&control))
            return progress_from(*link, control);
    if (rings.has_bell() || rest_.has_work || (idle_calls_ + 1) % kIdlePerLook == 0) [[unlikely]]
        return guard_.try_enter() ? progress_rest(nullptr, 0) : 0;
    ++idle_calls_;
    return 0;
}

/// The link's ring has a message: most times one that is short, and alone.
[[gnu::noinline, gnu::hot]] unsigned SmIface::progress_from(Link& link, Control control) {
    if (!guard_.try_enter()) [[unlikely]]
        return 0;  // it is the message whose callback calls
    if (!is_short_am(control)) [[unlikely]]
        return progress_from_others(link, control, 0);
    deliver_short(link, control);
    if (link.rx.poll(&control)) [[unlikely]]
        return progress_from_others(link, control, 1);
    SmIface& iface = link.iface;  // `this` is not kept beyond the handler
    ++link.recent;
    iface.counters_.add(SmCounter::kDelivered);
    return iface.end_of_ring(link, 1);
}

/// The same of any messages, the first of which is seen, behind `count`.
[[gnu::noinline]] unsigned SmIface::progress_from_others(Link& link, Control control,
                                                         unsigned count) {
    SmIface& iface = link.iface;
    count = iface.receive(link, control, count);
    if (count == 0) [[unlikely]] {
        --iface.busy_left_;
        return iface.progress_rest(&link, 0);
    }
    return iface.end_of_ring(link, count);
}

/// The ring has brought `count` messages, at least one. All that the call does, if nothing else is
/// to do.
[[gnu::always_inline]] inline unsigned SmIface::end_of_ring(Link& link, unsigned count) {
    if (--busy_left_ == 0 || rest_.is_any() || rings.has_bell()) [[unlikely]]
        return progress_rest(&link, count);
    guard_.leave();
    return count;
}

/// All else that a call does. The ring of `polled`, which may be gone, has brought `count`
/// messages; null: none was polled.
[[gnu::noinline]] unsigned SmIface::progress_rest(const Link* polled, unsigned count) {
    const bool has_bell = rings.has_bell();
    if (has_bell) [[unlikely]]
        rings.answer_bell();
    for (std::size_t i = 0; i < rings.hot().size(); ++i)
        if (rings.hot()[i] != polled)
            count += poll_ring(*rings.hot()[i]);
    if (has_bell) [[unlikely]]
        rings.let_guests_go();
    if (rest_.has_work) [[unlikely]]
        count += work();
    // progress_from() has counted the call as a busy one.
    busy_left_ += (polled != nullptr ? 1 : 0) - (count > 0 ? 1 : 0);
    if (count == 0) {
        if (++idle_calls_ % kIdlePerLook == 0) [[unlikely]]
            count = idle();
    } else if (busy_left_ == 0) [[unlikely]] {
        look_although_busy();
    }
    guard_.leave();
    if (ends.is_reap_wanted()) [[unlikely]]
        ends.reap();
    return count;
}

namespace {

/// Bytes of a buffer that a receiver asks for before it reads it; more comes by itself, and to ask
/// for it holds up a copy between near processors.
constexpr std::size_t kPrefetchMax = 1024;

inline void prefetch(const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < std::min(bytes, kPrefetchMax); at += kCacheLine)
        __builtin_prefetch(from + at);
}

}  // namespace

bool SmIface::deliver_am_seg(Link& link, Control control) {
    const auto* body = reinterpret_cast<const AmSegBody*>(link.rx.body());
    const std::uint32_t seg = body->seg;
    const RingGeometry& geometry = link.rx_segment->geometry;
    if (!geometry.has_buffer(seg, control.length()) || control.length() <= kAmHeadMax ||
        control.id() >= UCT_AM_ID_MAX) {
        ends.violation(link, "active message with an impossible buffer, length or id");
        return false;
    }
    prefetch(link.rx_segment->buffer(seg), control.length());
    void* data = nullptr;
    unsigned flags = 0;
    if (!hand_over(link, seg, control.length(), &data, &flags))
        return false;
    descs.settle(*link.rx_segment, seg, data,
                 invoke_am_with_head(control.id(), body->head, data, control.length(), flags));
    return true;
}

// ---- Messages of operations

namespace {

template <class Body>
bool take_body(Link& link, Control control, Body* body_p) {
    if (control.length() != sizeof(Body)) {
        link.iface.ends.violation(link, "message whose length is not that of its kind");
        return false;
    }
    std::memcpy(body_p, link.rx.body(), sizeof(Body));
    return true;
}

}  // namespace

// Each body is copied once, then checked, then used.
bool SmIface::deliver_control(Link& link, Control control) {
    if (control.word == 0)
        return false;  // a slot that was never written, where the sequence is 0
    const auto pass = [&]<class Body>(auto& part, void (std::remove_cvref_t<decltype(part)>::*to)(
                                                      Link&, const Body&)) {
        Body body;
        if (take_body(link, control, &body))
            (part.*to)(link, body);
    };
    switch (static_cast<Kind>(control.kind())) {
        case Kind::kPull:
        case Kind::kPush:
        case Kind::kAtomic:
            if (link.is_paused())
                return false;
            break;
        default:
            break;
    }
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
        case Kind::kOtherRing:
            if (!link.change_rx())
                ends.violation(link, "change to a ring that does not exist");
            return false;  // the next look is at the other ring
        default:
            ends.violation(link, "message of an unknown kind");
            return false;
    }
    return !link.violated;
}

// Every so many calls of progress that found nothing.
unsigned SmIface::idle() {
    worker().found_nothing(*this, kIdlePerLook);
    if (idle_calls_ % kIdlePerRingsLook == 0) [[unlikely]] {
        rings.look(kIdlePerRingsLook +
                   static_cast<unsigned>(std::exchange(busy_seen_, busy_left_) - busy_left_));
        buffers.grow();
    }
    const std::uint64_t now = ucs::ticks_now();
    if (!connections.is_time_to_look(now)) [[likely]]
        return 0;
    if (rings.is_crowded() && !connections.is_time_to_look_crowded(now))
        return 0;
    const unsigned moved = connections.look() ? 1 : 0;
    return moved + ends.bury_failed();
}

// ---- Work

void SmIface::add_work(Link& link) {
    rest_.has_work = true;
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
        if (link.is_paused())
            break;  // each that ends is one more reply
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
    unsigned count = ends.bury_failed() + tags.report_cancelled();
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
    rest_.has_work = !working_.empty() || ends.has_failed() || ends.is_reap_wanted() ||
                     tags.has_cancelled() || !pending.empty();
    return count;
}

}  // namespace tagwire::sm
