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
#include "protocols/address.hpp"
#include "protocols/wire.hpp"

namespace tagwire::fuzz {

class ScriptedPeer {
  public:
    /// "sm", or "rc": then it says hello over ud, and has a rail of rc that offers name.
    explicit ScriptedPeer(const std::string& transport);
    ScriptedPeer(const ScriptedPeer&) = delete;
    ScriptedPeer& operator=(const ScriptedPeer&) = delete;

    /// The address of its worker.
    std::vector<std::byte> address() const;
    void meet(const std::vector<std::byte>& victim);
    /// Says hello, as the input words it.
    void greet(Input& input);
    /// One message, of a kind and with values that the input chooses.
    void strike(Input& input);
    /// Says hello for a new connection.
    void greet_anew();
    /// Says that the last one has ended.
    void reset();
    void progress();

  private:
    using Message = std::vector<std::byte>;

    Message header(Input& input, std::uint32_t flags) const;
    Message eager(Input& input);
    Message part(Input& input);
    Message rendezvous(Input& input);
    Message data(Input& input);
    Message control(Input& input);
    Message wireup(Input& input, std::uint32_t op);
    Message hello(Input& input) const;
    Message offer(Input& input, std::uint32_t op);
    Message put_offer(Input& input);

    void add_key(Message* message, Input& input) const;
    /// One that the victim has told, or a small number.
    std::uint32_t number(Input& input) const;
    std::uint32_t name(Input& input) const;
    void send(proto::AmId am, Message message, Input& input);
    void send_tagged(Input& input);
    void take_lane();
    void learn(const test::AmMessage& message);
    void learn_of_wireup(proto::WireBytes bytes);
    void learn_number(std::uint32_t value);

    static constexpr std::uint64_t kId = 0x1234567812345678;
    static constexpr std::uint32_t kNameOfVictim = 0x01000007;

    std::string contact_;
    test::Entity self_;
    std::unique_ptr<test::Entity> rail_;  // of rc
    test::Endpoint lane_;                 // of rc
    bool is_lane_connected_ = false;
    test::Endpoint to_victim_;
    test::Buffer memory_;
    std::vector<std::byte> rkey_;
    std::uint64_t victim_id_ = 0;
    std::uint32_t name_ = 0;  // how the victim knows us
    std::uint32_t connections_ = 1;
    std::vector<std::byte> device_of_victim_;  // of its rail of rc
    std::uint8_t rail_of_victim_ = 0;
    std::vector<std::byte> offered_;  // the last address that the victim has offered
    std::vector<std::uint32_t> numbers_;
};

}  // namespace tagwire::fuzz
