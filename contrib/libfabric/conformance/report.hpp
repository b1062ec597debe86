// SPDX-License-Identifier: BSD-3-Clause
// Runs cases and writes what came of them.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "cases.hpp"
#include "verdict.hpp"

namespace conformance {

struct Run {
    std::string provider;
    std::vector<Case> cases;
    std::vector<Result> results;  // one for each case
};

// The cases of whose names or features one is in `names`; all of them for no names.
std::vector<Case> select(const std::vector<std::string>& names);

struct Settings {
    unsigned jobs = 2;
    std::chrono::milliseconds patience{4000};  // of a wait; a case has five times that
};

Run run(const std::string& provider, const std::vector<Case>& cases, const Settings& settings);

bool all_pass(const Run& run);  // or are not supported
void write_text(std::ostream& out, const Run& run);
void write_json(std::ostream& out, const std::vector<Run>& runs);
// One line a case, `name outcome`: what a recorded table is.
void write_record(std::ostream& out, const Run& run);
void write_markdown(std::ostream& out, const std::vector<Run>& runs);

}  // namespace conformance
