// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_page.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "tools/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<style>
:root { --ground: #fdfdfc; --text: #1c1d20; --quiet: #5c6068; --line: #d8dade; --note: #fff3d6; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #17181b; --text: #e6e7ea; --quiet: #a3a8b1; --line: #3a3d44; --note: #40351a; }
}
body { background: var(--ground); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
       max-width: 52rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .25rem; }
p { margin: .5rem 0; } .quiet { color: var(--quiet); }
.note { background: var(--note); padding: .5rem .75rem; border-radius: .375rem; }
.wide { overflow-x: auto; } svg { width: 100%; min-width: 34rem; height: auto; display: block; }
ul.note { padding-left: 1.75rem; }
details li { font: .8125rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; }
td { white-space: nowrap; } th:first-child, .facts td { text-align: left; }
.facts td { white-space: normal; overflow-wrap: anywhere; vertical-align: top; }
</style>
)";

struct Step {
    double factor;
    const char* name;
};

template <std::size_t n>
std::string scaled(double value, const Step (&steps)[n]) {
    const Step* fits = &steps[0];
    for (const Step& step : steps) {
        // 999.7 ns is 1.00 us: what would be rounded to four digits belongs to the next.
        if (value >= step.factor * 0.9995)
            fits = &step;
    }
    const double shown = value / fits->factor;
    const int digits = shown >= 99.95 ? 0 : shown >= 9.995 ? 1 : 2;
    return text("%.*f %s", digits, shown, fits->name);
}

std::string table_of(const Plot& plot, const std::set<double>& wanted) {
    std::set<double> places;
    std::string head;
    for (const Curve& curve : plot.curves) {
        if (!curve.points.empty())
            head += "<th>" + escaped(curve.name) + "</th>";
        for (const auto& point : curve.points)
            if (wanted.empty() || wanted.contains(point.first))
                places.insert(point.first);
    }
    std::string rows;
    for (const double place : places) {
        rows += "<tr><th>" + value_text(place, plot.x.unit) + "</th>";
        for (const Curve& curve : plot.curves) {
            const auto at =
                std::ranges::find(curve.points, place, &std::pair<double, double>::first);
            if (!curve.points.empty()) {
                rows += "<td>" +
                        (at == curve.points.end() ? "-" : value_text(at->second, plot.y.unit)) +
                        "</td>";
            }
        }
        rows += "</tr>\n";
    }
    return "<div class=\"wide\"><table>\n<tr><th>" + escaped(plot.x.label) + "</th>" + head +
           "</tr>\n" + rows + "</table></div>\n";
}

std::string section_of(const PageSection& section) {
    const Plot& plot = section.plot;
    std::string html = "<section id=\"" + plot.id + "\">\n<h2>" + escaped(plot.title) +
                       "</h2>\n<p class=\"quiet\">" + escaped(section.meaning) + "</p>\n";
    const auto has_points = [](const Curve& curve) { return !curve.points.empty(); };
    if (std::ranges::any_of(plot.curves, has_points)) {
        Plot untitled = plot;  // the heading has it
        untitled.draws_title = false;
        html +=
            "<div class=\"wide\">" + svg_of(untitled) + "</div>\n" + table_of(plot, section.rows);
    } else {
        html += "<p class=\"note\">There is nothing to show: see above.</p>\n";
    }
    return html + "</section>\n";
}

/// Nothing without items.
std::string items_of(const char* list, const std::vector<std::string>& items) {
    std::string html;
    for (const std::string& item : items)
        html += "<li>" + escaped(item) + "</li>\n";
    return html.empty() ? "" : std::string(list) + "\n" + html + "</ul>\n";
}

}  // namespace

std::string escaped(const std::string& words) {
    std::string html;
    for (const char c : words) {
        switch (c) {
            case '&':
                html += "&amp;";
                break;
            case '<':
                html += "&lt;";
                break;
            case '>':
                html += "&gt;";
                break;
            case '"':
                html += "&quot;";
                break;
            default:
                html += c;
        }
    }
    return html;
}

std::string value_text(double value, PlotUnit unit) {
    static constexpr Step kTimes[] = {{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}};
    static constexpr Step kRates[] = {{1, "/s"}, {1e3, "k/s"}, {1e6, "M/s"}, {1e9, "G/s"}};
    static constexpr Step kBandwidths[] = {{1, "B/s"}, {1e3, "kB/s"}, {1e6, "MB/s"}, {1e9, "GB/s"}};
    switch (unit) {
        case PlotUnit::kBytes:
            return size_name(static_cast<std::uint64_t>(value));
        case PlotUnit::kCount:
            return text("%.0f", value);
        case PlotUnit::kNanoseconds:
            return scaled(value, kTimes);
        case PlotUnit::kPerSecond:
            return scaled(value, kRates);
        default:
            return scaled(value, kBandwidths);
    }
}

std::string html_of(const Page& page) {
    std::string html = kHead + ("<title>" + escaped(page.title)) + "</title></head><body>\n<h1>" +
                       escaped(page.title) + "</h1>\n<table class=\"facts\">\n";
    for (const auto& [name, value] : page.facts)
        html += "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
    html += "</table>\n";
    html += items_of("<ul class=\"note\">", page.notes);
    for (const PageSection& section : page.sections)
        html += section_of(section);
    html += "<details>\n<summary>Commands that were run</summary>\n" +
            items_of("<ul>", page.commands) + "</details>\n";
    return html + "</body></html>\n";
}

}  // namespace tagwire::tools
