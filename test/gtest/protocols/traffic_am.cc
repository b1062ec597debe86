// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic_am.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kTrafficInjectedAmMax = 3000;
constexpr std::uint32_t kTrafficLevels =
    TW_OP_TRANSMIT_COMPLETE | TW_OP_DELIVERY_COMPLETE | TW_OP_MATCH_COMPLETE | TW_OP_SENT_COMPLETE;

}  // namespace

void TrafficAm::open(TrafficWorker& worker) {
    inboxes_.emplace_back();
    while (sent_.size() < traffic_.threads_.size()) {
        sent_.emplace_back(traffic_.ops_max());
        count_.emplace_back(0);
    }
    EXPECT_EQ(tw_am_register(worker.worker.get(), kId, on_message, &worker), TW_OK);
}

void TrafficAm::act(TrafficThread& self, unsigned worker) {
    if (traffic_.chance(self, 3))
        take(self, worker);
    else
        send(self, worker);
}

/// The label, and a pattern.
Bytes TrafficAm::header(const TrafficOp& sent) {
    Bytes bytes = pattern(sent.header_length, sent.number);
    const Label label{sent.owner->number, sent.number};
    std::memcpy(bytes.data(), &label, sizeof label);
    return bytes;
}

/// `number`: among those of its thread.
void TrafficAm::send(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(traffic_.pick(self, traffic_.workers_.size()));
    const std::size_t number = count_[self.number].load(std::memory_order_relaxed);
    if (number == traffic_.ops_max())
        return;
    const std::shared_lock use = traffic_.use_ep(worker, to);
    if (!use)
        return;
    TrafficOp& op = traffic_.new_op(self, TrafficOp::Kind::kAm, worker);
    op.peer = to;
    op.ep = traffic_.way(worker, to).ep;
    op.tag = kId;
    op.number = static_cast<std::uint32_t>(number);
    op.length = traffic_.pick_length(self);
    op.header_length =
        sizeof(Label) +
        (traffic_.chance(self, 2) ? 0 : traffic_.pick(self, TW_AM_HEADER_MAX - sizeof(Label) + 1));
    traffic_.draw_report(self, op);
    traffic_.draw_end(self, op, kTrafficInjectedAmMax);
    if (!op.has(kTrafficLevels) && op.length <= TW_AM_URGENT_MAX - TW_AM_HEADER_MAX &&
        traffic_.chance(self, 4))
        op.flags |= TW_OP_URGENT;
    const bool is_injected = op.has(TW_OP_INJECT);
    Bytes data = pattern(op.length, op.number);
    traffic_.draw_list(self, op, data);
    if (!is_injected)
        op.bytes = std::move(data);
    Bytes& stays = is_injected ? data : op.bytes;
    const Bytes head = header(op);
    // SYNC traffic_am_drawn: pairs with the acquire in find(): what is to be sent.
    sent_[self.number][number].store(&op, std::memory_order_release);
    count_[self.number].store(number + 1, std::memory_order_relaxed);
    const tw_ep_h ep = op.ep->handle;
    traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
        const tw_status_t status =
            op.list.empty() ? tw_am_send(ep, kId, head.data(), head.size(), stays.data(), op.length,
                                         how, request_p)
                            : tw_am_sendv(ep, kId, head.data(), head.size(), op.list.data(),
                                          op.list.size(), how, request_p);
        if (is_injected)
            std::ranges::fill(stays, std::byte{0xdd});
        return status;
    });
}

void TrafficAm::end(TrafficOp& op, const tw_completion_t& done) {
    if (done.tag != kId || done.message_length != op.length)
        traffic_.wrong("an active message ends as another one", &op);
}

// ---- In the handler

void TrafficAm::on_message(void* arg, tw_am_t* am) {
    const TrafficWorker& at = *static_cast<TrafficWorker*>(arg);
    Traffic& traffic = *at.traffic;
    traffic.am_.handle(Traffic::t_self == nullptr ? traffic.main_ : *Traffic::t_self, at.index,
                       *am);
}

TrafficOp* TrafficAm::find(const tw_am_t& am) {
    Label label{};
    if (am.header_length >= sizeof label)
        std::memcpy(&label, am.header, sizeof label);
    if (am.header_length >= sizeof label && am.id == kId && label.thread < sent_.size() &&
        label.number < traffic_.ops_max()) {
        // SYNC traffic_am_drawn: pairs with the release in send().
        if (auto* const op = sent_[label.thread][label.number].load(std::memory_order_acquire))
            return op;
    }
    traffic_.wrong("an active message that nobody has sent");
    return nullptr;
}

void TrafficAm::check_order(unsigned worker, const TrafficOp& sent) {
    const auto [last, is_first] = inboxes_[worker].last.try_emplace(
        {sent.owner->number, sent.worker, sent.has(TW_OP_URGENT)});
    const bool is_of_it = traffic_.is_alone() || last->second.ep == sent.ep;
    if (!is_first && is_of_it && last->second.number >= sent.number)
        traffic_.wrong("an active message comes behind a later one", &sent);
    last->second = {sent.ep, sent.number};
}

bool TrafficAm::is_its_data(const TrafficOp& sent, const void* data) {
    const Bytes wanted = pattern(sent.length, sent.number);
    return std::equal(wanted.begin(), wanted.end(), static_cast<const std::byte*>(data));
}

void TrafficAm::handle(TrafficThread& self, unsigned worker, tw_am_t& am) {
    TrafficOp* const found = find(am);
    if (found == nullptr)
        return;
    TrafficOp& sent = *found;
    const bool is_here = (am.flags & TW_AM_RNDV) == 0, is_urgent = sent.has(TW_OP_URGENT);
    if (sent.received.fetch_add(1, std::memory_order_relaxed) > 0)
        traffic_.wrong("an active message comes twice", &sent);
    const Bytes head = header(sent);
    if (am.source != traffic_.workers_[sent.worker].id || sent.peer != worker ||
        am.length != sent.length || am.header_length != head.size() ||
        std::memcmp(am.header, head.data(), head.size()) != 0 || is_here != (am.data != nullptr) ||
        (is_urgent && !is_here))
        return traffic_.wrong("an active message is not what was sent", &sent);
    if (is_here && !is_its_data(sent, am.data))
        traffic_.wrong("an active message has other bytes than were sent", &sent);
    check_order(worker, sent);
    // Used or dropped; of an urgent one that is kept nothing would pause the sender.
    if (is_urgent || traffic_.chance(self, is_here ? 2 : 4))
        return;
    if (!is_here && traffic_.chance(self, 2) && receive(self, worker, am.message, sent))
        return;
    // Its endpoint may fail while the handler runs.
    const bool may_fail = traffic_.options_.has_breaks || traffic_.options_.has_death;
    tw_message_h message = nullptr;
    const tw_status_t status = tw_am_keep(&am, &message);
    if (status == TW_ERR_INVALID_PARAM ||
        (status != TW_OK && !may_fail && !Traffic::is_for_lack_of_memory(status)))
        traffic_.wrong(std::string("an active message is not kept: ") + tw_status_string(status),
                       &sent);
    if (status == TW_OK)
        keep(worker, {message, is_here ? am.data : nullptr, &sent});
}

// ---- Receives

bool TrafficAm::receive(TrafficThread& self, unsigned worker, tw_message_h message,
                        TrafficOp& sent) {
    TrafficOp& op = traffic_.new_op(self, TrafficOp::Kind::kAmReceive, worker);
    op.peer = sent.worker;
    op.tag = kId;
    op.sent = &sent;
    op.number = sent.number;
    op.length = sent.length;
    op.bytes.assign(op.length + Traffic::kGuardBytes, Traffic::kEmpty);
    traffic_.draw_report(self, op);
    traffic_.draw_list(self, op, op.bytes);
    tw_status_t answer = TW_OK;
    const tw_worker_h handle = traffic_.workers_[worker].worker.get();
    traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
        return answer = op.list.empty() ? tw_message_recv(handle, message, op.bytes.data(),
                                                          op.length, how, request_p)
                                        : tw_message_recvv(handle, message, op.list.data(),
                                                           op.list.size(), how, request_p);
    });
    // Otherwise it is the library's, if only because its sender has gone.
    return answer != TW_ERR_NO_RESOURCE && answer != TW_ERR_NO_MEMORY;
}

void TrafficAm::end_receive(TrafficOp& op, const tw_completion_t& done) {
    if (done.tag != kId)
        traffic_.wrong("a receive of an active message ends as another one", &op);
    if (done.status != TW_OK)
        return;
    if (done.length != op.length || !is_its_data(*op.sent, op.bytes.data()))
        traffic_.wrong("the data of an active message has other bytes than were sent", op.sent);
    if (std::any_of(op.bytes.begin() + static_cast<std::ptrdiff_t>(op.length), op.bytes.end(),
                    [](std::byte byte) { return byte != Traffic::kEmpty; }))
        traffic_.wrong("an active message was written behind its buffer", &op);
}

void TrafficAm::keep(unsigned worker, const Kept& kept) {
    const std::lock_guard guard(inboxes_[worker].guard);
    inboxes_[worker].kept.push_back(kept);
}

/// The oldest that this worker has kept. A callback may do this, too.
void TrafficAm::take(TrafficThread& self, unsigned worker) {
    Kept kept;
    {
        const std::lock_guard guard(inboxes_[worker].guard);
        if (inboxes_[worker].kept.empty())
            return;
        kept = inboxes_[worker].kept.front();
        inboxes_[worker].kept.pop_front();
    }
    if (kept.data != nullptr && !is_its_data(*kept.sent, kept.data))
        traffic_.wrong("an active message that was kept has changed", kept.sent);
    if (!traffic_.chance(self, 4)) {
        if (!receive(self, worker, kept.message, *kept.sent))
            keep(worker, kept);
        return;
    }
    const tw_status_t status =
        tw_message_drop(traffic_.workers_[worker].worker.get(), kept.message);
    if (status != TW_OK && !Traffic::is_for_lack_of_memory(status))
        traffic_.wrong("an active message is not released", kept.sent);
    if (status != TW_OK)
        keep(worker, kept);
}

void TrafficAm::take_all(TrafficThread& self, unsigned worker) {
    if (inboxes_.empty())
        return;  // there are no active messages
    const auto count = [&] {
        const std::lock_guard guard(inboxes_[worker].guard);
        return inboxes_[worker].kept.size();
    };
    for (std::size_t left = count(); left > 0; --left)
        take(self, worker);
}

void TrafficAm::forget(unsigned worker) {
    if (inboxes_.empty())
        return;
    const std::lock_guard guard(inboxes_[worker].guard);
    inboxes_[worker].kept.clear();
}

// ---- The end

/// It has ended well over a connection that is whole.
bool TrafficAm::must_come(const TrafficOp& op) {
    return op.is_over() && op.status == TW_OK && !traffic_.is_excused(op);
}

bool TrafficAm::is_quiet() {
    for (const unsigned worker : traffic_.living()) {
        take_all(traffic_.main_, worker);
        if (worker < inboxes_.size() && !inboxes_[worker].kept.empty())
            return false;
    }
    bool is_over = true;
    traffic_.for_each_op([&](const TrafficOp& op) {
        const bool is_receive = op.kind == TrafficOp::Kind::kAmReceive;
        if (is_receive && !op.is_over() && !traffic_.workers_[op.worker].is_dead)
            is_over = false;
        if (op.kind == TrafficOp::Kind::kAm && op.received == 0 && must_come(op))
            is_over = false;
    });
    return is_over;
}

void TrafficAm::check() {
    traffic_.for_each_op([&](const TrafficOp& op) {
        if (op.kind != TrafficOp::Kind::kAm)
            return;
        if (must_come(op) && op.received != 1)
            traffic_.wrong("an active message is lost", &op);
        if (op.is_refused && op.received != 0)
            traffic_.wrong("an active message comes that was refused", &op);
    });
}

}  // namespace tagwire::test
