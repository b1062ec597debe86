// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "net.hpp"

namespace conformance {
namespace {

constexpr std::array kOutcomes{Outcome::kPass, Outcome::kFail, Outcome::kUnsupported,
                               Outcome::kHang, Outcome::kCrash};

long count(const Run& run, Outcome outcome) {
    return std::count_if(run.results.begin(), run.results.end(),
                         [&](const Result& r) { return r.outcome == outcome; });
}

Result run_one(const std::string& provider, const Case& which, const Settings& settings) {
    const auto body = [&] {
        name_provider(provider);
        set_patience(settings.patience);
        which.body();
    };
    return run_apart(body, settings.patience * 5);
}

// A text in a cell of a table.
std::string cell(std::string text) {
    std::replace(text.begin(), text.end(), '|', '/');
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

void write_totals(std::ostream& out, const std::vector<Run>& runs) {
    out << "| provider | pass | fail | not supported | hang | crash |\n|---|---|---|---|---|---|\n";
    for (const auto& run : runs) {
        out << "| " << run.provider;
        for (const auto outcome : kOutcomes)
            out << " | " << count(run, outcome);
        out << " |\n";
    }
}

// A case of which all providers make the same is no difference.
bool differs(const std::vector<Run>& runs, std::size_t i) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const Run& run) { return run.results[i].outcome != Outcome::kPass; });
}

void write_row(std::ostream& out, const std::vector<Run>& runs, std::size_t i) {
    const Case& which = runs[0].cases[i];
    out << "| `" << which.name << "` | " << which.section << " | " << which.ids;
    for (const auto& run : runs)
        out << " | " << name_of(run.results[i].outcome);
    out << " |\n";
}

void write_head(std::ostream& out, const std::vector<Run>& runs) {
    out << "| case | page, section | promise";
    for (const auto& run : runs)
        out << " | " << run.provider;
    out << " |\n|---|---|---";
    for (std::size_t i = 0; i < runs.size(); ++i)
        out << "|---";
    out << "|\n";
}

void write_table(std::ostream& out, const std::vector<Run>& runs, bool only_differences) {
    write_head(out, runs);
    for (std::size_t i = 0; i < runs[0].cases.size(); ++i)
        if (!only_differences || differs(runs, i))
            write_row(out, runs, i);
}

void write_reasons(std::ostream& out, const std::vector<Run>& runs) {
    for (const auto& run : runs) {
        out << "\n### " << run.provider << "\n\n";
        for (std::size_t i = 0; i < run.cases.size(); ++i) {
            if (run.results[i].outcome != Outcome::kPass) {
                out << "- `" << run.cases[i].name << "`, " << name_of(run.results[i].outcome)
                    << ": " << cell(run.results[i].text) << "\n";
            }
        }
    }
}

}  // namespace

std::vector<Case> select(const std::vector<std::string>& names) {
    auto cases = all_cases();
    if (names.empty())
        return cases;
    std::vector<Case> chosen;
    for (const auto& name : names) {
        const auto before = chosen.size();
        std::copy_if(cases.begin(), cases.end(), std::back_inserter(chosen),
                     [&](const Case& c) { return name == c.name || name == c.feature; });
        if (chosen.size() == before)
            throw std::invalid_argument("there is no case or feature '" + name + "'");
    }
    return chosen;
}

Run run(const std::string& provider, const std::vector<Case>& cases, const Settings& settings) {
    Run result{provider, cases, std::vector<Result>(cases.size())};
    // Threads that fork: glibc makes its allocator usable in the child, and nothing else is shared.
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> jobs;
    for (unsigned i = 0; i < settings.jobs; ++i) {
        jobs.emplace_back([&] {
            for (std::size_t at = next++; at < cases.size(); at = next++)
                result.results[at] = run_one(provider, cases[at], settings);
        });
    }
    for (auto& job : jobs)
        job.join();
    return result;
}

bool all_pass(const Run& run) {
    return count(run, Outcome::kPass) + count(run, Outcome::kUnsupported) ==
           static_cast<long>(run.results.size());
}

void write_text(std::ostream& out, const Run& run) {
    for (std::size_t i = 0; i < run.cases.size(); ++i) {
        out.width(28);
        out << std::left << run.cases[i].name;
        out << name_of(run.results[i].outcome);
        if (!run.results[i].text.empty())
            out << ": " << run.results[i].text;
        out << "\n";
    }
    out << run.provider << ":";
    for (const auto outcome : kOutcomes) {
        out << " " << count(run, outcome) << " " << name_of(outcome)
            << (outcome == Outcome::kCrash ? "\n" : ",");
    }
}

void write_json(std::ostream& out, const std::vector<Run>& runs) {
    auto all = nlohmann::json::array();
    for (const auto& run : runs) {
        auto cases = nlohmann::json::array();
        for (std::size_t i = 0; i < run.cases.size(); ++i) {
            const auto& which = run.cases[i];
            cases.push_back({{"name", which.name},
                             {"feature", which.feature},
                             {"promise", which.ids},
                             {"section", which.section},
                             {"outcome", name_of(run.results[i].outcome)},
                             {"text", run.results[i].text}});
        }
        all.push_back({{"provider", run.provider}, {"cases", cases}});
    }
    out << all.dump(2) << "\n";
}

void write_record(std::ostream& out, const Run& run) {
    for (std::size_t i = 0; i < run.cases.size(); ++i)
        out << run.cases[i].name << " " << name_of(run.results[i].outcome) << "\n";
}

void write_markdown(std::ostream& out, const std::vector<Run>& runs) {
    out << "<!-- SPDX-License-Identifier: BSD-3-Clause -->\n"
           "# Providers of libfabric and their manual pages\n\n"
           "Written by `fi_conformance compare`. Each case is one statement of a manual page of\n"
           "libfabric, tried through its public calls. `pass`: the provider does what the page "
           "says. `not\nsupported`: it says that it does not, which the pages allow. Promises are "
           "those of\ndocs/reference/semantics.md.\n\n";
    write_totals(out, runs);
    out << "\n## Where they differ\n\n";
    write_table(out, runs, true);
    out << "\n## What was expected, and what came\n";
    write_reasons(out, runs);
    out << "\n## All cases\n\n";
    write_table(out, runs, false);
}

}  // namespace conformance
