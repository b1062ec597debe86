// SPDX-License-Identifier: BSD-3-Clause
// Steps that the fuzz targets of the messaging layer share: its options, the acts of the program,
// and a worker against a scripted peer from the first hello to the last close.
#pragma once

#include <tagwire.h>

#include <cstdlib>

#include "msg_peer.hpp"
#include "msg_program.hpp"

namespace tagwire::fuzz {

inline constexpr int kRounds = 12;  // of progress behind each act

/// Small quotas and thresholds, so that short inputs reach them. Not what the user has set.
inline void set_message_options() {
    // Each byte that is read for a peer is read by its owner, who knows what is his.
    ::setenv("TAGWIRE_SM_CMA", "off", 1);
    ::setenv("TAGWIRE_SM_ARENA_BYTES", "4m", 1);
    ::setenv("TAGWIRE_CALIBRATION", "none", 1);
    ::setenv("TAGWIRE_UNEXPECTED_BYTES", "64k", 1);
    ::setenv("TAGWIRE_UNEXPECTED_MAX", "64", 1);
    ::setenv("TAGWIRE_RNDV_THRESHOLD", "16k", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
}

inline tw_context_h make_context(const char* transports) {
    tw_context_params_t params{};
    params.transports = transports;
    tw_context_h context = nullptr;
    require(tw_context_create(&params, &context) == TW_OK);
    return context;
}

/// Something that the program does with messages.
inline constexpr unsigned kActsOfProgram = 6;
inline void act_of_program(Program& program, unsigned act, Input& input) {
    switch (act) {
        case 0:
            return program.receive(input);
        case 1:
            return program.send(input);
        case 2:
            return program.peek(input);
        case 3:
            return program.cancel_some(input);
        case 4:
            return program.receive_buffered(input);
        default:
            return program.take_shown(input);
    }
}

/// A worker and its scripted peer, over `transport`.
class Script {
  public:
    Script(tw_context_h context, const char* transport, Input& input)
        : victim_(context), peer_(transport) {
        peer_.meet(victim_.address());
        peer_.learn_key(victim_.key());
        victim_.use_key(ScriptedPeer::key());
        const auto choice = input.take<std::uint8_t>();
        closes_in_order_ = choice >= 128;
        if (choice % 4 != 0)  // else the peer speaks first
            victim_.connect(peer_.address());
        run(kRounds);
        peer_.greet(input);
        run(kRounds);
    }

    void act(Input& input) {
        const unsigned act = input.take<std::uint8_t>() % 16;
        if (act <= kActsOfProgram)
            act_of_program(victim_, act <= 1 ? act : act - 1, input);
        else if (act == 7)
            flush_or_close(input);
        else if (act == 8)
            victim_.connect_again(peer_.address());
        else
            peer_.strike(input);
        run(kRounds);
    }

    /// Each operation ends, a close in order too, and nothing is kept.
    void end() {
        if (closes_in_order_)
            victim_.flush(true);
        victim_.close_by_force();
        for (int i = 0; victim_.is_anything_pending(); ++i) {
            require(i < kRoundsAtEnd);
            victim_.cancel_all();
            // A close in order waits for the peer, for as long as it is there.
            if (i % kRoundsToReset == 0)
                end_connection();
            run(1);
        }
        // An announced message stays as long as its sender, and packets may still be in flight.
        for (int i = 0; i == 0 || victim_.kept().bytes > 0; ++i) {
            require(i < kEndsMax);
            end_connection();
            victim_.drop_messages();
        }
        require(victim_.kept().messages == 0);
    }

  private:
    static constexpr int kRoundsAtEnd = 20000;
    static constexpr int kRoundsToReset = 200;
    static constexpr int kEndsMax = 100;

    void flush_or_close(Input& input) {
        const auto choice = input.take<std::uint8_t>();
        if (choice % 8 == 7)
            victim_.close_by_force();
        else
            victim_.flush(choice % 8 == 6);
    }
    /// The peer says that its connection has ended, whatever it has said before.
    void end_connection() {
        for (std::size_t identity = 0; identity < ScriptedPeer::kIdentities; ++identity) {
            peer_.greet_anew(identity);
            run(kRounds);
            peer_.reset();
            run(kRounds);
        }
    }
    void run(int rounds) {
        for (int i = 0; i < rounds; ++i) {
            victim_.progress();
            peer_.progress();
        }
    }

    Program victim_;
    ScriptedPeer peer_;
    bool closes_in_order_ = false;
};

/// All acts of an input, and the end of `subject`.
template <class Subject>
void play(Subject& subject, Input& input, int acts_max) {
    for (int acts = 0; acts < acts_max && !input.at_end(); ++acts)
        subject.act(input);
    subject.end();
}

}  // namespace tagwire::fuzz
