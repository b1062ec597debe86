// SPDX-License-Identifier: BSD-3-Clause
// Frames byte by byte, and files that are read again.
#include "vhca/fabric/packet_trace.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "common/child.hpp"
#include "vhca/core/packet.hpp"
#include "vhca/test/fabric/pcap_file.hpp"

namespace tagwire::test {
namespace {

using vhca::FrameKind;
using vhca::PacketFramer;

/// Ethernet's CRC, bit by bit.
std::uint32_t slow_crc(std::span<const std::byte> bytes) {
    std::uint32_t crc = 0xffffffff;
    for (const std::byte byte : bytes) {
        crc ^= std::to_integer<std::uint32_t>(byte);
        for (int bit = 0; bit < 8; ++bit)
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

std::vector<std::byte> send_only(std::size_t payload_bytes, std::uint32_t psn = 7) {
    vhca::Packet packet;
    packet.opcode = vhca::Opcode::kRcSendOnly;
    packet.qpn = 0x123456;
    packet.psn = psn;
    std::vector<std::byte> bytes(vhca::packet_bytes(packet.opcode, payload_bytes));
    std::byte* const payload = vhca::put_headers(bytes.data(), packet, payload_bytes);
    for (std::size_t i = 0; i < payload_bytes; ++i)
        payload[i] = static_cast<std::byte>(i * 7 + 1);
    vhca::put_padding(payload + payload_bytes, payload_bytes);
    return bytes;
}

std::vector<std::byte> frame_of(const PacketFramer& framer, const vhca::FramePath& path,
                                std::span<const std::byte> packet) {
    std::vector<std::byte> frame(PacketFramer::kFrameBytesMax);
    frame.resize(framer.put(frame.data(), path, packet));
    return frame;
}

std::uint64_t erf_time_ns(std::span<const std::byte> record) {
    std::uint64_t time = 0;
    std::memcpy(&time, record.data(), sizeof time);  // of a little-endian machine
    return (time >> 32) * 1'000'000'000 + ((time & 0xffffffff) * 1'000'000'000 >> 32);
}

// The local packet with which InfiniBand's specification shows its CRCs (volume 1, 7.8.4).
TEST(VhcaPacketFrame, invariant_crc_of_a_local_packet_is_that_of_the_specification) {
    constexpr std::array<unsigned, 52> kPacket = {
        0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00,
        0x87, 0xb1, 0xb3, 0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d,
        0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05, 0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d,
        0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69, 0x0e, 0xd4, 0x00, 0x00};
    std::vector<std::byte> bytes;
    for (const unsigned byte : kPacket)
        bytes.push_back(static_cast<std::byte>(byte));
    bytes[0] |= std::byte{0xf0};
    EXPECT_EQ(vhca::icrc_behind(std::span(bytes).first(8), std::span(bytes).subspan(8)),
              0x5ab72596);
}

TEST(VhcaPacketFrame, infiniband_frame_has_a_local_route_header_and_two_checksums) {
    const PacketFramer framer(FrameKind::kInfiniband);
    EXPECT_EQ(framer.link_type(), 197U);
    const auto packet = send_only(61);
    constexpr std::uint64_t kTimeNs = 1'700'000'000'123'456'789;
    const auto record = frame_of(framer, {0x11, 0x2233, {.level = 5}, kTimeNs}, packet);
    ASSERT_EQ(record.size(), 16 + 8 + packet.size() + 4 + 2);
    EXPECT_EQ(erf_time_ns(record), kTimeNs);
    EXPECT_EQ(big_endian(std::span(record).subspan(8, 2)), 0x1504U);  // InfiniBand, any length
    EXPECT_EQ(big_endian(std::span(record).subspan(10, 2)), record.size());
    EXPECT_EQ(big_endian(std::span(record).subspan(14, 2)), record.size() - 16);
    const std::vector<std::byte> frame(record.begin() + 16, record.end());
    const std::span all(frame);
    EXPECT_EQ(big_endian(all.first(2)), 0x0052U);  // service level 5, BTH is next
    EXPECT_EQ(big_endian(all.subspan(2, 2)), 0x2233U);
    EXPECT_EQ(big_endian(all.subspan(4, 2)), (frame.size() - 2) / 4);
    EXPECT_EQ(big_endian(all.subspan(6, 2)), 0x11U);
    EXPECT_TRUE(std::equal(packet.begin(), packet.end(), frame.begin() + 8));
    std::vector<std::byte> masked(frame.begin(), frame.end() - 6);
    masked[0] |= std::byte{0xf0};
    masked[8 + 4] = std::byte{0xff};
    EXPECT_EQ(vhca::take_icrc(&frame[frame.size() - 6]), slow_crc(masked));
    // A CRC over all of a frame leaves a remainder that does not depend on its contents.
    const auto other = frame_of(framer, {3, 4}, send_only(8));
    EXPECT_EQ(vhca::vcrc_of(frame), vhca::vcrc_of(std::span(other).subspan(16)));
}

TEST(VhcaPacketFrame, roce_frame_over_ipv4_is_what_the_udp_fabric_sends) {
    const PacketFramer framer(FrameKind::kRoceIpv4);
    EXPECT_EQ(framer.link_type(), 1U);
    const auto packet = send_only(100);
    const vhca::UdpPath path{0x0a000001, 0x0a000002, 4791, 4791, 96};
    const auto frame = frame_of(framer, {path.source, path.target, {.traffic = 96}}, packet);
    ASSERT_EQ(frame.size(), 14 + 20 + 8 + packet.size() + 4);
    const std::span all(frame);
    EXPECT_EQ(big_endian(all.first(6)), 0x02740a000002U);
    EXPECT_EQ(big_endian(all.subspan(6, 6)), 0x02740a000001U);
    EXPECT_EQ(big_endian(all.subspan(12, 2)), 0x0800U);
    std::array<std::byte, 20> header;
    vhca::put_ipv4(header.data(), path, frame.size() - 34);
    EXPECT_TRUE(std::equal(header.begin(), header.end(), frame.begin() + 14));
    EXPECT_EQ(big_endian(all.subspan(34, 8)), 0x12b712b700000000U | (frame.size() - 34) << 16);
    EXPECT_EQ(vhca::take_icrc(&frame[frame.size() - 4]), vhca::icrc_of(path, packet));
}

TEST(VhcaPacketFrame, roce_frame_over_ipv6_has_the_gids_of_both_nodes) {
    constexpr std::uint64_t kBase = 0x0002c90374770000;
    const auto packet = send_only(33);
    const auto frame =
        frame_of(PacketFramer(FrameKind::kRoceIpv6, kBase), {1, 2, {.traffic = 0x60}}, packet);
    ASSERT_EQ(frame.size(), 14 + 40 + 8 + packet.size() + 4);
    const std::span all(frame);
    EXPECT_EQ(big_endian(all.subspan(12, 2)), 0x86ddU);
    const auto ip = all.subspan(14);
    EXPECT_EQ(big_endian(ip.first(4)), 0x66000000U);
    EXPECT_EQ(big_endian(ip.subspan(4, 4)), (ip.size() - 40) << 16 | 17U << 8 | 64U);
    EXPECT_EQ(big_endian(ip.subspan(8, 8)), 0xfe80000000000000U);
    EXPECT_EQ(big_endian(ip.subspan(16, 8)), kBase | 1);
    EXPECT_EQ(big_endian(ip.subspan(32, 8)), kBase | 2);
    // The sum over pseudo header and datagram, checksum included, is all ones.
    std::uint64_t sum = 17 + (ip.size() - 40);
    for (std::size_t i = 8; i < ip.size(); i += 2)
        sum += big_endian(ip.subspan(i, 2));
    EXPECT_NE(big_endian(ip.subspan(46, 2)), 0U);
    EXPECT_EQ(sum % 0xffff, 0U);
    std::vector<std::byte> masked(8, std::byte{0xff});
    masked.insert(masked.end(), ip.begin(), ip.end() - 4);
    masked[8] |= std::byte{0x0f};
    for (const std::size_t at : {1U, 2U, 3U, 7U, 46U, 47U, 52U})
        masked[8 + at] = std::byte{0xff};
    EXPECT_EQ(vhca::take_icrc(&frame[frame.size() - 4]), slow_crc(masked));
}

TEST(VhcaPacketFrame, what_is_no_packet_is_framed_all_the_same) {
    const std::vector<std::byte> bytes(vhca::kPacketBytesMax + 50, std::byte{0xee});
    for (const FrameKind kind :
         {FrameKind::kInfiniband, FrameKind::kRoceIpv4, FrameKind::kRoceIpv6}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{5}, bytes.size()}) {
            const auto frame = frame_of(PacketFramer(kind), {1, 2}, std::span(bytes).first(count));
            EXPECT_LE(frame.size(), PacketFramer::kFrameBytesMax);
            EXPECT_GT(frame.size(), std::min(count, vhca::kPacketBytesMax));
        }
    }
}

TEST(VhcaPacketTrace, file_has_every_packet_in_order_of_time) {
    const TraceFolder folder;
    const PacketFramer framer(FrameKind::kInfiniband);
    auto* trace = vhca::PacketTrace::begin(folder.file("a.pcap"), framer.link_type());
    ASSERT_NE(trace, nullptr);
    constexpr std::uint32_t kCount = 1000;
    for (std::uint32_t i = 0; i < kCount; ++i)
        trace->add(framer, {1, 2}, send_only(i % 64, i));
    EXPECT_EQ(trace->finish(), 0U);
    const auto file = read_pcap(folder.file("a.pcap"));
    ASSERT_TRUE(file);
    EXPECT_EQ(file->link_type, 197U);
    ASSERT_EQ(file->frames.size(), kCount);
    std::uint64_t before = 0;
    for (std::uint32_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(file->frames[i].field(16 + 8 + 9, 3), i) << "PSN";
        EXPECT_GE(file->frames[i].time_ns, before);
        EXPECT_EQ(file->frames[i].time_ns, erf_time_ns(file->frames[i].bytes));
        before = file->frames[i].time_ns;
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    EXPECT_LT(static_cast<std::uint64_t>(now_ns) - before, 60'000'000'000U);
    // Also what comes after the end of the program.
    trace->add(framer, {1, 2}, send_only(4));
    EXPECT_EQ(read_pcap(folder.file("a.pcap"))->frames.size(), kCount + 1);
}

TEST(VhcaPacketTrace, process_id_stands_where_the_path_asks_for_it) {
    const std::string pid = std::to_string(::getpid());
    EXPECT_EQ(vhca::trace_path_of("/x/%p.%p.pcap"), "/x/" + pid + "." + pid + ".pcap");
    EXPECT_EQ(vhca::trace_path_of("100%.pcap"), "100%.pcap");
}

TEST(VhcaPacketTrace, file_that_cannot_be_written_is_no_trace) {
    const TraceFolder folder;
    EXPECT_EQ(vhca::PacketTrace::begin(folder.file("no/such/folder"), 1), nullptr);
    EXPECT_EQ(vhca::PacketTrace::begin("/dev/full", 1), nullptr);
    ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
    EXPECT_EQ(vhca::PacketTrace::begin(folder.file("pipe"), 1), nullptr) << "nobody reads";
    ASSERT_NE(vhca::PacketTrace::begin(folder.file("one"), 1), nullptr);
    EXPECT_EQ(vhca::PacketTrace::begin(folder.file("one"), 1), nullptr) << "has a writer";
}

TEST(VhcaPacketTrace, full_disk_leaves_whole_records) {
    TW_SKIP_FORK_BESIDE_THREADS();
    const TraceFolder folder;
    const std::string path = folder.file("a.pcap");
    SecondProcess child([&path](int) {
        const rlimit limit{100'000, 100'000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const PacketFramer framer(FrameKind::kRoceIpv4);
        auto* trace = vhca::PacketTrace::begin(path, framer.link_type());
        for (int i = 0; trace != nullptr && i < 1000; ++i)
            trace->add(framer, {1, 2}, send_only(1001));
        return trace != nullptr && trace->finish() == 0 ? 0 : 1;
    });
    EXPECT_EQ(child.result(), 0);
    const auto file = read_pcap(path);
    ASSERT_TRUE(file);
    EXPECT_GT(file->frames.size(), 50U);
    EXPECT_LT(file->frames.size(), 100U);
}

TEST(VhcaPacketTrace, reader_that_stops_holds_the_program_up_shortly) {
    const TraceFolder folder;
    const std::string path = folder.file("pipe");
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    const PacketFramer framer(FrameKind::kRoceIpv4);
    auto* trace = vhca::PacketTrace::begin(path, framer.link_type());
    ASSERT_NE(trace, nullptr);
    const auto packet = send_only(4096);
    const auto start = std::chrono::steady_clock::now();
    constexpr std::size_t kCount = 4 * vhca::PacketTrace::kGatherBytes / 4096;
    for (std::size_t i = 0; i < kCount; ++i)
        trace->add(framer, {1, 2}, packet);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    const std::uint64_t left_out = trace->finish();
    EXPECT_GT(left_out, kCount / 4);
    EXPECT_LT(left_out, kCount);
    ::close(reader);  // no signal comes of it
    trace->finish();
}

TEST(VhcaPacketTrace, threads_share_a_file) {
    const TraceFolder folder;
    const PacketFramer framer(FrameKind::kInfiniband);
    auto* trace = vhca::PacketTrace::begin(folder.file("a.pcap"), framer.link_type());
    ASSERT_NE(trace, nullptr);
    const auto write = [&](std::uint64_t node) {
        for (std::uint32_t i = 0; i < 2000; ++i)
            trace->add(framer, {node, 9}, send_only(16, i));
    };
    std::thread other(write, 2);
    write(1);
    other.join();
    EXPECT_EQ(trace->finish(), 0U);
    const auto file = read_pcap(folder.file("a.pcap"));
    ASSERT_TRUE(file);
    ASSERT_EQ(file->frames.size(), 4000U);
    std::array<std::uint64_t, 3> next{};
    std::uint64_t before = 0;
    for (const PcapFile::Frame& frame : file->frames) {
        EXPECT_EQ(frame.field(16 + 8 + 9, 3), next[frame.field(16 + 6, 2)]++);
        EXPECT_GE(frame.time_ns, before);
        before = frame.time_ns;
    }
}

}  // namespace
}  // namespace tagwire::test
