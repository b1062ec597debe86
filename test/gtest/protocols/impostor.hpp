// SPDX-License-Identifier: BSD-3-Clause
// A peer that speaks the protocol of the messaging layer by hand: the test decides what it says.
// It has an interface of the transport that takes first contact, and speaks over that alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "entity.hpp"
#include "protocols/fixture.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/wire/wireup_messages.hpp"

namespace tagwire::test {

/// The transport that takes first contact where those of TAGWIRE_TEST_TRANSPORTS are in use.
std::string contact_of_transports();

template <class T>
void append(Bytes* bytes, const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes->insert(bytes->end(), from, from + sizeof value);
}

class Impostor {
  public:
    /// "sm" or "ud"; `id` is its worker id.
    explicit Impostor(const std::string& transport, std::uint64_t id = kId);

    /// The address of its worker.
    Bytes address() const;
    /// Says hello to a worker and waits for its hello. `more`: rails beside the one it has.
    void greet(Node& victim, const ucs::ReserveVector<proto::PeerRail>& more = {});

    /// Says in hellos from now on that it is that transmit context of a worker.
    void be_tx_context(std::uint32_t number, std::uint64_t worker) {
        tx_context_ = number;
        worker_ = worker;
    }
    /// The hello once more, as if none of the victim's had come. False: there is no room.
    bool try_hello_again();

    /// False: there is no room.
    bool try_send(proto::AmId am, const Bytes& message);
    /// With progress of the victim until there is room.
    void send(Node& victim, proto::AmId am, const Bytes& message);
    template <class Body>
    void control(Node& victim, const Body& body) {
        Bytes message;
        append(&message, proto::Control::of(body, name()));
        send(victim, proto::AmId::kControl, message);
    }
    void offer(Node& victim, proto::WireupOp op, proto::Offer offer, const Bytes& address = {});
    /// An eager message.
    Bytes eager(std::uint32_t flags, std::uint64_t tag, const Bytes& data) const;

    void progress() { self_.progress(); }
    Entity& entity() { return self_; }
    void run(Node& victim, int rounds = 200);
    /// False: it was not so within some time.
    bool run_until(Node& victim, const std::function<bool()>& is_over);

    Bytes hello(std::uint32_t known, const ucs::ReserveVector<proto::PeerRail>& more) const;
    /// Messages of that kind that have come, oldest first, and are taken.
    std::vector<Bytes> taken(proto::AmId am);
    /// The number of the victim's first rail of that transport.
    std::uint8_t rail_of(const std::string& transport) const;
    /// The victim's name for this peer; 0: it has not said hello, or the endpoint has ended.
    std::uint32_t name() const { return hello_.hello.id; }

    static constexpr std::uint64_t kId = 0x1234567812345678;
    static constexpr std::uint32_t kNameOfVictim = 0x01000007;

  private:
    void say_hello(const ucs::ReserveVector<proto::PeerRail>& more);
    bool look_for_hello();

    std::string transport_;
    std::uint64_t id_;
    std::uint64_t victim_id_ = 0;
    std::uint32_t connections_ = 0;
    std::uint32_t tx_context_ = 0;
    std::uint64_t worker_ = 0;
    Entity self_;
    Endpoint to_victim_;
    proto::HelloMessage hello_{};
};

}  // namespace tagwire::test
