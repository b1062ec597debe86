// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/connect/contacts.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

#include "protocols/request/rail.hpp"
#include "protocols/wire/address.hpp"

namespace tagwire::proto {

namespace {

std::uint8_t rank_of(const Rail* rail) {
    return first_contact_rank(rail->transport());
}

Contact contact_of(const Rail& rail) {
    const auto device = rail.device_address();
    const auto iface = rail.iface_address();
    return {rail.transport(), {device.begin(), device.end()}, {iface.begin(), iface.end()}};
}

void sort_nearest_first(ucs::ReserveVector<Rail*>* rails) {
    std::ranges::stable_sort(*rails, std::ranges::greater(), rank_of);
}

}  // namespace

void Contacts::choose(std::span<const std::unique_ptr<Rail>> rails) {
    ucs::ReserveVector<Rail*> able;
    for (const auto& rail : rails)
        if (rank_of(rail.get()) != 0)
            able.push_back(rail.get());
    const auto is_loopback = [](const Rail* rail) { return rail->is_loopback(); };
    const bool has_memory =
        std::ranges::any_of(able, [](const Rail* rail) { return rail->is_shared_memory(); });
    const bool has_network = std::ranges::any_of(
        able, [&](const Rail* rail) { return !rail->is_loopback() && !rail->is_shared_memory(); });
    if (has_memory && has_network)
        std::erase_if(able, is_loopback);
    std::ranges::stable_sort(able, std::ranges::less(), rank_of);  // the farthest first
    std::stable_partition(able.begin(), able.end(), std::not_fn(is_loopback));
    by_need_.clear();
    for (std::size_t turn = 0; turn < kContactsMax; ++turn) {
        for (Rail* rail : able) {
            const auto is_same = [&](const Rail* other) {
                return std::string_view(other->transport()) == rail->transport();
            };
            const bool is_taken = std::ranges::find(by_need_, rail) != by_need_.end();
            const auto before = static_cast<std::size_t>(std::ranges::count_if(by_need_, is_same));
            if (by_need_.size() < kContactsMax && !is_taken && before == turn)
                by_need_.push_back(rail);
        }
    }
    rails_ = by_need_;
    sort_nearest_first(&rails_);
}

std::vector<std::byte> Contacts::address(std::uint64_t id, std::size_t room) const {
    ucs::ReserveVector<Rail*> kept;
    std::size_t bytes = kAddressHeadBytes;
    for (Rail* rail : by_need_) {
        const std::size_t more = contact_of(*rail).packed_bytes();
        if (bytes + more > room)
            continue;
        bytes += more;
        kept.push_back(rail);
    }
    if (kept.empty())
        return {};
    sort_nearest_first(&kept);
    Address address{id, {}};
    for (const Rail* rail : kept)
        address.contacts.push_back(contact_of(*rail));
    return pack(address);
}

}  // namespace tagwire::proto
