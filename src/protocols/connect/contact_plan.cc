// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/contact_plan.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "protocols/request/rail.hpp"

namespace tagwire::proto {

void add_reason(std::string* why, std::string_view transport, std::string_view device,
                std::string_view reason) {
    if (why != nullptr)
        *why += fmt::format("{}over {}{}{}: {}", why->empty() ? "" : "; ", transport,
                            device.empty() ? "" : ":", device, reason);
}

void ContactPlan::make(const Address& address, std::span<const std::unique_ptr<Rail>> rails,
                       std::optional<std::size_t> known_rail, std::string* why) {
    ways_.clear();
    for (std::size_t contact = 0; contact < address.contacts.size(); ++contact) {
        const Contact& to = address.contacts[contact];
        const bool is_known = contact == 0 && known_rail.has_value();
        if (is_known && to.transport == rails[*known_rail]->transport() &&
            rails[*known_rail]->reaches(to.device, to.iface)) {
            ways_.push_back({contact, rails[*known_rail].get()});
            continue;
        }
        bool has_transport = false;
        const std::size_t before = ways_.size();
        for (const auto& rail : rails) {
            if (to.transport != rail->transport())
                continue;
            has_transport = true;
            std::string reason;
            if (rail->reaches(to.device, to.iface, why == nullptr ? nullptr : &reason))
                ways_.push_back({contact, rail.get()});
            else
                add_reason(why, rail->transport(), rail->device(), reason);
        }
        if (!has_transport)
            add_reason(why, to.transport, "",
                       "this worker has no such transport (TAGWIRE_TRANSPORTS)");
        const auto ours = ways_.begin() + static_cast<std::ptrdiff_t>(before);
        const auto others = std::stable_partition(ours, ways_.end(), [&](const ContactWay& way) {
            return way.rail->is_on_route(to.device);
        });
        if (others != ours)
            ways_.erase(others, ways_.end());
    }
    begin_ = 0;
    find_end(known_rail.has_value());
}

void ContactPlan::pass_wave() {
    begin_ = end_;
    find_end(false);
}

void ContactPlan::find_end(bool first_is_known) {
    end_ = begin_;
    if (begin_ == ways_.size())
        return;
    const Rail& first = *ways_[begin_].rail;
    const std::size_t most = first_is_known || !first.goes_through_kernel() ? 1 : kAtOnceMax;
    while (end_ < ways_.size() && end_ - begin_ < most &&
           std::string_view(ways_[end_].rail->transport()) == first.transport())
        ++end_;
}

}  // namespace tagwire::proto
