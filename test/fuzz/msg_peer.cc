// SPDX-License-Identifier: BSD-3-Clause
#include "msg_peer.hpp"

#include <cstring>

namespace tagwire::fuzz {

namespace {

constexpr std::size_t kMemoryBytes = 70000;
constexpr std::size_t kNumbersMax = 16;
constexpr std::uint64_t kLengths[] = {0,    1,     8,     100,     1000,       3000,
                                      9000, 20000, 70000, 1 << 20, 1ULL << 40, ~std::uint64_t{0}};
constexpr std::size_t kDataBytes[] = {0, 1, 8, 100, 500, 1000, 1900, 16};

template <class T>
void append(std::vector<std::byte>* bytes, const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes->insert(bytes->end(), from, from + sizeof value);
}

void append_bytes(std::vector<std::byte>* bytes, std::span<const std::byte> more) {
    bytes->insert(bytes->end(), more.begin(), more.end());
}

void append_rail(std::vector<std::byte>* bytes, const std::string& transport,
                 const test::Entity& entity, std::uint8_t domain) {
    const auto device = entity.device_address();
    const auto iface = entity.iface_address();
    proto::RailHead head{};
    transport.copy(head.transport, sizeof head.transport);
    head.domain = domain;
    head.device_bytes = static_cast<std::uint8_t>(device.size());
    head.iface_bytes = static_cast<std::uint8_t>(iface.size());
    append(bytes, head);
    append_bytes(bytes, device);
    append_bytes(bytes, iface);
}

std::uint64_t length(Input& input) {
    return kLengths[input.take<std::uint8_t>() % std::size(kLengths)];
}

void append_data(std::vector<std::byte>* bytes, Input& input) {
    bytes->resize(bytes->size() + kDataBytes[input.take<std::uint8_t>() % std::size(kDataBytes)],
                  std::byte{0x5a});
}

std::size_t pack_bytes(void* to, void* arg) {
    const auto& bytes = *static_cast<const std::vector<std::byte>*>(arg);
    if (!bytes.empty())
        std::memcpy(to, bytes.data(), bytes.size());
    return bytes.size();
}

}  // namespace

ScriptedPeer::ScriptedPeer(const std::string& transport)
    : contact_(transport == "sm" ? "sm" : "ud"),
      self_(test::resource_of(contact_)),
      rail_(transport == "sm" ? nullptr
                              : std::make_unique<test::Entity>(test::resource_of(transport))),
      memory_(rail_ != nullptr ? *rail_ : self_, kMemoryBytes, test::Backing::kRegistered),
      rkey_(memory_.packed_rkey()) {
    for (test::Entity* entity : {&self_, rail_.get()}) {
        if (entity == nullptr)
            continue;
        entity->keep_record = false;
        for (std::uint8_t am = 1; am <= static_cast<std::uint8_t>(proto::AmId::kPut); ++am)
            entity->record_am(am);
        entity->on_am = [this](const test::AmMessage& message) {
            learn(message);
            return UCS_OK;
        };
    }
}

std::vector<std::byte> ScriptedPeer::address() const {
    return proto::pack({kId, contact_, self_.device_address(), self_.iface_address()});
}

void ScriptedPeer::meet(const std::vector<std::byte>& victim) {
    std::string reason;
    const auto at = proto::parse(victim, &reason);
    require(at.has_value());
    victim_id_ = at->id;
    to_victim_ = test::connect_to_address(self_, at->device, at->iface);
}

void ScriptedPeer::progress() {
    self_.progress();
    if (rail_ != nullptr)
        rail_->progress();
}

// ---- What the victim says

void ScriptedPeer::learn_number(std::uint32_t value) {
    if (value == 0)
        return;
    if (numbers_.size() == kNumbersMax)
        numbers_.erase(numbers_.begin());
    numbers_.push_back(value);
}

void ScriptedPeer::learn_of_wireup(proto::WireBytes bytes) {
    proto::Wireup head{};
    proto::WireBytes behind;
    require(proto::decode(bytes, &head, &behind));
    if (head.op == static_cast<std::uint32_t>(proto::WireupOp::kHello)) {
        proto::HelloMessage hello{};
        require(proto::decode(behind, &hello));
        name_ = hello.hello.id;
        for (std::size_t i = 0; i < hello.rails.size(); ++i) {
            if (hello.rails[i].transport == "rc") {
                rail_of_victim_ = static_cast<std::uint8_t>(i);
                device_of_victim_ = hello.rails[i].device;
            }
        }
        return;
    }
    proto::OfferMessage offer{};
    require(proto::decode(behind, &offer));
    if (!offer.address.empty())
        offered_ = offer.address;
}

/// Whatever a peer says, the victim says only what it may.
void ScriptedPeer::learn(const test::AmMessage& message) {
    const proto::WireBytes bytes = message.bytes;
    const auto am = static_cast<proto::AmId>(message.id);
    proto::Header header{};
    if (am == proto::AmId::kWireup)
        return learn_of_wireup(bytes);
    if (am == proto::AmId::kControl) {
        proto::Control control{};
        require(proto::decode(bytes, &control));
        learn_number(control.a);
        learn_number(static_cast<std::uint32_t>(control.b));
    } else if (am == proto::AmId::kPut) {
        proto::PutMessage put{};
        require(proto::decode(bytes, &put));
        learn_number(put.offer.send_id);
        learn_number(put.offer.receive_id);
    } else if (am == proto::AmId::kEager || am == proto::AmId::kRndv) {
        require(bytes.size() >= sizeof header);
        std::memcpy(&header, bytes.data(), sizeof header);
        proto::EagerBody eager{};
        proto::RndvBody rndv{};
        const auto behind = bytes.subspan(sizeof header);
        if (am == proto::AmId::kEager) {
            require(proto::decode(header, behind, &eager));
            learn_number(eager.send_id);
        } else {
            require(proto::decode(header, behind, &rndv));
            learn_number(rndv.rndv.send_id);
        }
    }
}

// ---- What it says

std::uint32_t ScriptedPeer::number(Input& input) const {
    const auto choice = input.take<std::uint8_t>();
    if (choice < 192 && !numbers_.empty())
        return numbers_[numbers_.size() - 1 - choice % numbers_.size()];
    return choice % 8;
}

std::uint32_t ScriptedPeer::name(Input& input) const {
    const auto choice = input.take<std::uint8_t>();
    return choice < 240 ? name_ : name_ + choice - 248;
}

ScriptedPeer::Message ScriptedPeer::header(Input& input, std::uint32_t flags) const {
    Message message;
    append(&message, proto::Header{name(input), flags, input.take<std::uint8_t>() % 4U});
    if ((flags & proto::kImm) != 0)
        append(&message, std::uint64_t{7});
    return message;
}

ScriptedPeer::Message ScriptedPeer::eager(Input& input) {
    const std::uint32_t flags = input.take<std::uint8_t>() % (proto::kHeaderFlags + 1);
    Message message = header(input, flags);
    if ((flags & proto::kAcks) != 0)
        append(&message, std::uint64_t{input.take<std::uint8_t>() % 8U});
    if ((flags & proto::kMoreParts) != 0)
        append(&message, length(input));
    append_data(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::part(Input& input) {
    Message message;
    append(&message, proto::Part{name(input), 0});
    append_data(&message, input);
    return message;
}

void ScriptedPeer::add_key(Message* message, Input& input) const {
    const auto domain = static_cast<std::uint8_t>(input.take<std::uint8_t>() % 3);
    append(message, proto::KeyHead{domain, static_cast<std::uint8_t>(rkey_.size())});
    append_bytes(message, rkey_);
}

ScriptedPeer::Message ScriptedPeer::rendezvous(Input& input) {
    Message message = header(
        input, input.take<std::uint8_t>() & (proto::kTagged | proto::kImm |
                                             (proto::kAnnounced & input.take<std::uint8_t>())));
    proto::Rndv rndv{};
    rndv.length = length(input);
    rndv.address = memory_.address() + (input.take<std::uint8_t>() & 7U);
    rndv.send_id = 1 + input.take<std::uint8_t>() % 8U;
    rndv.key_count = input.take<std::uint8_t>() % 3;
    rndv.flags = input.take<std::uint8_t>() & proto::kRndvFlags;
    append(&message, rndv);
    for (unsigned i = 0; i < rndv.key_count; ++i)
        add_key(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::data(Input& input) {
    Message message;
    append(&message, proto::Data{length(input), number(input), name(input)});
    append_data(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::put_offer(Input& input) {
    proto::PutOffer offer{};
    offer.sender = name(input);
    offer.send_id = number(input);
    offer.receive_id = 1 + input.take<std::uint8_t>() % 8U;
    offer.domain = input.take<std::uint8_t>() % 3;
    offer.key_bytes = static_cast<std::uint8_t>(rkey_.size());
    offer.key_count = input.take<std::uint8_t>() % 2;
    offer.flags = input.take<std::uint8_t>() & proto::kPutFlags;
    offer.length = length(input);
    offer.address = memory_.address();
    Message message;
    append(&message, offer);
    append_bytes(&message, rkey_);
    for (unsigned i = 0; i < offer.key_count; ++i)
        add_key(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::control(Input& input) {
    constexpr std::int32_t kStatuses[] = {UCS_OK,           1,         UCS_ERR_CANCELED,
                                          UCS_ERR_IO_ERROR, INT32_MIN, INT32_MAX};
    proto::Control control{};
    control.op = 1U + input.take<std::uint8_t>() % static_cast<unsigned>(proto::ControlOp::kDown);
    control.sender = name(input);
    control.a = number(input);
    const auto b = input.take<std::uint8_t>();
    control.b = b % 8 < std::size(kStatuses) ? kStatuses[b % 8] : b / 8;
    control.c = length(input);
    if (control.op == static_cast<std::uint32_t>(proto::ControlOp::kReset) && b % 2 == 0)
        control.c = connections_;
    Message message;
    append(&message, control);
    return message;
}

ScriptedPeer::Message ScriptedPeer::hello(Input& input) const {
    const auto choice = input.take<std::uint8_t>();
    proto::Hello hello{};
    hello.id = kNameOfVictim + (choice & 1U);
    hello.known = (choice & 2) != 0 ? name_ : (choice & 4U) * 7;
    hello.number = connections_ + (choice >> 3 & 1U);
    hello.worn = (choice & 16) != 0 ? name_ : 0;
    hello.rails = rail_ != nullptr ? 2 : 1;
    Message message;
    append(&message, hello);
    append_rail(&message, contact_, self_, 0);
    if (rail_ != nullptr)
        append_rail(&message, "rc", *rail_, input.take<std::uint8_t>() % 2);
    return message;
}

ScriptedPeer::Message ScriptedPeer::offer(Input& input, std::uint32_t op) {
    const auto choice = input.take<std::uint8_t>();
    Message address;
    if (rail_ != nullptr && (choice & 1) == 0) {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = rail_->iface();
        uct_ep_h made = nullptr;
        if (lane_.get() == nullptr && uct_ep_create(&params, &made) == UCS_OK)
            lane_ = test::Endpoint(made);
        address.resize(rail_->attr().ep_addr_len);
        require(uct_ep_get_address(lane_, reinterpret_cast<uct_ep_addr_t*>(address.data())) ==
                UCS_OK);
    } else if ((choice & 2) != 0) {
        address.resize(choice);
    }
    const bool has_none = op != static_cast<std::uint32_t>(proto::WireupOp::kOffer) &&
                          op != static_cast<std::uint32_t>(proto::WireupOp::kStripeOffer);
    if (has_none)
        address.clear();
    proto::Offer offer{};
    offer.id = name(input);
    offer.rail = (choice & 4) != 0 ? 0 : 1;
    offer.peer_rail = (choice & 8) != 0 ? static_cast<std::uint8_t>(choice >> 4) : rail_of_victim_;
    offer.is_connected = is_lane_connected_ || (choice & 32) != 0;
    offer.address_bytes = static_cast<std::uint8_t>(address.size());
    Message message;
    append(&message, offer);
    append_bytes(&message, address);
    return message;
}

ScriptedPeer::Message ScriptedPeer::wireup(Input& input, std::uint32_t op) {
    const auto choice = input.take<std::uint8_t>();
    if (choice >= 224)
        ++connections_;
    Message message;
    append(&message,
           proto::Wireup{op, proto::kWireVersion + (choice == 255 ? 1U : 0U), kId, victim_id_});
    append_bytes(&message, op == 1 ? hello(input) : offer(input, op));
    return message;
}

void ScriptedPeer::greet(Input& input) {
    send(proto::AmId::kWireup, wireup(input, 1), input);
}

void ScriptedPeer::greet_anew() {
    Input nothing(nullptr, 0);
    ++connections_;
    greet(nothing);
}

void ScriptedPeer::reset() {
    Input nothing(nullptr, 0);
    proto::Control control{};
    control.op = static_cast<std::uint32_t>(proto::ControlOp::kReset);
    control.sender = name_;
    control.c = connections_;
    Message message;
    append(&message, control);
    send(proto::AmId::kControl, message, nothing);
}

/// Connects to what the victim has offered: from then on messages may come over that.
void ScriptedPeer::take_lane() {
    if (lane_.get() == nullptr || is_lane_connected_ || offered_.empty() ||
        offered_.size() != rail_->attr().ep_addr_len)
        return;
    is_lane_connected_ =
        uct_ep_connect_to_ep(lane_,
                             reinterpret_cast<const uct_device_addr_t*>(device_of_victim_.data()),
                             reinterpret_cast<const uct_ep_addr_t*>(offered_.data())) == UCS_OK;
}

void ScriptedPeer::send(proto::AmId am, Message message, Input& input) {
    const auto choice = input.take<std::uint8_t>();
    if (choice >= 240)  // what ends too early, or too late
        message.resize(message.size() * (choice - 239U) / 8);
    const bool by_lane = is_lane_connected_ && (choice & 1) == 0;
    const test::Entity& from = by_lane ? *rail_ : self_;
    message.resize(std::min(message.size(), from.attr().cap.am.max_bcopy));
    uct_ep_am_bcopy(by_lane ? lane_.get() : to_victim_.get(), static_cast<std::uint8_t>(am),
                    pack_bytes, &message, 0);
}

/// Messages of the transport with a tag, as a lane whose device matches has them: an eager one, or
/// the place of an announced one.
void ScriptedPeer::send_tagged(Input& input) {
    if (!is_lane_connected_)
        return;
    const auto choice = input.take<std::uint8_t>();
    const uct_tag_t tag = choice >> 6;
    if ((choice & 1) != 0) {
        const proto::Placeholder placeholder{name(input), input.take<std::uint8_t>() % 4U};
        uct_ep_tag_rndv_request(lane_, tag, &placeholder, sizeof placeholder - (choice >> 1 & 1),
                                0);
        return;
    }
    Message message;
    append_data(&message, input);
    const std::uint64_t imm =
        std::uint64_t{name(input)} << 32 | (choice & 2 ? proto::kTagImmIsSet : 0) | (choice & 4U);
    uct_ep_tag_eager_bcopy(lane_, tag, imm, pack_bytes, &message, 0);
}

void ScriptedPeer::strike(Input& input) {
    constexpr unsigned kKinds = 9;
    constexpr auto kOps = static_cast<unsigned>(proto::WireupOp::kStripeRefuse);
    if (name_ == 0)
        return greet(input);
    switch (1U + input.take<std::uint8_t>() % kKinds) {
        case 1:
            return send(proto::AmId::kEager, eager(input), input);
        case 2:
            return send(proto::AmId::kPart, part(input), input);
        case 3:
            return send(proto::AmId::kRndv, rendezvous(input), input);
        case 4:
            return send(proto::AmId::kData, data(input), input);
        case 5:
            return send(proto::AmId::kControl, control(input), input);
        case 6:
            return send(proto::AmId::kWireup, wireup(input, 1U + input.take<std::uint8_t>() % kOps),
                        input);
        case 7:
            return send(proto::AmId::kPut, put_offer(input), input);
        case 8:
            return send_tagged(input);
        default:
            return take_lane();
    }
}

}  // namespace tagwire::fuzz
