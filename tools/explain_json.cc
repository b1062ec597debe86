// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include <uct/api/tagwire_uct.h>

#include "tools/explain.hpp"

namespace tagwire::tools {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBuffers[] = {"plain", "mapped", "list"};

ordered_json protocol_json(const tw_protocol_cost_t& cost) {
    ordered_json terms = ordered_json::object();
    for (unsigned i = 0; i < cost.term_count; ++i)
        terms[cost.terms[i].name] = cost.terms[i].ns;
    ordered_json protocol{{"name", cost.name}, {"obstacle", nullptr}};
    if (cost.obstacle != nullptr)
        protocol["obstacle"] = cost.obstacle;
    protocol["measured"] = cost.is_measured != 0;
    protocol["ns"] = cost.ns;
    protocol["terms"] = std::move(terms);
    return protocol;
}

ordered_json size_json(const tw_explanation_t& explanation) {
    ordered_json protocols = ordered_json::array();
    for (unsigned i = 0; i < explanation.protocol_count; ++i)
        protocols.push_back(protocol_json(explanation.protocols[i]));
    ordered_json size{{"size", explanation.length},
                      {"protocol", explanation.protocols[explanation.chosen].name},
                      {"rule", explanation.rule},
                      {"knob", explanation.knob},
                      {"copy_in", nullptr},
                      {"copy_out", nullptr},
                      {"protocols", std::move(protocols)}};
    if (explanation.copy_in != nullptr) {
        size["copy_in"] = explanation.copy_in;
        size["copy_out"] = explanation.copy_out;
    }
    return size;
}

ordered_json rail_json(const ExplainedRail& rail) {
    const tw_explanation_t& first = rail.sizes.front();
    ordered_json out{{"transport", first.transport},     {"device", first.device},
                     {"buffer", kBuffers[first.buffer]}, {"rndv_from", nullptr},
                     {"striped_from", nullptr},          {"source", nullptr}};
    if (first.rndv_from != SIZE_MAX)
        out["rndv_from"] = first.rndv_from;
    if (first.striped_from != SIZE_MAX)
        out["striped_from"] = first.striped_from;
    if (first.source[0] != '\0')
        out["source"] = first.source;
    ordered_json sizes = ordered_json::array();
    for (const tw_explanation_t& explanation : rail.sizes)
        sizes.push_back(size_json(explanation));
    out["sizes"] = std::move(sizes);
    return out;
}

}  // namespace

std::string explanations_json(const std::vector<ExplainedRail>& rails) {
    ordered_json list = ordered_json::array();
    for (const ExplainedRail& rail : rails)
        list.push_back(rail_json(rail));
    const ordered_json document{
        {"schema", 1}, {"tagwire", tagwire_version_string()}, {"transports", std::move(list)}};
    return document.dump(2) + "\n";
}

}  // namespace tagwire::tools
