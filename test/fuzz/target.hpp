// SPDX-License-Identifier: BSD-3-Clause
// The fuzz targets: one for each thing that is parsed from a peer or a file. All of them are one
// program, fuzz_targets, which runs the one that --target=NAME names: with libFuzzer where the
// preset has it, else over the files of a corpus.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tagwire::fuzz {

struct Target {
    const char* name;
    void (*prepare)();  // once, before the first input; may be null
    void (*run)(const std::uint8_t* data, std::size_t size);
};

// Each is defined by the source of its name.
namespace bootstrap_fuzz {
extern const Target kTarget;
}
namespace config_fuzz {
extern const Target kTarget;
}
namespace control_channel_fuzz {
extern const Target kTarget;
}
namespace dc_messages_fuzz {
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
namespace msg_wireup_fuzz {
extern const Target kTarget;
}
namespace rc_messages_fuzz {
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
namespace vhca_packets_fuzz {
extern const Target kTarget;
}
namespace vhca_shm_fuzz {
extern const Target kTarget;
}
namespace vhca_wqe_fuzz {
extern const Target kTarget;
}

}  // namespace tagwire::fuzz
