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
        return acknowledge(channel, sn);
    } else {
        break_off(channel, completion);
    }
    use_places(channel);
}

void SharedChannels::use_places(Channel& channel) {
    const bool is_over = channel.is_broken && channel.flushed == channel.posted;
    if (!channel.is_shared || !is_over || channel.dci->is_breaking || lacks_places(channel))
        return;
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
    while (ib::SendOp* op = channel.take_until(sn))
        owner_.op_ends.finish(*op, UCS_OK);
}

void SharedChannels::break_off(Channel& channel, const ib::Completion& reported) {
    const ib::Completion completion = reported;  // a callback may have others polled
    const auto sn = static_cast<std::uint32_t>(completion.wr_id);
    acknowledge(channel, sn - 1);
    if (channel.acked == channel.posted)
        return;  // a callback had its requests given up
    channel.is_broken = true;
    channel.flushed = sn;
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
}

// Everything posted has ended. Requests of endpoints that failed end with the failure, the others
// get the numbers of those that are missing now.
void SharedChannels::post_again(Channel& channel) {
    const bool has_streams = channel.dci->initiator.has_streams;
    ib::SendOp* left = std::exchange(channel.first, nullptr);
    const std::uint32_t end = channel.posted + 1;
    std::uint32_t kept = channel.acked;
    bool is_posted = true;
    channel.clear_unsignaled();
    for (std::uint32_t sn = channel.acked + 1; sn != end; ++sn) {
        SentRequest& sent = channel.sent->at(sn);
        DcEp& ep = *sent.ep;
        if (ep.failure == UCS_OK) {
            channel.sent->move(sn, kept + 1);
            is_posted = is_posted && post_one_again(channel, kept + 1);
            if (!is_posted)
                owner_.fail(ep, UCS_ERR_IO_ERROR, "its requests cannot be posted again");
        }
        if (ep.failure == UCS_OK)
            ++kept;
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
    const std::uint32_t dropped = channel.posted - kept;
    if (has_streams) {
        channel.posted_again(kept);
    } else {
        channel.posted = kept;
        channel.free += dropped;
    }
    owner_.sends.give_back(dropped);
    channel.is_broken = false;
    channel.set_reserve();
    if (channel.has_unsignaled())
        owner_.sends.ask_for_completions();
    owner_.has_work = true;
    // A callback may destroy another of the endpoints, which ends what is there of it first.
    if (!owner_.op_ends.puts_off())
        owner_.op_ends.finish_late(nullptr);
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
