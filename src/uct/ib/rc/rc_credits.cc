// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_credits.hpp"

#include <algorithm>

namespace tagwire::rc {

void RcCredits::forget(RcEp& ep) {
    if (ep.owes_credit)
        std::erase(owing_, &ep);
}

// The peer hears of every quarter of the credit that kept descriptors leave it, so that it never
// waits for what we have handled already.
void RcCredits::tell_released(ib::MessageEp& any) {
    auto& ep = static_cast<RcEp&>(any);
    const auto credits = static_cast<std::uint32_t>(owner_.limits.options.credits);
    const std::uint32_t left = credits > ep.held ? credits - ep.held : 0;
    if (ep.released - ep.told < std::max(1U, left / 4) || ep.owes_credit)
        return;
    ep.owes_credit = true;
    owing_.push_back(&ep);
    owner_.has_work = true;
}

void RcCredits::keep(ib::MessageEp* any, std::byte* message) {
    auto* const ep = static_cast<RcEp*>(any);
    owner_.receives.keep(message, ep == nullptr ? ib::kUnknownOwner : ep->lasting_id);
    if (ep != nullptr) {
        ++ep->held;
        tell_released(*ep);
    }
}

void RcCredits::released(std::uint64_t lasting_id) {
    auto* const ep = static_cast<RcEp*>(owner_.eps.find(static_cast<std::uint32_t>(lasting_id)));
    if (ep != nullptr && ep->lasting_id == lasting_id) {
        --ep->held;
        owner_.release_credit(*ep);
    }
    owner_.receives.refill();
}

void RcCredits::send_owed() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < owing_.size(); ++i) {
        RcEp& ep = *owing_[i];
        const bool owes = ep.failure == UCS_OK && ep.released != ep.told;
        if (owes && !ep.gets_room(1)) {
            owing_[kept++] = &ep;
            continue;
        }
        ep.owes_credit = false;
        if (!owes)
            continue;  // a message of the user has taken it along
        struct {
            ib::Prefix prefix;
            std::uint64_t padding;
        } message{ep.prefix(ib::MessageKind::kCredit, 0, sizeof(std::uint64_t)), 0};
        if (ep.post_inline(&message, sizeof message) == UCS_OK)
            owner_.count(ib::MessageCounter::kCreditMessages);
    }
    owing_.resize(kept);
}

}  // namespace tagwire::rc
