// SPDX-License-Identifier: BSD-3-Clause
// Configuration files: where they are, and the grammar of their lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tagwire::ucs {

inline constexpr std::string_view kVariablePrefix = "TAGWIRE_";

struct ConfigLine {
    std::string name;   // without TAGWIRE_
    std::string value;  // without surrounding blanks
    int number;         // in the file, from 1
};

struct ConfigFile {
    std::string path;
    std::vector<ConfigLine> lines;
};

/// Parses `NAME = value` lines; a line that is neither that, blank nor a comment goes to
/// `problems_p` as a sentence.
std::vector<ConfigLine> config_parse_lines(std::string_view text, const std::string& path,
                                           std::vector<std::string>* problems_p);

/// The files that hold, weakest first; those that do not exist are left out. `extra` (may be
/// nullptr) is the strongest. A file that cannot be read, and TAGWIRE_CONFIG_FILE naming none, are
/// problems.
std::vector<ConfigFile> config_files(const char* extra, std::vector<std::string>* problems_p);

}  // namespace tagwire::ucs
