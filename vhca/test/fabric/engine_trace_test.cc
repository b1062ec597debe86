// SPDX-License-Identifier: BSD-3-Clause
// An engine that leaves a trace and a summary, each in a process of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "common/child.hpp"
#include "vhca/test/fabric/host.hpp"
#include "vhca/test/fabric/pcap_file.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint32_t kBytes = 10'000, kMessages = 20;  // three packets each

/// Sends messages to itself. The numbers of the summary, and the node.
struct Outcome {
    std::uint64_t node = 0, sent = 0, received = 0, bytes_sent = 0, lost = 0;
};

int send_to_self(int socket, const vhca::EngineConfig& config, int error_fd) {
    ::dup2(error_fd, STDERR_FILENO);
    // Where nothing is lost, a processor that is busy elsewhere shall not look like a loss.
    constexpr std::uint8_t kSoon = 8, kPatient = 20;
    Host host(1 << 16, config);
    if (!host.ok() || !host.connect(host.address(), config.faults.loss > 0 ? kSoon : kPatient))
        return 1;
    for (std::uint32_t i = 0; i < kMessages; ++i) {
        if (host.post_recv(0, kBytes) != 0 || host.post_send(1 << 15, kBytes) != 0 ||
            host.wait().status != IBV_WC_SUCCESS || host.wait().status != IBV_WC_SUCCESS) {
            return 2;
        }
    }
    Outcome outcome;
    outcome.node = host.address().node;
    {
        const auto guard = host.engine().lock();
        const vhca::DeviceFigures figures = host.engine().figures();
        outcome.sent = figures.device.packets_sent;
        outcome.received = figures.device.packets_received;
        outcome.bytes_sent = figures.device.payload_bytes_sent;
        outcome.lost = figures.faults ? figures.faults->lost : 0;
    }
    if (::write(socket, &outcome, sizeof outcome) != sizeof outcome)
        return 3;
    // A child of a fork has neither a trace nor a summary.
    SecondProcess child([](int) {
        vhca::Engine::say_farewell();
        return 0;
    });
    if (child.result() != 0)
        return 4;
    vhca::Engine::say_farewell();
    vhca::Engine::say_farewell();
    return 0;
}

vhca::EngineConfig traced_config(const TraceFolder& folder) {
    vhca::EngineConfig config = Host::default_config();
    config.trace = folder.file("%p.pcap");
    config.has_summary = true;
    return config;
}

struct Left {
    Outcome outcome;
    PcapFile file;
    std::string summary;
};

void run(const TraceFolder& folder, const vhca::EngineConfig& config, Left* left_p) {
    const int error_fd =
        ::open(folder.file("error").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    ASSERT_GE(error_fd, 0);
    SecondProcess child([&](int socket) { return send_to_self(socket, config, error_fd); });
    ASSERT_EQ(::read(child.socket(), &left_p->outcome, sizeof left_p->outcome),
              static_cast<ssize_t>(sizeof left_p->outcome));
    ASSERT_EQ(child.result(), 0);
    ::close(error_fd);
    for (const auto& entry : std::filesystem::directory_iterator(folder.file(""))) {
        if (entry.path().extension() == ".pcap") {
            const auto file = read_pcap(entry.path().string());
            ASSERT_TRUE(file);
            ASSERT_TRUE(left_p->file.frames.empty()) << "one file";
            left_p->file = *file;
        }
    }
    std::ifstream stream(folder.file("error"));
    left_p->summary = {std::istreambuf_iterator<char>(stream), {}};
}

/// The PSN of RC's sends with their number, so often as they are there.
std::map<std::uint64_t, unsigned> sends_of(const PcapFile& file, std::size_t bth_at) {
    std::map<std::uint64_t, unsigned> sends;
    for (const PcapFile::Frame& frame : file.frames)
        if (frame.field(bth_at, 1) <= 0x04)
            ++sends[frame.field(bth_at + 9, 3)];
    return sends;
}

void check(const Left& left, std::uint32_t link_type, std::size_t bth_at) {
    EXPECT_EQ(left.file.link_type, link_type);
    // Messages that were on their way at the end may be missing among those that arrived.
    EXPECT_GE(left.file.frames.size(), left.outcome.sent + left.outcome.received);
    const auto sends = sends_of(left.file, bth_at);
    EXPECT_EQ(sends.size(), 3 * kMessages);
    for (const auto& [psn, count] : sends)
        EXPECT_GE(count, 2U) << "left and arrived; PSN " << psn;
    std::uint64_t before = 0;
    for (const PcapFile::Frame& frame : left.file.frames) {
        EXPECT_GE(frame.time_ns, before);
        before = frame.time_ns;
    }
}

std::uint64_t number_in(const std::string& text, const std::string& pattern) {
    std::smatch match;
    return std::regex_search(text, match, std::regex(pattern)) ? std::stoull(match[1].str())
                                                               : ~std::uint64_t{0};
}

TEST(VhcaEngineTrace, file_has_what_left_and_what_arrived) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const TraceFolder folder;
    const vhca::EngineConfig config = traced_config(folder);
    const bool is_udp = config.fabric == vhca::FabricKind::kUdp;
    Left left;
    ASSERT_NO_FATAL_FAILURE(run(folder, config, &left));
    check(left, is_udp ? 1 : 197, is_udp ? 14 + 20 + 8 : 16 + 8);
    EXPECT_EQ(left.outcome.bytes_sent, std::uint64_t{kBytes} * kMessages);
    for (const PcapFile::Frame& frame : left.file.frames) {
        EXPECT_EQ(is_udp ? frame.field(14 + 12, 4) : frame.field(16 + 6, 2), left.outcome.node);
        EXPECT_EQ(is_udp ? frame.field(14 + 16, 4) : frame.field(16 + 2, 2), left.outcome.node);
    }
    EXPECT_EQ(std::count(left.summary.begin(), left.summary.end(), '\n'), 1) << left.summary;
    EXPECT_GE(number_in(left.summary, "(\\d+) packets with"), left.outcome.sent);
    EXPECT_EQ(number_in(left.summary, "with (\\d+) bytes sent"), left.outcome.bytes_sent);
    EXPECT_EQ(number_in(left.summary, " (\\d+) retransmissions"), 0U);
    EXPECT_EQ(left.summary.find("faults"), std::string::npos);
}

TEST(VhcaEngineTrace, lost_packets_are_there_once_and_counted) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const TraceFolder folder;
    vhca::EngineConfig config = traced_config(folder);
    config.faults = {.loss = 0.1, .seed = 77};
    Left left;
    ASSERT_NO_FATAL_FAILURE(run(folder, config, &left));
    const bool is_udp = config.fabric == vhca::FabricKind::kUdp;
    check(left, is_udp ? 1 : 197, is_udp ? 14 + 20 + 8 : 16 + 8);
    EXPECT_GT(left.outcome.lost, 0U);
    EXPECT_GE(number_in(left.summary, "faults: (\\d+) lost"), left.outcome.lost);
    EXPECT_EQ(number_in(left.summary, "seed (\\d+)"), 77U);
    EXPECT_GT(number_in(left.summary, " (\\d+) retransmissions?"), 0U);
}

TEST(VhcaEngineTrace, ethernet_port_of_shared_memory_writes_roce_over_ipv6) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const TraceFolder folder;
    vhca::EngineConfig config = traced_config(folder);
    config.fabric = vhca::FabricKind::kShm;
    config.link_layer = vhca::LinkLayer::kEthernet;
    const int error_fd = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    // Without a peer: the header of the file is there at once.
    SecondProcess child([&](int) {
        ::dup2(error_fd, STDERR_FILENO);
        vhca::Engine* engine = nullptr;
        const int error = vhca::Engine::get(config, &engine);
        vhca::Engine::say_farewell();
        return error;
    });
    ::close(error_fd);
    EXPECT_EQ(child.result(), 0);
    for (const auto& entry : std::filesystem::directory_iterator(folder.file(""))) {
        const auto file = read_pcap(entry.path().string());
        ASSERT_TRUE(file);
        EXPECT_EQ(file->link_type, 1U);
        EXPECT_TRUE(file->frames.empty());
    }
}

TEST(VhcaEngineTrace, path_that_cannot_be_written_does_not_stop_the_device) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const TraceFolder folder;
    vhca::EngineConfig config = Host::default_config();
    config.trace = folder.file("no/such/folder/a.pcap");
    Left left;
    ASSERT_NO_FATAL_FAILURE(run(folder, config, &left));
    EXPECT_NE(left.summary.find("no/such/folder/a.pcap: No such file"), std::string::npos)
        << left.summary;
    EXPECT_EQ(std::count(left.summary.begin(), left.summary.end(), '\n'), 1) << left.summary;
}

}  // namespace
}  // namespace tagwire::test
