// SPDX-License-Identifier: BSD-3-Clause
#include "tools/soak_side.hpp"

#include <algorithm>
#include <cstdio>
#include <tagwire_msg.hpp>

#include "tools/loops.hpp"
#include "tools/pattern.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kMessages = 32;  // of a round and direction
constexpr std::size_t kInjectMax = 4096;
constexpr std::uint8_t kUntouched = 0xa5;
constexpr std::uint64_t kPatienceNs = 60'000'000'000;
constexpr std::uint64_t kNextRoundTag = std::uint64_t{1} << 63;
constexpr std::uint64_t kNobodysTag = std::uint64_t{1} << 62;

std::size_t inject_max_of(tw_worker_h worker) {
    tw_worker_attr_t attr{};
    if (tw_worker_query(worker, &attr) != TW_OK)
        throw Failure("tw_worker_query failed");
    return std::min(attr.inject_bytes_max, kInjectMax);
}

}  // namespace

struct SoakSide::Send {
    SoakMessage message;
    std::vector<std::uint8_t> data;
    tw_request_h request = nullptr;
    bool is_begun = false;
};

struct SoakSide::Receive {
    SoakMessage message;
    std::vector<std::uint8_t> data;
    tw_request_h request = nullptr;
    tw_message_h claimed = nullptr;
    tw_completion_t done{};
    bool is_begun = false, is_posted = false, has_ended = false, is_checked = false;
};

SoakSide::SoakSide(Side side, const Setup& setup, Channel* channel, std::uint64_t seed)
    : link_(side, setup, channel),
      channel_(channel),
      outgoing_(seed * 4 + (side == Side::kDriver ? 1 : 2)),
      incoming_(seed * 4 + (side == Side::kDriver ? 2 : 1)),
      own_(seed * 4 + (side == Side::kDriver ? 3 : 4)),
      inject_max_(inject_max_of(link_.worker())) {
    link_.connect();
    rma_ = std::make_unique<SoakRma>(link_, *channel);
}

SoakSide::~SoakSide() {
    // After a failure the library still has buffers: it gives them up when the endpoint is closed,
    // and receives from anybody when they are cancelled.
    for (const std::unique_ptr<Receive>& receive : receives_)
        if (receive->is_posted && !receive->has_ended)
            tw_request_cancel(receive->request);
    rma_.reset();
    tw_ep_close(link_.endpoint(), TW_CLOSE_FORCE, nullptr, nullptr);
}

void SoakSide::run(std::uint64_t deadline_ns) {
    std::uint64_t told_ns = now_ns();
    do {
        run_round();
        if (link_.side() == Side::kDriver && now_ns() - told_ns > 1'000'000'000) {
            told_ns = now_ns();
            std::printf("soak: %llu messages received here, round %llu\n",
                        static_cast<unsigned long long>(counts_.messages),
                        static_cast<unsigned long long>(round_));
            std::fflush(stdout);
        }
    } while (another_round(now_ns() < deadline_ns));
}

void SoakSide::run_round() {
    for (std::size_t i = 0; i < kMessages; ++i)
        draw_one();
    std::uint64_t moved_ns = now_ns();
    std::size_t left = 2 * kMessages;
    for (std::size_t sent = 0; left > 0;) {
        if (sent < sends_.size() && own_.one_in(2) && try_send(*sends_[sent]))
            ++sent;
        const std::size_t now_left = advance_all();
        moved_ns = now_left < left ? now_ns() : moved_ns;
        left = now_left;
        if (now_ns() - moved_ns > kPatienceNs) {
            throw Failure(text("round %llu: %zu operations did not end within 60 s",
                               static_cast<unsigned long long>(round_), left));
        }
        for (std::uint64_t steps = own_.below(8); steps > 0; --steps)
            link_.progress();
    }
    cancel_one();
    rma_->run_round(own_, &counts_);
    sends_.clear();
    receives_.clear();
    ++round_;
}

void SoakSide::draw_one() {
    const std::uint64_t sequence = ++sequence_;
    auto send = std::make_unique<Send>();
    send->message = draw_message(outgoing_, sequence, inject_max_);
    send->data.resize(send->message.size);
    Pattern(static_cast<std::uint64_t>(link_.side()), sequence)
        .fill(send->data.data(), send->data.size());
    sends_.push_back(std::move(send));
    auto receive = std::make_unique<Receive>();
    receive->message = draw_message(incoming_, sequence, inject_max_);
    receive->data.assign(receive->message.size + receive->message.room, kUntouched);
    receives_.push_back(std::move(receive));
}

/// Advances the operations of the round; returns the number that have not ended.
std::size_t SoakSide::advance_all() {
    std::size_t left = 0;
    for (const std::unique_ptr<Send>& send : sends_)
        left += has_ended(*send) ? 0 : 1;
    bool untagged_waits = false;  // receives of untagged messages are matched in their order
    for (const std::unique_ptr<Receive>& receive : receives_) {
        const bool may_begin = receive->message.is_tagged || !untagged_waits;
        if (receive->is_begun || (may_begin && own_.one_in(3)))
            advance(*receive);
        untagged_waits |= !receive->message.is_tagged && !receive->is_begun;
        left += receive->is_checked ? 0 : 1;
    }
    return left;
}

bool SoakSide::try_send(Send& send) {
    const SoakMessage& message = send.message;
    tw_op_t op{};
    op.flags = message.send_flags;
    op.imm = message.imm;
    const tw_status_t status =
        message.is_tagged
            ? tw_tag_send(link_.endpoint(), send.data.data(), message.size, message.tag, &op,
                          &send.request)
            : tw_msg_send(link_.endpoint(), send.data.data(), message.size, &op, &send.request);
    if (status == TW_ERR_NO_RESOURCE)
        return false;
    send.is_begun = true;
    if (status != TW_INPROGRESS) {
        send.request = nullptr;
        check_send(send, status);
    }
    if ((message.send_flags & TW_OP_INJECT) != 0)
        std::ranges::fill(send.data, kUntouched);  // the buffer is the program's again
    return true;
}

bool SoakSide::has_ended(Send& send) {
    if (send.request == nullptr)
        return send.is_begun;
    const tw_status_t status = tw_request_test(send.request, nullptr);
    if (status == TW_INPROGRESS)
        return false;
    tw_request_free(send.request);
    send.request = nullptr;
    check_send(send, status);
    return true;
}

void SoakSide::check_send(const Send& send, tw_status_t status) const {
    if (status != TW_OK) {
        throw Failure(text("message %llu (%zu bytes): its send ended with: %s",
                           static_cast<unsigned long long>(send.message.sequence),
                           send.message.size, tw_status_string(status)));
    }
}

void SoakSide::advance(Receive& receive) {
    if (!receive.is_begun)
        receive.message.receive == SoakReceive::kPosted ? try_post(receive) : try_probe(receive);
    else if (receive.message.receive == SoakReceive::kClaimed && !receive.is_posted)
        try_post(receive);
    if (receive.is_posted && !receive.has_ended && !receive.message.has_callback) {
        const tw_status_t status = tw_request_test(receive.request, &receive.done);
        if (status != TW_INPROGRESS) {
            tw_request_free(receive.request);
            receive.has_ended = true;
        }
    }
    if (receive.has_ended && !receive.is_checked)
        check(receive);
}

tw_status_t SoakSide::post(Receive& receive, const tw_op_t& op) {
    const SoakMessage& message = receive.message;
    std::uint8_t* const data = receive.data.data();
    const std::size_t length = receive.data.size();
    if (receive.claimed != nullptr)
        return tw_message_recv(link_.worker(), receive.claimed, data, length, &op,
                               &receive.request);
    return message.is_tagged ? tw_tag_recv(link_.worker(), data, length, message.tag,
                                           message.ignore, &op, &receive.request)
                             : tw_msg_recv(link_.worker(), data, length, &op, &receive.request);
}

void SoakSide::try_post(Receive& receive) {
    tw_message_info_t info{};
    tw_op_t op{};
    op.source = receive.message.is_directed ? link_.endpoint() : nullptr;
    op.info = &info;
    op.context = &receive;
    if (receive.message.has_callback) {
        op.complete = [](const tw_completion_t* done) {
            auto* ended = static_cast<Receive*>(done->context);
            ended->done = *done;
            ended->has_ended = true;
        };
    }
    const tw_status_t status = post(receive, op);
    if (status == TW_ERR_NO_RESOURCE)
        return;
    receive.is_begun = receive.is_posted = true;
    if (status != TW_INPROGRESS) {
        receive.request = nullptr;
        receive.done = msg::completion_of(status, info, receive.data.size());
        receive.has_ended = true;
    }
}

void SoakSide::try_probe(Receive& receive) {
    const SoakMessage& message = receive.message;
    tw_ep_h const from = message.is_directed ? link_.endpoint() : nullptr;
    tw_message_info_t info{};
    tw_message_h taken = nullptr;
    const tw_status_t status =
        message.is_tagged
            ? tw_tag_probe(link_.worker(), message.tag, message.ignore, from, &info, &taken)
            : tw_msg_probe(link_.worker(), from, &info, &taken);
    if (status == TW_ERR_NO_MESSAGE)
        return;
    if (status != TW_OK)
        fail(receive, text("a probe ended with: %s", tw_status_string(status)));
    receive.is_begun = true;
    receive.has_ended = message.receive == SoakReceive::kDiscarded;
    receive.done = msg::completion_of(TW_OK, info, info.length);
    if (!receive.has_ended)
        receive.claimed = taken;
    else if (tw_message_drop(link_.worker(), taken) != TW_OK)
        fail(receive, "it is not dropped");
}

void SoakSide::check(Receive& receive) {
    const SoakMessage& message = receive.message;
    const tw_completion_t& done = receive.done;
    if (done.status != TW_OK)
        fail(receive, text("its receive ended with: %s", tw_status_string(done.status)));
    if (done.message_length != message.size)
        fail(receive, text("it has %zu bytes", done.message_length));
    if (done.tag != message.tag || done.ep != link_.endpoint()) {
        fail(receive, text("it has tag 0x%llx, expected 0x%llx, or another sender",
                           static_cast<unsigned long long>(done.tag),
                           static_cast<unsigned long long>(message.tag)));
    }
    const bool has_imm = (message.send_flags & TW_OP_IMM) != 0;
    if (done.imm != message.imm || ((done.flags & TW_DONE_IMM) != 0) != has_imm) {
        fail(receive, text("it has immediate 0x%llx, expected 0x%llx",
                           static_cast<unsigned long long>(done.imm),
                           static_cast<unsigned long long>(message.imm)));
    }
    if (message.receive != SoakReceive::kDiscarded) {
        if (const auto wrong = wrong_byte(message, other(link_.side()), receive.data.data()))
            fail(receive, *wrong);
        const auto behind =
            std::find_if(receive.data.begin() + static_cast<std::ptrdiff_t>(message.size),
                         receive.data.end(), [](std::uint8_t byte) { return byte != kUntouched; });
        if (behind != receive.data.end()) {
            fail(receive,
                 text("byte %td, behind its end, was written", behind - receive.data.begin()));
        }
    }
    receive.is_checked = true;
    counts_.add(message);
}

void SoakSide::fail(const Receive& receive, const std::string& why) const {
    const SoakMessage& message = receive.message;
    throw Failure(text("message %llu of the %s (%zu bytes, %s, flags 0x%x): %s",
                       static_cast<unsigned long long>(message.sequence),
                       link_.side() == Side::kDriver ? "other process" : "first process",
                       message.size, message.is_tagged ? "tagged" : "untagged", message.send_flags,
                       why.c_str()));
}

/// A receive that nobody sends to ends at once when it is cancelled.
void SoakSide::cancel_one() {
    std::uint8_t byte = 0;
    tw_request_h request = nullptr;
    tw_completion_t done{};
    const tw_status_t posted =
        tw_tag_recv(link_.worker(), &byte, sizeof byte, kNobodysTag, 0, nullptr, &request);
    if (posted == TW_ERR_NO_RESOURCE)
        return;
    if (posted != TW_INPROGRESS)
        throw Failure(text("a receive that nobody sends to: %s", tw_status_string(posted)));
    tw_request_cancel(request);
    const tw_status_t status = tw_request_test(request, &done);
    tw_request_free(request);
    if (status != TW_ERR_CANCELED)
        throw Failure(text("a cancelled receive ended with: %s", tw_status_string(status)));
    ++counts_.cancels;
}

tw_status_t SoakSide::end_of(tw_status_t status, tw_request_h request) {
    if (status != TW_INPROGRESS)
        return status;
    link_.wait_until([&] {
        status = tw_request_test(request, nullptr);
        return status != TW_INPROGRESS;
    });
    tw_request_free(request);
    return status;
}

/// The driver's word, which both sides return.
bool SoakSide::another_round(bool wanted) {
    auto word = static_cast<std::uint8_t>(wanted);
    tw_request_h request = nullptr;
    tw_status_t status = TW_ERR_NO_RESOURCE;
    link_.wait_until([&] {
        status = link_.side() == Side::kDriver ? tw_tag_send(link_.endpoint(), &word, sizeof word,
                                                             kNextRoundTag, nullptr, &request)
                                               : tw_tag_recv(link_.worker(), &word, sizeof word,
                                                             kNextRoundTag, 0, nullptr, &request);
        return status != TW_ERR_NO_RESOURCE;
    });
    status = end_of(status, request);
    if (status != TW_OK)
        throw Failure(text("between two rounds: %s", tw_status_string(status)));
    return word != 0;
}

/// Both sides' messages are with their receivers, so this progresses for the other's sake alone.
void SoakSide::serve_until_readable() {
    const std::uint64_t deadline = now_ns() + kPatienceNs;
    while (!channel_->readable()) {
        tw_worker_progress(link_.worker());
        if (now_ns() > deadline)
            throw Failure("the other process did not come to its end within 60 s");
    }
}

SoakCounts SoakSide::finish_as_driver() {
    serve_until_readable();
    Decoder answer = channel_->expect(MessageType::kDone);
    SoakCounts theirs;
    theirs.messages = answer.number();
    theirs.bytes = answer.number();
    theirs.cancels = answer.number();
    for (std::uint64_t& kind : theirs.kinds)
        kind = answer.number();
    rma_->check_end(&answer);
    answer.end();
    Encoder end;
    rma_->tell_end(&end);
    channel_->send(MessageType::kFinish, end);
    theirs.add(counts_);
    return theirs;
}

void SoakSide::finish_as_peer() {
    Encoder message;
    message.number(counts_.messages).number(counts_.bytes).number(counts_.cancels);
    for (const std::uint64_t kind : counts_.kinds)
        message.number(kind);
    rma_->tell_end(&message);
    channel_->send(MessageType::kDone, message);
    serve_until_readable();
    Decoder end = channel_->expect(MessageType::kFinish);
    rma_->check_end(&end);
    end.end();
}

}  // namespace tagwire::tools
