// SPDX-License-Identifier: BSD-3-Clause
#include "tools/many_traffic.hpp"

#include <algorithm>

#include "cli/failure.hpp"
#include "tools/pattern.hpp"
#include "tools/sender.hpp"
#include "tools/stats.hpp"
#include "tools/test_tags.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kDataTag = 42;
constexpr std::uint64_t kBurst = 16;

std::size_t others(const ManyRank& rank) {
    return rank.size() - 1;
}

std::span<std::byte> bytes_at(std::uint8_t* data, std::size_t length) {
    return {reinterpret_cast<std::byte*>(data), length};
}

/// Tells the messages between two ranks from those of others.
std::uint64_t stream_between(std::size_t from, std::size_t to) {
    return (static_cast<std::uint64_t>(from) << 20) + to + 1000;
}

}  // namespace

ManyTraffic::ManyTraffic(ManyRank& rank, const Job& job)
    : rank_(rank),
      job_(job),
      stride_(stride_of(job)),
      window_(slots_of(job)),
      send_pages_(buffer_bytes(job, window_ * others(rank))),
      receive_pages_(buffer_bytes(job, window_ * others(rank))),
      received_(rank.size()) {
    for (std::size_t peer = 0; peer < rank.size(); ++peer) {
        if (peer == rank.rank())
            continue;
        if (is_sender(rank.rank()) && is_receiver(peer)) {
            Target& target = targets_.emplace_back();
            target.rank = peer;
            target.slots.resize(window_);
            target.data = send_pages_.data() + (targets_.size() - 1) * window_ * stride_;
        }
        senders_ += is_receiver(rank.rank()) && is_sender(peer) ? 1 : 0;
    }
    slots_.resize(senders_ * window_);
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].self = this;
        slots_[i].data = receive_pages_.data() + i * stride_;
    }
}

ManyTraffic::~ManyTraffic() {
    is_closing_ = true;
    for (Slot& slot : slots_)
        if (slot.request != nullptr)
            tw_request_cancel(slot.request);
    constexpr unsigned kTriesMax = 1U << 20;
    const auto is_posted = [&] {
        return std::any_of(slots_.begin(), slots_.end(),
                           [](const Slot& slot) { return slot.request != nullptr; });
    };
    for (unsigned i = 0; i < kTriesMax && is_posted(); ++i)
        rank_.worker().progress();
}

bool ManyTraffic::is_sender(std::size_t rank) const {
    return job_.test == TestId::kAllToAll || rank != 0;
}

bool ManyTraffic::is_receiver(std::size_t rank) const {
    return job_.test == TestId::kAllToAll || rank == 0;
}

ManyShare ManyTraffic::run(std::uint64_t count) {
    start(count);
    rank_.meet();
    ManyShare share;
    std::size_t sending = targets_.size();
    const std::uint64_t begin = now_ns();
    rank_.wait_until([&] {
        for (Target& target : targets_)
            if (!target.is_acked && send_some(target) && is_acked(target) && --sending == 0)
                share.sending_ns = static_cast<double>(now_ns() - begin);
        if (!waiting_.empty()) [[unlikely]]
            post_waiting();
        if (!to_ack_.empty()) [[unlikely]]
            send_acks();
        return sending == 0 && left_ == 0 && to_ack_.empty();
    });
    share.all_ns = static_cast<double>(now_ns() - begin);
    drain();
    share.sent = count * targets_.size();
    share.validated = validated_;
    share.errors = errors_;
    return share;
}

/// Receives are posted before any rank begins to send.
void ManyTraffic::start(std::uint64_t count) {
    base_ = end_;
    end_ += count;
    left_ = left_to_post_ = count * senders_;
    std::fill(received_.begin(), received_.end(), 0);
    for (Target& target : targets_) {
        target.is_acked = false;
        const tw_status_t status = rank_.worker().tag_recv(
            {}, kAckTag, 0, {msg::Op().from(rank_.to(target.rank).get()), target.ack});
        msg::check(status, "tw_tag_recv");
    }
    for (Slot& slot : slots_)
        post(slot);
}

/// Whether everything has been sent.
bool ManyTraffic::send_some(Target& target) {
    for (std::uint64_t i = 0; i < kBurst && target.next < end_ && try_send(target); ++i)
        ++target.next;
    return target.next == end_;
}

bool ManyTraffic::try_send(Target& target) {
    const std::size_t index = target.next % window_;
    msg::Request& slot = target.slots[index];
    if (slot) {
        const tw_status_t status = slot.test();
        if (status == TW_INPROGRESS)
            return false;
        check_send(target, status);
    }
    std::uint8_t* const data = target.data + index * stride_;
    msg::Op op;
    if (job_.validate) [[unlikely]] {
        Pattern(stream_between(rank_.rank(), target.rank), target.next).fill(data, job_.size);
        op.immediate(target.next);
    }
    const tw_status_t status =
        rank_.to(target.rank).tag_send(bytes_at(data, job_.size), kDataTag, {op, slot});
    if (status == TW_ERR_NO_RESOURCE) [[unlikely]]
        return false;
    check_send(target, status);
    return true;
}

void ManyTraffic::check_send(const Target& target, tw_status_t status) {
    if (status < TW_OK) [[unlikely]]
        ManyRank::tell_lost(target.rank, status);
}

bool ManyTraffic::is_acked(Target& target) {
    const tw_status_t status = target.ack ? target.ack.test() : TW_OK;
    if (status == TW_INPROGRESS)
        return false;
    msg::check(status, "receive");
    target.ack.reset();
    target.is_acked = true;
    return true;
}

void ManyTraffic::drain() {
    for (Target& target : targets_) {
        for (msg::Request& slot : target.slots) {
            rank_.wait_until([&] { return !slot || slot.test() != TW_INPROGRESS; });
            slot.reset();
        }
    }
}

/// For the next messages that come; nothing when enough receives were posted.
void ManyTraffic::post(Slot& slot) {
    tw_message_info_t now{};
    msg::Op op;
    op.user_data(&slot).tell(now).complete = &ManyTraffic::on_received;
    while (left_to_post_ > 0) {
        const tw_status_t status = rank_.worker().tag_recv(bytes_at(slot.data, job_.size), kDataTag,
                                                           0, {op, slot.request});
        if (status == TW_ERR_NO_RESOURCE) [[unlikely]] {
            waiting_.push_back(&slot);
            return;
        }
        --left_to_post_;
        if (status == TW_INPROGRESS) [[likely]]
            return;
        slot.request = nullptr;
        count(slot, msg::completion_of(status, now, job_.size));
    }
}

void ManyTraffic::post_waiting() {
    std::vector<Slot*> again;
    again.swap(waiting_);
    for (Slot* slot : again)
        post(*slot);
}

void ManyTraffic::on_received(const tw_completion_t* done) {
    Slot& slot = *static_cast<Slot*>(done->context);
    slot.request = nullptr;
    if (!slot.self->is_closing_) [[likely]] {
        slot.self->count(slot, *done);
        slot.self->post(slot);
    }
}

void ManyTraffic::count(Slot& slot, const tw_completion_t& done) {
    const std::size_t from = rank_.source_of(done);
    --left_;
    if (from == rank_.rank()) [[unlikely]] {
        ++errors_;  // nobody's
        return;
    }
    if (done.status != TW_OK || done.message_length != job_.size) [[unlikely]] {
        ++errors_;
    } else if (job_.validate) [[unlikely]] {
        const bool is_right =
            done.imm >= base_ && done.imm < end_ &&
            Pattern(stream_between(from, rank_.rank()), done.imm).matches(slot.data, job_.size);
        errors_ += is_right ? 0 : 1;
        ++validated_;
    }
    if (++received_[from] == end_ - base_) [[unlikely]]
        to_ack_.push_back(from);
}

void ManyTraffic::send_acks() {
    while (!to_ack_.empty()) {
        const tw_status_t status =
            rank_.to(to_ack_.back()).tag_send({}, kAckTag, msg::Op(TW_OP_INJECT));
        if (status == TW_ERR_NO_RESOURCE)
            return;
        msg::check(status, "tw_tag_send");
        to_ack_.pop_back();
    }
}

}  // namespace tagwire::tools
