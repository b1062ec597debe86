// SPDX-License-Identifier: BSD-3-Clause
// The other end of a shared-memory connection, played by the fuzzer: it says hello like anybody,
// and then writes what it likes into the memory that both share.
#pragma once

#include <cstdint>
#include <memory>

#include "input.hpp"
#include "sm/puppet.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/shm.hpp"
#include "uct/sm/layout.hpp"
#include "uct/sm/wire.hpp"

namespace tagwire::fuzz {

class HostilePeer {
  public:
    /// Says hello and offers a ring; `input` decides its geometry, and where to lie.
    HostilePeer(const test::Puppet& puppet, const sm::IfaceAddress& victim, Input& input);

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
    ucs::Mapping ring_, pool_;  // ours, which the victim reads
    ucs::Mapping their_ring_;   // the victim's, which we should read only
    sm::RingGeometry geometry_;
    std::uint64_t position_ = 0;
};

}  // namespace tagwire::fuzz
