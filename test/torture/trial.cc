// SPDX-License-Identifier: BSD-3-Clause
#include "trial.hpp"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <utility>

#include "process.hpp"

namespace tagwire::torture {
namespace {

// The watchdog's message, ready to be written by a signal handler.
std::array<char, 512> g_verdict;

void write_all(const char* text) {
    static_cast<void>(!::write(STDERR_FILENO, text, std::strlen(text)));
}

void on_alarm(int /*signal*/) {
    write_all(g_verdict.data());
    kill_children();
    _exit(1);
}

/// Others work on this machine, too: only names that the library itself gives are ours.
std::vector<std::string> fresh_names(const std::string& directory,
                                     const std::vector<std::string>& before) {
    std::vector<std::string> fresh;
    const std::vector<std::string> after = names_in(directory);
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                        std::back_inserter(fresh));
    std::erase_if(fresh, [](const std::string& name) {
        return name.rfind("tagwire-sm-", 0) != 0 && name.rfind("tagwire-vhca", 0) != 0 &&
               name.rfind("tagwire-torture", 0) != 0;
    });
    return fresh;
}

/// The number of descriptors, once it is at most `wanted` or after kSettleSeconds. Only the helper
/// thread of a virtual device closes the sockets that led to a process that ended, and under load
/// it does so after this thread has seen that end.
std::size_t settled_descriptors(std::size_t wanted) {
    constexpr double kSettleSeconds = 10;
    const double deadline = seconds_now() + kSettleSeconds;
    std::size_t now = descriptors_of(0);
    while (now > wanted && seconds_now() < deadline) {
        sched_yield();
        now = descriptors_of(0);
    }
    return now;
}

/// Lists every descriptor, for a report.
std::string open_files() {
    std::string text;
    for (const std::string& fd : names_in("/proc/self/fd")) {
        std::array<char, 256> file{};
        static_cast<void>(
            !::readlink(("/proc/self/fd/" + fd).c_str(), file.data(), file.size() - 1));
        text.append(" ").append(fd).append(":").append(file.data());
    }
    return text;
}

}  // namespace

Trial::Trial(std::string name, const Settings& settings)
    : name_(std::move(name)), settings_(settings), random_(settings.seed) {
    std::printf("torture %s: seed %llu\n", name_.c_str(),
                static_cast<unsigned long long>(settings_.seed));
    std::fflush(stdout);
    struct sigaction action = {};
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, nullptr);
    phase("start");
}

unsigned Trial::rounds(unsigned otherwise) const {
    return settings_.rounds != 0 ? settings_.rounds : otherwise;
}

void Trial::phase(const std::string& text) {
    ::alarm(0);
    std::snprintf(g_verdict.data(), g_verdict.size(),
                  "torture %s: LOST: '%s' has not ended after %u s; replay: %s\n", name_.c_str(),
                  text.c_str(), settings_.patience_s, replay().c_str());
    ::alarm(settings_.patience_s);
}

void Trial::lose(const std::string& text) {
    constexpr unsigned kShown = 20;
    const unsigned before = losses_.fetch_add(1, std::memory_order_relaxed);
    if (before < kShown)
        std::fprintf(stderr, "torture %s: LOST: %s\n", name_.c_str(), text.c_str());
}

void Trial::take_stock() {
    descriptors_ = descriptors_of(0);
    shared_memory_ = names_in("/dev/shm");
    temporary_ = names_in("/tmp");
    has_stock_ = true;
}

void Trial::compare_stock() {
    if (!has_stock_)
        return;
    const std::size_t now = settled_descriptors(descriptors_);
    if (now > descriptors_) {
        lose(std::to_string(now - descriptors_) + " descriptors were left open; there are" +
             open_files());
    }
    for (const std::string& name : fresh_names("/dev/shm", shared_memory_))
        lose("/dev/shm/" + name + " was left");
    for (const std::string& name : fresh_names("/tmp", temporary_))
        lose("/tmp/" + name + " was left");
}

int Trial::finish() {
    phase("end");
    compare_stock();
    if (kill_children() > 0)
        lose("a child was left running");
    ::alarm(0);
    std::string tried;
    for (const auto& [what, number] : counts_)
        tried += (tried.empty() ? "" : ", ") + std::to_string(number) + " " + what;
    if (losses_ == 0) {
        std::printf("torture %s: seed %llu: %s; lost: nothing\n", name_.c_str(),
                    static_cast<unsigned long long>(settings_.seed), tried.c_str());
        return 0;
    }
    std::printf("torture %s: seed %llu: %s; lost: %u; replay: %s\n", name_.c_str(),
                static_cast<unsigned long long>(settings_.seed), tried.c_str(), losses_.load(),
                replay().c_str());
    return 1;
}

std::string Trial::replay() const {
    std::string text = "torture " + name_ + " --seed " + std::to_string(settings_.seed);
    if (settings_.rounds != 0)
        text += " --rounds " + std::to_string(settings_.rounds);
    if (settings_.seconds != 0)
        text += " --seconds " + std::to_string(settings_.seconds);
    if (name_ == "threads") {
        text += " --mode " + settings_.mode + " --threads " + std::to_string(settings_.threads) +
                " --workers " + std::to_string(settings_.workers);
    }
    return text + " (TAGWIRE_TRANSPORTS=" + transports() + ")";
}

std::vector<std::string> names_in(const std::string& directory) {
    std::vector<std::string> names;
    DIR* opened = opendir(directory.c_str());
    if (opened == nullptr)
        return names;
    while (const dirent* entry = readdir(opened))
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    closedir(opened);
    std::sort(names.begin(), names.end());
    return names;
}

std::size_t descriptors_of(int pid) {
    const std::string who = pid == 0 ? "self" : std::to_string(pid);
    return names_in("/proc/" + who + "/fd").size();
}

std::size_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0;
    std::size_t resident = 0;
    file >> all >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

double seconds_now() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace tagwire::torture
