// SPDX-License-Identifier: BSD-3-Clause
// The rc side of a scripted peer: an interface of each device, and the endpoints that it has
// offered to the victim or connected to what the victim has offered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "contract/entity.hpp"
#include "input.hpp"
#include "protocols/wire/wireup_messages.hpp"

namespace tagwire::fuzz {

/// An endpoint of one of our rails for one of the victim's.
struct PeerLane {
    std::size_t rail;          // of ours, an index of PeerLanes::rails()
    std::uint8_t victim_rail;  // as the victim's hello numbers them
    bool is_stripe;
    bool is_connected = false;
    bool has_offered = false;
    test::Endpoint ep = {};
};

class PeerLanes {
  public:
    using Message = std::vector<std::byte>;

    /// One rail per device. `memory` is what keys name.
    explicit PeerLanes(std::span<std::byte> memory);
    PeerLanes(const PeerLanes&) = delete;
    PeerLanes& operator=(const PeerLanes&) = delete;
    ~PeerLanes();

    struct Rail {
        std::unique_ptr<test::Entity> entity;
        uct_mem_h memory = nullptr;
        Message rkey;  // of the memory
    };
    std::vector<Rail>& rails() { return rails_; }

    /// The rails of the victim, as a hello of it has told.
    void learn_rails(std::span<const proto::PeerRail> rails);
    /// The rc rails among them, as its hello numbers them; empty: none is known.
    const std::vector<std::uint8_t>& rails_of_victim() const { return rails_of_victim_; }

    /// Made if there is none. Null: the device has no more.
    PeerLane* lane(std::size_t rail, std::uint8_t victim_rail, bool is_stripe);
    Message address_of(const PeerLane& lane) const;
    /// To an address that the victim has offered.
    bool connect(PeerLane* lane, const Message& address) const;
    /// A connected lane that the input chooses; null: there is none.
    PeerLane* some_lane(Input& input);
    void drop(const PeerLane& lane);
    void drop_all() { lanes_.clear(); }

    void progress();

  private:
    std::vector<uct_ep_h> failed_;
    std::vector<Rail> rails_;
    std::vector<std::unique_ptr<PeerLane>> lanes_;
    std::vector<proto::PeerRail> told_;  // all rails of the victim
    std::vector<std::uint8_t> rails_of_victim_;
};

}  // namespace tagwire::fuzz
