// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cli/failure.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

constexpr int kPlotTimeoutMs = 30000;
constexpr std::size_t kMarkersMax = 20;  // on one curve

/// Pixels of a plot and of what stands around it.
struct Layout {
    std::size_t width, height;  // without the legend
    std::size_t left, right, top, bottom;
    std::size_t font, legend_line;
    std::size_t marks_max;  // on an axis of sizes
};
constexpr Layout kWideLayout{800, 410, 90, 30, 44, 72, 15, 24, 10};
constexpr Layout kNarrowLayout{380, 310, 76, 22, 40, 64, 13, 21, 6};
constexpr std::size_t kTitleHeight = 26;
constexpr std::size_t kSample = 40;       // of a line in the legend
constexpr std::size_t kSampleGap = 8;     // behind it
constexpr std::size_t kEntryGap = 24;     // between two columns
constexpr double kCharacterWidth = 0.55;  // of the font's size

const Layout& layout_of(PlotSize size) {
    return size == PlotSize::kWide ? kWideLayout : kNarrowLayout;
}

// Distinct for most eyes, and on light as on dark ground (Paul Tol's "bright", and what fits it).
constexpr const char* kColours[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                    "#66ccee", "#aa3377", "#ee7733", "#999999"};
constexpr int kFilledMarkers[] = {7, 5, 9, 13, 11, 15};
constexpr int kHollowMarkers[] = {6, 4, 8, 12, 10, 14};

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
        case PlotUnit::kThreads:
            return text("%g", value);
        case PlotUnit::kPercent:
            return text("%g %%%%", value);  // gnuplot takes it for a format
        default:
            return with_prefix(value, kBandwidths);
    }
}

/// Powers of two, with as many left out between two marks as must be; the last is one of them.
std::vector<double> binary_marks(Range range, std::size_t marks_max) {
    const int first = static_cast<int>(std::floor(std::log2(range.min)));
    const int last = static_cast<int>(std::ceil(std::log2(range.max)));
    const int steps = static_cast<int>(marks_max);
    const int step = std::max<int>(1, (last - first + steps - 1) / steps);
    std::vector<double> marks;
    for (int power = first; power + (step + 1) / 2 <= last; power += step)
        marks.push_back(std::exp2(power));
    marks.push_back(std::exp2(last));
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

std::vector<double> marks_of(PlotUnit unit, Range range, const Layout& layout) {
    if (unit == PlotUnit::kBytes || unit == PlotUnit::kThreads)
        return binary_marks(range, layout.marks_max);
    if (unit == PlotUnit::kPercent)
        return {0, 20, 40, 60, 80, 100};
    return decimal_marks(range);
}

std::string axis_script(char name, const PlotAxis& axis, Range range, const Layout& layout) {
    const std::vector<double> marks = marks_of(axis.unit, range, layout);
    std::string list;
    for (const double mark : marks) {
        list += text("%s\"%s\" %.17g", list.empty() ? "" : ", ", mark_text(mark, axis.unit).c_str(),
                     mark);
    }
    std::string script = text("set %ctics (", name) + list + ")\n";
    if (axis.unit == PlotUnit::kPercent)
        return script + text("unset logscale %c\nset %crange [0:104]\n", name, name);
    constexpr double kMargin = 1.05;
    return script + text("set logscale %c\nset %crange [%.17g:%.17g]\n", name, name,
                         std::min(marks.front(), range.min) / kMargin,
                         std::max(marks.back(), range.max) * kMargin);
}

/// The place of everything, in pixels from the top left corner.
class Frame {
  public:
    Frame(const Plot& plot, PlotSize size) : layout_(layout_of(size)) {
        std::size_t longest = 1;
        for (const Curve& curve : plot.curves) {
            if (std::ranges::any_of(curve.points, is_drawn)) {
                longest = std::max(longest, curve.name.size());
                ++curves_;
            }
        }
        const double name = static_cast<double>(longest * layout_.font) * kCharacterWidth;
        entry_ = kSample + kSampleGap + kEntryGap + static_cast<std::size_t>(name);
        columns_ =
            std::clamp<std::size_t>((layout_.width - layout_.left + kEntryGap) / entry_, 1, 4);
        columns_ = std::min(columns_, std::max<std::size_t>(curves_, 1));
        top_ = layout_.top + (plot.draws_title ? kTitleHeight : 0);
    }

    const Layout& layout() const { return layout_; }
    std::size_t width() const { return layout_.width; }
    std::size_t height() const { return layout_.height + top_ - layout_.top + legend_height(); }
    double left() const { return across(layout_.left); }
    double right() const { return across(layout_.width - layout_.right); }
    double top() const { return down(top_); }
    double bottom() const { return down(height() - legend_height() - layout_.bottom); }
    /// The left end and the middle of the entry at this place of the legend.
    double entry_left(std::size_t place) const {
        return across(layout_.left + place % columns_ * entry_);
    }
    double entry_middle(std::size_t place) const {
        return down(height() - legend_height() + place / columns_ * layout_.legend_line +
                    layout_.legend_line / 2);
    }
    double label_top() const { return down(top_ - layout_.font * 4 / 3); }

    /// gnuplot's screen is 1 wide and 1 high, from the bottom left corner.
    double across(std::size_t pixels) const {
        return static_cast<double>(pixels) / static_cast<double>(width());
    }

  private:
    std::size_t legend_height() const {
        return (curves_ + columns_ - 1) / columns_ * layout_.legend_line + layout_.font / 2;
    }
    double down(std::size_t pixels) const {
        return 1 - static_cast<double>(pixels) / static_cast<double>(height());
    }

    const Layout& layout_;
    std::size_t curves_ = 0;
    std::size_t columns_ = 1;
    std::size_t entry_ = 1;
    std::size_t top_ = 0;
};

std::size_t colour_of(const Curve& curve, std::size_t place) {
    return curve.colour < 0 ? place : static_cast<std::size_t>(curve.colour);
}

std::string line_style(const Curve& curve, std::size_t place) {
    if (curve.line == Line::kBroad)
        return "lw 9 lc rgb '#cccccc'";
    if (curve.line == Line::kLimit)
        return "lw 2 dt (2,4) lc rgb '#888888'";
    const char* dashes[] = {"1", "(9,6)", "(2,4)"};
    return text("lw 2 dt %s lc rgb '%s'", dashes[static_cast<int>(curve.line)],
                kColours[colour_of(curve, place) % std::size(kColours)]);
}

/// Empty for lines that have none.
std::string marker_style(const Curve& curve, std::size_t place) {
    if (curve.line == Line::kBroad || curve.line == Line::kLimit)
        return "";
    const auto& markers = curve.line == Line::kSolid ? kFilledMarkers : kHollowMarkers;
    return text("pt %d ps 0.7", markers[colour_of(curve, place) % std::size(markers)]);
}

std::string curve_style(const Curve& curve, std::size_t place) {
    const std::string marker = marker_style(curve, place);
    if (marker.empty())
        return "with lines " + line_style(curve, place);
    return "with linespoints " + line_style(curve, place) + " " + marker +
           text(" pi %zu", curve.points.size() / kMarkersMax + 1);
}

/// gnuplot's own key keeps no columns where it is put below the plot.
std::string legend_script(const std::vector<const Curve*>& curves, const Frame& frame) {
    std::string script;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        const double left = frame.entry_left(i);
        const double middle = frame.entry_middle(i);
        script +=
            text("set arrow from screen %.6f, screen %.6f to screen %.6f, screen %.6f nohead ",
                 left, middle, left + frame.across(kSample), middle) +
            line_style(*curves[i], i) + "\n";
        if (const std::string marker = marker_style(*curves[i], i); !marker.empty()) {
            script += text("set label \"\" at screen %.6f, screen %.6f point %s lc rgb '%s'\n",
                           left + frame.across(kSample / 2), middle, marker.c_str(),
                           kColours[colour_of(*curves[i], i) % std::size(kColours)]);
        }
        script += "set label " + quoted(curves[i]->name) +
                  text(" at screen %.6f, screen %.6f left\n",
                       left + frame.across(kSample + kSampleGap), middle);
    }
    return script;
}

std::string head_of(const Plot& plot, const Frame& frame) {
    std::string script = text(
        "set terminal svg size %zu,%zu dynamic noenhanced font 'sans-serif,%zu'\n"
        "set grid lw 0.5 lc rgb '#888888'\nset border 3 lw 1\nset tics nomirror out\n"
        "set lmargin at screen %.6f\nset rmargin at screen %.6f\n"
        "set tmargin at screen %.6f\nset bmargin at screen %.6f\n",
        frame.width(), frame.height(), frame.layout().font, frame.left(), frame.right(),
        frame.top(), frame.bottom());
    script += "unset key\n";
    script += "set xlabel " + quoted(plot.x.label) + " offset 0,0.3\nset label 1 " +
              quoted(plot.y.label) + text(" at screen 0.01, screen %.6f left\n", frame.label_top());
    if (plot.mark_at > 0) {
        script += text(
            "set arrow from first %.17g, graph 0 to first %.17g, graph 1 nohead dt (4,4) lc rgb "
            "'#888888' back\n",
            plot.mark_at, plot.mark_at);
    }
    if (plot.draws_title)
        script += "set label 2 " + quoted(plot.title) + " at screen 0.01, screen 0.97 left\n";
    return script;
}

/// The points of a curve, and beside them its upper edge where it has one.
std::string points_of(const Curve& curve) {
    std::string lines;
    for (const auto& point : curve.points) {
        if (!is_drawn(point))
            continue;
        const auto upper = std::ranges::find(curve.upper, point.first, &Points::value_type::first);
        lines += text("%.17g %.17g %.17g\n", point.first, point.second,
                      upper == curve.upper.end() ? point.second : upper->second);
    }
    return lines;
}

std::string script_of(const Plot& plot, const std::vector<const Curve*>& curves, Range x, Range y,
                      PlotSize size) {
    const Frame frame(plot, size);
    std::string script = head_of(plot, frame) + legend_script(curves, frame);
    script +=
        axis_script('x', plot.x, x, frame.layout()) + axis_script('y', plot.y, y, frame.layout());
    std::string bands, lines;
    for (std::size_t i = 0; i < curves.size(); ++i) {
        const Curve& curve = *curves[i];
        script += text("$curve%zu << EOD\n", i) + points_of(curve) + "EOD\n";
        if (!curve.upper.empty()) {
            bands += text(
                "$curve%zu using 1:2:3 with filledcurves fs transparent solid 0.18 noborder "
                "lc rgb '%s', ",
                i, kColours[colour_of(curve, i) % std::size(kColours)]);
        }
        lines += text("%s$curve%zu using 1:2 ", i == 0 ? "" : ", ", i) + curve_style(curve, i);
    }
    return script + "plot " + bands + lines + "\n";
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
void add_description(std::string* svg, const Plot& plot) {
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
    add_description(&svg, plot);
    return svg;
}

}  // namespace

void check_has_gnuplot() {
    if (!has_program("gnuplot")) {
        throw Failure(
            "gnuplot, which draws the plots, is not installed (apt-get install gnuplot-nox)");
    }
}

std::string svg_of(const Plot& plot, PlotSize size) {
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
        run_program({"gnuplot"}, kPlotTimeoutMs, script_of(plot, curves, x, y, size));
    if (drawn.status != 0)
        throw Failure(text("gnuplot: %s", drawn.error.c_str()));
    return as_element(drawn.out, plot);
}

std::string svg_file_of(const std::vector<Plot>& plots) {
    std::string pictures;
    std::size_t top = 0;
    for (const Plot& plot : plots) {
        const std::size_t height = Frame(plot, PlotSize::kWide).height();
        pictures +=
            text("<svg y=\"%zu\" width=\"%zu\" height=\"%zu\">\n", top, kWideLayout.width, height) +
            svg_of(plot) + "</svg>\n";
        top += height;
    }
    return text(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%zu\" height=\"%zu\" "
               "color=\"black\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
               kWideLayout.width, top) +
           pictures + "</svg>\n";
}

}  // namespace tagwire::tools
