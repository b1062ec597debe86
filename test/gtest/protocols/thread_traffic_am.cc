// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/thread_traffic_am.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kThreadInjectedAmMax = 3000;

}  // namespace

void ThreadTrafficAm::open() {
    for (ThreadWorker& worker : traffic_.workers_) {
        inboxes_.emplace_back().last.resize(traffic_.threads_.size() * traffic_.workers_.size());
        EXPECT_EQ(tw_am_register(worker.worker.get(), kId, on_message, &worker), TW_OK);
    }
    for (std::size_t i = 0; i < traffic_.threads_.size(); ++i) {
        sent_.push_back(std::make_unique<Sent[]>(traffic_.options_.steps * 4U));
        count_.emplace_back(0);
    }
}

void ThreadTrafficAm::act(TrafficThread& self, unsigned worker) {
    if (traffic_.chance(self, 3))
        take(self, worker);
    else
        send(self, worker);
}

/// `number`: among those of its thread.
void ThreadTrafficAm::send(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(traffic_.pick(self, traffic_.workers_.size()));
    const std::size_t number = count_[self.number].load(std::memory_order_relaxed);
    if (number == traffic_.options_.steps * 4U)
        return;
    const std::shared_lock use = traffic_.use_ep(worker, to);
    if (!use)
        return;
    ThreadOp& op = traffic_.new_op(self, ThreadOp::Kind::kAm, worker);
    op.peer = to;
    op.ep = traffic_.way(worker, to).ep;
    op.number = static_cast<std::uint32_t>(number);
    op.length = traffic_.pick_length(self);
    constexpr std::uint32_t kEnds[] = {TW_OP_INJECT_COMPLETE, TW_OP_TRANSMIT_COMPLETE,
                                       TW_OP_DELIVERY_COMPLETE, TW_OP_MATCH_COMPLETE};
    traffic_.draw_report(self, op);
    if (traffic_.chance(self, 3))
        op.flags |= kEnds[traffic_.pick(self, std::size(kEnds))];
    if (traffic_.chance(self, 16))
        op.flags |= TW_OP_FENCE;
    if (op.length <= kThreadInjectedAmMax && traffic_.chance(self, 5))
        op.flags |= TW_OP_INJECT;
    const bool is_injected = (op.flags & TW_OP_INJECT) != 0;
    Bytes data = pattern(op.length, op.number);
    traffic_.draw_list(self, op, data);
    if (!is_injected)
        op.bytes = std::move(data);
    Bytes& stays = is_injected ? data : op.bytes;
    const Label label{self.number, op.number};
    Sent& sent = sent_[self.number][number];
    sent.op = &op;
    // SYNC thread_am_drawn: pairs with the acquire in find(): what is to be sent.
    sent.is_drawn.store(true, std::memory_order_release);
    count_[self.number].store(number + 1, std::memory_order_relaxed);
    const tw_ep_h ep = op.ep->handle;
    traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
        const tw_status_t status =
            op.list.empty()
                ? tw_am_send(ep, kId, &label, sizeof label, stays.data(), op.length, how, request_p)
                : tw_am_sendv(ep, kId, &label, sizeof label, op.list.data(), op.list.size(), how,
                              request_p);
        if (is_injected)
            std::ranges::fill(stays, std::byte{0xdd});
        return status;
    });
}

void ThreadTrafficAm::end(const ThreadOp& op, const tw_completion_t& done) {
    if (done.flags != (TW_DONE_SEND | TW_DONE_AM) || done.tag != kId ||
        done.message_length != op.length)
        traffic_.wrong("an active message ends as another one", &op);
}

// ---- In the handler

void ThreadTrafficAm::on_message(void* arg, tw_am_t* am) {
    const ThreadWorker& at = *static_cast<ThreadWorker*>(arg);
    at.traffic->am_.handle(at.index, *am);
}

ThreadTrafficAm::Sent* ThreadTrafficAm::find(const tw_am_t& am) {
    Label label{};
    if (am.header_length == sizeof label)
        std::memcpy(&label, am.header, sizeof label);
    if (am.header_length == sizeof label && am.id == kId && label.thread < sent_.size() &&
        label.number < traffic_.options_.steps * 4U) {
        Sent& sent = sent_[label.thread][label.number];
        // SYNC thread_am_drawn: pairs with the release in send().
        if (sent.is_drawn.load(std::memory_order_acquire))
            return &sent;
    }
    traffic_.wrong("an active message that nobody has sent");
    return nullptr;
}

void ThreadTrafficAm::check_order(unsigned worker, const ThreadOp& sent) {
    Last& last = inboxes_[worker].last[sent.owner->number * traffic_.workers_.size() + sent.worker];
    if (last.ep == sent.ep && last.number >= sent.number)
        traffic_.wrong("an active message comes behind a later one", &sent);
    last = {sent.ep, sent.number};
}

bool ThreadTrafficAm::is_its_data(const ThreadOp& sent, const void* data) {
    const Bytes wanted = pattern(sent.length, sent.number);
    return std::equal(wanted.begin(), wanted.end(), static_cast<const std::byte*>(data));
}

void ThreadTrafficAm::handle(unsigned worker, tw_am_t& am) {
    Sent* const found = find(am);
    if (found == nullptr)
        return;
    const ThreadOp& sent = *found->op;
    const bool is_here = (am.flags & TW_AM_RNDV) == 0;
    if (found->handled.fetch_add(1, std::memory_order_relaxed) > 0)
        traffic_.wrong("an active message comes twice", &sent);
    if (am.source != traffic_.workers_[sent.worker].id || sent.peer != worker ||
        am.length != sent.length)
        traffic_.wrong("an active message is not what was sent", &sent);
    else if (is_here && !is_its_data(sent, am.data))
        traffic_.wrong("an active message has other bytes than were sent", &sent);
    check_order(worker, sent);
    const unsigned what = sent.number % 4;
    tw_message_h message = nullptr;
    if (what == 0) {
        // Its endpoint may fail while the handler runs.
        const bool may_fail = traffic_.options_.has_breaks || traffic_.options_.has_death;
        const tw_status_t status = tw_am_keep(&am, &message);
        if (status == TW_ERR_INVALID_PARAM || (status != TW_OK && !may_fail))
            traffic_.wrong(
                std::string("an active message is not kept: ") + tw_status_string(status), &sent);
        if (status != TW_OK)
            return;
        const std::lock_guard guard(inboxes_[worker].guard);
        inboxes_[worker].kept.push_back({message, is_here ? am.data : nullptr, &sent});
    } else if (what != 1 && !is_here) {
        receive(worker, am.message, sent);  // refused: it ends with its handler
    }
}

// ---- Receives

tw_status_t ThreadTrafficAm::receive(unsigned worker, tw_message_h message, const ThreadOp& sent) {
    Inbox& inbox = inboxes_[worker];
    Receive* into = nullptr;
    {
        const std::lock_guard guard(inbox.guard);
        into = &inbox.receives.emplace_back();
    }
    *into = {this, worker, &sent, Bytes(sent.length)};
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = into;
    how.complete = on_received;
    inbox.open.fetch_add(1, std::memory_order_relaxed);
    const tw_status_t status = tw_am_recv(traffic_.workers_[worker].worker.get(), message,
                                          into->bytes.data(), into->bytes.size(), &how, nullptr);
    if (status == TW_INPROGRESS)
        return status;
    inbox.open.fetch_sub(1, std::memory_order_relaxed);
    if (status != TW_ERR_NO_RESOURCE && !traffic_.is_anything_broken(worker))
        traffic_.wrong(std::string("tw_am_recv() answers ") + tw_status_string(status), &sent);
    return status;
}

void ThreadTrafficAm::on_received(const tw_completion_t* done) {
    Receive& into = *static_cast<Receive*>(done->context);
    ThreadTrafficAm& all = *into.all;
    // A send that is cancelled, or a connection that breaks, takes the data with it.
    const bool may_fail = all.traffic_.is_anything_broken(into.worker) ||
                          into.sent->cancelled.load(std::memory_order_relaxed) != kNever;
    if (done->status != TW_OK && !may_fail)
        all.traffic_.wrong(std::string("the data of an active message does not come: ") +
                               tw_status_string(done->status),
                           into.sent);
    if (done->status == TW_OK &&
        (done->length != into.sent->length || !all.is_its_data(*into.sent, into.bytes.data())))
        all.traffic_.wrong("the data of an active message has other bytes than were sent",
                           into.sent);
    all.inboxes_[into.worker].open.fetch_sub(1, std::memory_order_relaxed);
}

/// The oldest that this worker has kept.
void ThreadTrafficAm::take(TrafficThread& self, unsigned worker) {
    Inbox& inbox = inboxes_[worker];
    Kept kept;
    {
        const std::lock_guard guard(inbox.guard);
        if (inbox.kept.empty())
            return;
        kept = inbox.kept.front();
        inbox.kept.pop_front();
    }
    if (kept.data == nullptr && kept.sent->length > 0 && !traffic_.chance(self, 4)) {
        if (receive(worker, kept.message, *kept.sent) == TW_ERR_NO_RESOURCE) {
            const std::lock_guard guard(inbox.guard);
            inbox.kept.push_back(kept);
        }
        return;
    }
    if (kept.data != nullptr && !is_its_data(*kept.sent, kept.data))
        traffic_.wrong("an active message that was kept has changed", kept.sent);
    if (tw_am_release(traffic_.workers_[worker].worker.get(), kept.message) != TW_OK)
        traffic_.wrong("an active message is not released", kept.sent);
}

void ThreadTrafficAm::take_all(TrafficThread& self, unsigned worker) {
    const auto count = [&] {
        const std::lock_guard guard(inboxes_[worker].guard);
        return inboxes_[worker].kept.size();
    };
    for (std::size_t left = count(); left > 0; --left)
        take(self, worker);
}

void ThreadTrafficAm::forget(unsigned worker) {
    if (inboxes_.empty())
        return;  // there are no active messages
    const std::lock_guard guard(inboxes_[worker].guard);
    inboxes_[worker].kept.clear();
}

// ---- The end

/// It has ended well over a connection that is whole.
bool ThreadTrafficAm::must_come(const Sent& sent) {
    const ThreadOp& op = *sent.op;
    return op.is_over() && op.status == TW_OK && !traffic_.is_broken(*op.ep) &&
           !traffic_.workers_[op.worker].is_dead && !traffic_.workers_[op.peer].is_dead;
}

bool ThreadTrafficAm::is_quiet() {
    for (unsigned worker = 0; worker < traffic_.options_.workers; ++worker) {
        take_all(traffic_.main_, worker);
        if (inboxes_[worker].open > 0 || !inboxes_[worker].kept.empty())
            return false;
    }
    for (std::size_t thread = 0; thread < sent_.size(); ++thread)
        for (std::size_t i = 0; i < count_[thread]; ++i)
            if (sent_[thread][i].handled == 0 && must_come(sent_[thread][i]))
                return false;
    return true;
}

void ThreadTrafficAm::check() {
    for (std::size_t thread = 0; thread < sent_.size(); ++thread) {
        for (std::size_t i = 0; i < count_[thread]; ++i) {
            const Sent& sent = sent_[thread][i];
            if (must_come(sent) && sent.handled != 1)
                traffic_.wrong("an active message is lost", sent.op);
            if (sent.op->is_refused && sent.handled != 0)
                traffic_.wrong("an active message comes that was refused", sent.op);
        }
    }
}

}  // namespace tagwire::test
