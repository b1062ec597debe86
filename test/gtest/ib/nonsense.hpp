// SPDX-License-Identifier: BSD-3-Clause
// Random, almost valid messages: kinds, ids, lengths, tags and addresses of both rc and dc, some of
// which are those that the receiver asks for.
#pragma once

#include <infiniband/tm_types.h>

#include <cstddef>
#include <functional>
#include <random>
#include <vector>

#include "buffer.hpp"
#include "ib/stranger.hpp"

namespace tagwire::test {

/// The bytes of a message, and the way they travel.
struct Message {
    std::vector<std::byte> bytes;
    Stranger::Way way = {};
};

/// Memory that somebody may reach.
struct Place {
    std::uint64_t address;
    std::uint32_t rkey;
};
Place place_of(const Entity& entity, const Buffer& buffer);

class Nonsense {
  public:
    /// `readable` is the sender's: where a rendezvous may be read.
    Nonsense(std::mt19937_64& random, std::function<Place()> readable, Place writable)
        : random_(random), readable_(std::move(readable)), writable_(writable) {}

    Message next();
    /// Where answers of dc go to: behind a question, and behind the head of a rendezvous.
    std::function<Bytes()> answer_to = {};

  private:
    void scribble(std::vector<std::byte>& bytes, std::size_t from);
    Message untagged();
    Message question();
    Message tagged(std::uint64_t opcode, std::size_t bytes);
    Message rendezvous();
    Message write();

    std::mt19937_64& random_;
    std::function<Place()> readable_;
    Place writable_;
};

}  // namespace tagwire::test
