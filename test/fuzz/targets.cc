// SPDX-License-Identifier: BSD-3-Clause
// Chooses the target of this run, and hands each input to it.
#include "targets.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "target.hpp"

namespace tagwire::fuzz {
namespace {

constexpr const Target* kTargets[] = {
    &bootstrap_fuzz::kTarget,    &config_fuzz::kTarget,      &control_channel_fuzz::kTarget,
    &ib_address_fuzz::kTarget,   &msg_address_fuzz::kTarget, &msg_messages_fuzz::kTarget,
    &msg_script_fuzz::kTarget,   &sm_peer_fuzz::kTarget,     &sm_wire_fuzz::kTarget,
    &tcp_stream_fuzz::kTarget,   &ud_packets_fuzz::kTarget,
#ifdef TAGWIRE_FUZZ_VHCA
    &dc_messages_fuzz::kTarget,  &msg_wireup_fuzz::kTarget,  &rc_messages_fuzz::kTarget,
    &vhca_packets_fuzz::kTarget, &vhca_shm_fuzz::kTarget,    &vhca_wqe_fuzz::kTarget,
#endif
};

constexpr std::string_view kFlag = "--target=";

const Target* chosen = nullptr;

}  // namespace

void choose_target(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with(kFlag))
            continue;
        for (const Target* target : kTargets)
            if (word.substr(kFlag.size()) == target->name)
                chosen = target;
    }
    if (chosen == nullptr) {
        std::fprintf(stderr, "usage: --target=NAME ..., where NAME is one of");
        for (const Target* target : kTargets)
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
