// SPDX-License-Identifier: BSD-3-Clause
// From the index of a device to its context: the engine, with a device that holds any ring which
// the driver makes within the limits that it is told.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <memory>
#include <new>

#include "vhca/driver/kernel.hpp"
#include "vhca/driver/objects.hpp"
#include "vhca/driver/poller.hpp"
#include "vhca/setup/attach.hpp"
#include "vhca/setup/hardware_profile.hpp"

namespace tagwire::vhca::driver {
namespace {

// Counters in doorbell records, and indices in lists, have 16 bits.
constexpr std::uint32_t kRingEntriesMax = 32768;
constexpr std::uint32_t kCqEntriesMax = 1 << 22;
// An entry of a send ring has 1008 bytes: what else it has leaves room for these, as cards say it.
constexpr std::uint32_t kSendListMax = 30;
// An entry of an SRQ may have 512: a list, and the name of the next one.
constexpr std::uint32_t kSharedListMax = 31;
// Pieces of any entry, those in it among them, of which one may be in two parts.
constexpr std::uint32_t kPiecesMax = Wqe::kPiecesMax + 2;

Options options_of_process() {
    Options options;
    static_cast<void>(ucs::config_fill(option_table(), &options));  // it was well before
    return options;
}

void limit_to_rings(DeviceConfig& config) {
    config.qp_wr_max = std::min(config.qp_wr_max, kRingEntriesMax);
    config.srq_wr_max = std::min(config.srq_wr_max, kRingEntriesMax - 1);
    config.cqe_max = std::min(config.cqe_max, kCqEntriesMax - 1);
    config.sge_max = std::min(config.sge_max, kSendListMax);
    config.srq_sge_max = std::min(config.srq_sge_max, kSharedListMax);
    // Verbs have no way to ask for tag matching over DC.
    config.has_dc_rendezvous = config.has_dc_rendezvous && options_of_process().devx;
}

/// Rings are powers of two, so the driver asks for more than programs do.
void adapt(DeviceConfig& config) {
    limit_to_rings(config);
    config.qp_wr_max = std::bit_ceil(config.qp_wr_max);
    config.srq_wr_max = std::bit_ceil(config.srq_wr_max + 1) - 1;
    config.cqe_max = std::bit_ceil(config.cqe_max + 1) - 1;
    config.srq_sge_max = std::bit_ceil(config.srq_sge_max + 1) - 1;
    config.sge_max = kPiecesMax;
}

/// As the options have it, and the engine found it.
DeviceConfig reported_of(const DeviceConfig& made) {
    const DeviceConfig limits = limits_of(hardware_profile(), options_of_process());
    DeviceConfig reported = made;
    reported.qp_wr_max = limits.qp_wr_max;
    reported.srq_wr_max = limits.srq_wr_max;
    reported.cqe_max = limits.cqe_max;
    reported.sge_max = limits.sge_max;
    reported.srq_sge_max = limits.srq_sge_max;
    limit_to_rings(reported);
    return reported;
}

}  // namespace

int attach_driver(unsigned device_index, Engine** engine_p) {
    if (const int error = attach_engine(device_index, driver_sink(), adapt, engine_p))
        return error;
    static_cast<void>(Poller::of(**engine_p));
    return 0;
}

std::unique_ptr<Context> open_context(unsigned device_index) {
    if (device_index >= device_count() || !hardware_profile().is_mlx5) {
        errno = ENODEV;
        return nullptr;
    }
    Engine* engine = nullptr;
    if (const int error = attach_driver(device_index, &engine)) {
        errno = error;
        return nullptr;
    }
    if (engine->is_dead()) {
        errno = EIO;
        return nullptr;
    }
    try {
        auto context = std::make_unique<Context>(*engine, Poller::of(*engine),
                                                 reported_of(engine->device().config()));
        context->has_ioctl = options_of_process().driver_abi == kDriverAbiIoctl;
        context->has_devx = context->has_ioctl && options_of_process().devx;
        return context;
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
        return nullptr;
    }
}

}  // namespace tagwire::vhca::driver
