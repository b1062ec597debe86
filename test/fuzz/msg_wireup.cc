// SPDX-License-Identifier: BSD-3-Clause
// The same as msg_script.cc over rc, on two devices of the virtual HCA, one of which matches tags.
// The peer offers, takes and refuses lanes and stripes, sends tagged messages to the device and the
// places of announced ones, and begins and ends connections in each phase of that.
#include <string>

#include "common/built.hpp"
#include "msg_steps.hpp"
#include "target.hpp"

namespace tagwire::fuzz::msg_wireup_fuzz {
namespace {

void prepare() {
    ::setenv("TAGWIRE_IB_VHCA_LIBRARY", test::built_vhca().c_str(), 0);
    ::setenv("TAGWIRE_VHCA_DEVICES", "2", 1);
    ::setenv("TAGWIRE_TAG_OFFLOAD", "y", 1);
    ::setenv("TAGWIRE_RNDV_RAILS", "2", 1);
    ::setenv("TAGWIRE_RNDV_RAIL_MIN", "4k", 1);
    ::setenv("TAGWIRE_REG_CACHE", "4m", 1);  // data is divided where buffers have handles
    // Short queues: what is made for an input costs as much as what the input does.
    for (const char* name :
         {"RC_RX_DEPTH", "RC_TX_DEPTH", "RC_CREDITS", "RC_TAG_DEPTH", "UD_RX_DEPTH", "UD_TX_DEPTH"})
        ::setenv((std::string("TAGWIRE_") + name).c_str(), "64", 1);
    ::setenv("TAGWIRE_RC_TX_CQ_DEPTH", "256", 1);
    set_message_options();
}

void run_input(const std::uint8_t* data, std::size_t size) {
    static const tw_context_h context = make_context("rc");
    Input input(data, size);
    Script script(context, "rc", input);
    play(script, input, 150);
}

}  // namespace

extern const Target kTarget{"msg_wireup", prepare, run_input};

}  // namespace tagwire::fuzz::msg_wireup_fuzz
