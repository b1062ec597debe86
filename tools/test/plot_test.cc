// SPDX-License-Identifier: BSD-3-Clause
#include "tools/plot.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/failure.hpp"
#include "common/skip.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

Plot two_curves(const char* id) {
    Plot plot{id,
              "Latency",
              {"message size", PlotUnit::kBytes},
              {"half of the \"round\" trip", PlotUnit::kNanoseconds},
              {}};
    plot.curves.push_back({"sm", {{8, 100}, {1024, 300}, {65536, 9000}}});
    plot.curves.push_back({"another library", {{8, 120}, {0, 7}, {65536, 20000}}, Line::kDashed});
    plot.curves.push_back({"nothing", {}});
    return plot;
}

bool has(const std::string& svg, const char* words) {
    return svg.find(words) != std::string::npos;
}

class PlotTest : public testing::Test {
  protected:
    void SetUp() override {
        if (!has_program("gnuplot"))
            TW_SKIP("gnuplot is not installed");
    }
};

TEST_F(PlotTest, is_one_element_with_title_axes_and_the_curves_that_have_points) {
    const std::string svg = svg_of(two_curves("one"));
    EXPECT_EQ(svg.rfind("<svg", 0), 0U);
    for (const char* words : {"Latency", "message size", "half of the", "another library", "32k",
                              "10 us", "</svg>", "role=\"img\"", "<title>Latency</title>"}) {
        EXPECT_TRUE(has(svg, words)) << words;
    }
    EXPECT_FALSE(has(svg, "nothing"));
}

TEST_F(PlotTest, last_place_has_its_mark_and_the_legend_stands_below_the_axis) {
    Plot plot = two_curves("one");
    plot.curves.front().points.emplace_back(4 << 20, 9e6);
    for (const PlotSize size : {PlotSize::kWide, PlotSize::kNarrow}) {
        const std::string svg = svg_of(plot, size);
        EXPECT_TRUE(has(svg, ">4m<"));
        EXPECT_LT(svg.find("another library"), svg.size());
        const auto height_of = [&svg](const char* words) {
            const std::size_t begin = svg.rfind("translate(", svg.find(words));
            return std::stod(svg.substr(svg.find(',', begin) + 1));
        };
        EXPECT_GT(height_of(">sm<"), height_of(">message size<") + 10);
    }
}

TEST_F(PlotTest, percents_are_linear_and_limits_have_no_markers) {
    Plot plot = two_curves("one");
    plot.y.unit = PlotUnit::kPercent;
    plot.curves = {{"share", {{8, 100}, {64, 30}}}, {"limit", {{8, 50}, {64, 50}}, Line::kLimit}};
    const std::string svg = svg_of(plot);
    for (const char* mark : {">0 %<", ">20 %<", ">100 %<"})
        EXPECT_TRUE(has(svg, mark)) << mark;
}

TEST_F(PlotTest, threads_have_powers_of_two_as_marks) {
    Plot plot = two_curves("one");
    plot.x.unit = PlotUnit::kThreads;
    plot.curves = {{"all", {{1, 10}, {2, 20}, {4, 20}}}};
    const std::string svg = svg_of(plot);
    for (const char* mark : {">1<", ">2<", ">4<"})
        EXPECT_TRUE(has(svg, mark)) << mark;
    EXPECT_FALSE(has(svg, ">5<"));
}

TEST_F(PlotTest, loads_nothing_and_takes_the_colour_of_the_text) {
    const std::string svg = svg_of(two_curves("one"));
    for (const char* words : {"href=\"http", "href='http", "url(http", "<script", "black"})
        EXPECT_FALSE(has(svg, words)) << words;
    EXPECT_TRUE(has(svg, "currentColor"));
}

TEST_F(PlotTest, names_of_two_in_one_page_differ) {
    const std::string svg = svg_of(two_curves("two"));
    EXPECT_TRUE(has(svg, "id='twogpPt"));
    EXPECT_FALSE(has(svg, "id='gp"));
    EXPECT_FALSE(has(svg, "id=\"gnuplot"));
}

TEST_F(PlotTest, one_point_is_enough_and_none_is_refused) {
    Plot plot = two_curves("one");
    plot.curves = {{"a point", {{100000, 5}}}};
    plot.x.unit = PlotUnit::kCount;
    plot.y.unit = PlotUnit::kPerSecond;
    EXPECT_TRUE(has(svg_of(plot), "a point"));
    plot.curves = {{"not positive", {{8, 0}}}};
    EXPECT_THROW(svg_of(plot), Failure);
}

}  // namespace
}  // namespace tagwire::tools
