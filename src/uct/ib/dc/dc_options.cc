// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_options.hpp"

#include <array>
#include <cstddef>

#include "uct/ib/message_rows.hpp"

namespace tagwire::dc {

namespace {

using ucs::Option;
using ucs::OptionType;

constexpr const char* kPolicyChoices[] = {"dcs", "dcs_quota", "rand", "hash", nullptr};

constexpr ib::OwnWords kWords{
    .tx_depth =
        "Outstanding requests in the send queue of a DCI, divided evenly among its streams.",
    .inline_bytes_min = 64,
    .rnr_retry =
        "Times that a message is repeated to a peer without receive buffers before the endpoint "
        "fails; 7: without limit, because any number of peers may send to one target.",
    .keepalive =
        "Silence of a peer after which it is probed, if the endpoint waits for it or the interface "
        "has an error handler; 0: never. An endpoint that waits for credit asks again after two "
        "intervals, in case the answer was lost; with 0 it does not."};

constexpr std::array kOwnRows{
    Option{.name = "DC_DCIS",
           .type = OptionType::kCount,
           .unit = "queue pairs",
           .default_value = "8",
           .doc = "Initiators (DCIs) of an interface, created when needed.",
           .offset = offsetof(DcOptions, dci.dcis),
           .min = 1,
           .max = 1024},
    Option{.name = "DC_STREAMS",
           .type = OptionType::kCount,
           .unit = "streams",
           .default_value = "8",
           .doc = "Streams used in each DCI, if the device supports them. Each serves one endpoint "
                  "as a separate DCI would, with an equal part of DC_TX_DEPTH. 1: no streams.",
           .offset = offsetof(DcOptions, dci.streams),
           .min = 1,
           .max = 64},
    Option{.name = "DC_POLICY",
           .type = OptionType::kEnum,
           .unit = "",
           .default_value = "dcs_quota",
           .doc = "Assignment of DCIs (or streams) to endpoints: until the endpoint is idle (dcs), "
                  "also at most DC_QUOTA requests while others wait (dcs_quota), or shared for the "
                  "life of the endpoint, chosen at random (rand) or by the target's number (hash).",
           .offset = offsetof(DcOptions, dci.policy),
           .choices = kPolicyChoices},
    Option{.name = "DC_QUOTA",
           .type = OptionType::kCount,
           .unit = "requests",
           .default_value = "32",
           .doc = "Requests that an endpoint may post before it must release its DCI to an "
                  "endpoint that waits (DC_POLICY=dcs_quota).",
           .offset = offsetof(DcOptions, dci.quota),
           .min = 1,
           .max = 32768}};

constexpr auto kOptions = ib::all_rows(ib::kMessageRows<"DC_", DcOptions, kWords>, kOwnRows);

}  // namespace

const ucs::OptionTable& dc_option_table() {
    static const ucs::OptionTable table{"dynamic connections", kOptions, sizeof(DcOptions)};
    return table;
}

}  // namespace tagwire::dc
