// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_shared.hpp"

#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/dc/dc_ep.hpp"
#include "uct/ib/dc/dc_post.hpp"

namespace tagwire::dc {

ib::MessageEp* SharedChannels::poster_of(const Channel& channel) {
    if (channel.is_broken)
        return nullptr;
    for (std::uint32_t sn = channel.posted; sn != channel.acked; --sn) {
        DcEp* ep = channel.sent->at(sn).ep;
        if (ep->failure == UCS_OK)
            return ep;
    }
    return nullptr;
}

void SharedChannels::completed(Channel& channel, const ib::Completion& completion) {
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    if (channel.is_broken) {
        channel.flushed = sn;
    } else if (completion.status == IBV_WC_SUCCESS) {
        if (owner_.sends.signals_out() > 0)
            owner_.sends.signal_came();
        acknowledge(channel, sn);
        return finish_acknowledged(channel, sn);
    } else {
        break_off(channel, completion);
    }
    use_places(channel);
}

void SharedChannels::use_places(Channel& channel) {
    end_failed(channel);
    if (!channel.is_over() || channel.dci->is_breaking)
        return;
    // Requests of others may be all that keeps them, and nobody asked whether they ended.
    if (lacks_places(channel))
        return owner_.sends.ask_for_completions();
    pool_.restart(channel);
    post_again(channel);
}

// The ring has no room for them yet.
bool SharedChannels::lacks_places(const Channel& channel) {
    return channel.dci->initiator.has_streams && channel.free < channel.posted - channel.acked;
}

// All up to this one were carried out.
void SharedChannels::acknowledge(Channel& channel, std::uint32_t sn) {
    const std::uint32_t count = sn - channel.acked;
    for (std::uint32_t each = channel.acked + 1; each != sn + 1; ++each) {
        DcEp& ep = *channel.sent->at(each).ep;
        --ep.under_way;
        ep.was_heard = true;
    }
    channel.acked = sn;
    if (!channel.dci->initiator.has_streams)
        channel.free += count;
    owner_.sends.give_back(count);
    owner_.sends.settle_signals();
}

void SharedChannels::finish_acknowledged(Channel& channel, std::uint32_t sn) {
    while (ib::SendOp* op = channel.take_until(sn))
        owner_.op_ends.finish(*op, UCS_OK);
}

// Whoever fails has failed before a callback runs: that may destroy an endpoint, which handles the
// completions behind this one.
void SharedChannels::break_off(Channel& channel, const ib::Completion& completion) {
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    acknowledge(channel, sn - 1);
    channel.is_broken = true;
    channel.flushed = sn - 1;  // not over before all have failed that do
    channel.set_reserve();
    DcEp& culprit = *channel.sent->at(sn).ep;
    if (completion.status == IBV_WC_RNR_RETRY_EXC_ERR)
        owner_.count(ib::MessageCounter::kRnrFailures);
    const ucs_status_t status = ib::failure_of(completion.status);
    const bool is_silent =
        status == UCS_ERR_ENDPOINT_TIMEOUT || completion.status == IBV_WC_WR_FLUSH_ERR;
    for (std::uint32_t each = sn; each != channel.posted + 1; ++each) {
        DcEp& ep = *channel.sent->at(each).ep;
        if (&ep == &culprit || (is_silent && ep.goes_where(culprit)))
            owner_.fail(ep, status, owner_.verbs().wc_status_str(completion.status));
    }
    channel.flushed = sn;
    finish_acknowledged(channel, sn - 1);
}

// The others get the numbers of those that are missing now.
void SharedChannels::end_failed(Channel& channel) {
    if (!channel.is_over())
        return;
    // A callback of what was acknowledged may be what has led here: the rest of that.
    while (ib::SendOp* op = channel.take_until(channel.acked))
        owner_.op_ends.finish_later(*op, UCS_OK);
    ib::SendOp* left = std::exchange(channel.first, nullptr);
    std::uint32_t kept = channel.acked;
    for (std::uint32_t sn = channel.acked + 1; sn != channel.posted + 1; ++sn) {
        DcEp& ep = *channel.sent->at(sn).ep;
        if (ep.failure == UCS_OK)
            channel.sent->move(sn, ++kept);
        else
            --ep.under_way;
        while (left != nullptr && left->sn == sn) {
            ib::SendOp* op = std::exchange(left, left->next);
            op->sn = kept;
            if (op->ep->failure == UCS_OK)
                channel.append_numbered(op);
            else
                owner_.op_ends.finish_later(*op, op->ep->failure);
        }
    }
    owner_.sends.give_back(channel.posted - kept);
    owner_.sends.settle_signals();
    channel.keep_up_to(kept);
}

// The last one asks for its completion, because there may be no place behind it for a request that
// does.
void SharedChannels::post_again(Channel& channel) {
    end_failed(channel);
    channel.clear_unsignaled();
    if (!channel.is_drained())
        ask_for_completion(channel.sent->at(channel.posted));
    std::uint32_t sn = channel.acked + 1;
    while (sn != channel.posted + 1 && post_one_again(channel, sn))
        ++sn;
    if (sn != channel.posted + 1)
        drop_unposted(channel, sn);
    if (channel.dci->initiator.has_streams)
        channel.posted_again(sn - 1);
    else
        channel.keep_up_to(sn - 1);
    channel.is_broken = false;
    channel.set_reserve();
    owner_.has_work = true;
    // A callback may destroy another of the endpoints, which ends what is there of it first.
    if (!owner_.op_ends.puts_off())
        owner_.op_ends.finish_late(nullptr);
}

// The device refuses them from this one on.
void SharedChannels::drop_unposted(Channel& channel, std::uint32_t from) {
    for (std::uint32_t sn = from; sn != channel.posted + 1; ++sn) {
        DcEp& ep = *channel.sent->at(sn).ep;
        owner_.fail(ep, UCS_ERR_IO_ERROR, "its requests cannot be posted again");
        --ep.under_way;
    }
    ib::SendOp* left = std::exchange(channel.first, nullptr);
    while (left != nullptr) {
        ib::SendOp* op = std::exchange(left, left->next);
        if (static_cast<std::int32_t>(op->sn - from) < 0)
            channel.append_numbered(op);
        else
            owner_.op_ends.finish_later(*op, op->ep->failure);
    }
    owner_.sends.give_back(channel.posted + 1 - from);
    owner_.sends.ask_for_completions();
}

void SharedChannels::ask_for_completion(SentRequest& sent) {
    if ((sent.request.send_flags & IBV_SEND_SIGNALED) == 0)
        owner_.sends.signal_is_due();
    sent.request.send_flags |= IBV_SEND_SIGNALED;
}

bool SharedChannels::post_one_again(Channel& channel, std::uint32_t sn) {
    SentRequest& sent = channel.sent->at(sn);
    sent.request.wr_id = std::uint64_t{channel.id} << 32 | sn;
    const bool asks = (sent.request.send_flags & IBV_SEND_SIGNALED) != 0;
    channel.unsignaled = asks ? 0 : channel.unsignaled + 1;
    owner_.count(ib::MessageCounter::kPostedAgain);
    const int error =
        post_to(channel.dci->initiator, &sent.request, sent.ep->target(), channel.stream);
    if (error != 0)
        TW_LOG_ERROR("posting again to a DCI failed: %s", std::strerror(error));
    return error == 0;
}

}  // namespace tagwire::dc
