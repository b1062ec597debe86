// SPDX-License-Identifier: BSD-3-Clause
// Short measurements over a transport of the virtual HCA.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "command.hpp"

namespace tagwire::test {

/// Names of the tests of `tagwire perf` that run over transports.
std::vector<const char*> tests_with_transport();

/// A fixture for `transport`; skips where there is no virtual HCA.
class OverVhca : public testing::Test {
  protected:
    explicit OverVhca(const char* transport) : transport_(transport) {}

    void SetUp() override;

    /// The results of a validated run of `tagwire perf`, which must succeed.
    nlohmann::json results_of(std::vector<std::string> arguments) const;

  private:
    const char* const transport_;
    const Setting device_{"TAGWIRE_IB_DEVICES", "vhca0"};
};

}  // namespace tagwire::test
