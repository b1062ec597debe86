// SPDX-License-Identifier: BSD-3-Clause
// The other end of a shared-memory connection, played by the fuzzer: it says hello like anybody,
// and then writes what it likes into the memory that both share.
//
// A puppet process makes the connection, because the kernel tells the library who connected, and
// the library trusts its own process more than others.
#pragma once

#include <cstdint>
#include <memory>

#include "input.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::fuzz {

/// Forked once; connects on demand and hands the socket over. Dies with us.
class Puppet {
  public:
    Puppet();
    ucs::UniqueFd connect(std::uint64_t name) const;

  private:
    ucs::UniqueFd channel_;
};

class HostilePeer {
  public:
    /// Says hello and offers a ring; `input` decides its geometry, and where to lie.
    HostilePeer(const Puppet& puppet, const sm::IfaceAddress& victim, Input& input);

    /// One act of hostility, as `input` says.
    void act(Input& input);
    std::uint64_t name() const { return name_; }
    void hang_up() { socket_.reset(); }

  private:
    void say_hello(Input& input);
    void offer_ring(Input& input);
    void read_socket();
    void write_message(Input& input);
    void scribble(Input& input);

    sm::IfaceAddress victim_;
    std::uint64_t name_;
    ucs::UniqueFd socket_;
    ucs::UniqueFd bell_fd_;
    ucs::UniqueFd arena_fd_;
    ucs::Mapping bell_;
    ucs::Mapping ring_;        // ours, which the victim reads
    ucs::Mapping their_ring_;  // the victim's, which we should read only
    sm::RingGeometry geometry_;
    std::uint64_t position_ = 0;
};

}  // namespace tagwire::fuzz
