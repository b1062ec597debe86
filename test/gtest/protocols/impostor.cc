// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/impostor.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include "protocols/wire/address.hpp"

namespace tagwire::test {

namespace {

constexpr int kStepsMax = 2'000'000;

void append_bytes(Bytes* bytes, const Bytes& more) {
    bytes->insert(bytes->end(), more.begin(), more.end());
}

void append_rail(Bytes* bytes, const proto::PeerRail& rail) {
    proto::RailHead head{};
    rail.transport.copy(head.transport, sizeof head.transport);
    head.domain = rail.domain;
    head.device_bytes = static_cast<std::uint8_t>(rail.device.size());
    head.iface_bytes = static_cast<std::uint8_t>(rail.iface.size());
    head.flags = rail.flags;
    append(bytes, head);
    append_bytes(bytes, rail.device);
    append_bytes(bytes, rail.iface);
}

}  // namespace

std::string contact_of_transports() {
    const char* const named = std::getenv("TAGWIRE_TEST_TRANSPORTS");
    const std::string name = named == nullptr ? "sm" : named;
    return name == "sm" || name == "tcp" ? name : "ud";
}

Impostor::Impostor(const std::string& transport, std::uint64_t id)
    : transport_(transport), id_(id), self_(resource_of(transport)) {
    for (std::uint8_t am = 1; am <= static_cast<std::uint8_t>(proto::kAmIdLast); ++am)
        self_.record_am(am);
}

Bytes Impostor::address() const {
    return proto::pack({id_, {{transport_, self_.device_address(), self_.iface_address()}}});
}

Bytes Impostor::hello(std::uint32_t known, const ucs::ReserveVector<proto::PeerRail>& more) const {
    Bytes bytes;
    append(&bytes, proto::Wireup{static_cast<std::uint32_t>(proto::WireupOp::kHello),
                                 proto::kWireVersion, id_, victim_id_});
    append(&bytes, proto::Hello{kNameOfVictim, static_cast<std::uint32_t>(1 + more.size()), known,
                                connections_, 0, tx_context_, worker_});
    append_rail(&bytes, {transport_, 0, 0, self_.device_address(), self_.iface_address()});
    for (const proto::PeerRail& rail : more)
        append_rail(&bytes, rail);
    return bytes;
}

void Impostor::say_hello(const ucs::ReserveVector<proto::PeerRail>& more) {
    ++connections_;
    EXPECT_TRUE(try_send(proto::AmId::kWireup, hello(name(), more)));
}

bool Impostor::try_hello_again() {
    return try_send(proto::AmId::kWireup, hello(0, {}));
}

bool Impostor::look_for_hello() {
    for (const AmMessage& message : self_.am) {
        proto::Wireup head{};
        proto::WireBytes behind;
        if (message.id == static_cast<std::uint8_t>(proto::AmId::kWireup) &&
            proto::decode(message.bytes, &head, &behind) &&
            head.op == static_cast<std::uint32_t>(proto::WireupOp::kHello) &&
            proto::decode(behind, &hello_))
            return true;
    }
    return false;
}

void Impostor::greet(Node& victim, const ucs::ReserveVector<proto::PeerRail>& more) {
    std::string reason;
    const auto at = proto::parse(victim.address(), &reason);
    ASSERT_TRUE(at.has_value()) << reason;
    victim_id_ = at->id;
    hello_ = {};
    const proto::Contact* const contact = at->contact_over(transport_);
    ASSERT_NE(contact, nullptr);
    to_victim_ = connect_to_address(self_, contact->device, contact->iface);
    say_hello(more);
    ASSERT_TRUE(run_until(victim, [&] { return look_for_hello(); }));
    run(victim);
    self_.am.clear();
}

bool Impostor::try_send(proto::AmId am, const Bytes& message) {
    const auto pack = [](void* to, void* arg) {
        const auto& bytes = *static_cast<const Bytes*>(arg);
        if (!bytes.empty())
            std::memcpy(to, bytes.data(), bytes.size());
        return bytes.size();
    };
    return uct_ep_am_bcopy(to_victim_.get(), static_cast<std::uint8_t>(am), pack,
                           const_cast<Bytes*>(&message), 0) >= 0;
}

void Impostor::send(Node& victim, proto::AmId am, const Bytes& message) {
    EXPECT_TRUE(run_until(victim, [&] { return try_send(am, message); }));
}

void Impostor::offer(Node& victim, proto::WireupOp op, proto::Offer offer, const Bytes& address) {
    Bytes message;
    append(&message,
           proto::Wireup{static_cast<std::uint32_t>(op), proto::kWireVersion, id_, victim_id_});
    offer.id = name();
    offer.address_bytes = static_cast<std::uint8_t>(address.size());
    append(&message, offer);
    append_bytes(&message, address);
    send(victim, proto::AmId::kWireup, message);
}

Bytes Impostor::eager(std::uint32_t flags, std::uint64_t tag, const Bytes& data) const {
    Bytes message;
    append(&message, proto::Header{name(), flags, tag});
    append_bytes(&message, data);
    return message;
}

void Impostor::run(Node& victim, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        victim.progress();
        progress();
    }
}

bool Impostor::run_until(Node& victim, const std::function<bool()>& is_over) {
    for (int i = 0; i < kStepsMax; ++i) {
        if (is_over())
            return true;
        run(victim, 1);
    }
    return false;
}

std::vector<Bytes> Impostor::taken(proto::AmId am) {
    std::vector<Bytes> messages;
    std::erase_if(self_.am, [&](const AmMessage& message) {
        if (message.id != static_cast<std::uint8_t>(am))
            return false;
        messages.push_back(message.bytes);
        return true;
    });
    return messages;
}

std::uint8_t Impostor::rail_of(const std::string& transport) const {
    for (std::size_t i = 0; i < hello_.rails.size(); ++i)
        if (hello_.rails[i].transport == transport)
            return static_cast<std::uint8_t>(i);
    ADD_FAILURE() << "the victim has no rail of " << transport;
    return 0;
}

}  // namespace tagwire::test
