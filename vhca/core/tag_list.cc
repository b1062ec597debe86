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
    added.phase = software_count_;
    added.holds = 0;
    added.state = TagEntry::State::kWaiting;
    ++added.generation;
    ++posted_;
    if (is_in_step()) {
        activate(added);
    } else {
        if (waiting_.size() >= 2 * std::size_t{entries_max_})
            std::erase_if(waiting_,
                          [this](const Waiting& waiting) { return !is_waiting(waiting); });
        waiting_.push_back({added.handle, added.generation});
    }
    *handle_p = added.handle;
    return 0;
}

bool TagList::is_waiting(const Waiting& waiting) {
    const TagEntry& added = entry(waiting.handle);
    return added.state == TagEntry::State::kWaiting && added.generation == waiting.generation;
}

void TagList::activate(TagEntry& added) {
    added.state = TagEntry::State::kActive;
    // One whose tag has bits outside its mask can equal no masked tag.
    if (added.can_match)
        active_.post(added);
}

TagEntry* TagList::remove(std::uint32_t handle) {
    TagEntry* gone = find(handle);
    if (gone == nullptr || gone->state == TagEntry::State::kConsumed)
        return nullptr;
    if (gone->state == TagEntry::State::kActive && gone->can_match)
        active_.cancel(*gone);
    gone->state = TagEntry::State::kConsumed;
    --posted_;
    return gone;
}

void TagList::sync(std::uint16_t count) {
    software_count_ = count;
    if (is_in_step())
        activate_waiting();
}

void TagList::uncount_unexpected() {
    --device_count_;
    if (is_in_step())
        activate_waiting();
}

void TagList::activate_waiting() {
    for (const Waiting& waiting : waiting_)
        if (is_waiting(waiting))
            activate(entry(waiting.handle));
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
