// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/setup/hardware_profile.hpp"

#include <array>

namespace tagwire::vhca {
namespace {

// In the order of the names in options.cc.
constexpr std::array kProfiles = {
    HardwareProfile{.name = "connectx",
                    .board_id = "TAGWIRE-VHCA",
                    .hca_type = "MT4123",
                    .vendor_id = 0x02c9,
                    .vendor_part_id = 4123,
                    .is_mlx5 = true,
                    .has_timestamps = true,
                    .is_ethernet = false,
                    .has_tags = true,
                    .limits = {}},
    // As Linux 6.1's rdma_rxe reports itself.
    HardwareProfile{.name = "soft-roce",
                    .board_id = "",
                    .hca_type = "",
                    .vendor_id = 0xffffff,
                    .vendor_part_id = 0,
                    .is_mlx5 = false,
                    .has_timestamps = false,
                    .is_ethernet = true,
                    .has_tags = false,
                    .limits = {.qp_max = 1048560,
                               .qp_wr_max = 1048576,
                               .sge_max = 32,
                               .inline_max = 512,
                               .cqe_max = 32767,
                               .srq_wr_max = 1048576,
                               .srq_sge_max = 27,
                               .message_bytes_max = 1 << 23,
                               .rd_atom_max = 128,
                               .frees_when_completed = true}},
};

template <typename T>
void replace(T* limit, std::uint64_t wanted) {
    if (wanted != 0)
        *limit = static_cast<T>(wanted);
}

}  // namespace

const HardwareProfile& hardware_profile() {
    static const HardwareProfile& chosen = []() -> const HardwareProfile& {
        Options options;
        static_cast<void>(ucs::config_fill(option_table(), &options));
        return kProfiles[static_cast<std::size_t>(options.profile)];
    }();
    return chosen;
}

DeviceConfig limits_of(const HardwareProfile& profile, const Options& options) {
    DeviceConfig limits = profile.limits;
    replace(&limits.qp_max, options.qps);
    replace(&limits.qp_wr_max, options.qp_depth);
    replace(&limits.cqe_max, options.cq_depth);
    replace(&limits.srq_wr_max, options.srq_depth);
    replace(&limits.sge_max, options.sges);
    replace(&limits.srq_sge_max, options.sges);
    replace(&limits.inline_max, options.inline_bytes);
    replace(&limits.rd_atom_max, options.reads);
    limits.ports = static_cast<std::uint8_t>(options.ports);
    limits.gids = static_cast<std::uint16_t>(options.gids);
    limits.has_atomics = options.atomics;
    limits.tm_tags_max = profile.has_tags ? static_cast<std::uint32_t>(options.tm) : 0;
    limits.has_dc = profile.is_mlx5 && options.dc;
    limits.has_dc_rendezvous = options.dc_rendezvous;
    limits.tells_dc_key_violation = options.dc_key_error == kDcKeyErrorAccess;
    limits.tm_untagged_min = static_cast<std::uint32_t>(options.tm_untagged_min);
    limits.has_tags_on_ethernet = options.tm_ethernet;
    limits.late_ns_max = options.late_events_ns;
    limits.reuses_numbers = options.qpn_reuse;
    limits.shuffles_reads = options.shuffle_reads;
    limits.timer_stretch_max = static_cast<std::uint32_t>(options.timer_stretch);
    if (options.send_places != SendPlaces::kAsProfile)
        limits.frees_when_completed = options.send_places == SendPlaces::kWhenCompleted;
    return limits;
}

}  // namespace tagwire::vhca
