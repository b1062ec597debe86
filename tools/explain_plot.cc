// SPDX-License-Identifier: BSD-3-Clause
// Plot of cost over size.
#include <cstddef>
#include <cstdint>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/explain.hpp"

namespace tagwire::tools {
namespace {

Curve curve_of(const ExplainedRail& rail, unsigned protocol) {
    // Solid: eager. Dashed: rendezvous.
    const std::string name = rail.curve.front().protocols[protocol].name;
    Curve curve{name, {}, name.starts_with("rndv") ? Line::kDashed : Line::kSolid};
    for (const tw_explanation_t& at : rail.curve)
        if (at.protocols[protocol].obstacle == nullptr)
            curve.points.emplace_back(at.length, at.protocols[protocol].ns);
    return curve;
}

Curve chosen_of(const ExplainedRail& rail) {
    Curve curve{"chosen", {}, Line::kBroad};
    for (const tw_explanation_t& at : rail.curve)
        curve.points.emplace_back(at.length, at.protocols[at.chosen].ns);
    return curve;
}

}  // namespace

Plot plot_of(const ExplainedRail& rail, const std::string& id) {
    const tw_explanation_t& first = rail.curve.front();
    const bool has_threshold = first.rndv_from != SIZE_MAX;
    const std::string threshold =
        has_threshold ? text(", rendezvous from %zu bytes", first.rndv_from) : "";
    Plot plot{id,
              rail.name + threshold + (first.source[0] == '\0' ? " (modelled)" : " (measured)"),
              {"message size (bytes)", PlotUnit::kBytes},
              {"cost of a message", PlotUnit::kNanoseconds},
              {chosen_of(rail)},
              has_threshold ? static_cast<double>(first.rndv_from) : 0};
    for (unsigned i = 0; i < first.protocol_count; ++i)
        if (Curve curve = curve_of(rail, i); !curve.points.empty())
            plot.curves.push_back(std::move(curve));
    return plot;
}

void plot_explanations(const std::string& file, const std::vector<ExplainedRail>& rails) {
    std::vector<Plot> plots;
    for (const ExplainedRail& rail : rails)
        plots.push_back(plot_of(rail, text("plot%zu", plots.size())));
    write_text_file(file, svg_file_of(plots));
}

}  // namespace tagwire::tools
