// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rndv_sends.hpp"

#include <bit>
#include <utility>

#include "uct/completion.hpp"

namespace tagwire::ib {

void RndvSends::init(std::uint64_t sends_max) {
    sends_max_ = sends_max;
    index_bits_ = static_cast<unsigned>(std::bit_width(sends_max - 1));
}

RndvSend* RndvSends::begin(MessageEp& ep, uct_completion_t* comp, ReceiveQueue& fins) {
    if (!has_room())
        return nullptr;
    if (free_ == nullptr) {
        // A buffer for the message that ends it is there before it begins.
        if (fins.want(1) != UCS_OK)
            return nullptr;
        sends_.push_back(std::make_unique<RndvSend>());
        free_ = sends_.back().get();
        free_->id = static_cast<std::uint32_t>(sends_.size() - 1);
        free_->next = nullptr;
    }
    RndvSend* send = free_;
    free_ = send->next;
    ++under_way_;
    send->id += 1U << index_bits_;
    send->ep = &ep;
    send->comp = comp;
    send->serial = ++serial_;
    send->next = nullptr;
    if (ep.rndv_first == nullptr) {
        ep.rndv_first = send;
        send->prev = send;
    } else {
        send->prev = std::exchange(ep.rndv_first->prev, send);
        send->prev->next = send;
    }
    return send;
}

void RndvSends::drop(RndvSend& send) {
    MessageEp& ep = *send.ep;
    RndvSend*& pointer = &send == ep.rndv_first ? ep.rndv_first : send.prev->next;
    pointer = send.next;
    RndvSend* behind = send.next != nullptr ? send.next : ep.rndv_first;
    if (behind != nullptr)
        behind->prev = send.prev;
    send.ep = nullptr;
    send.next = free_;
    free_ = &send;
    --under_way_;
}

RndvSend* RndvSends::find(std::uint32_t id) const {
    const std::uint32_t index = id & ((1U << index_bits_) - 1);
    RndvSend* send = index < sends_.size() ? sends_[index].get() : nullptr;
    return send != nullptr && send->ep != nullptr && send->id == id ? send : nullptr;
}

void RndvSends::end_all(MessageEp& ep, ucs_status_t status) {
    while (ep.rndv_first != nullptr) {
        uct_completion_t* comp = ep.rndv_first->comp;
        drop(*ep.rndv_first);
        uct::invoke_completion(comp, status);
    }
}

}  // namespace tagwire::ib
