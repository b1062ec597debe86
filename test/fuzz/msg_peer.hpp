// SPDX-License-Identifier: BSD-3-Clause
// A peer of the messaging layer that knows the protocol and says what an input tells it to: each
// kind of message, well formed for the most part, with names that the victim has just told.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/buffer.hpp"
#include "contract/entity.hpp"
#include "input.hpp"
#include "msg_lanes.hpp"
#include "protocols/wire/address.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/control_message.hpp"
#include "protocols/wire/eager_header.hpp"
#include "protocols/wire/memory_key.hpp"
#include "protocols/wire/rma_messages.hpp"
#include "protocols/wire/rndv_messages.hpp"
#include "protocols/wire/wireup_messages.hpp"

namespace tagwire::fuzz {

class ScriptedPeer {
  public:
    /// "sm", or "rc": then it says hello over ud, and has rails of rc that offers name.
    explicit ScriptedPeer(const std::string& transport);
    ScriptedPeer(const ScriptedPeer&) = delete;
    ScriptedPeer& operator=(const ScriptedPeer&) = delete;

    /// The address of its worker.
    std::vector<std::byte> address() const;
    void meet(const std::vector<std::byte>& victim);
    /// Says hello, as the input words it.
    void greet(Input& input);
    /// Memory of the victim's program that has this packed key.
    void learn_key(const std::vector<std::byte>& packed);
    /// The key of memory that it says to have.
    static std::vector<std::byte> key();
    /// One message, of a kind and with values that the input chooses.
    void strike(Input& input);
    /// Kinds of peers that it may say to be. The victim believes the first, and drops other hellos.
    static constexpr std::size_t kIdentities = 3;
    /// Says hello for a new connection.
    void greet_anew(std::size_t identity);
    /// Says that the last one has ended.
    void reset();
    void progress();

  private:
    using Message = std::vector<std::byte>;

    Message header(Input& input, std::uint32_t flags) const;
    Message eager(Input& input);
    static Message as_am(Message message, Input& input);
    Message part(Input& input);
    Message rendezvous(Input& input);
    Message data(Input& input);
    Message control(Input& input);
    void begin_connection(std::uint32_t number);
    Message wireup(Input& input, std::uint32_t op);
    Message hello(Input& input);
    Message offer(Input& input, std::uint32_t op);
    Message offer_of(const PeerLane& lane, Input& input, bool has_address) const;
    Message put_offer(Input& input);
    void use_memory(Input& input);
    proto::MemoryRange range(Input& input) const;

    const Message& rkey(std::uint8_t domain) const;
    void add_key(Message* message, Input& input) const;
    /// One that the victim has told, or a small number.
    std::uint32_t number(Input& input) const;
    std::uint32_t name(Input& input) const;
    void send(proto::AmId am, Message message, Input& input);
    void send_by_contact(proto::AmId am, Message* message);
    void send_wireup(proto::WireupOp op, const Message& behind);
    void send_tagged(Input& input);
    void work_on_lanes(Input& input);
    PeerLane* chosen_lane(Input& input, bool is_stripe);
    void offer_lane(Input& input, bool is_stripe);
    void answer_offer(Input& input);
    void tell_of_lane(Input& input);
    void record(test::Entity* entity);
    void learn(const test::AmMessage& message);
    void learn_of_am(proto::AmId am, proto::WireBytes bytes);
    void learn_of_wireup(proto::WireBytes bytes);
    void learn_number(std::uint32_t value);

    static constexpr std::uint64_t kId = 0x1234567812345678;
    static constexpr std::uint32_t kNameOfVictim = 0x01000007;

    std::string contact_;
    test::Entity self_;
    std::uint64_t victim_id_ = 0;
    proto::Contact at_;  // of the victim
    test::Endpoint to_victim_;
    bool has_contact_failed_ = false;
    test::Buffer memory_;
    Message rkey_;
    std::unique_ptr<PeerLanes> lanes_;  // of rc
    std::uint32_t name_ = 0;            // how the victim knows us
    std::uint32_t connections_ = 1;
    proto::MemoryKey victims_;  // memory of the victim's program
    proto::WireupOp offered_as_ = proto::WireupOp::kHello;
    proto::OfferMessage offered_;  // the last that the victim has offered
    std::vector<std::uint32_t> numbers_;
};

}  // namespace tagwire::fuzz
