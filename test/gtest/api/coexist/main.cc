// SPDX-License-Identifier: BSD-3-Clause
// Both libraries in one process: each side must reach its own library, and no type of one may be
// taken for the other's.
#include <cstdio>
#include <cstdlib>

#include "side.hpp"

namespace {

int failures = 0;

void expect(bool condition, const char* what) {
    std::printf("%s: %s\n", condition ? "ok" : "FAILED", what);
    if (!condition)
        ++failures;
}

bool has(const SideReport& side, const char* component) {
    for (const std::string& name : side.components)
        if (name == component)
            return true;
    return false;
}

void compare_types(const SideReport& ucx, const SideReport& ours) {
    for (std::size_t i = 0; i < ours.type_names.size(); ++i) {
        if (ours.type_names[i] == ucx.type_names[i]) {
            std::printf("FAILED: a type is called %s on both sides\n", ours.type_names[i].c_str());
            ++failures;
        }
        if (ours.type_names[i].find("tagwire") == std::string::npos) {
            std::printf("FAILED: type %s does not carry our name\n", ours.type_names[i].c_str());
            ++failures;
        }
    }
    for (const auto& [name, address] : ours.instances) {
        if (ucx.instances.at(name) != address)
            continue;
        std::printf("FAILED: both sides share the template instance for %s\n", name.c_str());
        ++failures;
    }
}

}  // namespace

int main() {
    const SideReport ucx_before = run_ucx();
    const SideReport ours = run_tagwire();
    const SideReport ucx_after = run_ucx();
    expect(has(ucx_before, "posix") && !has(ucx_before, "sm"), "UCX lists its own components");
    expect(has(ours, "sm") && !has(ours, "posix"), "tagwire lists its own components");
    expect(ucx_before.components == ucx_after.components,
           "UCX lists the same before and after tagwire ran");
    expect(ucx_before.delivered_bytes == 12 && ucx_after.delivered_bytes == 12,
           "UCX delivers a message to itself");
    expect(ours.delivered_bytes == 12, "tagwire delivers a message to itself");
    expect(ours.vector_bytes != 0 && ucx_before.vector_bytes != 0,
           "vectors of all public types of both were filled");
    compare_types(ucx_before, ours);
    expect(failures == 0, "no type name and no template instance is shared");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
