// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/failure.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

constexpr int kPlotTimeoutMs = 30000;
constexpr std::size_t kTicksMax = 8;
constexpr std::size_t kMarkersMax = 20;  // on one curve
constexpr std::size_t kWidth = 800;
constexpr std::size_t kDrawingHeight = 400;
constexpr std::size_t kLegendColumns = 2;
constexpr std::size_t kLegendLineHeight = 22;
// Distinct for most eyes, and on light as on dark ground (Paul Tol's "bright", and what fits it).
constexpr const char* kColours[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                    "#66ccee", "#aa3377", "#ee7733", "#999999"};
constexpr int kMarkers[] = {7, 5, 9, 13, 11, 6, 4, 8};

struct Range {
    double min = std::numeric_limits<double>::max();
    double max = 0;

    void include(double value) {
        min = std::min(min, value);
        max = std::max(max, value);
    }
};

bool is_drawn(const std::pair<double, double>& point) {
    return point.first > 0 && point.second > 0 && std::isfinite(point.second);
}

struct Prefix {
    double factor;
    const char* text;
};

template <std::size_t n>
std::string with_prefix(double value, const Prefix (&prefixes)[n]) {
    const Prefix* fits = &prefixes[0];
    for (const Prefix& prefix : prefixes)
        if (value >= prefix.factor * 0.999)
            fits = &prefix;
    return text("%g%s", value / fits->factor, fits->text);
}

std::string mark_text(double value, PlotUnit unit) {
    static constexpr Prefix kBinary[] = {{1, ""}, {1024, "k"}, {1048576, "m"}, {1073741824, "g"}};
    static constexpr Prefix kDecimal[] = {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}};
    static constexpr Prefix kTimes[] = {{1, " ns"}, {1e3, " us"}, {1e6, " ms"}, {1e9, " s"}};
    static constexpr Prefix kRates[] = {{1, " /s"}, {1e3, " k/s"}, {1e6, " M/s"}, {1e9, " G/s"}};
    static constexpr Prefix kBandwidths[] = {
        {1, " B/s"}, {1e3, " kB/s"}, {1e6, " MB/s"}, {1e9, " GB/s"}};
    switch (unit) {
        case PlotUnit::kBytes:
            return with_prefix(value, kBinary);
        case PlotUnit::kCount:
            return with_prefix(value, kDecimal);
        case PlotUnit::kNanoseconds:
            return with_prefix(value, kTimes);
        case PlotUnit::kPerSecond:
            return with_prefix(value, kRates);
        default:
            return with_prefix(value, kBandwidths);
    }
}

/// Powers of two, with as many left out between two marks as must be.
std::vector<double> binary_marks(Range range) {
    const int first = static_cast<int>(std::floor(std::log2(range.min)));
    const int last = static_cast<int>(std::ceil(std::log2(range.max)));
    const int step = std::max<int>(
        1, (last - first + static_cast<int>(kTicksMax) - 1) / static_cast<int>(kTicksMax));
    std::vector<double> marks;
    for (int power = first; power <= last; power += step)
        marks.push_back(std::exp2(power));
    return marks;
}

/// 1, 2 and 5 times the powers of ten around the range, or the powers alone where these are enough.
std::vector<double> decimal_marks(Range range) {
    const bool wide = range.max / range.min > 300;
    std::vector<double> marks;
    for (int power = static_cast<int>(std::floor(std::log10(range.min)));
         std::pow(10, power) <= range.max * 10; ++power) {
        for (const double digit : {1.0, 2.0, 5.0})
            if (digit == 1.0 || !wide)
                marks.push_back(digit * std::pow(10, power));
    }
    // The greatest that is not above the range, to the least that is not below.
    const auto above = std::ranges::find_if(marks, [&](double at) { return at >= range.max; });
    marks.erase(above == marks.end() ? above : above + 1, marks.end());
    const auto below = std::ranges::find_if(marks, [&](double at) { return at > range.min; });
    marks.erase(marks.begin(), below == marks.begin() ? below : below - 1);
    return marks;
}

/// A quoted string for gnuplot; characters that it cannot hold become spaces.
std::string quoted(const std::string& words) {
    std::string safe;
    for (const char c : words)
        safe += c == '"' || c == '\\' || c == '\n' ? ' ' : c;
    return "\"" + safe + "\"";
}

std::string axis_script(char name, const PlotAxis& axis, Range range) {
    const std::vector<double> marks =
        axis.unit == PlotUnit::kBytes ? binary_marks(range) : decimal_marks(range);
    std::string script = text("set logscale %c\nset %clabel ", name, name) + quoted(axis.label) +
                         text("\nset %ctics (", name);
    for (const double mark : marks) {
        script += text("%s\"%s\" %.17g", mark == marks.front() ? "" : ", ",
                       mark_text(mark, axis.unit).c_str(), mark);
    }
    constexpr double kMargin = 1.05;
    return script + text(")\nset %crange [%.17g:%.17g]\n", name,
                         std::min(marks.front(), range.min) / kMargin,
                         std::max(marks.back(), range.max) * kMargin);
}

std::size_t height_for(std::size_t curves) {
    return kDrawingHeight + (curves + kLegendColumns - 1) / kLegendColumns * kLegendLineHeight;
}

std::string curve_style(const Curve& curve, std::size_t place) {
    if (curve.line == Line::kBroad)
        return "with lines lw 9 lc rgb '#cccccc'";
    const std::size_t colour = curve.colour < 0 ? place : static_cast<std::size_t>(curve.colour);
    const char* dashes[] = {"1", "(9,6)", "(2,4)"};
    return text("with linespoints lw 2 dt %s pt %d ps 0.7 pi %zu lc rgb '%s'",
                dashes[static_cast<int>(curve.line)], kMarkers[place % std::size(kMarkers)],
                curve.points.size() / kMarkersMax + 1, kColours[colour % std::size(kColours)]);
}

std::string head_of(const Plot& plot, std::size_t curves) {
    std::string script = text(
        "set terminal svg size %zu,%zu dynamic noenhanced font 'sans-serif,15'\n"
        "set grid lw 0.5 lc rgb '#888888'\nset border 3 lw 1\nset tics nomirror out\n"
        "set key outside below horizontal Left reverse samplen 3 width 2 maxcols %zu\n"
        "set lmargin 14\nset rmargin 3\nset xlabel offset 0,0.7\n",
        kWidth, height_for(curves), kLegendColumns);
    if (plot.mark_at > 0) {
        script += text(
            "set arrow from first %.17g, graph 0 to first %.17g, graph 1 nohead dt (4,4) lc rgb "
            "'#888888' back\n",
            plot.mark_at, plot.mark_at);
    }
    return plot.draws_title ? script + "set title " + quoted(plot.title) + "\n" : script;
}

std::string script_of(const Plot& plot, const std::vector<const Curve*>& curves, Range x, Range y) {
    std::string script = head_of(plot, curves.size());
    script += axis_script('x', plot.x, x) + axis_script('y', plot.y, y);
    std::string lines;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        script += text("$curve%zu << EOD\n", i);
        for (const auto& point : curves[i]->points)
            if (is_drawn(point))
                script += text("%.17g %.17g\n", point.first, point.second);
        script += "EOD\n";
        lines += text("%s$curve%zu ", i == 0 ? "plot " : ", ", i) + curve_style(*curves[i], i) +
                 " title " + quoted(curves[i]->name);
    }
    return script + lines + "\n";
}

void replace_all(std::string* words, const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = words->find(from, at)) != std::string::npos; at += to.size())
        words->replace(at, from.size(), to);
}

/// `words` escaped for XML.
std::string in_xml(const std::string& words) {
    std::string safe = words;
    replace_all(&safe, "&", "&amp;");
    replace_all(&safe, "<", "&lt;");
    replace_all(&safe, ">", "&gt;");
    replace_all(&safe, "\"", "&quot;");
    return safe;
}

/// In the stead of gnuplot's own title and description.
void describe(std::string* svg, const Plot& plot) {
    std::string curves;
    for (const Curve& curve : plot.curves)
        if (std::ranges::any_of(curve.points, is_drawn))
            curves += (curves.empty() ? "" : ", ") + curve.name;
    const std::string words = "<title>" + in_xml(plot.title) + "</title>\n<desc>" +
                              in_xml(plot.y.label + " over " + plot.x.label + ": " + curves) +
                              "</desc>";
    constexpr const char* kEnd = "</desc>";
    const std::size_t begin = svg->find("<title>Gnuplot</title>");
    const std::size_t end = svg->find(kEnd, begin);
    if (begin != std::string::npos && end != std::string::npos)
        svg->replace(begin, end + std::strlen(kEnd) - begin, words);
    svg->replace(0, std::strlen("<svg"),
                 "<svg role=\"img\" aria-label=\"" + in_xml(plot.title) + "\"");
}

/// The element alone; its names are those of this plot, black is the colour of the page's text.
std::string as_element(std::string svg, const Plot& plot) {
    const std::size_t begin = svg.find("<svg");
    if (begin == std::string::npos || svg.find("</svg>") == std::string::npos)
        throw Failure("gnuplot drew no picture; is its svg terminal missing?");
    svg.erase(0, begin);
    for (const char* name : {"gpDot", "gpPt", "gnuplot_", "textbox", "greybox"})
        replace_all(&svg, name, plot.id + name);
    for (const char* black : {"\"black\"", "'black'", "rgb(  0,   0,   0)", "rgb(0,0,0)"}) {
        const bool has_quotes = black[0] == '"' || black[0] == '\'';
        replace_all(&svg, black, has_quotes ? "\"currentColor\"" : "currentColor");
    }
    describe(&svg, plot);
    return svg;
}

}  // namespace

void check_has_gnuplot() {
    if (!has_program("gnuplot")) {
        throw Failure(
            "gnuplot, which draws the plots, is not installed (apt-get install gnuplot-nox)");
    }
}

std::string svg_of(const Plot& plot) {
    Range x, y;
    std::vector<const Curve*> curves;
    for (const Curve& curve : plot.curves) {
        for (const auto& point : curve.points) {
            if (is_drawn(point)) {
                x.include(point.first);
                y.include(point.second);
            }
        }
        if (std::ranges::any_of(curve.points, is_drawn))
            curves.push_back(&curve);
    }
    if (curves.empty())
        throw Failure(text("plot '%s' has nothing to show", plot.title.c_str()));
    check_has_gnuplot();
    const ProgramResult drawn =
        run_program({"gnuplot"}, kPlotTimeoutMs, script_of(plot, curves, x, y));
    if (drawn.status != 0)
        throw Failure(text("gnuplot: %s", drawn.error.c_str()));
    return as_element(drawn.out, plot);
}

std::string svg_file_of(const std::vector<Plot>& plots) {
    std::string pictures;
    std::size_t top = 0;
    for (const Plot& plot : plots) {
        const std::size_t height = height_for(plot.curves.size());
        pictures += text("<svg y=\"%zu\" width=\"%zu\" height=\"%zu\">\n", top, kWidth, height) +
                    svg_of(plot) + "</svg>\n";
        top += height;
    }
    return text(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
               "color=\"black\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
               kWidth, top) +
           pictures + "</svg>\n";
}

}  // namespace tagwire::tools
