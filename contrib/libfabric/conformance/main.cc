// SPDX-License-Identifier: BSD-3-Clause
// fi_conformance: what a provider of libfabric makes of the manual pages' statements.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "net.hpp"
#include "report.hpp"

namespace {

using namespace conformance;

struct Arguments {
    std::vector<std::string> providers;
    std::vector<std::string> names;
    std::string json;
    std::string markdown;
    std::string record;
    bool strict = false;
    unsigned patience_ms = 4000;
    Settings settings;
};

std::vector<Run> run_all(const Arguments& arguments) {
    Settings settings = arguments.settings;
    settings.patience = std::chrono::milliseconds(arguments.patience_ms);
    std::vector<Run> runs;
    const auto cases = select(arguments.names);
    if (arguments.providers.size() == 1) {  // another one would be left out afterwards
        name_provider(arguments.providers[0]);
        load_providers();
    }
    for (const auto& provider : arguments.providers)
        runs.push_back(run(provider, cases, settings));
    if (!arguments.json.empty()) {
        std::ofstream file(arguments.json);
        write_json(file, runs);
    }
    return runs;
}

// Cases whose outcome is another than recorded; those that are not in the record do not count.
int differences(const Run& run, const std::string& path) {
    std::ifstream file(path);
    if (!file)
        throw std::invalid_argument("cannot read " + path);
    int differences = 0;
    std::string name;
    std::string outcome;
    while (file >> name && std::getline(file >> std::ws, outcome)) {
        for (std::size_t i = 0; i < run.cases.size(); ++i) {
            if (name == run.cases[i].name && outcome != name_of(run.results[i].outcome)) {
                std::cout << name << ": recorded as " << outcome << ", now "
                          << name_of(run.results[i].outcome) << "\n";
                ++differences;
            }
        }
    }
    return differences;
}

// The names of a record, when it is what chooses.
std::vector<std::string> recorded_names(const std::string& path) {
    std::ifstream file(path);
    std::vector<std::string> names;
    for (std::string line; std::getline(file, line);)
        names.push_back(line.substr(0, line.find(' ')));
    return names;
}

int run_command(Arguments& arguments) {
    if (!arguments.record.empty() && arguments.names.empty())
        arguments.names = recorded_names(arguments.record);
    const auto runs = run_all(arguments);
    bool good = true;
    for (const auto& each : runs) {
        write_text(std::cout, each);
        if (!arguments.record.empty())
            good = differences(each, arguments.record) == 0 && good;
        else
            good = good && all_pass(each);
        if (arguments.strict)
            for (const auto& result : each.results)
                good = good && result.outcome == Outcome::kPass;
    }
    return good ? 0 : 1;
}

int compare_command(const Arguments& arguments) {
    const auto runs = run_all(arguments);
    if (arguments.markdown.empty()) {
        write_markdown(std::cout, runs);
        return 0;
    }
    std::ofstream file(arguments.markdown);
    write_markdown(file, runs);
    return file ? 0 : 1;
}

void add_common(CLI::App& app, Arguments& arguments) {
    app.add_option("-p,--provider", arguments.providers, "a provider: shm, tcp;ofi_rxm, tagwire")
        ->required()
        ->allow_extra_args(false);  // what follows is a case
    app.add_option("--json", arguments.json, "write the results into this file");
    app.add_option("-j,--jobs", arguments.settings.jobs, "cases that run side by side")
        ->check(CLI::Range(1, 64));
    app.add_option("--patience", arguments.patience_ms, "milliseconds that a wait lasts")
        ->check(CLI::Range(100, 600000));
    app.add_option("case", arguments.names, "cases or features; all by default");
}

int run(int argc, char** argv) {
    CLI::App app("what a provider of libfabric makes of the manual pages' statements");
    app.require_subcommand(1);
    Arguments arguments;
    auto* cases = app.add_subcommand("run", "run cases; fails if one fails, hangs or crashes");
    add_common(*cases, arguments);
    cases->add_option("--record", arguments.record,
                      "fail if an outcome is another than in this file of lines 'case outcome'");
    cases->add_flag("--strict", arguments.strict, "what is not supported fails");
    auto* compare = app.add_subcommand("compare", "run cases over several providers");
    add_common(*compare, arguments);
    compare->add_option("-o,--output", arguments.markdown, "write the table into this file");
    auto* list = app.add_subcommand("list", "list the cases");
    CLI11_PARSE(app, argc, argv);
    if (*list) {
        for (const auto& each : conformance::all_cases())
            std::cout << each.name << "\t" << each.feature << "\t" << each.section << "\n";
        return 0;
    }
    return *cases ? run_command(arguments) : compare_command(arguments);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& error) {
        std::cerr << "fi_conformance: " << error.what() << "\n";
        return 2;
    }
}
