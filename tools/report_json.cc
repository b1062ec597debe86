// SPDX-License-Identifier: BSD-3-Clause
// The JSON form of results. Every key is in every result; a figure that a test does not have is
// null.
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kSchema = 1;

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        const std::size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    utsname names{};
    uname(&names);
    return names.machine;
}

ordered_json host_json() {
    utsname names{};
    uname(&names);
    return {{"cpu", cpu_model()},
            {"kernel", std::string(names.sysname) + " " + names.release},
            {"cores", sysconf(_SC_NPROCESSORS_ONLN)}};
}

ordered_json latency_json(const std::optional<LatencySummary>& latency) {
    const auto part = [&latency](double LatencySummary::*field) {
        return latency ? ordered_json((*latency).*field) : ordered_json(nullptr);
    };
    return {{"min", part(&LatencySummary::min)}, {"p50", part(&LatencySummary::p50)},
            {"p99", part(&LatencySummary::p99)}, {"p999", part(&LatencySummary::p999)},
            {"max", part(&LatencySummary::max)}, {"mean", part(&LatencySummary::mean)}};
}

ordered_json range_json(const std::optional<RateRange>& range) {
    return {{"min", range ? ordered_json(range->min) : ordered_json(nullptr)},
            {"max", range ? ordered_json(range->max) : ordered_json(nullptr)}};
}

ordered_json list_json(const std::vector<double>& list) {
    return list.empty() ? ordered_json(nullptr) : ordered_json(list);
}

ordered_json result_json(const Result& result) {
    const Measurement& measured = result.measured;
    return {{"test", result.test},
            {"level", or_null(result.level)},
            {"transport", or_null(result.transport)},
            {"device", or_null(result.device)},
            {"op", or_null(result.op)},
            {"memory", or_null(result.memory)},
            {"data", or_null(result.data)},
            {"size", result.size},
            {"iterations", measured.iterations},
            {"window", result.window},
            {"depth", result.depth},
            {"peers", result.peers},
            {"beside", result.beside},
            {"threads", result.threads},
            {"share", or_null(result.share)},
            {"pollers", result.pollers},
            {"tx_contexts", result.tx_contexts},
            {"cpus", result.cpus},
            {"latency_ns", latency_json(measured.latency_ns)},
            {"floor_ns", or_null(measured.floor_ns)},
            {"above_floor_ns", or_null(measured.above_floor_ns)},
            {"messages_per_s", or_null(measured.messages_per_s)},
            {"bytes_per_s", or_null(measured.bytes_per_s)},
            {"rank_messages_per_s", range_json(measured.rank_messages_per_s)},
            {"thread_messages_per_s", list_json(measured.thread_messages_per_s)},
            {"fairness", or_null(measured.fairness())},
            {"thread_messages_per_cpu_s", list_json(measured.thread_messages_per_cpu_s)},
            {"bytes_per_peer", or_null(result.bytes_per_peer)},
            {"buffer_bytes", or_null(result.buffer_bytes)},
            {"qps", or_null(result.qps)},
            {"protocol", or_null(result.protocol)},
            {"reason", or_null(result.reason)},
            {"validated", result.validated}};
}

using Cells = std::vector<std::pair<std::string, std::string>>;

std::string csv_text(std::string cell) {
    if (cell.find_first_of(",\"\r\n") == std::string::npos)
        return cell;
    for (std::size_t at = 0; (at = cell.find('"', at)) != std::string::npos; at += 2)
        cell.insert(at, 1, '"');
    return "\"" + cell + "\"";
}

std::string cell_of(const ordered_json& value) {
    if (value.is_null() || (value.is_number_float() && !std::isfinite(value.get<double>())))
        return "";
    if (value.is_string())
        return csv_text(value.get<std::string>());
    if (!value.is_array())
        return value.dump();
    std::string list;
    for (const ordered_json& one : value)
        list += (list.empty() ? "" : " ") + cell_of(one);
    return list;
}

/// The leaves of an object; those of an object within it have its name in front.
void flatten(const std::string& prefix, const ordered_json& object, Cells* cells) {
    for (const auto& [key, value] : object.items()) {
        if (value.is_object())
            flatten(prefix + key + "_", value, cells);
        else
            cells->emplace_back(prefix + key, cell_of(value));
    }
}

Cells cells_of(const Result& result) {
    Cells cells;
    flatten("", result_json(result), &cells);
    return cells;
}

}  // namespace

std::string csv_head() {
    std::string line;
    for (const auto& [name, cell] : cells_of(Result()))
        line += (line.empty() ? "" : ",") + name;
    return line + "\n";
}

std::string csv_line(const Result& result) {
    std::string line;
    for (const auto& [name, cell] : cells_of(result))
        line += cell + ",";
    line.back() = '\n';
    return line;
}

void write_json(const std::string& file, const std::vector<Result>& results) {
    ordered_json list = ordered_json::array();
    for (const Result& result : results)
        list.push_back(result_json(result));
    const ordered_json document{{"schema", kSchema},
                                {"tagwire", tagwire_version_string()},
                                {"host", host_json()},
                                {"results", list}};
    // Names of devices and of the processor may be no UTF-8.
    write_text_file(file,
                    document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace tagwire::tools
