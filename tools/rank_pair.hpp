// SPDX-License-Identifier: BSD-3-Clause
// The first two ranks of a job as the two sides of a measurement: rank 0 drives, rank 1 serves over
// a TCP connection on which they have agreed by the bootstrap. Each rank has one object, which one
// thread uses.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <tagwire_bootstrap.hpp>
#include <vector>

#include "tools/channel.hpp"

namespace tagwire::tools {

class RankPair {
  public:
    /// All ranks call it. `wanted`: cpus of the two sides; empty: as the launcher has bound them,
    /// or the first two.
    RankPair(tagwire::Bootstrap job, std::vector<int> wanted);
    RankPair(const RankPair&) = delete;
    RankPair& operator=(const RankPair&) = delete;

    std::uint32_t rank() const { return job_.rank(); }
    bool is_on_one_host() const { return places_[0].host == places_[1].host; }

    /// Rank 0. Throws Failure.
    std::unique_ptr<Channel> connect() const;
    /// For rank 0: the cpus of both sides. Throws UsageError.
    std::vector<int> cpus() const;
    /// Rank 1. Throws Failure.
    std::unique_ptr<Channel> accept() const;
    /// The cpu of rank 1; -1: as rank 0 says.
    int own_cpu() const;

  private:
    /// A rank, as all of them learn of it.
    struct Place {
        std::array<char, 256> host{};
        std::array<int, 2> cpus{-1, -1};  // the first two that it may use
    };
    /// Where rank 1 listens, and what rank 0 shows there: others that find the port do not get in.
    struct Door {
        std::uint16_t port = 0;
        Token token{};
    };

    bool share_cpus() const { return is_on_one_host() && places_[0].cpus == places_[1].cpus; }

    tagwire::Bootstrap job_;
    std::vector<int> wanted_;
    std::optional<Listener> listener_;  // of rank 1
    std::vector<Place> places_;
    Door door_;
};

}  // namespace tagwire::tools
