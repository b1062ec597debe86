// SPDX-License-Identifier: BSD-3-Clause
// A process that keeps to no format. It knows what a peer may know: the victim's address, and what
// it listens on (docs/internals/formats).
#pragma once

#include <cstdint>
#include <vector>

#include "party.hpp"
#include "random.hpp"
#include "sockets.hpp"

namespace tagwire::torture {

enum class Attack : std::uint8_t {
    kGarbage,      ///< packets of any bytes to every unix socket
    kDescriptors,  ///< packets with descriptors that nobody asked for
    kSilence,      ///< connections that say nothing
    kDatagrams,    ///< datagrams of any bytes to every UDP socket
    kHellos,       ///< sm: hellos and ring offers with impossible values
    kRings,        ///< sm: a ring with messages of any bytes
    kLastWords,    ///< sm: one message that cannot be, and a hang-up at once
    kEnd
};
constexpr const char* kAttackNames[] = {"garbage", "descriptors", "silence",   "datagrams",
                                        "hellos",  "rings",       "last words"};

class Attacker {
  public:
    Attacker(int victim, const Address& address, Random& random);

    /// Returns how often something hostile was sent; 0 where the victim offers no such target.
    std::uint32_t run(Attack attack);

  private:
    std::uint32_t garbage();
    std::uint32_t descriptors();
    std::uint32_t silence();
    std::uint32_t datagrams();
    std::uint32_t hellos();
    std::uint32_t rings(bool only_last_words);
    std::vector<std::byte> random_bytes(std::size_t length);

    int victim_;
    Address address_;
    Random& random_;
    std::vector<std::string> names_;
};

}  // namespace tagwire::torture
