// SPDX-License-Identifier: BSD-3-Clause
// The fuzz targets of this program, each defined by the source of its name.
#include "targets.hpp"

namespace tagwire::fuzz {

namespace bootstrap_fuzz {
extern const Target kTarget;
}
namespace config_fuzz {
extern const Target kTarget;
}
namespace ib_address_fuzz {
extern const Target kTarget;
}
namespace msg_address_fuzz {
extern const Target kTarget;
}
namespace msg_messages_fuzz {
extern const Target kTarget;
}
namespace msg_script_fuzz {
extern const Target kTarget;
}
namespace sm_peer_fuzz {
extern const Target kTarget;
}
namespace sm_wire_fuzz {
extern const Target kTarget;
}
namespace tcp_stream_fuzz {
extern const Target kTarget;
}
namespace ud_packets_fuzz {
extern const Target kTarget;
}
#ifdef TAGWIRE_FUZZ_VHCA
namespace dc_messages_fuzz {
extern const Target kTarget;
}
namespace msg_wireup_fuzz {
extern const Target kTarget;
}
namespace rc_messages_fuzz {
extern const Target kTarget;
}
#endif

std::span<const Target* const> all_targets() {
    static constexpr const Target* kTargets[] = {
        &bootstrap_fuzz::kTarget,   &config_fuzz::kTarget,       &ib_address_fuzz::kTarget,
        &msg_address_fuzz::kTarget, &msg_messages_fuzz::kTarget, &msg_script_fuzz::kTarget,
        &sm_peer_fuzz::kTarget,     &sm_wire_fuzz::kTarget,      &tcp_stream_fuzz::kTarget,
        &ud_packets_fuzz::kTarget,
#ifdef TAGWIRE_FUZZ_VHCA
        &dc_messages_fuzz::kTarget, &msg_wireup_fuzz::kTarget,   &rc_messages_fuzz::kTarget,
#endif
    };
    return kTargets;
}

}  // namespace tagwire::fuzz
