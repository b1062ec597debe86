// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/rc/rc_options.hpp"

#include <array>
#include <cstddef>

#include "uct/ib/message_rows.hpp"

namespace tagwire::rc {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr ib::OwnWords kWords{
    .tx_depth = "Outstanding requests in the send queue of an endpoint.",
    .inline_bytes_min = 24,
    .rnr_retry =
        "Times that a message is repeated to a peer without receive buffers before the endpoint "
        "fails; 7: without limit, because a paused peer has not failed.",
    .keepalive =
        "Silence of a peer after which it is probed, if the endpoint waits for it or the interface "
        "has an error handler; 0: never."};

constexpr std::array kOwnRows{
    Option{.name = "RC_TX_CQ_DEPTH",
           .type = OptionType::kCount,
           .unit = "requests",
           .default_value = "4096",
           .doc = "Outstanding requests of all endpoints of an interface: the depth of the "
                  "completion queue that they share.",
           .offset = offsetof(RcOptions, messages.tx_cq_depth),
           .min = 4,
           .max = 1 << 20}};

constexpr auto kOptions = ib::all_rows(ib::kMessageRows<"RC_", RcOptions, kWords>, kOwnRows);

}  // namespace

const ucs::OptionTable& rc_option_table() {
    static const ucs::OptionTable table{"reliable connections", kOptions, sizeof(RcOptions)};
    return table;
}

}  // namespace tagwire::rc
