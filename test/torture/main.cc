// SPDX-License-Identifier: BSD-3-Clause
// torture: what peers, threads and the system can do to the library, at random but by a seed.
// docs/how-to/torture.md is its manual.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "tortures.hpp"

namespace tagwire::torture {
namespace {

constexpr unsigned kRolePatienceS = 1800;

struct Torture {
    const char* name;
    const char* help;
    void (*run)(Trial&);
};

constexpr Torture kTortures[] = {
    {"deaths", "peers die in every phase of a connection", run_deaths},
    {"threads", "threads call everything on shared workers", run_threads},
    {"churn", "peers come and go in every way", run_churn},
    {"flood", "peers send what nobody receives", run_flood},
    {"hostile", "peers of every socket and ring that keep to no format", run_hostile},
    {"fork", "forks in mid traffic", run_fork},
    {"dlopen", "copies of the library loaded at run time", run_dlopen},
};

const std::map<std::string, int (*)(Link&, Random&)> kRoles = {
    {"mortal", role_mortal}, {"guest", role_guest},       {"flooder", role_flooder},
    {"victim", role_victim}, {"attacker", role_attacker}, {"echo", role_echo},
};

int run_role(const std::string& name, std::uint64_t seed) {
    ::alarm(kRolePatienceS);  // its parent is more patient than no child
    Link parent(kLinkFd);
    Random random(seed);
    try {
        return kRoles.at(name)(parent, random);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "torture: %s: %s\n", name.c_str(), error.what());
        return 1;
    }
}

int run_torture(const Torture& torture, const Settings& settings) {
    Trial trial(torture.name, settings);
    try {
        torture.run(trial);
    } catch (const std::exception& error) {
        trial.lose(error.what());
    }
    return trial.finish();
}

std::uint64_t random_seed() {
    return std::random_device()() % 1'000'000;
}

int run(int argc, char** argv) {
    CLI::App app("Tortures of the library; TAGWIRE_TRANSPORTS names the transports");
    app.require_subcommand(1);
    app.fallthrough();
    Settings settings;
    settings.seed = random_seed();
    app.add_option("--seed", settings.seed, "of everything random (default: another each time)");
    app.add_option("--rounds", settings.rounds, "how long; its unit is the torture's (0: short)");
    app.add_option("--patience", settings.patience_s, "seconds that a phase may take")
        ->check(CLI::Range(1U, 100'000U))
        ->capture_default_str();
    int code = 1;
    for (const Torture& torture : kTortures) {
        CLI::App* command = app.add_subcommand(torture.name, torture.help);
        if (torture.run == run_threads) {
            command->add_option("--mode", settings.mode, "thread mode of the workers")
                ->check(CLI::IsMember({"multi", "serialized", "single"}))
                ->capture_default_str();
            command->add_option("--seconds", settings.seconds, "how long, instead of rounds");
            command->add_option("--threads", settings.threads)
                ->check(CLI::Range(1U, 64U))
                ->capture_default_str();
            command->add_option("--workers", settings.workers)
                ->check(CLI::Range(1U, 16U))
                ->capture_default_str();
        }
        command->callback([&] { code = run_torture(torture, settings); });
    }
    std::string role;
    std::uint64_t role_seed = 0;
    CLI::App* hidden = app.add_subcommand("role")->group("");
    hidden->add_option("name", role)->required();
    hidden->add_option("role_seed", role_seed)->required();
    hidden->callback([&] { code = run_role(role, role_seed); });
    CLI11_PARSE(app, argc, argv);
    return code;
}

}  // namespace
}  // namespace tagwire::torture

int main(int argc, char** argv) {
    try {
        return tagwire::torture::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "torture: %s\n", error.what());
        return 1;
    }
}
