// SPDX-License-Identifier: BSD-3-Clause
// Programs over UCP share how they fail, read their arguments, and take a CPU and the time. No
// code of ours is in it.
#pragma once

#include <errno.h>
#include <sched.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace ucp_program {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    std::exit(1);
}

inline void must(ucs_status_t status, const char* call) {
    if (status != UCS_OK)
        fail((std::string(call) + ": " + ucs_status_string(status)).c_str());
}

inline std::uint64_t number(std::string_view word) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size())
        fail("a number is wrong");
    return value;
}

inline std::vector<int> cpu_list(std::string_view list) {
    std::vector<int> cpus;
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        cpus.push_back(static_cast<int>(number(list.substr(0, comma))));
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    if (cpus.empty())
        fail("no CPUs");
    return cpus;
}

inline void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("cannot run on one of the CPUs");
}

inline double now_ns() {
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace ucp_program
