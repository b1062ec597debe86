// SPDX-License-Identifier: BSD-3-Clause
// An endpoint of dynamic connections: the address of a target. It has a send queue while it has
// requests there; between them it has none of its own, unless it was given one for good.
//
// Threads: owner thread of the worker.
// Invariants
//  (1) Its requests lie in one channel at a time, so they arrive in order: it gets another one only
//      when all of them are acknowledged.
//  (2) window is half of what it may send until it has asked the target how far it is, then all.
#pragma once

#include "uct/ib/dc/dc_address.hpp"
#include "uct/ib/dc/dc_verbs.hpp"
#include "uct/ib/message_ops.hpp"

namespace tagwire::dc {

class DcIface;

/// An address handle, shared by all endpoints that go there.
struct Path {
    ib::OwnedAh ah{nullptr, nullptr};
    ib::PortAddress port{};
    std::uint32_t endpoints = 0;
};

class DcEp : public ib::MessageOps {
  public:
    DcEp(DcIface& owner, Path& path_of_port, std::uint64_t target_key, std::uint32_t target_number);
    ~DcEp();

    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy();

    [[nodiscard]] TargetAddress target() const { return {path->ah.get(), key, number}; }
    [[nodiscard]] bool goes_where(const DcEp& other) const {
        return path == other.path && number == other.number && key == other.key;
    }

    // ---- State that the parts of the interface keep here
    Path* path;
    std::uint64_t key;
    std::uint32_t number : 24;
    bool has_asked : 1 = false;               // how far the target is, and waits for the answer
    bool has_asked_for_long : 1 = false;      // since the last look
    bool is_internal : 1 = false;             // answers go there; no user knows it
    bool is_waiting : 1 = false;              // for a channel, in the lender's list
    std::uint16_t under_way = 0;              // requests in a shared channel
    std::uint16_t last_channel = UINT16_MAX;  // index of the one it had; it may still be connected

  private:
    [[nodiscard]] DcIface& owner() const;
};
static_assert(sizeof(DcEp) <= 96, "what one more peer costs is promised");

}  // namespace tagwire::dc
