// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_flow.hpp"

#include <endian.h>

#include <cstring>

#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

using ib::MessageKind;

std::uint32_t DcFlow::half_window() const {
    return std::max(1U, static_cast<std::uint32_t>(owner_.limits.options.credits) / 2);
}

// The question is a message like any other and lies behind those that it is about.
bool DcFlow::ask(DcEp& ep) {
    struct [[gnu::packed]] {
        ib::Prefix prefix;
        Progress progress;
        ReturnAddress from;
    } message{ep.prefix(MessageKind::kAsk, 0, 0),
              {htobe32(ep.id), htobe32(ep.sent)},
              owner_.return_address()};
    static_assert(sizeof message == kQuestionBytes);
    if (ep.post_inline(&message, sizeof message) != UCS_OK)
        return false;
    owner_.count(ib::MessageCounter::kCreditMessages);
    ep.has_asked = true;
    ep.has_asked_for_long = false;
    ep.window = static_cast<std::uint32_t>(owner_.limits.options.credits);
    return true;
}

// An answer may get lost on its way, with an endpoint back that failed.
bool DcFlow::sends_again(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    const bool is_overdue = ep.has_asked && ep.has_asked_for_long;
    ep.has_asked_for_long = ep.has_asked;
    return is_overdue && ep.gets_room(1) && ask(ep);
}

void DcFlow::take_question(const std::byte* content) {
    Answer answer{};
    std::memcpy(&answer.progress, content, sizeof answer.progress);
    std::memcpy(&answer.to, content + sizeof answer.progress, sizeof answer.to);
    if (answers_.size() == kAnswersMax)
        return;  // it asks again
    answers_.push_back(answer);
    owner_.has_work = true;
}

// False: there is no room now.
bool DcFlow::send_answer(const Answer& answer) {
    DcEp* to = owner_.endpoints().way_back_to(answer.to);
    if (to == nullptr) {
        owner_.garbage("a request for credit without a usable return address");
        return true;
    }
    if (to->failure != UCS_OK)
        return true;  // nobody waits for it any more
    if (!to->gets_room(1))
        return false;
    struct {
        ib::Prefix prefix;
        Progress progress;
    } message{to->prefix(MessageKind::kGrant, 0, 0), answer.progress};
    static_assert(sizeof message >= ib::kMessageBytesMin);
    if (to->post_inline(&message, sizeof message) == UCS_OK)
        owner_.count(ib::MessageCounter::kCreditMessages);
    return true;
}

// While the program keeps most of the buffers that it may, nobody gets to send more.
bool DcFlow::owes() const {
    return !answers_.empty() && owner_.receives.kept() <= owner_.limits.options.rx_held / 2;
}

void DcFlow::send_owed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
        const Answer answer = answers_[i];
        if (!send_answer(answer))
            answers_[kept++] = answer;
    }
    answers_.resize(kept);
}

void DcFlow::take_grant(const std::byte* content) {
    Progress progress;
    std::memcpy(&progress, content, sizeof progress);
    auto* ep = static_cast<DcEp*>(owner_.eps.find(be32toh(progress.ep_id)));
    if (ep == nullptr)
        return;  // gone meanwhile
    if (!ep->has_asked)
        return;  // asked twice, answered twice
    const std::uint32_t sent = be32toh(progress.sent);
    if (sent - ep->peer_released > ep->sent - ep->peer_released)
        return owner_.garbage("a grant for messages that were not sent");
    ep->peer_released = sent;
    ep->has_asked = false;
    ep->window = half_window();
}

void DcFlow::keep(ib::MessageEp*, std::byte* message) {
    owner_.receives.keep(message, ib::kUnknownOwner);
}

void DcFlow::released(std::uint64_t) {
    owner_.receives.refill();
    owner_.has_work |= !answers_.empty();
}

}  // namespace tagwire::dc
