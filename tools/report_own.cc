// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_own.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/failure.hpp"
#include "tools/program.hpp"
#include "tools/resources.hpp"

namespace tagwire::tools {
namespace {

using json = nlohmann::ordered_json;

double figure_of(const json& result, Figure figure) {
    switch (figure) {
        case Figure::kLatency:
            return result.at("latency_ns").at("p50").get<double>();
        case Figure::kMessages:
            return result.at("messages_per_s").get<double>();
        default:
            return result.at("bytes_per_s").get<double>();
    }
}

std::vector<std::string> joined(std::vector<std::string> words,
                                std::initializer_list<const char*> more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

}  // namespace

std::vector<Lane> lanes() {
    std::map<std::string, std::string> devices;
    for (const Resource& resource : all_resources()) {
        std::string& device = devices[resource.transport];
        if (device.empty() || resource.transport == "tcp" ||
            (device.starts_with("vhca") && !resource.device.starts_with("vhca")))
            device = resource.device;
    }
    std::vector<Lane> found;
    for (const char* transport : {"sm", "rc", "dc", "tcp"})
        if (const auto at = devices.find(transport); at != devices.end())
            found.push_back({at->first, at->second});
    return found;
}

std::string OwnRuns::run(const std::vector<std::string>& arguments,
                         const std::string& setting) const {
    std::vector<std::string> command{program_, "perf"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::string line = setting.empty() ? "tagwire perf" : setting + " tagwire perf";
    for (const std::string& argument : arguments)
        line += " " + argument;
    log_->insert(line);
    command.insert(command.end(), {"--json", "-"});
    if (!setting.empty())
        command.insert(command.begin(), {"env", setting});
    const ProgramResult ended = run_program(command, timeout_ms_);
    if (ended.status != 0)
        throw Failure(ended.error.empty() ? text("exit status %d", ended.status) : ended.error);
    return ended.out.substr(std::min(ended.out.find('{'), ended.out.size()));
}

Reading OwnRuns::by_size(const std::vector<std::string>& arguments, Figure figure,
                         const std::vector<Batch>& batches, const std::string& setting) const {
    Points points, p99;
    for (const Batch& batch : batches) {
        const std::string results =
            run(joined(arguments, {"--size", batch.sizes, "--iters", batch.iterations}), setting);
        // Bound to a name: what is walked over lives as long as the walk.
        const json document = json::parse(results);
        for (const json& result : document.at("results")) {
            const auto size = result.at("size").get<double>();
            points.emplace_back(size, figure_of(result, figure));
            if (figure == Figure::kLatency)
                p99.emplace_back(size, result.at("latency_ns").at("p99").get<double>());
        }
    }
    return {points, p99};
}

Points OwnRuns::by_depth(const std::vector<std::string>& arguments,
                         const std::vector<const char*>& depths, const char* iterations) const {
    Points points;
    for (const char* depth : depths) {
        const json document =
            json::parse(run(joined(arguments, {"--depth", depth, "--iters", iterations}), ""));
        const json& result = document.at("results").at(0);
        points.emplace_back(result.at("depth").get<double>(), figure_of(result, Figure::kLatency));
    }
    return points;
}

Points OwnRuns::by_threads(const std::vector<std::string>& arguments,
                           const std::vector<const char*>& threads, const char* iterations) const {
    Points points;
    for (const char* number : threads) {
        const json document =
            json::parse(run(joined(arguments, {"--threads", number, "--iters", iterations}), ""));
        const json& result = document.at("results").at(0);
        points.emplace_back(result.at("threads").get<double>(),
                            figure_of(result, Figure::kMessages));
    }
    return points;
}

double OwnRuns::floor_ns() const {
    const json document = json::parse(run({"cacheline", "--iters", "2048", "--warmup", "256"}, ""));
    return figure_of(document.at("results").at(0), Figure::kLatency);
}

}  // namespace tagwire::tools
