// SPDX-License-Identifier: BSD-3-Clause
// A worker of the messaging layer against messages that no peer of good will sends: they claim to
// come from its peer, and are mixed with what both programs really do. Whatever comes, each
// operation ends once, at the latest when everything is cancelled and the endpoint closed by force.
#include <tagwire.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "contract/entity.hpp"
#include "msg_program.hpp"
#include "protocols/address.hpp"
#include "protocols/wire.hpp"

namespace tagwire::fuzz {
namespace {

constexpr std::size_t kMessageBytesMax = 600;
constexpr int kRounds = 20;
constexpr int kRoundsAtEnd = 2000;

class Attack {
  public:
    Attack() : attacker_(test::resource_of("sm")) {
        tw_context_params_t params{};
        params.transports = "sm";
        require(tw_context_create(&params, &context_) == TW_OK);
        victim_ = std::make_unique<Program>(context_);
        peer_ = std::make_unique<Program>(context_);
        victim_->connect(peer_->address());
        std::string reason;
        const auto at = proto::parse(victim_->address(), &reason);
        const auto from = proto::parse(peer_->address(), &reason);
        require(at.has_value() && from.has_value());
        victim_id_ = at->id;
        peer_id_ = from->id;
        to_victim_ = test::connect_to_address(attacker_, at->device, at->iface);
        for (int i = 0; i < kRounds * 10; ++i)
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
        switch (input.take<std::uint8_t>() % 8) {
            case 0:
                program.receive(input);
                break;
            case 1:
                program.send(input);
                break;
            case 2:
                program.peek(input);
                break;
            case 3:
                program.cancel_some(input);
                break;
            case 4:
                program.receive_buffered(input);
                break;
            case 5:
                program.take_shown(input);
                break;
            default:
                strike(input);
                break;
        }
        for (int i = 0; i < kRounds; ++i)
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
        const auto id = static_cast<std::uint8_t>(1 + input.take<std::uint8_t>() % 7);
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

    tw_context_h context_ = nullptr;
    std::unique_ptr<Program> victim_;
    std::unique_ptr<Program> peer_;
    std::uint64_t victim_id_ = 0;
    std::uint64_t peer_id_ = 0;
    test::Entity attacker_;
    test::Endpoint to_victim_;
};

}  // namespace
}  // namespace tagwire::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    // Each byte that is read for a peer is read by its owner, who knows what is his.
    ::setenv("TAGWIRE_SM_CMA", "off", 1);
    ::setenv("TAGWIRE_SM_ARENA_BYTES", "4m", 1);
    ::setenv("TAGWIRE_CALIBRATION", "none", 1);
    ::setenv("TAGWIRE_UNEXPECTED_BYTES", "64k", 1);
    ::setenv("TAGWIRE_UNEXPECTED_MAX", "64", 1);
    ::setenv("TAGWIRE_RNDV_THRESHOLD", "16k", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "off", 0);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int ready = LLVMFuzzerInitialize(nullptr, nullptr);  // where it is only replayed
    tagwire::fuzz::require(ready == 0);
    tagwire::fuzz::Input input(data, size);
    tagwire::fuzz::Attack attack;
    for (int acts = 0; acts < 100 && !input.at_end(); ++acts)
        attack.act(input);
    attack.end();
    return 0;
}
