// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/registrations.hpp"

#include "ucs/sys/process.hpp"
#include "ucs/sys/step_aside.hpp"

namespace tagwire::tcp {

bool Registrations::add(Registration& registration) {
    const std::uint64_t generation = ucs::random_u64();
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
        if (entries_.size() == kCountMax)
            return false;
        free_.push_back(static_cast<std::uint32_t>(entries_.size()));
        entries_.emplace_back();
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    registration.key = {index, 0, generation};
    entries_[index].registration = &registration;
    return true;
}

void Registrations::remove(const Registration& registration) {
    std::unique_lock lock(mutex_);
    Entry& entry = entries_[registration.key.index];
    entry.registration = nullptr;
    while (entry.pins > 0) {
        lock.unlock();
        ucs::step_aside();
        lock.lock();
    }
    free_.push_back(registration.key.index);
}

Registrations::Pin Registrations::pin(const Key& key, std::uint64_t address, std::uint64_t length,
                                      unsigned access) {
    const std::lock_guard lock(mutex_);
    if (key.index >= entries_.size())
        return {};
    Entry& entry = entries_[key.index];
    const Registration* found = entry.registration;
    if (found == nullptr || found->key.generation != key.generation || (found->flags & access) == 0)
        return {};
    const auto start = reinterpret_cast<std::uintptr_t>(found->address);
    if (address < start || address - start > found->length ||
        length > found->length - (address - start))
        return {};
    ++entry.pins;
    return {*this, key.index, found->address + (address - start)};
}

void Registrations::unpin(std::uint32_t index) {
    const std::lock_guard lock(mutex_);
    --entries_[index].pins;
}

}  // namespace tagwire::tcp
