// SPDX-License-Identifier: BSD-3-Clause
// Plot of cost over size.
#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/explain.hpp"
#include "tools/program.hpp"
#include "tools/python.hpp"

namespace tagwire::tools {
namespace {

constexpr int kPlotTimeoutMs = 60000;

}  // namespace

void plot_explanations(const std::string& file, const std::vector<ExplainedRail>& rails) {
    const ProgramResult drawn =
        run_program(python_command("explain_plot.py"), kPlotTimeoutMs, explanations_json(rails));
    if (drawn.status != 0)
        throw Failure(drawn.error.substr(0, drawn.error.find_last_not_of('\n') + 1));
    write_text_file(file, drawn.out);
}

}  // namespace tagwire::tools
