// SPDX-License-Identifier: BSD-3-Clause
#include "msg_peer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "msg_bytes.hpp"

namespace tagwire::fuzz {

namespace {

constexpr std::size_t kMemoryBytes = 70000;
constexpr std::size_t kNumbersMax = 16;
constexpr std::uint64_t kPeerLengths[] = {
    0, 1, 8, 100, 1000, 3000, 9000, 20000, 70000, 1 << 20, 1ULL << 40, ~std::uint64_t{0}};

std::uint64_t length(Input& input) {
    return kPeerLengths[input.take<std::uint8_t>() % std::size(kPeerLengths)];
}

}  // namespace

ScriptedPeer::ScriptedPeer(const std::string& transport)
    : contact_(transport == "sm" ? "sm" : "ud"),
      self_(test::resource_of(contact_)),
      memory_(self_, kMemoryBytes, test::Backing::kRegistered),
      rkey_(memory_.packed_rkey()) {
    record(&self_);
    self_.on_error = [this](const test::PeerError&) { has_contact_failed_ = true; };
    if (transport == "sm")
        return;
    lanes_ = std::make_unique<PeerLanes>(memory_.span());
    for (PeerLanes::Rail& rail : lanes_->rails()) {
        record(rail.entity.get());
        rail.entity->on_rndv = [](const test::RndvMessage& message) {
            proto::Placeholder place{};
            require(proto::decode(proto::WireBytes(message.header), &place));
            return UCS_OK;
        };
    }
}

void ScriptedPeer::record(test::Entity* entity) {
    entity->keep_record = false;
    for (std::uint8_t am = 1; am <= static_cast<std::uint8_t>(proto::kAmIdLast); ++am)
        entity->record_am(am);
    entity->on_am = [this](const test::AmMessage& message) {
        learn(message);
        return UCS_OK;
    };
}

std::vector<std::byte> ScriptedPeer::address() const {
    return proto::pack({kId, {{contact_, self_.device_address(), self_.iface_address()}}});
}

void ScriptedPeer::meet(const std::vector<std::byte>& victim) {
    std::string reason;
    const auto at = proto::parse(victim, &reason);
    require(at.has_value() && at->contact_over(contact_) != nullptr);
    victim_id_ = at->id;
    at_ = *at->contact_over(contact_);
    to_victim_ = test::connect_to_address(self_, at_.device, at_.iface);
}

void ScriptedPeer::progress() {
    self_.progress();
    if (lanes_ != nullptr)
        lanes_->progress();
    if (std::exchange(has_contact_failed_, false))
        to_victim_ = test::connect_to_address(self_, at_.device, at_.iface);
}

// ---- Messages of the victim

void ScriptedPeer::learn_number(std::uint32_t value) {
    if (value == 0)
        return;
    if (numbers_.size() == kNumbersMax)
        numbers_.erase(numbers_.begin());
    numbers_.push_back(value);
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
        const auto ids = control.as<proto::Cts>();  // the others have theirs in the same places
        learn_number(ids.send_id);
        learn_number(ids.receive_id);
    } else if (am == proto::AmId::kRtr) {
        proto::RtrMessage offer{};
        require(proto::decode(bytes, &offer));
        learn_number(offer.rtr.send_id);
        learn_number(offer.rtr.receive_id);
    } else if (am == proto::AmId::kPut) {
        proto::PutMessage put{};
        require(proto::decode(bytes, &put));
        learn_number(put.head.op_id);
    } else if (am == proto::AmId::kRmaRequest) {
        proto::RmaRequest request{};
        require(proto::decode(bytes, &request));
        learn_number(request.op_id);
    } else if (am == proto::AmId::kAm || am == proto::AmId::kAmRts) {
        learn_of_am(am, bytes);
    } else if (am == proto::AmId::kEager || am == proto::AmId::kRts) {
        require(bytes.size() >= sizeof header);
        std::memcpy(&header, bytes.data(), sizeof header);
        proto::EagerBody eager{};
        proto::RtsBody rts{};
        const auto behind = bytes.subspan(sizeof header);
        if (am == proto::AmId::kEager) {
            require(proto::decode(header, behind, &eager));
            learn_number(eager.send_id);
        } else {
            require(proto::decode(header, behind, &rts));
            learn_number(rts.rts.send_id);
        }
    }
}

void ScriptedPeer::learn_of_am(proto::AmId am, proto::WireBytes bytes) {
    proto::Header header{};
    require(proto::decode(bytes, &header));
    const auto behind = bytes.subspan(sizeof header);
    proto::AmBody eager{};
    proto::AmRtsBody rndv{};
    if (am == proto::AmId::kAm) {
        require(proto::decode(header, behind, &eager));
        learn_number(eager.eager.send_id);
    } else {
        require(proto::decode(header, behind, &rndv));
        learn_number(rndv.rndv.rts.send_id);
    }
}

// ---- Messages to the victim

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

/// A message of the program as an active one. Mostly its flags may be, and its ids are of handlers.
ScriptedPeer::Message ScriptedPeer::as_am(Message message, Input& input) {
    constexpr std::size_t kHeaderBytes[] = {0, 1, 8, 100, TW_AM_HEADER_MAX, TW_AM_HEADER_MAX + 1};
    const auto choice = input.take<std::uint8_t>();
    proto::Header header{};
    std::memcpy(&header, message.data(), sizeof header);
    const std::size_t header_bytes = kHeaderBytes[choice % std::size(kHeaderBytes)];
    const std::uint32_t space = choice % 11 == 10 ? proto::kFirstOwnAmId : 0;
    header.tag = proto::AmWord::encode(space + choice % 7, header_bytes);
    Message own;
    if (choice < 240 && (header.flags & (proto::kImm | proto::kAcks | proto::kMoreParts)) == 0)
        own.resize(header_bytes);
    if (choice < 240)
        header.flags &= proto::kAcks | proto::kMoreParts;
    std::memcpy(message.data(), &header, sizeof header);
    message.insert(message.begin() + sizeof header, own.begin(), own.end());
    return message;
}

ScriptedPeer::Message ScriptedPeer::part(Input& input) {
    Message message;
    append(&message, proto::Part{name(input), 0});
    append_data(&message, input);
    return message;
}

const ScriptedPeer::Message& ScriptedPeer::rkey(std::uint8_t domain) const {
    return lanes_ == nullptr ? rkey_ : lanes_->rails()[domain % lanes_->rails().size()].rkey;
}

void ScriptedPeer::add_key(Message* message, Input& input) const {
    const auto domain = static_cast<std::uint8_t>(input.take<std::uint8_t>() % 3);
    append(message, proto::KeyHead{domain, static_cast<std::uint8_t>(rkey(domain).size())});
    append_bytes(message, rkey(domain));
}

ScriptedPeer::Message ScriptedPeer::rendezvous(Input& input) {
    const auto flags = input.take<std::uint8_t>();
    const auto announces = input.take<std::uint8_t>();  // both: it is rare
    Message message =
        header(input, flags & (proto::kTagged | proto::kImm | (proto::kAnnounced & announces)));
    proto::Rts rts{};
    rts.length = length(input);
    const auto place = input.take<std::uint8_t>();  // rarely one whose end no key names
    rts.address = memory_.address() + (place < 240 ? place & 7U : kMemoryBytes - place % 8U);
    rts.send_id = 1 + input.take<std::uint8_t>() % 8U;
    rts.key_count = input.take<std::uint8_t>() % 3;
    rts.flags = input.take<std::uint8_t>() & proto::kRtsFlags;
    append(&message, rts);
    for (unsigned i = 0; i < rts.key_count; ++i)
        add_key(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::data(Input& input) {
    Message message;
    append(&message, proto::RndvData{length(input), number(input), name(input)});
    append_data(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::put_offer(Input& input) {
    proto::Rtr offer{};
    offer.sender = name(input);
    offer.send_id = number(input);
    offer.receive_id = 1 + input.take<std::uint8_t>() % 8U;
    offer.domain = input.take<std::uint8_t>() % 3;
    offer.key_bytes = static_cast<std::uint8_t>(rkey(offer.domain).size());
    offer.key_count = input.take<std::uint8_t>() % 2;
    offer.flags = input.take<std::uint8_t>() & proto::kRtrFlags;
    offer.length = length(input);
    offer.address = memory_.address() + (offer.receive_id == 8 ? 8U : 0U);  // too far: the same
    Message message;
    append(&message, offer);
    append_bytes(&message, rkey(offer.domain));
    for (unsigned i = 0; i < offer.key_count; ++i)
        add_key(&message, input);
    return message;
}

ScriptedPeer::Message ScriptedPeer::control(Input& input) {
    constexpr std::int32_t kStatuses[] = {UCS_OK,           1,         UCS_ERR_CANCELED,
                                          UCS_ERR_IO_ERROR, INT32_MIN, INT32_MAX};
    proto::Control control{};
    control.op = 1U + input.take<std::uint8_t>() % static_cast<unsigned>(proto::ControlOp::kProbed);
    control.sender = name(input);
    const std::uint32_t id = number(input);
    const auto choice = input.take<std::uint8_t>();
    const std::int32_t status =
        choice % 8 < std::size(kStatuses) ? kStatuses[choice % 8] : choice / 8;
    // The longest body, whatever the operation.
    proto::Cts body{id, static_cast<std::uint32_t>(status), length(input)};
    if (control.operation() == proto::ControlOp::kReset) {
        if (choice % 2 == 0)
            body.bytes = connections_;
        begin_connection(static_cast<std::uint32_t>(body.bytes));
    }
    std::memcpy(control.body, &body, sizeof body);
    Message message;
    append(&message, control);
    return message;
}

// ---- One-sided operations

void ScriptedPeer::learn_key(const std::vector<std::byte>& packed) {
    proto::MemoryKeyMessage message;
    require(proto::decode(packed, &message) == nullptr);
    victims_ = message.key;
}

std::vector<std::byte> ScriptedPeer::key() {
    std::vector<std::byte> packed(TW_KEY_BYTES_MAX);
    packed.resize(proto::MemoryKeyWriter(
                      {1U << 20, 0x1000, 1U << 20, TW_ACCESS_ALL, false, proto::owner_of(kId)})
                      .write(packed.data()));
    return packed;
}

/// Mostly memory that it may use, or almost.
proto::MemoryRange ScriptedPeer::range(Input& input) const {
    const auto choice = input.take<std::uint8_t>();
    proto::MemoryRange range{victims_.memory, victims_.address};
    if (choice >= 240)
        range.memory += choice;
    if (choice % 4 == 3)
        range.address += input.take<std::uint16_t>() - 512U;
    else
        range.address += choice % 64 * 4U;
    return range;
}

void ScriptedPeer::use_memory(Input& input) {
    const auto choice = input.take<std::uint8_t>();
    Message message;
    switch (choice % 4) {
        case 0:
            append(&message,
                   proto::PutPart{name(input), number(input), range(input), choice >> 2 & 1U, 0});
            append_data(&message, input);
            return send(proto::AmId::kPut, message, input);
        case 1: {
            proto::RmaRequest request{};
            request.sender = name(input);
            request.op_id = number(input);
            request.at = range(input);
            request.kind = (choice & 4) != 0 ? proto::RmaKind::kAtomic : proto::RmaKind::kGet;
            request.length = (choice & 8) != 0 ? length(input) : 8;
            request.operand = input.take<std::uint64_t>();
            request.operation = input.take<std::uint8_t>() % 9;
            request.type = (choice & 16) != 0 ? TW_UINT64 : TW_INT32;
            if (request.kind == proto::RmaKind::kAtomic && request.type == TW_INT32)
                request.length = 4;
            append(&message, request);
            return send(proto::AmId::kRmaRequest, message, input);
        }
        case 2:
            append(&message, proto::GetData{name(input), number(input),
                                            (choice & 4) != 0 ? length(input) : 0});
            append_data(&message, input);
            return send(proto::AmId::kGetData, message, input);
        default: {
            proto::Notice notice{};
            notice.sender = name(input);
            notice.kind = proto::RmaKind::kPut;
            notice.at = range(input);
            append(&message, notice);
            return send(proto::AmId::kNotice, message, input);
        }
    }
}

void ScriptedPeer::reset() {
    Message message;
    append(&message, proto::Control::of(proto::Reset{0, 0, connections_}, name_));
    send_by_contact(proto::AmId::kControl, &message);
}

void ScriptedPeer::send_by_contact(proto::AmId am, Message* message) {
    message->resize(std::min(message->size(), self_.attr().cap.am.max_bcopy));
    uct_ep_am_bcopy(to_victim_, static_cast<std::uint8_t>(am), pack_bytes, message, 0);
}

void ScriptedPeer::send(proto::AmId am, Message message, Input& input) {
    const auto choice = input.take<std::uint8_t>();
    if (choice >= 240)  // what ends too early, or too late
        message.resize(message.size() * (choice - 239U) / 8);
    const bool by_lane = lanes_ != nullptr && (choice & 1) == 0;
    PeerLane* const lane = by_lane ? lanes_->some_lane(input) : nullptr;
    if (lane == nullptr)
        return send_by_contact(am, &message);
    const auto& attr = lanes_->rails()[lane->rail].entity->attr();
    message.resize(std::min(message.size(), attr.cap.am.max_bcopy));
    uct_ep_am_bcopy(lane->ep, static_cast<std::uint8_t>(am), pack_bytes, &message, 0);
}

void ScriptedPeer::strike(Input& input) {
    constexpr unsigned kKinds = 9;
    constexpr auto kOps = static_cast<unsigned>(proto::WireupOp::kStripeRefuse);
    if (name_ == 0)
        return greet(input);
    const auto choice = input.take<std::uint8_t>();
    if (choice >= 248)
        return send(proto::AmId::kAm, as_am(eager(input), input), input);
    if (choice >= 224 && choice < 240)
        return use_memory(input);
    if (choice >= 240)
        return send(proto::AmId::kAmRts, as_am(rendezvous(input), input), input);
    switch (1U + choice % kKinds) {
        case 1:
            return send(proto::AmId::kEager, eager(input), input);
        case 2:
            return send(proto::AmId::kPart, part(input), input);
        case 3:
            return send(proto::AmId::kRts, rendezvous(input), input);
        case 4:
            return send(proto::AmId::kData, data(input), input);
        case 5:
            return send(proto::AmId::kControl, control(input), input);
        case 6:
            return send(proto::AmId::kWireup, wireup(input, 1U + input.take<std::uint8_t>() % kOps),
                        input);
        case 7:
            return send(proto::AmId::kRtr, put_offer(input), input);
        case 8:
            return lanes_ == nullptr ? void() : send_tagged(input);
        default:
            return lanes_ == nullptr ? void() : work_on_lanes(input);
    }
}

}  // namespace tagwire::fuzz
