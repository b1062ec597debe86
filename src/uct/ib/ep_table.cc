// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ep_table.hpp"

#include "uct/ib/message_ep.hpp"

namespace tagwire::ib {

ucs_status_t EpTable::add(MessageEp& ep) {
    if (free_.empty()) {
        if (eps_.size() > kIndexMask)
            return UCS_ERR_EXCEEDS_LIMIT;
        free_.push_back(static_cast<std::uint32_t>(eps_.size()));
        eps_.push_back(nullptr);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    generation_ += std::uint64_t{1} << kIndexBits;
    newest_ = generation_ | index;
    ep.id = static_cast<std::uint32_t>(newest_);
    eps_[index] = &ep;
    ++count_;
    return UCS_OK;
}

void EpTable::remove(MessageEp& ep) {
    const std::uint32_t index = ep.id & kIndexMask;
    eps_[index] = nullptr;
    free_.push_back(index);
    --count_;
}

MessageEp* EpTable::find(std::uint32_t id) const {
    const std::uint32_t index = id & kIndexMask;
    MessageEp* ep = index < eps_.size() ? eps_[index] : nullptr;
    return ep != nullptr && ep->id == id ? ep : nullptr;
}

}  // namespace tagwire::ib
