// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against one peer that knows the protocol (msg_peer.hpp), over
// the transport that TAGWIRE_FUZZ_TRANSPORT names. The input is a script: what the program does and
// what the peer says. Each operation ends once, and in the end nothing is kept.
#include <tagwire.h>

#include <cstdlib>

#include "msg_peer.hpp"
#include "msg_program.hpp"

namespace tagwire::fuzz {
namespace {

constexpr int kActsMax = 150;
constexpr int kRounds = 12;
constexpr int kRoundsAtEnd = 20000;
constexpr int kRoundsToReset = 200;
constexpr int kEndsMax = 100;

tw_context_h context() {
    static tw_context_h made = [] {
        tw_context_params_t params{};
        params.transports = TAGWIRE_FUZZ_TRANSPORT;
        tw_context_h context = nullptr;
        require(tw_context_create(&params, &context) == TW_OK);
        return context;
    }();
    return made;
}

class Script {
  public:
    explicit Script(Input& input) : victim_(context()), peer_(TAGWIRE_FUZZ_TRANSPORT) {
        peer_.meet(victim_.address());
        if (input.take<std::uint8_t>() % 4 != 0)  // else the peer speaks first
            victim_.connect(peer_.address());
        run(kRounds);
        peer_.greet(input);
        run(kRounds);
    }

    void act(Input& input) {
        switch (input.take<std::uint8_t>() % 16) {
            case 0:
                victim_.receive(input);
                break;
            case 1:
            case 2:
                victim_.send(input);
                break;
            case 3:
                victim_.peek(input);
                break;
            case 4:
                victim_.cancel_some(input);
                break;
            case 5:
                victim_.receive_buffered(input);
                break;
            case 6:
                victim_.take_shown(input);
                break;
            case 7: {
                const auto choice = input.take<std::uint8_t>();
                if (choice % 8 == 7) {
                    victim_.close_by_force();
                } else {
                    victim_.flush(choice % 8 == 6);
                }
                break;
            }
            case 8:
                victim_.connect_again(peer_.address());
                break;
            default:
                peer_.strike(input);
                break;
        }
        run(kRounds);
    }

    void end() {
        victim_.close_by_force();
        for (int i = 0; victim_.is_anything_pending(); ++i) {
            require(i < kRoundsAtEnd);
            victim_.cancel_all();
            // A close in order waits for the peer, for as long as it is there.
            if (i % kRoundsToReset == 0)
                end_connection();
            run(1);
        }
        // What is announced stays as long as its sender, and something may still be on its way.
        for (int i = 0; i == 0 || victim_.kept().bytes > 0; ++i) {
            require(i < kEndsMax);
            end_connection();
            victim_.drop_messages();
        }
        require(victim_.kept().messages == 0);
    }

  private:
    /// Of the peer, by its word, whatever it has said before.
    void end_connection() {
        peer_.greet_anew();
        run(kRounds);
        peer_.reset();
        run(kRounds);
    }
    void run(int rounds) {
        for (int i = 0; i < rounds; ++i) {
            victim_.progress();
            peer_.progress();
        }
    }

    Program victim_;
    ScriptedPeer peer_;
};

}  // namespace
}  // namespace tagwire::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
#ifdef TAGWIRE_TEST_VHCA
    ::setenv("TAGWIRE_IB_VHCA_LIBRARY", TAGWIRE_TEST_VHCA, 0);
    ::setenv("TAGWIRE_VHCA_DEVICES", "2", 1);
    ::setenv("TAGWIRE_TAG_OFFLOAD", "y", 1);
    ::setenv("TAGWIRE_RNDV_RAILS", "2", 1);
#endif
    // Each byte that is read for a peer is read by its owner, who knows what is his.
    ::setenv("TAGWIRE_SM_CMA", "off", 1);
    ::setenv("TAGWIRE_SM_ARENA_BYTES", "4m", 1);
    ::setenv("TAGWIRE_CALIBRATION", "none", 1);
    ::setenv("TAGWIRE_UNEXPECTED_BYTES", "64k", 1);
    ::setenv("TAGWIRE_UNEXPECTED_MAX", "64", 1);
    ::setenv("TAGWIRE_RNDV_THRESHOLD", "16k", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int ready = LLVMFuzzerInitialize(nullptr, nullptr);  // where it is only replayed
    tagwire::fuzz::require(ready == 0);
    tagwire::fuzz::Input input(data, size);
    tagwire::fuzz::Script script(input);
    for (int acts = 0; acts < tagwire::fuzz::kActsMax && !input.at_end(); ++acts)
        script.act(input);
    script.end();
    return 0;
}
