// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/stats.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tagwire::vhca {

namespace {

class Line {
  public:
    explicit Line(std::string start) : text_(std::move(start)) {}

    Line& text(const char* words) {
        text_ += words;
        return *this;
    }
    /// "3 timeouts", "1 timeout".
    Line& count(std::uint64_t number, const char* one, const char* many) {
        text_ += std::to_string(number) + " " + (number == 1 ? one : many);
        return *this;
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

}  // namespace

std::string summary_of(const DeviceFigures& figures) {
    const DeviceCounters& device = figures.device;
    Line line("tagwire: vhca" + std::to_string(figures.index) + " of " +
              program_invocation_short_name + " (pid " + std::to_string(::getpid()) + "): ");
    line.count(device.packets_sent, "packet", "packets").text(" with ");
    line.count(device.payload_bytes_sent, "byte", "bytes").text(" sent, ");
    line.count(device.packets_received, "packet", "packets").text(" with ");
    line.count(device.payload_bytes_received, "byte", "bytes").text(" received; ");
    line.count(device.retransmits, "retransmission", "retransmissions").text(", ");
    line.count(device.timeouts, "timeout", "timeouts").text(", ");
    line.count(device.sequence_naks, "sequence NAK", "sequence NAKs").text(", ");
    line.count(device.rnr_naks, "RNR NAK", "RNR NAKs").text(", ");
    line.count(device.duplicates, "duplicate", "duplicates");
    const FabricCounters& fabric = figures.fabric;
    const std::uint64_t dropped =
        device.malformed + device.misaddressed + fabric.bad_crc + fabric.malformed + fabric.foreign;
    if (dropped != 0)
        line.text(", ").count(dropped, "packet", "packets").text(" dropped at arrival");
    if (fabric.vanished != 0)
        line.text(", ").count(fabric.vanished, "packet", "packets").text(" sent to nobody");
    if (figures.faults) {
        const FaultCounters& faults = *figures.faults;
        line.text("; faults: ").count(faults.lost, "lost", "lost").text(", ");
        line.count(faults.duplicated, "duplicated", "duplicated").text(", ");
        line.count(faults.reordered, "reordered", "reordered").text(", ");
        line.count(faults.delayed, "delayed", "delayed").text(" (seed ");
        line.text(std::to_string(figures.seed).c_str()).text(")");
    }
    return line.text("\n").take();
}

}  // namespace tagwire::vhca
