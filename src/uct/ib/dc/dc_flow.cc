// SPDX-License-Identifier: BSD-3-Clause
// Flow control of dc: senders ask for a target's progress, and the target answers. Questions and
// answers may come from anybody; a lost one is repeated.
#include <endian.h>

#include <cstring>

#include "uct/ib/dc/dc_iface.hpp"

namespace tagwire::dc {

using ib::MessageKind;

// The question is a message like any other and lies behind those that it is about.
bool DcIface::ask(DcEp& ep) {
    struct [[gnu::packed]] {
        ib::Prefix prefix;
        Progress progress;
        ReturnAddress from;
    } message{
        ep.prefix(MessageKind::kAsk, 0, 0), {htobe32(ep.id_), htobe32(ep.sent_)}, return_address_};
    static_assert(sizeof message == kQuestionBytes);
    ibv_sge sge{ib::address_of(&message), sizeof message, 0};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    if (ep.post(request, false) != UCS_OK)
        return false;
    count(ib::MessageCounter::kCreditMessages);
    ep.has_asked_ = true;
    ep.has_asked_for_long_ = false;
    ep.window_ = static_cast<std::uint32_t>(options_.credits);
    return true;
}

// An answer may get lost on its way, with an endpoint back that failed.
bool DcIface::sends_again(ib::MessageEp& any) {
    auto& ep = static_cast<DcEp&>(any);
    const bool is_overdue = ep.has_asked_ && ep.has_asked_for_long_;
    ep.has_asked_for_long_ = ep.has_asked_;
    return is_overdue && gets_room(ep, 1) && ask(ep);
}

void DcIface::take_question(const std::byte* content) {
    Answer answer{};
    std::memcpy(&answer.progress, content, sizeof answer.progress);
    std::memcpy(&answer.to, content + sizeof answer.progress, sizeof answer.to);
    if (answers_.size() == kAnswersMax)
        return;  // it asks again
    answers_.push_back(answer);
    has_work_ = true;
}

// False: there is no room now.
bool DcIface::send_answer(const Answer& answer) {
    DcEp* to = way_back_to(answer.to);
    if (to == nullptr) {
        garbage("a question that nobody can be answered");
        return true;
    }
    if (to->failure_ != UCS_OK)
        return true;  // nobody waits for it any more
    if (!gets_room(*to, 1))
        return false;
    struct {
        ib::Prefix prefix;
        Progress progress;
    } message{to->prefix(MessageKind::kGrant, 0, 0), answer.progress};
    static_assert(sizeof message >= ib::kMessageBytesMin);
    ibv_sge sge{ib::address_of(&message), sizeof message, 0};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    if (to->post(request, false) == UCS_OK)
        count(ib::MessageCounter::kCreditMessages);
    return true;
}

// While the program keeps most of the buffers that it may, nobody gets to send more.
bool DcIface::owes() const {
    return !answers_.empty() && receives_.kept() <= options_.rx_held / 2;
}

void DcIface::send_owed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
        const Answer answer = answers_[i];
        if (!send_answer(answer))
            answers_[kept++] = answer;
    }
    answers_.resize(kept);
}

void DcIface::take_grant(const std::byte* content) {
    Progress progress;
    std::memcpy(&progress, content, sizeof progress);
    auto* ep = static_cast<DcEp*>(find(be32toh(progress.ep_id)));
    if (ep == nullptr)
        return;  // gone meanwhile
    if (!ep->has_asked_)
        return;  // asked twice, answered twice
    const std::uint32_t sent = be32toh(progress.sent);
    if (sent - ep->peer_released_ > ep->sent_ - ep->peer_released_)
        return garbage("a grant for messages that were not sent");
    ep->peer_released_ = sent;
    ep->has_asked_ = false;
    ep->window_ = half_window();
}

void DcIface::keep(ib::MessageEp*, std::byte* message) {
    receives_.keep(message, ib::kUnknownOwner);
}

void DcIface::released(std::uint64_t) {
    receives_.refill();
    has_work_ |= !answers_.empty();
}

// Nobody says how many peers there are: when buffers run low there are more than was thought.
void DcIface::take_event(const ib::AsyncEvent& event) {
    if (event.type == IBV_EVENT_SRQ_LIMIT_REACHED)
        receives_.want_twice();
    MessageIface::take_event(event);
}

}  // namespace tagwire::dc
