// SPDX-License-Identifier: BSD-3-Clause
// A rail: one open interface of a worker.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/cost/copy_rules.hpp"
#include "protocols/cost/cost.hpp"
#include "protocols/cost/rail_costs.hpp"
#include "protocols/cost/stripe_plan.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/request.hpp"
#include "ucs/log/repeats.hpp"

namespace tagwire::proto {

/// For an interface whose device shall match tags.
struct TagCallbacks {
    uct_tag_unexp_eager_cb_t eager;
    uct_tag_unexp_rndv_cb_t request;
};

/// The world of a rail.
struct RailPorts {
    const Domain& domain;  // of its resource
    const Options& options;
    const Calibration& calibration;
    ucs::Repeats& refusals;               // of messages that any stranger may send over it
    const GivenOptions* given = nullptr;  // options of the program; null: none
};

/// On cache lines of its own, as all that belongs to one worker and lives long.
class alignas(64) Rail {
  public:
    Rail(const RailPorts& ports, std::uint8_t index, const Resource& resource)
        : is_auxiliary(resource.is_auxiliary), to_(ports), index_(index), resource_(resource) {}
    Rail(const Rail&) = delete;
    Rail& operator=(const Rail&) = delete;
    ~Rail();

    /// Opens the interface; it is not progressed before enable().
    ucs_status_t open(uct_worker_h uct_worker, uct_error_handler_t failed, void* arg,
                      const TagCallbacks* tags);
    /// From the first endpoint on, or the first message; until then look() does.
    void enable();
    bool is_enabled() const { return is_enabled_; }
    /// open() has failed because of the value of an option, which the log names.
    bool has_bad_option() const { return has_bad_option_; }
    /// Progress of one that is not enabled. Returns what uct_iface_progress() does.
    unsigned look();

    const Options& options() const { return to_.options; }
    const Calibration& calibration() const { return to_.calibration; }
    ucs::Repeats& refusals() const { return to_.refusals; }
    std::uint8_t index() const { return index_; }
    const char* transport() const { return resource_.desc.tl_name; }
    const char* device() const { return resource_.desc.dev_name; }
    std::size_t domain_index() const { return resource_.domain; }
    const Domain& domain() const { return to_.domain; }
    uct_iface_h iface() const { return iface_; }
    const uct_iface_attr_t& attr() const { return attr_; }
    std::span<const std::byte> device_address() const { return device_address_; }
    std::span<const std::byte> iface_address() const { return iface_address_; }

    bool connects_to_iface() const {
        return (attr_.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) != 0;
    }
    bool can_get() const { return (attr_.cap.flags & UCT_IFACE_FLAG_GET_ZCOPY) != 0; }
    bool can_put() const { return (attr_.cap.flags & UCT_IFACE_FLAG_PUT_ZCOPY) != 0; }
    /// The rail may carry parts of messages beside another lane.
    bool can_stripe() const { return !is_auxiliary && can_get() && can_put(); }
    /// The resource that moves the bytes: rails with the same one are not faster together.
    std::string_view mover() const;
    /// Plans that divide data with this rail as the lane, as if all rails led to the peer.
    void set_stripe_plans(const StripePlan& get, const StripePlan& put) {
        get_plan_ = get;
        put_plan_ = put;
    }
    const StripePlan& stripe_plan(bool is_put) const { return is_put ? put_plan_ : get_plan_; }
    /// Shorter messages are never divided.
    std::size_t striped_from() const { return std::min(get_plan_.from(), put_plan_.from()); }
    /// Tagged messages go by the calls for tagged messages.
    bool matches_tags() const { return matches_tags_; }
    /// Seconds that a short message takes.
    double latency() const { return attr_.latency.c + attr_.overhead; }
    const RailCosts& costs() const { return costs_; }
    const Selection& selection() const { return selection_; }
    const CopyRules& copies() const { return copies_; }
    /// Endpoints choose how messages are copied in (copy_chooser.hpp): no setting says it, and the
    /// processor has a choice.
    bool chooses_copies() const { return chooses_copies_; }
    /// The processors move the data, through memory that both sides have.
    bool is_shared_memory() const { return resource_.desc.dev_type == UCT_DEVICE_TYPE_SHM; }
    /// Each message costs system calls, and the processors of both sides move its data.
    bool goes_through_kernel() const { return proto::goes_through_kernel(attr_); }
    /// The rail leads to processes of this host only, through the kernel.
    bool is_loopback() const { return resource_.desc.dev_type == UCT_DEVICE_TYPE_SELF; }
    /// Peers learn from which length rendezvous are faster (advisor.hpp): the processors move the
    /// data, and no setting says how.
    bool is_learning() const { return is_learning_; }
    /// Length of the shortest message that goes by rendezvous.
    std::size_t rndv_from(const Buffer& buffer) const {
        return selection_.rndv_from(buffer.list != nullptr     ? BufferKind::kUnmapped
                                    : buffer.memory != nullptr ? BufferKind::kMapped
                                                               : BufferKind::kPlain);
    }
    /// Whether an endpoint to that interface could be made.
    /// *reason: why not, in one sentence; may be null.
    bool reaches(std::span<const std::byte> device, std::span<const std::byte> iface,
                 std::string* reason = nullptr) const;

    /// Routes of the system lead from it to that device, which it reaches.
    bool is_on_route(std::span<const std::byte> device) const;

    const bool is_auxiliary;          ///< for first contact only
    std::size_t short_max = 0;        ///< bytes of uct_ep_am_short_iov(); 0: it has none
    std::size_t bcopy_max = 0;        ///< bytes of uct_ep_am_bcopy()
    std::uint64_t striped_bytes = 0;  ///< of messages that several rails moved

  protected:
    // Found out by open(); a unit test has a rail that is not open and sets them.
    bool matches_tags_ = false;
    bool is_learning_ = false;
    uct_iface_h iface_ = nullptr;
    uct_iface_attr_t attr_{};
    RailCosts costs_;
    Selection selection_;

  private:
    ucs_status_t open_iface(uct_worker_h uct_worker, const uct_iface_params_t& params);
    void select();

    const RailPorts to_;
    std::uint8_t index_;
    bool is_enabled_ = false;
    bool has_bad_option_ = false;
    const Resource& resource_;
    CopyRules copies_;
    bool chooses_copies_ = false;
    StripePlan get_plan_, put_plan_;
    std::vector<std::byte> device_address_;
    std::vector<std::byte> iface_address_;
};

/// The message goes by the calls for tagged messages.
inline bool goes_as_tagged(const Request& request, const Rail& rail) {
    return request.is_tagged && rail.matches_tags();
}

/// Endpoints of the rail lend buffers without a registration.
inline bool lends(const Rail& rail) {
    return (rail.attr().cap.flags & TAGWIRE_UCT_IFACE_FLAG_LEND) != 0;
}

/// Sends leave with a later progress, unless they are told to (Endpoint::write_out()).
inline bool gathers(const Rail& rail) {
    return (rail.attr().cap.flags & TAGWIRE_UCT_IFACE_FLAG_GATHERS) != 0;
}

}  // namespace tagwire::proto
