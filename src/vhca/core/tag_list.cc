// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/tag_list.hpp"

#include <cerrno>

namespace tagwire::vhca {

TagList::TagList(std::uint32_t entries_max) : entries_max_(entries_max) {}

int TagList::add(const Receive& receive, std::uint32_t* handle_p) {
    if (in_use_ == entries_max_)
        return ENOMEM;
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(entries_.size()));
        entries_.emplace_back().handle = free_.back();
    }
    TagEntry& added = entry(free_.front());
    free_.pop_front();
    ++in_use_;
    added.can_match = (receive.tag & ~receive.mask) == 0;
    added.tag = receive.tag;
    added.mask = receive.mask;
    added.wr_id = receive.wr_id;
    added.sge = receive.sge;
    added.state = TagEntry::State::kWaiting;
    ++added.generation;
    ++posted_;
    if (is_in_step()) {
        activate(added);
    } else {
        waiting_.push_back({added.handle, added.generation});
    }
    *handle_p = added.handle;
    return 0;
}

void TagList::activate(TagEntry& added) {
    added.state = TagEntry::State::kActive;
    // One whose tag has bits outside its mask can equal no masked tag.
    if (added.can_match)
        active_.post(added);
}

bool TagList::remove(std::uint32_t handle) {
    if (handle >= entries_.size())
        return false;
    TagEntry& gone = entry(handle);
    const bool is_active = gone.state == TagEntry::State::kActive;
    if (!is_active && gone.state != TagEntry::State::kWaiting)
        return false;
    if (is_active && gone.can_match)
        active_.cancel(gone);
    --posted_;
    release(gone);
    return true;
}

void TagList::sync(std::uint16_t count) {
    software_count_ = count;
    if (!is_in_step())
        return;
    for (const Waiting& waiting : waiting_) {
        TagEntry& added = entry(waiting.handle);
        if (added.state == TagEntry::State::kWaiting && added.generation == waiting.generation)
            activate(added);
    }
    waiting_.clear();
}

TagEntry* TagList::match(std::uint64_t tag) {
    auto* found = static_cast<TagEntry*>(active_.match(tag));
    if (found == nullptr) {
        ++device_count_;
        return nullptr;
    }
    found->state = TagEntry::State::kConsumed;
    --posted_;
    return found;
}

void TagList::release(TagEntry& done) {
    done.state = TagEntry::State::kFree;
    free_.push_back(done.handle);
    --in_use_;
}

}  // namespace tagwire::vhca
