// SPDX-License-Identifier: BSD-3-Clause
// Plots of curves, drawn by gnuplot: an <svg> element for a page, which loads nothing and has the
// page's text colour, so that it is readable on light and on dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tagwire::tools {

/// Values are in the unit's base: bytes, pieces, nanoseconds, pieces per second, bytes per second.
/// kPercent and kThreads are that number itself.
enum class PlotUnit {
    kBytes,
    kCount,
    kNanoseconds,
    kPerSecond,
    kBytesPerSecond,
    kPercent,
    kThreads
};

/// Logarithmic, but percents from 0 to 100; sizes and threads have powers of two as marks, counts
/// those of ten, the last one always. Values that are not positive are left out.
struct PlotAxis {
    std::string label;
    PlotUnit unit;
};

using Points = std::vector<std::pair<double, double>>;  // by x

/// The style of a curve, so that curves can be told apart without colours: markers of solid ones
/// are filled, of others hollow. kBroad is a pale band behind the others, kLimit a grey line
/// without markers.
enum class Line { kSolid, kDashed, kDotted, kBroad, kLimit };

struct Curve {
    std::string name;
    Points points;
    Line line = Line::kSolid;
    int colour = -1;  // a family has one, and one shape of markers; -1: by its place
    Points upper{};   // with the points, the edges of a pale band; by x, may be empty
};

/// kNarrow fits a phone: fewer marks, and a legend of one column.
enum class PlotSize { kWide, kNarrow };

struct Plot {
    std::string id;  // letters and digits, unique in the page
    std::string title;
    PlotAxis x, y;
    std::vector<Curve> curves;
    double mark_at = 0;       // a vertical line at this x, unless 0
    bool draws_title = true;  // else it is in the description alone
};

/// It says in words, for those who do not see it, what it shows. Throws Failure when gnuplot is
/// missing or fails. Curves without points are left out; without any curve it is a Failure, too.
std::string svg_of(const Plot& plot, PlotSize size = PlotSize::kWide);

/// The plots one below the other as a file of its own, dark on white. Throws as svg_of() does.
std::string svg_file_of(const std::vector<Plot>& plots);

/// Throws Failure that says what to install.
void check_has_gnuplot();

}  // namespace tagwire::tools
