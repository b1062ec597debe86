// SPDX-License-Identifier: BSD-3-Clause
// Messages for the target of a dc interface from an initiator on the virtual HCA, mixed with what
// its user does, who has an endpoint to the attacker's own target.
#include "common/built.hpp"
#include "message_victim.hpp"
#include "target.hpp"

#include <cstdlib>

#include "ib/dc_stranger.hpp"
#include "uct/ib/message.hpp"

namespace tagwire::fuzz::dc_messages_fuzz {
namespace {

class DcAttack : public test::DcStranger {
  public:
    static constexpr const char* kTransport = "dc";
    static constexpr long kEndpointsLeft = 80;  // ways back

    DcAttack() : DcStranger(stranger_md()) {}
    static test::EntityOptions options(bool by_device) {
        test::EntityOptions options = options_of("DC", by_device);
        options.iface_config.emplace_back("DC_TIMEOUT", "10us");
        options.iface_config.emplace_back("DC_DCIS", "2");
        return options;
    }
    test::Endpoint open(Entity& victim) {
        aim(victim);
        std::string reason;
        dc::DcAddress own = dc::parse_address(victim.iface_address(), &reason).value();
        own.number = be32toh(address().target.number);
        own.key = be64toh(address().target.key);
        const dc::DcAddress packed = dc::pack(own);
        const auto* first = reinterpret_cast<const std::byte*>(&packed);
        return test::connect_to_address(victim, victim.device_address(),
                                        test::Bytes(first, first + sizeof packed));
    }
    /// A return address that leads somewhere, where the input says so.
    void prepare(std::span<std::byte> message) {
        const bool is_question =
            !message.empty() && message[0] == std::byte{IBV_TMH_NO_TAG} && message.size() >= 16;
        const std::size_t at = is_question ? 16 : 32;
        if (message.size() < at + sizeof(dc::ReturnAddress) ||
            (std::to_integer<unsigned>(message[at]) & 1U) == 0)
            return;
        dc::ReturnAddress from = address();
        from.target.key ^= std::to_integer<unsigned>(message[at]) & 2U;
        std::memcpy(message.data() + at, &from, sizeof from);
    }
};

void prepare() {
    ::setenv("TAGWIRE_IB_VHCA_LIBRARY", test::built_vhca().c_str(), 0);
    ::setenv("TAGWIRE_IB_DEVICES", "vhca0", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "error", 0);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Victim<DcAttack> victim(input.take<std::uint8_t>() % 2 != 0);
    for (int acts = 0; acts < 200 && !input.at_end(); ++acts)
        victim.act(input);
    victim.end();
}

}  // namespace

extern const Target kTarget{"dc_messages", prepare, run_input};

}  // namespace tagwire::fuzz::dc_messages_fuzz
