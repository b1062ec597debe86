// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/arrivals.hpp"

#include <algorithm>

namespace tagwire::test {

void Arrivals::precede(std::size_t first, std::size_t second) {
    if (first == second || first == kNone || second == kNone)
        return;
    all_[first].earlier_than.push_back(second);
    ++all_[second].predecessors;
}

void Arrivals::order(const std::function<void(std::size_t, const std::string&)>& wrong) {
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < all_.size(); ++i)
        if (all_[i].predecessors == 0)
            ready.push_back(i);
    std::size_t ordered = 0;
    for (; !ready.empty(); ++ordered) {
        const std::size_t first = ready.back();
        ready.pop_back();
        const Arrival& arrival = all_[first];
        if (arrival.is_known && arrival.after >= arrival.before)
            wrong(first, "came after tick " + std::to_string(arrival.after) + " and before tick " +
                             std::to_string(arrival.before));
        for (const std::size_t second : arrival.earlier_than) {
            all_[second].after = std::max(all_[second].after, arrival.after);
            if (--all_[second].predecessors == 0)
                ready.push_back(second);
        }
    }
    if (ordered == all_.size())
        return;
    for (std::size_t i = 0; i < all_.size(); ++i)
        if (all_[i].predecessors > 0)
            wrong(i,
                  "is in or behind a cycle: it went to receive " + std::to_string(all_[i].receive));
}

}  // namespace tagwire::test
