// SPDX-License-Identifier: BSD-3-Clause
#include "msg_lanes.hpp"

#include <algorithm>
#include <utility>

namespace tagwire::fuzz {

PeerLanes::PeerLanes(std::span<std::byte> memory) {
    for (const test::Resource& resource : test::all_resources()) {
        if (resource.transport != "rc")
            continue;
        // As a worker has them, or it would refuse ours: one device matches.
        test::EntityOptions options;
        options.iface_config = {{"RC_TAG_MATCHING", rails_.empty() ? "device" : "software"}};
        Rail& rail = rails_.emplace_back();
        rail.entity = std::make_unique<test::Entity>(resource, options);
        rail.entity->keep_record = false;
        rail.entity->on_error = [this](const test::PeerError& error) {
            failed_.push_back(error.ep);
        };
        const uct_md_h md = rail.entity->md();
        require(uct_md_mem_reg(md, memory.data(), memory.size(), UCT_MD_MEM_ACCESS_RMA,
                               &rail.memory) == UCS_OK);
        rail.rkey.resize(rail.entity->md_attr().rkey_packed_size);
        require(uct_md_mkey_pack(md, rail.memory, rail.rkey.data()) == UCS_OK);
    }
    require(!rails_.empty());
}

PeerLanes::~PeerLanes() {
    lanes_.clear();
    for (Rail& rail : rails_)
        uct_md_mem_dereg(rail.entity->md(), rail.memory);
}

void PeerLanes::learn_rails(std::span<const proto::PeerRail> rails) {
    told_.assign(rails.begin(), rails.end());
    rails_of_victim_.clear();
    for (std::size_t i = 0; i < told_.size(); ++i)
        if (told_[i].transport == "rc")
            rails_of_victim_.push_back(static_cast<std::uint8_t>(i));
}

PeerLane* PeerLanes::lane(std::size_t rail, std::uint8_t victim_rail, bool is_stripe) {
    for (const auto& lane : lanes_)
        if (lane->rail == rail && lane->victim_rail == victim_rail && lane->is_stripe == is_stripe)
            return lane.get();
    uct_ep_params_t params{};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = rails_[rail].entity->iface();
    uct_ep_h made = nullptr;
    if (uct_ep_create(&params, &made) != UCS_OK)
        return nullptr;
    lanes_.push_back(std::make_unique<PeerLane>(
        PeerLane{rail, victim_rail, is_stripe, false, false, test::Endpoint(made)}));
    return lanes_.back().get();
}

PeerLanes::Message PeerLanes::address_of(const PeerLane& lane) const {
    Message address(rails_[lane.rail].entity->attr().ep_addr_len);
    require(uct_ep_get_address(lane.ep, reinterpret_cast<uct_ep_addr_t*>(address.data())) ==
            UCS_OK);
    return address;
}

bool PeerLanes::connect(PeerLane* lane, const Message& address) const {
    if (lane->is_connected)
        return true;
    const std::size_t wanted = rails_[lane->rail].entity->attr().ep_addr_len;
    if (lane->victim_rail >= told_.size() || address.size() != wanted)
        return false;
    const Message& device = told_[lane->victim_rail].device;
    lane->is_connected =
        uct_ep_connect_to_ep(lane->ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                             reinterpret_cast<const uct_ep_addr_t*>(address.data())) == UCS_OK;
    return lane->is_connected;
}

PeerLane* PeerLanes::some_lane(Input& input) {
    std::vector<PeerLane*> connected;
    for (const auto& lane : lanes_)
        if (lane->is_connected)
            connected.push_back(lane.get());
    return connected.empty() ? nullptr : connected[input.take<std::uint8_t>() % connected.size()];
}

void PeerLanes::drop(const PeerLane& lane) {
    std::erase_if(lanes_, [&](const auto& ours) { return ours.get() == &lane; });
}

void PeerLanes::progress() {
    for (Rail& rail : rails_)
        rail.entity->progress();
    // Not in the callback: an endpoint is not destroyed in its own.
    for (const uct_ep_h ep : std::exchange(failed_, {}))
        std::erase_if(lanes_, [&](const auto& lane) { return lane->ep.get() == ep; });
}

}  // namespace tagwire::fuzz
