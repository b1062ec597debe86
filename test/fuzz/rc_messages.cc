// SPDX-License-Identifier: BSD-3-Clause
// Messages for an rc interface from plain queue pairs on the virtual HCA, mixed with what its user
// does.
#include "common/built.hpp"
#include "message_victim.hpp"
#include "target.hpp"

#include <cstdlib>

namespace tagwire::fuzz::rc_messages_fuzz {
namespace {

class RcAttack : public test::Stranger {
  public:
    static constexpr const char* kTransport = "rc";
    static constexpr long kEndpointsLeft = 0;

    RcAttack() : Stranger(stranger_md()) {}
    static test::EntityOptions options(bool by_device) { return options_of("RC", by_device); }
    test::Endpoint open(Entity& victim) {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = victim.iface();
        uct_ep_h ep = nullptr;
        test::require_ok(uct_ep_create(&params, &ep), "uct_ep_create");
        connect(victim, ep, 16);
        return test::Endpoint(ep);
    }
    void prepare(std::span<std::byte>) {}
};

void prepare() {
    ::setenv("TAGWIRE_IB_VHCA_LIBRARY", test::built_vhca().c_str(), 0);
    ::setenv("TAGWIRE_IB_DEVICES", "vhca0", 1);
    ::setenv("TAGWIRE_LOG_LEVEL", "error", 0);
}

void run_input(const std::uint8_t* data, std::size_t size) {
    Input input(data, size);
    Victim<RcAttack> victim(input.take<std::uint8_t>() % 2 != 0);
    for (int acts = 0; acts < 200 && !input.at_end(); ++acts)
        victim.act(input);
    victim.end();
}

}  // namespace

extern const Target kTarget{"rc_messages", prepare, run_input};

}  // namespace tagwire::fuzz::rc_messages_fuzz
