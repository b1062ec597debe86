// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against one peer that knows the protocol (msg_peer.hpp), over
// shared memory. The input is a script: what the program does and what the peer says. Each
// operation ends once, and in the end nothing is kept.
#include "msg_steps.hpp"
#include "target.hpp"

namespace tagwire::fuzz::msg_script_fuzz {
namespace {

void prepare() {
    set_message_options();
}

void run_input(const std::uint8_t* data, std::size_t size) {
    static const tw_context_h context = make_context("sm");
    Input input(data, size);
    Script script(context, "sm", input);
    play(script, input, 150);
}

}  // namespace

extern const Target kTarget{"msg_script", prepare, run_input};

}  // namespace tagwire::fuzz::msg_script_fuzz
