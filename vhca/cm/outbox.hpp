// SPDX-License-Identifier: BSD-3-Clause
// The outbox sends messages to peers, and sends requests again until they are answered.
//
// Each identity has one message that waits for an answer, and one deadline:
//
//   send_until_answered() ---> sent, sends_left times more, at intervals that double ---> expired
//            ^                     | note_answered(): the deadline goes
//            '--- be_patient() ----' the peer asks for time (MRA): the count starts anew
#pragma once

#include <cstdint>

#include "vhca/cm/identity.hpp"
#include "vhca/cm/message.hpp"
#include "vhca/cm/network.hpp"

namespace tagwire::vhca::cm {

struct Timing {
    Time resend_min = 100'000'000, resend_max = 4'096'000'000;  // the time doubles
    unsigned sends_max = 16;                                    // of one message
    unsigned asks_min = 3;  // for a service that nobody serves, before the program is told so
};

class Outbox {
  public:
    Outbox(Network& network, const Timing& timing) : network_(network), timing_(timing) {}

    /// A message with all that is known of the connection.
    [[nodiscard]] Message message_of(Kind kind, const Identity& identity) const;
    void send_once(const Identity& identity, const Message& message);
    void send_until_answered(Identity& identity, const Message& message);
    /// The last message goes once more, for a request that came again.
    void repeat(const Identity& identity);
    /// Answers a request that led to no identity here.
    void refuse(Route to, const Message& request, std::uint16_t reason);

    void note_answered(Identity& identity) { identity.deadline = kNever; }
    void be_patient(Identity& identity);
    /// "No such service" does not count yet: a program may listen a little later.
    [[nodiscard]] bool asks_again(const Identity& identity) const {
        return timing_.sends_max - identity.sends_left < timing_.asks_min;
    }
    /// Nothing is sent; the identity expires after this time.
    void expire_in(Identity& identity, Time duration);

    // ---- The time
    [[nodiscard]] Time next_deadline() const { return next_deadline_; }
    /// Before service() of all identities.
    void begin_round() { next_deadline_ = kNever; }
    /// Sends again what is due. False: the identity has expired.
    [[nodiscard]] bool service(Identity& identity, Time now);
    /// After service(), and what follows from it.
    void note_deadline(const Identity& identity);

  private:
    Network& network_;
    const Timing timing_;
    Time next_deadline_ = kNever;
};

}  // namespace tagwire::vhca::cm
