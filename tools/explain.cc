// SPDX-License-Identifier: BSD-3-Clause
#include "tools/explain.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/perf.hpp"
#include "tools/report.hpp"
#include "tools/sizes.hpp"

namespace tagwire::tools {
namespace {

constexpr const char* kDefaultSizes = "8,1k,8k,64k,1m";
constexpr std::size_t kPlotPowers = 26;
constexpr std::size_t kPlotStepsPerPower = 8;
constexpr std::size_t kNever = SIZE_MAX;

std::vector<std::size_t> plot_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i <= kPlotPowers * kPlotStepsPerPower; ++i) {
        const std::size_t power = std::size_t{1} << (i / kPlotStepsPerPower);
        const std::size_t size = power + power * (i % kPlotStepsPerPower) / kPlotStepsPerPower;
        if (sizes.empty() || sizes.back() != size)
            sizes.push_back(size);
    }
    return sizes;
}

/// A worker over the wanted transports.
class Explainer {
  public:
    explicit Explainer(const std::optional<std::string>& transports) {
        tw_context_params_t params{};
        params.transports = transports ? transports->c_str() : nullptr;
        const tw_status_t status = tw_context_create(&params, &context_);
        if (status == TW_ERR_NO_DEVICE) {
            throw UsageError(text("%s is here (tagwire info devices lists what is)",
                                  transports ? ("--tl: nothing of '" + *transports + "'").c_str()
                                             : "no transport that TAGWIRE_TRANSPORTS lets in"));
        }
        check(status, "tw_context_create");
        check(tw_worker_create(context_, nullptr, &worker_), "tw_worker_create");
    }

    ~Explainer() {
        tw_worker_destroy(worker_);
        tw_context_destroy(context_);
    }

    Explainer(const Explainer&) = delete;
    Explainer& operator=(const Explainer&) = delete;

    /// "sm:memory", ...
    std::vector<std::string> rails() const {
        std::vector<std::string> names;
        tw_worker_describe(
            worker_,
            [](void* arg, const char* key, const char* value) {
                const std::string_view fact(value);
                if (std::string_view(key).starts_with("rail_") &&
                    fact.find("first contact only") == std::string_view::npos) {
                    static_cast<std::vector<std::string>*>(arg)->emplace_back(
                        fact.substr(0, fact.find(',')));
                }
            },
            &names);
        return names;
    }

    tw_explanation_t explain(const std::string& rail, std::size_t size,
                             tw_buffer_kind_t buffer) const {
        tw_explanation_t explanation{};
        check(tw_worker_explain(worker_, rail.c_str(), size, buffer, &explanation),
              "tw_worker_explain");
        return explanation;
    }

    /// Each rail for each size.
    std::vector<ExplainedRail> explain(const std::vector<std::size_t>& sizes,
                                       tw_buffer_kind_t buffer) const {
        std::vector<ExplainedRail> explained;
        for (const std::string& name : rails()) {
            explained.push_back({name, {}});
            for (const std::size_t size : sizes)
                explained.back().sizes.push_back(explain(name, size, buffer));
        }
        return explained;
    }

  private:
    static void check(tw_status_t status, const char* call) {
        if (status != TW_OK)
            throw Failure(text("%s: %s", call, tw_status_string(status)));
    }

    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
};

tw_buffer_kind_t parse_buffer(const std::string& given) {
    if (given == "plain")
        return TW_BUFFER_PLAIN;
    if (given == "mapped")
        return TW_BUFFER_MAPPED;
    if (given == "list")
        return TW_BUFFER_LIST;
    throw UsageError(
        text("--buffer: '%s' is not available; available: plain mapped list", given.c_str()));
}

/// A file's name must not promise what is not in it.
void check_plot_name(const std::string& file) {
    const std::string ending = std::filesystem::path(file).extension();
    if (!ending.empty() && ending != ".svg") {
        throw UsageError(text("--plot: the plot is an SVG file, so '%s' cannot end in %s; %s",
                              file.c_str(), ending.c_str(),
                              "name it x.svg and convert that (rsvg-convert, inkscape)"));
    }
}

/// The possible ones first, cheapest first.
std::vector<const tw_protocol_cost_t*> in_order(const tw_explanation_t& explanation) {
    std::vector<const tw_protocol_cost_t*> order;
    for (unsigned i = 0; i < explanation.protocol_count; ++i)
        order.push_back(&explanation.protocols[i]);
    std::ranges::stable_sort(order, [](const auto* one, const auto* other) {
        if ((one->obstacle == nullptr) != (other->obstacle == nullptr))
            return one->obstacle == nullptr;
        return one->obstacle == nullptr && one->ns < other->ns;
    });
    return order;
}

std::string terms_of(const tw_protocol_cost_t& cost) {
    std::string list;
    for (unsigned i = 0; i < cost.term_count; ++i)
        list += text("%s%s %.0f", i == 0 ? "" : " + ", cost.terms[i].name, cost.terms[i].ns);
    return list;
}

void print(const tw_explanation_t& explanation) {
    std::printf("\n%s: %s\n  %s (%s)\n", size_name(explanation.length).c_str(),
                explanation.protocols[explanation.chosen].name, explanation.rule, explanation.knob);
    if (explanation.copy_in != nullptr) {
        std::printf("  copied into shared memory by %s, out of it by %s\n", explanation.copy_in,
                    explanation.copy_out);
    }
    for (const tw_protocol_cost_t* cost : in_order(explanation)) {
        const bool is_chosen = cost == &explanation.protocols[explanation.chosen];
        if (cost->obstacle != nullptr && !is_chosen) {
            std::printf("    %-12s %10s  %s\n", cost->name, "-", cost->obstacle);
        } else {
            std::printf("  %c %-12s %10s  %s= %s ns\n", is_chosen ? '*' : ' ', cost->name,
                        time_text(cost->ns).c_str(), cost->is_measured != 0 ? "measured " : "",
                        terms_of(*cost).c_str());
        }
    }
}

/// A latency test between two processes, at level msg; nothing without --live.
std::vector<PerfPlan> live_plans(const ExplainArguments& arguments) {
    if (!arguments.live) {
        if (arguments.cpu)
            throw UsageError("--cpu is for the two processes of --live");
        return {};
    }
    if (!arguments.json.empty()) {
        throw UsageError(
            "--live has no JSON; the same comes from tagwire perf tag_lat --level msg "
            "--json FILE");
    }
    PerfArguments perf;
    perf.test = "tag_lat";
    perf.level = "msg";
    perf.transport = arguments.transports;
    perf.size = arguments.sizes.value_or(kDefaultSizes);
    if (arguments.buffer != "plain")
        perf.memory = arguments.buffer;
    perf.cpu = arguments.cpu;
    return make_plans({perf});
}

}  // namespace

void print_explanations(const std::vector<ExplainedRail>& rails) {
    for (const ExplainedRail& rail : rails) {
        const tw_explanation_t& first = rail.sizes.front();
        const std::string threshold =
            first.rndv_from == kNever ? "never" : text("from %zu bytes", first.rndv_from);
        const std::string striped =
            first.striped_from == kNever
                ? ""
                : text(", over several rails from %zu bytes", first.striped_from);
        std::printf(
            "%s%s: rendezvous %s%s; costs %s%s\n", &rail == rails.data() ? "" : "\n",
            rail.name.c_str(), threshold.c_str(), striped.c_str(),
            first.source[0] == '\0' ? "modelled (tagwire tune measures them)" : "measured, from ",
            first.source);
        for (const tw_explanation_t& explanation : rail.sizes)
            print(explanation);
    }
}

void run_explain(const ExplainArguments& arguments) {
    const tw_buffer_kind_t buffer = parse_buffer(arguments.buffer);
    if (!arguments.op.empty())
        return explain_rma(arguments);
    std::vector<std::size_t> sizes;
    for (const Size& size : parse_sizes(arguments.sizes.value_or(kDefaultSizes)))
        sizes.push_back(size.bytes);
    const std::vector<PerfPlan> live = live_plans(arguments);
    check_plot_name(arguments.plot);
    check_writable(arguments.json);
    check_writable(arguments.plot);
    const Explainer explainer(arguments.transports);
    const std::vector<ExplainedRail> rails = explainer.explain(sizes, buffer);
    if (arguments.json != "-")
        print_explanations(rails);
    if (!arguments.json.empty())
        write_text_file(arguments.json, explanations_json(rails));
    if (!arguments.plot.empty())
        plot_explanations(arguments.plot, explainer.explain(plot_sizes(), buffer));
    if (live.empty())
        return;
    std::printf("\nbetween two processes:\n\n");
    std::fflush(stdout);
    if (run_perf(live) != 0)
        throw Failure("the messages between two processes have failed");
}

}  // namespace tagwire::tools
