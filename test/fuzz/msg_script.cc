// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against one peer that knows the protocol (msg_peer.hpp), over
// shared memory. The input is a script: what the program does and what the peer says. Each
// operation ends once, and in the end nothing is kept.
#include "msg_steps.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    tagwire::fuzz::set_message_options();
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int ready = LLVMFuzzerInitialize(nullptr, nullptr);  // where it is only replayed
    tagwire::fuzz::require(ready == 0);
    static const tw_context_h context = tagwire::fuzz::make_context("sm");
    tagwire::fuzz::Input input(data, size);
    tagwire::fuzz::Script script(context, "sm", input);
    tagwire::fuzz::play(script, input, 150);
    return 0;
}
