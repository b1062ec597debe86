// SPDX-License-Identifier: BSD-3-Clause
// Options of transports with values that they do not accept.
#include <string>
#include <utility>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

/// An option of the transport that lanes use, with a value that it does not accept.
std::pair<std::string, std::string> wrong_option(const std::string& transport) {
    if (transport == "sm")
        return {"TAGWIRE_SM_RING_SLOTS", "300"};
    if (transport == "tcp")
        return {"TAGWIRE_TCP_QUEUE_BYTES", "much"};
    return {"TAGWIRE_" +
                std::string(transport == "rc"   ? "RC"
                            : transport == "dc" ? "DC"
                                                : "UD") +
                "_TIMEOUT",
            "soon"};
}

using MsgOptions = MsgTest;

TEST_F(MsgOptions, a_value_that_a_transport_does_not_accept_is_refused_by_name) {
    const auto [name, value] = wrong_option(lane_transport());
    const Settings wrong{{name, value}};
    // The context has it, or its worker.
    testing::internal::CaptureStderr();
    tw_context_h context = nullptr;
    tw_worker_h worker = nullptr;
    const std::string named = transports();
    tw_context_params_t params{};
    params.transports = named.c_str();
    tw_status_t status = tw_context_create(&params, &context);
    if (status == TW_OK)
        status = tw_worker_create(context, nullptr, &worker);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, TW_ERR_INVALID_PARAM);
    EXPECT_EQ(worker, nullptr);
    EXPECT_NE(log.find(name + "=" + value), std::string::npos) << log;
    EXPECT_NE(log.find("expected"), std::string::npos) << log;
    tw_worker_destroy(worker);
    tw_context_destroy(context);
}

}  // namespace
}  // namespace tagwire::test
