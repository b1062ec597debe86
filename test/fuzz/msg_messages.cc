// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against messages that no peer of good will sends: they claim to
// come from its peer, and are mixed with what both programs really do. Whatever comes, each
// operation ends once, at the latest when everything is cancelled and the endpoint closed by force.
#include <tagwire.h>

#include <memory>
#include <string>
#include <vector>

#include "contract/entity.hpp"
#include "msg_steps.hpp"
#include "protocols/wire/address.hpp"
#include "protocols/wire/wireup_messages.hpp"
#include "target.hpp"

namespace tagwire::fuzz::msg_messages_fuzz {
namespace {

constexpr std::size_t kMessageBytesMax = 600;
constexpr int kRoundsPerAct = 20;
constexpr int kRoundsAtEnd = 2000;

class Attack {
  public:
    Attack() : attacker_(test::resource_of("sm")) {
        victim_ = std::make_unique<Program>(context_);
        peer_ = std::make_unique<Program>(context_);
        victim_->connect(peer_->address());
        std::string reason;
        const auto at = proto::parse(victim_->address(), &reason);
        const auto from = proto::parse(peer_->address(), &reason);
        require(at.has_value() && from.has_value());
        victim_id_ = at->id;
        peer_id_ = from->id;
        const proto::Contact& contact = at->contacts.front();
        to_victim_ = test::connect_to_address(attacker_, contact.device, contact.iface);
        for (int i = 0; i < kRoundsPerAct * 10; ++i)
            progress();
    }
    Attack(const Attack&) = delete;
    Attack& operator=(const Attack&) = delete;
    ~Attack() {
        to_victim_.reset();
        victim_.reset();
        peer_.reset();
        tw_context_destroy(context_);
    }

    void act(Input& input) {
        Program& program = input.take<std::uint8_t>() & 1 ? *peer_ : *victim_;
        const unsigned act = input.take<std::uint8_t>() % 8;
        if (act < kActsOfProgram)
            act_of_program(program, act, input);
        else
            strike(input);
        for (int i = 0; i < kRoundsPerAct; ++i)
            progress();
    }

    void end() {
        victim_->close_by_force();
        peer_->close_by_force();
        for (int i = 0; i < kRoundsAtEnd; ++i) {
            victim_->cancel_all();
            peer_->cancel_all();
            progress();
            if (!victim_->is_anything_pending() && !peer_->is_anything_pending())
                return;
        }
        require(false);
    }

  private:
    void progress() {
        victim_->progress();
        peer_->progress();
        attacker_.progress();
    }

    void strike(Input& input) {
        const auto choice = input.take<std::uint8_t>();
        const proto::AmId of_program = choice % 2 == 0 ? proto::AmId::kAm : proto::AmId::kAmRts;
        const auto id = choice >= 224 ? static_cast<std::uint8_t>(of_program)
                                      : static_cast<std::uint8_t>(1 + choice % 7);
        std::vector<std::byte> message(input.take<std::uint16_t>() % (kMessageBytesMax + 1));
        input.take_into(message);
        // Nobody can guess the random numbers that name workers.
        if (id == static_cast<std::uint8_t>(proto::AmId::kWireup) &&
            message.size() >= sizeof(proto::Wireup)) {
            proto::Wireup head{};
            std::memcpy(&head, message.data(), sizeof head);
            head.version = proto::kWireVersion;
            head.from = head.from % 2 == 0 ? peer_id_ : head.from;
            head.to = victim_id_;
            std::memcpy(message.data(), &head, sizeof head);
        }
        const auto pack = [](void* to, void* arg) {
            const auto& bytes = *static_cast<const std::vector<std::byte>*>(arg);
            if (!bytes.empty())
                std::memcpy(to, bytes.data(), bytes.size());
            return bytes.size();
        };
        uct_ep_am_bcopy(to_victim_.get(), id, pack, &message, 0);
    }

    tw_context_h context_ = make_context("sm");
    std::unique_ptr<Program> victim_;
    std::unique_ptr<Program> peer_;
    std::uint64_t victim_id_ = 0;
    std::uint64_t peer_id_ = 0;
    test::Entity attacker_;
    test::Endpoint to_victim_;
};

void prepare() {
    set_message_options();
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Attack attack;
    play(attack, input, 100);
}

}  // namespace

extern const Target kTarget{"msg_messages", prepare, run_input};

}  // namespace tagwire::fuzz::msg_messages_fuzz
