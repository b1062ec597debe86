// SPDX-License-Identifier: BSD-3-Clause
// Measured costs of messages on this machine: a file that `tagwire tune` writes and a
// context reads (docs/internals/formats/calibration.md). Control path only, any thread.
//
// 1. A file is used as a whole or not at all, and only on the machine that it was measured on.
// 2. It is replaced as a whole, by a rename: a reader sees the old or the new one.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/cost/copy_rules.hpp"
#include "protocols/cost/cost.hpp"

namespace tagwire::proto {

/// A measured cost: `what` is the name of a protocol, kRegistration, or kCopyIn or kCopyOut with
/// the name of a kind of copies behind it: a message whose sender or receiver copied so.
struct CostSample {
    static constexpr std::string_view kRegistration = "registration";
    static constexpr std::string_view kCopyIn = "copy_in_";
    static constexpr std::string_view kCopyOut = "copy_out_";

    std::string transport;
    std::string device;
    std::string what;
    std::size_t bytes;
    double ns;
};

/// Why a sample cannot be; empty: it can.
std::string problem_of(const CostSample& sample);

class Calibration {
  public:
    /// `setting` as TAGWIRE_CALIBRATION: "auto", "none" or the path of a file. A default file that
    /// is missing, damaged or of another machine is none, and the latter two are logged.
    /// UCS_ERR_INVALID_PARAM: the named file is missing, damaged or of another machine.
    ucs_status_t load(std::string_view setting);

    /// Replaces what `costs` has of what was measured on that device.
    void apply(std::string_view transport, std::string_view device, RailCosts* costs) const;
    /// The kinds of copies that were fastest on that device: from the rule's length on, messages
    /// cost at least 5 % less than with libc's at every length measured.
    CopyRules copies(std::string_view transport, std::string_view device) const;
    bool has(std::string_view transport, std::string_view device) const;
    /// Path of the file in use; empty: none.
    const std::string& path() const { return path_; }

    /// Writes a file with these samples, and with those that the file there has of other
    /// devices. UCS_ERR_IO_ERROR: logged.
    static ucs_status_t store(const std::string& path, std::span<const CostSample> samples);
    /// $XDG_CONFIG_HOME/tagwire/calibration.json, or below ~/.config; empty: there is no home.
    static std::string default_path();

  private:
    std::string path_;
    std::vector<CostSample> samples_;
};

}  // namespace tagwire::proto
