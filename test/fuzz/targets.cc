// SPDX-License-Identifier: BSD-3-Clause
// Chooses the target of this run, and hands each input to it.
#include "targets.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tagwire::fuzz {
namespace {

constexpr std::string_view kFlag = "--target=";

const Target* chosen = nullptr;

}  // namespace

void choose_target(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with(kFlag))
            continue;
        for (const Target* target : all_targets())
            if (word.substr(kFlag.size()) == target->name)
                chosen = target;
    }
    if (chosen == nullptr) {
        std::fprintf(stderr, "usage: --target=NAME ..., where NAME is one of");
        for (const Target* target : all_targets())
            std::fprintf(stderr, " %s", target->name);
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    if (chosen->prepare != nullptr)
        chosen->prepare();
}

void run_target(const std::uint8_t* data, std::size_t size) {
    chosen->run(data, size);
}

}  // namespace tagwire::fuzz

// libFuzzer calls these where it is linked.
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    tagwire::fuzz::choose_target(*argc, *argv);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    tagwire::fuzz::run_target(data, size);
    return 0;
}
