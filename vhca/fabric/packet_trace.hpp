// SPDX-License-Identifier: BSD-3-Clause
// The trace of a process: a pcap file (nanoseconds) with the packets that its devices send and
// receive, as Wireshark reads it.
//
//     device --> TracedWire --> faults --> fabric --> deliver() --> device
//                    |                                    |
//                    '---------> PacketTap <--------------'
//                                    |  a frame (packet_frame.hpp)
//                                    v
//     PacketTrace: gathers in memory --- its thread, at most a millisecond later ---> file
//
// Invariants
//  (1) A packet is there when the device hands it over, whether faults lose it or not, and when it
//      arrives: one that a process sends to itself is there twice.
//  (2) Time never goes back in a file, and is the same clock in all processes of a host.
//  (3) add() makes no system call but to wake the thread. Only when it is far ahead of the file
//      does it wait, and not for longer than kPatienceMs; then packets are left out and counted.
//  (4) The file holds whole records only, also after the disk was full. From then on it is closed;
//      the program goes on.
//  (5) Two processes never write one file: the second has none, and is told so.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ucs/sys/fd.hpp"
#include "vhca/fabric/packet_frame.hpp"

namespace tagwire::vhca {

inline constexpr std::uint32_t kPcapMagicNs = 0xa1b23c4d;

/// In the order of the machine; the magic number tells.
struct PcapHeader {
    std::uint32_t magic = kPcapMagicNs;
    std::uint16_t major = 2, minor = 4;
    std::uint32_t zone = 0, accuracy = 0;
    std::uint32_t snap_bytes = 0;
    std::uint32_t link_type = 0;
};
static_assert(sizeof(PcapHeader) == 24);

struct PcapRecord {
    std::uint32_t seconds = 0, nanoseconds = 0;
    std::uint32_t bytes = 0, bytes_on_wire = 0;
};
static_assert(sizeof(PcapRecord) == 16);

/// "%p" in `path` is the process id.
std::string trace_path_of(const std::string& path);

class PacketTrace {
  public:
    static constexpr std::size_t kGatherBytes = 4 << 20;
    static constexpr int kPatienceMs = 100;

    /// Begins the file, and its thread. nullptr: there is no trace, and the log says why.
    static PacketTrace* begin(const std::string& path, std::uint32_t link_type);
    PacketTrace(const PacketTrace&) = delete;
    PacketTrace& operator=(const PacketTrace&) = delete;

    /// Any thread.
    void add(const PacketFramer& framer, const FramePath& path, std::span<const std::byte> packet);

    /// At the end of the process: waits shortly until all is in the file. Later packets are waited
    /// for one by one. Returns how many packets were left out.
    std::uint64_t finish();

    /// In the child of a fork(), which has no part in it. Nothing may be called afterwards.
    void abandon() { fd_.reset(); }

    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    PacketTrace(std::string path, ucs::UniqueFd fd);
    ~PacketTrace() = default;  // never: the thread lives as long as the process
    int start(std::uint32_t link_type);
    void run();
    void write_out(std::unique_lock<std::mutex>& lock);
    int write_all(std::span<const std::byte> bytes);
    [[nodiscard]] bool has_room() const {
        return filling_.size() + sizeof(PcapRecord) + PacketFramer::kFrameBytesMax <= kGatherBytes;
    }
    [[nodiscard]] bool is_written() const { return filling_.empty() && !is_writing_; }

    const std::string path_;
    ucs::UniqueFd fd_;
    std::int64_t epoch_ns_ = 0;  // what is to be added to CLOCK_MONOTONIC
    std::mutex mutex_;
    std::condition_variable work_, progress_;
    // Under mutex_.
    std::vector<std::byte> filling_;
    bool is_writing_ = false, has_failed_ = false, is_finishing_ = false;
    bool is_stuck_ = false;       // the thread wrote nothing for kPatienceMs
    std::uint64_t left_out_ = 0;  // packets
    // The thread's while is_writing_.
    std::vector<std::byte> writing_;
    std::uint64_t file_bytes_ = 0;
};

/// State of one device, under the lock of the device.
class PacketTap {
  public:
    PacketTap(PacketTrace& trace, const PacketFramer& framer, std::uint64_t own_node)
        : trace_(&trace), framer_(framer), own_(own_node) {}

    void left(Route to, std::span<const std::byte> packet) {
        if (trace_ != nullptr)
            trace_->add(framer_, {own_, to.node, to.service}, packet);
    }
    void arrived(Route from, std::span<const std::byte> packet) {
        if (trace_ != nullptr)
            trace_->add(framer_, {from.node, own_, from.service}, packet);
    }
    void abandon() { trace_ = nullptr; }

  private:
    PacketTrace* trace_;
    PacketFramer framer_;
    std::uint64_t own_;
};

/// Shows what goes to another wire.
class TracedWire final : public Wire {
  public:
    TracedWire(Wire& below, PacketTap& tap) : below_(below), tap_(tap) {}

    std::byte* claim(Route to, std::size_t bytes) override {
        claimed_ = below_.claim(to, bytes);
        return claimed_;
    }
    void commit(Route to, std::size_t bytes) override {
        tap_.left(to, {claimed_, bytes});
        below_.commit(to, bytes);
    }
    Turn turn_of(Route to) override { return below_.turn_of(to); }
    bool has_had_turn(Route to, const Turn& since) override {
        return below_.has_had_turn(to, since);
    }
    [[nodiscard]] unsigned steps_to_catch_up() const override { return below_.steps_to_catch_up(); }

  private:
    Wire& below_;
    PacketTap& tap_;
    std::byte* claimed_ = nullptr;
};

}  // namespace tagwire::vhca
