// SPDX-License-Identifier: BSD-3-Clause
// Explanations of one-sided operations.
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "protocols/facade/called_endpoint.hpp"
#include "protocols/facade/explain.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/rma/remote_key.hpp"
#include "protocols/rma/rma_ops.hpp"
#include "protocols/transfer/stripe.hpp"

namespace tagwire::proto {

namespace {

constexpr std::array kWays = {
    std::pair{RmaWay::kNothing, "nothing"},
    std::pair{RmaWay::kStores, "stores"},
    std::pair{RmaWay::kShort, "short"},
    std::pair{RmaWay::kCopied, "bcopy"},
    std::pair{RmaWay::kTransfer, "zcopy"},
    std::pair{RmaWay::kAtomic, "atomic"},
    std::pair{RmaWay::kEmulated, "compare_and_swap"},
    std::pair{RmaWay::kByOwner, "messages"},
    std::pair{RmaWay::kMessages, "messages"},
};

/// Shortest data that is divided over rails, if the buffer has a handle.
std::size_t striped_from(const Endpoint& ep, bool is_put) {
    const Stripes* const stripes = ep.chosen_stripes();
    const StripePlan* chosen = stripes == nullptr ? nullptr : stripes->plan(is_put);
    return (chosen == nullptr ? ep.rail().stripe_plan(is_put) : *chosen).from();
}

/// Shared memory has no other way to memory of that process than messages of its own.
bool moves_by_messages(const Endpoint& ep) {
    bool is_so = false;
    const auto look = [](void* arg, const char* name, const char* value) {
        if (std::string_view(name) == "zcopy_path" && std::string_view(value) == "messages")
            *static_cast<bool*>(arg) = true;
    };
    return tagwire_uct_ep_describe(ep.lane(), look, &is_so) == UCS_OK && is_so;
}

bool needs_peer(RmaWay way, const Rail& rail) {
    switch (way) {
        case RmaWay::kNothing:
        case RmaWay::kStores:
            return false;
        case RmaWay::kByOwner:
        case RmaWay::kMessages:
            return true;
        default:
            return (rail.attr().cap.flags & TAGWIRE_UCT_IFACE_FLAG_RMA_BY_PROGRESS) != 0;
    }
}

}  // namespace

tw_rma_explanation_t explain(const Endpoint& ep, RemoteKey& key, tw_rma_kind_t kind,
                             tw_atomic_op_t operation, std::size_t length, bool is_mapped) {
    RmaWish wish;
    wish.key = &key;
    wish.address = key.memory().address;
    wish.kind = kind == TW_RMA_PUT   ? RmaKind::kPut
                : kind == TW_RMA_GET ? RmaKind::kGet
                                     : RmaKind::kAtomic;
    wish.operation = static_cast<std::uint8_t>(operation);
    wish.type = length == sizeof(std::uint32_t) ? TW_UINT32 : TW_UINT64;
    tw_rma_explanation_t out{};
    RmaWay way = ep.rma.way_of(wish, length, is_mapped, &out.reason);
    const bool is_data =
        way == RmaWay::kShort || way == RmaWay::kCopied || way == RmaWay::kTransfer;
    if (is_data && moves_by_messages(ep)) {
        way = RmaWay::kMessages;
        out.reason = "this process has no call that reaches memory of the peer's process";
    }
    out.way = std::ranges::find(kWays, way, &decltype(kWays)::value_type::first)->second;
    std::string_view(ep.rail().transport()).copy(out.transport, sizeof out.transport - 1);
    std::string_view(ep.rail().device()).copy(out.device, sizeof out.device - 1);
    out.needs_peer = needs_peer(way, ep.rail()) ? 1 : 0;
    out.striped_from = SIZE_MAX;
    if (kind != TW_RMA_ATOMIC && is_mapped)
        out.striped_from = striped_from(ep, kind == TW_RMA_PUT);
    if (way == RmaWay::kTransfer && length >= out.striped_from) {
        out.way = "striped";
        out.reason = "so long that parts over several rails are faster";
    }
    return out;
}

}  // namespace tagwire::proto
