// SPDX-License-Identifier: BSD-3-Clause
// The page that `tagwire report` writes: one HTML file that loads nothing, for large and small
// screens, in the reader's light or dark colours. It is well-formed XML, too.
#pragma once

#include <optional>
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

/// A row of the table on top; a figure that was not measured is not there.
struct SummaryRow {
    std::string name;
    std::optional<double> latency_ns, bytes_per_s, messages_per_s;
};

struct Page {
    std::string title;
    std::string subtitle;
    std::vector<SummaryRow> summary;
    std::vector<std::pair<std::string, std::string>> facts;
    std::vector<std::string> notes;  // what did not go well, what is missing
    std::vector<PageSection> sections;
    std::vector<std::string> commands;  // that were run
};

/// As it stands in HTML: `<` is `&lt;`.
std::string escaped(const std::string& words);

/// The same, with what stands between back-ticks as code.
std::string marked_up(const std::string& words);

/// Facts, notes and curves of a page as JSON, in which no character needs an escape in HTML or XML.
std::string data_of(const Page& page);

/// "1.25 us", "3.1 GB/s", "64k": a value of a table, three digits.
std::string value_text(double value, PlotUnit unit);

/// Throws Failure as svg_of() does. A section whose curves have no points says so instead.
std::string html_of(const Page& page);

}  // namespace tagwire::tools
