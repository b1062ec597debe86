// SPDX-License-Identifier: BSD-3-Clause
#include "lines/analysis.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace tagwire::test {

namespace {

std::string text_of(const char* format, std::uintptr_t first, std::uint64_t second) {
    std::array<char, 128> line{};
    std::snprintf(line.data(), line.size(), format, first, second);
    return line.data();
}

/// The function and the line of source that `code` returns to.
std::string source_of(const void* code) {
    Dl_info info{};
    if (code == nullptr || ::dladdr(code, &info) == 0)
        return "?";
    // The address is that behind the call.
    const auto offset = reinterpret_cast<std::uintptr_t>(code) - 1 -
                        reinterpret_cast<std::uintptr_t>(info.dli_fbase);
    std::array<char, 4096> program{};
    if (::readlink("/proc/self/exe", program.data(), program.size() - 1) <= 0)
        return "?";
    const std::string command =
        "addr2line -Cfpis -e '" + std::string(program.data()) + text_of("' 0x%" PRIxPTR, offset, 0);
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr)
        return "?";
    // The innermost and the outermost of functions that were inlined into each other.
    std::string first, last;
    std::array<char, 2048> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) {
        last = part.data();
        if (first.empty())
            first = last;
    }
    ::pclose(pipe);
    return first == last ? first : first + "            " + last;
}

void add_to(Touch* sum, const Touch& touch) {
    sum->read |= touch.read;
    sum->written |= touch.written;
    if (sum->reader == nullptr)
        sum->reader = touch.reader;
    if (sum->writer == nullptr)
        sum->writer = touch.writer;
}

}  // namespace

Mappings::Mappings() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        Mapping mapping{};
        std::array<char, 5> rights{};
        std::array<char, 16> device{};
        std::uint64_t inode = 0;
        int name_at = 0;
        if (std::sscanf(line.c_str(),
                        "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %15s %" SCNu64 " %n",
                        &mapping.begin, &mapping.end, rights.data(), &mapping.offset, device.data(),
                        &inode, &name_at) < 6)
            continue;
        mapping.name = line.substr(static_cast<std::size_t>(name_at));
        if (rights[3] == 's')
            mapping.file = device.data() + (":" + std::to_string(inode));
        mappings_.push_back(std::move(mapping));
    }
}

const Mappings::Mapping* Mappings::find(std::uintptr_t line) const {
    const std::uintptr_t address = line * kLineBytes;
    const auto at = std::ranges::find_if(mappings_, [address](const Mapping& mapping) {
        return mapping.begin <= address && address < mapping.end;
    });
    return at == mappings_.end() ? nullptr : &*at;
}

std::uintptr_t Mappings::line_of(std::uintptr_t line) const {
    const Mapping* own = find(line);
    if (own == nullptr || own->file.empty())
        return line;
    const std::uint64_t offset = line * kLineBytes - own->begin + own->offset;
    for (const Mapping& mapping : mappings_)
        if (mapping.file == own->file && mapping.offset <= offset &&
            offset - mapping.offset < mapping.end - mapping.begin)
            return (mapping.begin + (offset - mapping.offset)) / kLineBytes;
    return line;
}

std::string Mappings::name_of(std::uintptr_t line) const {
    const Mapping* mapping = find(line);
    const std::uintptr_t address = line * kLineBytes;
    if (mapping == nullptr)
        return text_of("0x%" PRIxPTR " (unmapped)", address, 0);
    return text_of("0x%" PRIxPTR " (+0x%" PRIx64 " of ", address,
                   address - mapping->begin + mapping->offset) +
           (mapping->name.empty() ? "anonymous memory" : mapping->name) + ")";
}

std::vector<SharedLine> shared_lines(Records records, const Mappings& mappings) {
    std::map<std::uintptr_t, SharedLine> lines;
    for (std::size_t i = 0; i < records.size(); ++i) {
        for (const Touch& touch : records[i]->touches()) {
            const std::uintptr_t line = mappings.line_of(touch.line);
            SharedLine& shared = lines.try_emplace(line, SharedLine{line, {}}).first->second;
            shared.sides.resize(records.size());
            add_to(&shared.sides[i], touch);
        }
    }
    std::vector<SharedLine> found;
    for (auto& [line, shared] : lines) {
        const auto used = std::ranges::count_if(
            shared.sides, [](const Touch& side) { return (side.read | side.written) != 0; });
        const bool is_written =
            std::ranges::any_of(shared.sides, [](const Touch& side) { return side.written != 0; });
        if (used > 1 && is_written)
            found.push_back(std::move(shared));
    }
    return found;
}

std::string report(const std::vector<SharedLine>& lines, const Mappings& mappings) {
    constexpr std::size_t kLinesMax = 20;
    std::string text = std::to_string(lines.size()) + " lines\n";
    for (std::size_t i = 0; i < std::min(lines.size(), kLinesMax); ++i) {
        text += "line " + mappings.name_of(lines[i].line) + "\n";
        for (std::size_t thread = 0; thread < lines[i].sides.size(); ++thread) {
            const Touch& side = lines[i].sides[thread];
            if (side.read != 0)
                text += "    thread " + std::to_string(thread) +
                        text_of(" reads  0x%016" PRIxPTR ": ", side.read, 0) +
                        source_of(side.reader);
            if (side.written != 0)
                text += "    thread " + std::to_string(thread) +
                        text_of(" writes 0x%016" PRIxPTR ": ", side.written, 0) +
                        source_of(side.writer);
        }
    }
    return text;
}

double written_by_many_per_turn(Records records, const Mappings& mappings) {
    struct Writes {
        std::uint64_t threads = 0;  // one bit each
        std::size_t turns = 0;
    };
    std::unordered_map<std::uintptr_t, Writes> lines;
    std::unordered_set<std::uint32_t> turns;
    for (std::size_t i = 0; i < records.size(); ++i) {
        for (const Touch& touch : records[i]->touches()) {
            turns.insert(touch.turn);
            if (touch.written == 0)
                continue;
            Writes& writes = lines[mappings.line_of(touch.line)];
            writes.threads |= std::uint64_t{1} << i;
            ++writes.turns;
        }
    }
    std::size_t count = 0;
    for (const auto& [line, writes] : lines)
        count += std::has_single_bit(writes.threads) ? 0 : writes.turns;
    return static_cast<double>(count) / static_cast<double>(turns.size());
}

}  // namespace tagwire::test
