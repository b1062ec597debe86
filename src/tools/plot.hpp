// SPDX-License-Identifier: BSD-3-Clause
// Curves as a picture, drawn by gnuplot: an <svg> element to stand in a page, without anything that
// it would load, and with the page's text colour, so that it is readable on light and on dark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tagwire::tools {

/// Values are in the unit's base: bytes, pieces, nanoseconds, pieces per second, bytes per second.
enum class PlotUnit { kBytes, kCount, kNanoseconds, kPerSecond, kBytesPerSecond };

/// Logarithmic; sizes and counts have powers of two and ten as marks. What is not positive is left
/// out.
struct PlotAxis {
    std::string label;
    PlotUnit unit;
};

struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;  // by x
    bool is_reference = false;                      // dashed: of something else, to compare with
};

struct Plot {
    std::string id;  // letters and digits, unique in the page
    std::string title;
    PlotAxis x, y;
    std::vector<Curve> curves;
};

/// Throws Failure when gnuplot is missing or fails. Curves without points are left out; without any
/// curve it is a Failure, too.
std::string svg_of(const Plot& plot);

/// Throws Failure that says what to install.
void check_has_gnuplot();

}  // namespace tagwire::tools
