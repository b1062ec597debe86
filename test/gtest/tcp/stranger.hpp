// SPDX-License-Identifier: BSD-3-Clause
// A socket that speaks to an interface of tcp byte by byte, and what the tests on it share.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>

#include "entity.hpp"
#include "operations.hpp"
#include "ucs/sys/fd.hpp"
#include "uct/tcp/frames.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::test {

/// The loopback's resource of tcp.
const Resource& loopback_of_tcp();

bool steps_until(std::initializer_list<Entity*> all, const std::function<bool()>& done);
/// One active message arrives.
void expect_exchange(Entity& from, uct_ep_h ep, Entity& to);
std::uint64_t counter_of(const Entity& entity, std::string_view name);

class Stranger {
  public:
    /// Connects to the interface; from this address of the loopback, if there is one.
    explicit Stranger(Entity& victim, const char* from = nullptr);

    void send(const void* bytes, std::size_t length);
    void send(std::string_view text) { send(text.data(), text.size()); }
    template <class Body>
    void send_frame(tcp::Kind kind, std::uint8_t value, const Body& body,
                    std::span<const std::byte> data = {}) {
        Bytes frame(tcp::frame_bytes<Body>(data.size()));
        if (!data.empty())
            std::memcpy(tcp::data_of<Body>(frame.data()), data.data(), data.size());
        tcp::put_frame(frame.data(), kind, value, body, data.size());
        send(frame.data(), frame.size());
    }
    /// A Hello that the interface welcomes, unless it is changed.
    [[nodiscard]] tcp::Hello hello() const;
    /// Progresses the victim until the reply has come; its verdict.
    tcp::Verdict greet(const tcp::Hello& hello);
    tcp::Verdict greet() { return greet(hello()); }
    /// Packets to this socket are lost from now on, as when its host vanishes.
    void vanish();
    /// An endpoint of the interface to this peer, which has greeted.
    [[nodiscard]] Endpoint endpoint() const;
    /// The interface has ended the connection.
    bool is_ended();
    [[nodiscard]] int fd() const { return fd_.get(); }

  private:
    Entity& victim_;
    ucs::UniqueFd fd_;
    tcp::Cookie cookie_;
    std::uint64_t instance_;
};

}  // namespace tagwire::test
