// SPDX-License-Identifier: BSD-3-Clause
// Names and rates, as libibverbs has them.
#include <array>
#include <span>

#include "vhca/face/api.hpp"

namespace {

const char* name_of(std::span<const char* const> names, int value) {
    const auto index = static_cast<std::size_t>(value);
    return value >= 0 && index < names.size() ? names[index] : "unknown";
}

struct Rate {
    ibv_rate rate;
    int mult;  // of 2.5 Gbit/s
    int mbps;
};

constexpr std::array kRates = {
    Rate{IBV_RATE_2_5_GBPS, 1, 2500},       Rate{IBV_RATE_5_GBPS, 2, 5000},
    Rate{IBV_RATE_10_GBPS, 4, 10000},       Rate{IBV_RATE_20_GBPS, 8, 20000},
    Rate{IBV_RATE_30_GBPS, 12, 30000},      Rate{IBV_RATE_40_GBPS, 16, 40000},
    Rate{IBV_RATE_60_GBPS, 24, 60000},      Rate{IBV_RATE_80_GBPS, 32, 80000},
    Rate{IBV_RATE_120_GBPS, 48, 120000},    Rate{IBV_RATE_14_GBPS, 5, 14062},
    Rate{IBV_RATE_56_GBPS, 22, 56250},      Rate{IBV_RATE_112_GBPS, 45, 112500},
    Rate{IBV_RATE_168_GBPS, 67, 168750},    Rate{IBV_RATE_25_GBPS, 10, 25781},
    Rate{IBV_RATE_100_GBPS, 40, 103125},    Rate{IBV_RATE_200_GBPS, 80, 206250},
    Rate{IBV_RATE_300_GBPS, 120, 309375},   Rate{IBV_RATE_28_GBPS, 11, 28125},
    Rate{IBV_RATE_50_GBPS, 20, 53125},      Rate{IBV_RATE_400_GBPS, 160, 425000},
    Rate{IBV_RATE_600_GBPS, 240, 637500},   Rate{IBV_RATE_800_GBPS, 320, 850000},
    Rate{IBV_RATE_1200_GBPS, 480, 1275000},
};

}  // namespace

const char* tagwire_vhca_ibv_node_type_str(ibv_node_type type) {
    static constexpr std::array kNames = {"unknown",           "InfiniBand channel adapter",
                                          "InfiniBand switch", "InfiniBand router",
                                          "iWARP NIC",         "usNIC",
                                          "usNIC UDP",         "unspecified"};
    return name_of(kNames, type);
}

const char* tagwire_vhca_ibv_port_state_str(ibv_port_state state) {
    static constexpr std::array kNames = {
        "no state change (NOP)", "down", "init", "armed", "active", "active defer"};
    return name_of(kNames, static_cast<int>(state));
}

const char* tagwire_vhca_ibv_event_type_str(ibv_event_type type) {
    static constexpr std::array kNames = {"CQ error",
                                          "local work queue catastrophic error",
                                          "invalid request local work queue error",
                                          "local access violation work queue error",
                                          "communication established",
                                          "send queue drained",
                                          "path migrated",
                                          "path migration request error",
                                          "local catastrophic error",
                                          "port active",
                                          "port error",
                                          "LID change",
                                          "P_Key change",
                                          "SM change",
                                          "SRQ catastrophic error",
                                          "SRQ limit reached",
                                          "last WQE reached",
                                          "client reregistration",
                                          "GID table change",
                                          "WQ fatal"};
    return name_of(kNames, static_cast<int>(type));
}

const char* tagwire_vhca_ibv_wc_status_str(ibv_wc_status status) {
    static constexpr std::array kNames = {"success",
                                          "local length error",
                                          "local QP operation error",
                                          "local EE context operation error",
                                          "local protection error",
                                          "Work Request Flushed Error",
                                          "memory management operation error",
                                          "bad response error",
                                          "local access error",
                                          "remote invalid request error",
                                          "remote access error",
                                          "remote operation error",
                                          "transport retry counter exceeded",
                                          "RNR retry counter exceeded",
                                          "local RDD violation error",
                                          "remote invalid RD request",
                                          "aborted error",
                                          "invalid EE context number",
                                          "invalid EE context state",
                                          "fatal error",
                                          "response timeout error",
                                          "general error",
                                          "TM error",
                                          "TM software rendezvous"};
    return name_of(kNames, static_cast<int>(status));
}

int tagwire_vhca_ibv_rate_to_mult(ibv_rate rate) {
    for (const Rate& known : kRates)
        if (known.rate == rate)
            return known.mult;
    return -1;
}

ibv_rate tagwire_vhca_mult_to_ibv_rate(int mult) {
    for (const Rate& known : kRates)
        if (known.mult == mult)
            return known.rate;
    return IBV_RATE_MAX;
}

int tagwire_vhca_ibv_rate_to_mbps(ibv_rate rate) {
    for (const Rate& known : kRates)
        if (known.rate == rate)
            return known.mbps;
    return -1;
}

ibv_rate tagwire_vhca_mbps_to_ibv_rate(int mbps) {
    for (const Rate& known : kRates)
        if (known.mbps == mbps)
            return known.rate;
    return IBV_RATE_MAX;
}
