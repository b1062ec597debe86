// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_page.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/failure.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

using nlohmann::ordered_json;

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
<style>
:root { --ground: #fdfdfc; --text: #1c1d20; --quiet: #5c6068; --line: #d8dade; --note: #fff3d6;
        --shade: rgba(0, 0, 0, .28); }
@media (prefers-color-scheme: dark) {
  :root { --ground: #17181b; --text: #e6e7ea; --quiet: #a3a8b1; --line: #3a3d44; --note: #40351a;
          --shade: rgba(255, 255, 255, .3); }
}
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
       max-width: 52rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .25rem; }
p { margin: .5rem 0; } .quiet { color: var(--quiet); }
code { font: .875em ui-monospace, monospace; }
.note { background: var(--note); padding: .5rem .75rem; border-radius: .375rem; }
ul.note { padding-left: 1.75rem; }
svg { width: 100%; height: auto; display: block; }
.narrow { display: none; }
/* A table that is wider than the page scrolls: a shade at an edge shows that there is more. */
.wide { overflow-x: auto;
  background:
    linear-gradient(90deg, var(--ground) 40%, transparent) 0 0 / 2.5rem 100% local no-repeat,
    linear-gradient(270deg, var(--ground) 40%, transparent) 100% 0 / 2.5rem 100% local no-repeat,
    radial-gradient(farthest-side at 0 50%, var(--shade), transparent) 0 0 / .75rem 100% scroll
      no-repeat,
    radial-gradient(farthest-side at 100% 50%, var(--shade), transparent) 100% 0 / .75rem 100%
      scroll no-repeat; }
details li { font: .8125rem/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right;
         vertical-align: bottom; }
td { white-space: nowrap; } th:first-child, .facts td { text-align: left; }
tr > th:first-child { padding-left: 0; }
.figures th:first-child { position: sticky; left: 0; background: var(--ground); }
.summary { width: 100%; margin: 1rem 0 .25rem; font-size: 1rem; }
.summary td { font-weight: 600; } .summary tr + tr > * { vertical-align: middle; }
.summary tr > * { padding-top: .5rem; padding-bottom: .5rem; }
.summary tr + tr > th { font-weight: 400; }
.facts { margin-top: 1.5rem; }
.facts th { white-space: nowrap; vertical-align: top; color: var(--quiet); font-weight: 400; }
.facts td { white-space: normal; overflow-wrap: anywhere; vertical-align: top; }
@media (max-width: 36rem) {
  .broad { display: none; } .narrow { display: block; }
  body { padding: .75rem; } h1 { font-size: 1.35rem; }
  th, td { padding: .25rem .4rem; } table { font-size: .8125rem; } .summary { font-size: .875rem; }
}
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

/// A limit is the same at every place.
bool is_in_table(const Curve& curve) {
    return !curve.points.empty() && curve.line != Line::kLimit;
}

std::string table_of(const Plot& plot, const std::set<double>& wanted) {
    std::set<double> places;
    std::string head;
    for (const Curve& curve : plot.curves) {
        if (!is_in_table(curve))
            continue;
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
            if (is_in_table(curve)) {
                rows += "<td>" +
                        (at == curve.points.end() ? "-" : value_text(at->second, plot.y.unit)) +
                        "</td>";
            }
        }
        rows += "</tr>\n";
    }
    return "<div class=\"wide\"><table class=\"figures\">\n<tr><th>" + escaped(plot.x.label) +
           "</th>" + head + "</tr>\n" + rows + "</table></div>\n";
}

std::string section_of(const PageSection& section) {
    const Plot& plot = section.plot;
    std::string html = "<section id=\"" + plot.id + "\">\n<h2>" + escaped(plot.title) +
                       "</h2>\n<p class=\"quiet\">" + marked_up(section.meaning) + "</p>\n";
    const auto has_points = [](const Curve& curve) { return !curve.points.empty(); };
    if (std::ranges::any_of(plot.curves, has_points)) {
        Plot untitled = plot;  // the heading has it
        untitled.draws_title = false;
        html += "<div class=\"broad\">" + svg_of(untitled) + "</div>\n";
        untitled.id += "narrow";
        html += "<div class=\"narrow\">" + svg_of(untitled, PlotSize::kNarrow) + "</div>\n" +
                table_of(plot, section.rows);
    } else {
        html += "<p class=\"note\">There is nothing to show: see above.</p>\n";
    }
    return html + "</section>\n";
}

/// The unit of values in the data, without any prefix.
const char* unit_name(PlotUnit unit) {
    switch (unit) {
        case PlotUnit::kNanoseconds:
            return "ns";
        case PlotUnit::kPerSecond:
            return "1/s";
        case PlotUnit::kBytesPerSecond:
            return "B/s";
        case PlotUnit::kPercent:
            return "%";
        default:
            return "";
    }
}

std::string summary_cell(std::optional<double> value, PlotUnit unit) {
    return "<td>" + (value ? value_text(*value, unit) : "-") + "</td>";
}

std::string summary_of(const std::vector<SummaryRow>& rows) {
    if (rows.empty())
        return "";
    std::string html =
        "<div class=\"wide\"><table class=\"summary\">\n<tr><th></th><th>8 B latency</th>"
        "<th>peak bandwidth</th><th>8 B message rate</th></tr>\n";
    for (const SummaryRow& row : rows) {
        html += "<tr><th>" + escaped(row.name) + "</th>" +
                summary_cell(row.latency_ns, PlotUnit::kNanoseconds) +
                summary_cell(row.bytes_per_s, PlotUnit::kBytesPerSecond) +
                summary_cell(row.messages_per_s, PlotUnit::kPerSecond) + "</tr>\n";
    }
    return html + "</table></div>\n";
}

/// Nothing without items.
std::string items_of(const char* list, const std::vector<std::string>& items) {
    std::string html;
    for (const std::string& item : items)
        html += "<li>" + marked_up(item) + "</li>\n";
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
        case PlotUnit::kThreads:
            return text("%.0f", value);
        case PlotUnit::kNanoseconds:
            return scaled(value, kTimes);
        case PlotUnit::kPerSecond:
            return scaled(value, kRates);
        case PlotUnit::kPercent:
            return text("%.0f %%", value);
        default:
            return scaled(value, kBandwidths);
    }
}

std::string marked_up(const std::string& words) {
    std::string html = escaped(words);
    bool is_code = false;
    for (std::size_t at = 0; (at = html.find('`', at)) != std::string::npos; is_code = !is_code)
        html.replace(at, 1, is_code ? "</code>" : "<code>");
    return is_code ? html + "</code>" : html;
}

std::string data_of(const Page& page) {
    ordered_json plots = ordered_json::array();
    for (const PageSection& section : page.sections) {
        ordered_json curves = ordered_json::array();
        for (const Curve& curve : section.plot.curves) {
            ordered_json one{{"name", curve.name}, {"points", curve.points}};
            if (!curve.upper.empty())
                one["p99"] = curve.upper;
            curves.push_back(one);
        }
        plots.push_back({{"id", section.plot.id},
                         {"title", section.plot.title},
                         {"x", section.plot.x.label},
                         {"y", section.plot.y.label},
                         {"unit", unit_name(section.plot.y.unit)},
                         {"curves", curves}});
    }
    ordered_json facts = ordered_json::object();
    for (const auto& [name, value] : page.facts)
        facts[name] = value;
    const ordered_json data{
        {"schema", 1}, {"facts", facts}, {"notes", page.notes}, {"plots", plots}};
    std::string safe;
    for (const char c : data.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
        switch (c) {  // within strings, where JSON has another spelling
            case '<':
                safe += "\\u003c";
                break;
            case '>':
                safe += "\\u003e";
                break;
            case '&':
                safe += "\\u0026";
                break;
            default:
                safe += c;
        }
    }
    return safe;
}

std::string html_of(const Page& page) {
    std::string html = kHead + ("<title>" + escaped(page.title)) + "</title></head><body>\n<h1>" +
                       escaped(page.title) + "</h1>\n";
    if (!page.subtitle.empty())
        html += "<p class=\"quiet\">" + escaped(page.subtitle) + "</p>\n";
    html += summary_of(page.summary);
    html += items_of("<ul class=\"note\">", page.notes);
    for (const PageSection& section : page.sections)
        html += section_of(section);
    html += "<h2>Machine and measurement</h2>\n<table class=\"facts\">\n";
    for (const auto& [name, value] : page.facts)
        html += "<tr><th>" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
    html += "</table>\n<details>\n<summary>Commands that were run</summary>\n" +
            items_of("<ul>", page.commands) + "</details>\n";
    html += "<script type=\"application/json\" id=\"data\">" + data_of(page) + "</script>\n";
    return html + "</body></html>\n";
}

}  // namespace tagwire::tools
