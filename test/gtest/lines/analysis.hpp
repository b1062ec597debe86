// SPDX-License-Identifier: BSD-3-Clause
// Evaluates the records of several threads together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lines/recorder.hpp"

namespace tagwire::test {

/// The mappings of this process. Lines of a file that is mapped twice are the same lines.
class Mappings {
  public:
    Mappings();
    /// The line, or the one that it is in the first mapping of the same part of its file.
    std::uintptr_t line_of(std::uintptr_t line) const;
    /// For people.
    std::string name_of(std::uintptr_t line) const;

  private:
    struct Mapping {
        std::uintptr_t begin;
        std::uintptr_t end;
        std::uint64_t offset;
        std::string file;  // device and inode; empty: private memory
        std::string name;
    };
    const Mapping* find(std::uintptr_t line) const;

    std::vector<Mapping> mappings_;
};

using Records = std::span<const LineRecorder* const>;

/// A line that one thread wrote and another one accessed; what each thread did with it, in the
/// order of the threads.
struct SharedLine {
    std::uintptr_t line;
    std::vector<Touch> sides;
};
std::vector<SharedLine> shared_lines(Records records, const Mappings& mappings);

/// Bytes that one thread accessed and another wrote, and the code that did it.
std::string report(const std::vector<SharedLine>& lines, const Mappings& mappings);

/// Lines that a turn writes and that more than one thread writes, on the average of all turns.
double written_by_many_per_turn(Records records, const Mappings& mappings);

}  // namespace tagwire::test
