// SPDX-License-Identifier: BSD-3-Clause
// A socket that an interface of tcp connects to, and that replies byte by byte.
#pragma once

#include <vector>

#include "entity.hpp"
#include "ucs/sys/fd.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::test {

class Acceptor {
  public:
    /// Peers of the opener's loopback.
    explicit Acceptor(Entity& opener);

    /// From now on nothing replies to those that connect.
    void be_silent();
    /// An endpoint of the opener to here.
    [[nodiscard]] Endpoint endpoint() const;
    /// Progresses the opener until it has connected and sent its Hello.
    void take_hello();
    [[nodiscard]] tcp::Reply reply(tcp::Verdict verdict) const;
    void send(const void* bytes, std::size_t length) const;
    /// The opener's connection; what it had is closed by the next take_hello().
    [[nodiscard]] int fd() const { return connection_.get(); }

  private:
    Entity& opener_;
    ucs::UniqueFd listener_, connection_;
    std::vector<ucs::UniqueFd> waiting_;
    std::uint16_t port_ = 0;
    std::uint64_t instance_;
    tcp::Cookie cookie_;
};

}  // namespace tagwire::test
