// SPDX-License-Identifier: BSD-3-Clause
// The page that `tagwire report` writes: one HTML file that loads nothing, for large and small
// screens, in the reader's light or dark colours. It is well-formed XML, too.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tools/plot.hpp"

namespace tagwire::tools {

struct PageSection {
    std::string meaning;    // what the figures are, in plain words
    Plot plot;              // has the title, too
    std::set<double> rows;  // of the table: these places alone; empty: all
};

struct Page {
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;
    std::vector<std::string> notes;  // what did not go well, what is missing
    std::vector<PageSection> sections;
    std::vector<std::string> commands;  // that were run
};

/// As it stands in HTML: `<` is `&lt;`.
std::string escaped(const std::string& words);

/// "1.25 us", "3.1 GB/s", "64k": a value of a table, three digits.
std::string value_text(double value, PlotUnit unit);

/// Throws Failure as svg_of() does. A section whose curves have no points says so instead.
std::string html_of(const Page& page);

}  // namespace tagwire::tools
