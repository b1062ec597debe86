// SPDX-License-Identifier: BSD-3-Clause
// A pcap file, read again by hand.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vhca/fabric/packet_trace.hpp"

namespace tagwire::test {

inline std::uint64_t big_endian(std::span<const std::byte> bytes) {
    std::uint64_t value = 0;
    for (const std::byte byte : bytes)
        value = value << 8 | std::to_integer<std::uint64_t>(byte);
    return value;
}

struct PcapFile {
    struct Frame {
        std::uint64_t time_ns = 0;
        std::vector<std::byte> bytes;

        [[nodiscard]] std::uint64_t field(std::size_t at, std::size_t count) const {
            return big_endian(std::span(bytes).subspan(at, count));
        }
    };
    std::uint32_t link_type = 0;
    std::vector<Frame> frames;
};

/// Nothing: not a file of nanoseconds, or its last record is not whole.
inline std::optional<PcapFile> read_pcap(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(stream), {}};
    const auto bytes = std::as_bytes(std::span(all));
    vhca::PcapHeader header;
    if (bytes.size() < sizeof header)
        return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != 0xa1b23c4d || header.major != 2 || header.minor != 4)
        return std::nullopt;
    PcapFile file;
    file.link_type = header.link_type;
    std::size_t at = sizeof header;
    while (at != bytes.size()) {
        vhca::PcapRecord record;
        if (bytes.size() - at < sizeof record)
            return std::nullopt;
        std::memcpy(&record, &bytes[at], sizeof record);
        at += sizeof record;
        if (record.nanoseconds >= 1'000'000'000 || record.bytes != record.bytes_on_wire ||
            record.bytes > header.snap_bytes || bytes.size() - at < record.bytes) {
            return std::nullopt;
        }
        const auto frame = bytes.subspan(at, record.bytes);
        file.frames.push_back({std::uint64_t{record.seconds} * 1'000'000'000 + record.nanoseconds,
                               {frame.begin(), frame.end()}});
        at += record.bytes;
    }
    return file;
}

/// A directory of this test alone; gone at its end.
class TraceFolder {
  public:
    TraceFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "vhca-trace-XXXXXX").string();
        path_ = ::mkdtemp(name.data()) != nullptr ? name : "";
    }
    ~TraceFolder() {
        std::error_code error;
        std::filesystem::remove_all(path_, error);
    }
    TraceFolder(const TraceFolder&) = delete;
    TraceFolder& operator=(const TraceFolder&) = delete;
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

}  // namespace tagwire::test
