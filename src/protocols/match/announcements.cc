// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/match/announcements.hpp"

#include <utility>

namespace tagwire::proto {

void Announcements::pop() {
    waiting_.pop_front();
    ++first_;
}

std::optional<Announced> Announcements::take(std::uint32_t number) {
    const std::uint32_t index = number - first_;
    if (index >= waiting_.size() || waiting_[index].has_come)
        return std::nullopt;
    Announced message = std::exchange(waiting_[index], Announced{});
    waiting_[index].has_come = true;
    while (!waiting_.empty() && waiting_.front().has_come)
        pop();
    return message;
}

std::size_t Announcements::drop_oldest() {
    const Announced& oldest = waiting_.front();
    const std::size_t held = oldest.has_come ? 0 : oldest.held();
    pop();
    return held;
}

}  // namespace tagwire::proto
