// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/setup/attach.hpp"

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "ucs/log/log.hpp"
#include "ucs/sys/process.hpp"
#include "vhca/setup/hardware_profile.hpp"
#include "vhca/setup/options.hpp"

namespace tagwire::vhca {
namespace {

// Mellanox's company id, then letters of ours; the fabric puts the node where the zeros are.
constexpr std::uint64_t kGuidBase = 0x0002c90374770000;

/// The value for the device with that index: values are separated by commas. Empty if it has none.
std::string_view value_of(std::string_view values, unsigned index) {
    for (unsigned i = 0; i < index; ++i) {
        const std::size_t comma = values.find(',');
        values = comma == std::string_view::npos ? std::string_view() : values.substr(comma + 1);
    }
    return values.substr(0, values.find(','));
}

int fill_mtu(const Options& options, unsigned index, EngineConfig* config) {
    std::string_view wanted = value_of(options.mtu.text, index);
    for (; wanted.empty() && index > 0; --index)
        wanted = value_of(options.mtu.text, index - 1);
    for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
        if (wanted == std::to_string(128U << mtu)) {
            config->device.active_mtu = mtu;
            return 0;
        }
    }
    TW_LOG_ERROR(
        "TAGWIRE_VHCA_MTU is '%s': it has to be 256, 512, 1024, 2048 or 4096, or a "
        "comma-separated list of these, one per device",
        options.mtu.text);
    return EINVAL;
}

// Over UDP each device has an address of its own.
int fill_address(const Options& options, unsigned index, EngineConfig* config) {
    config->address = value_of(options.address.text, index);
    if (index > 0 && config->address.empty() && config->fabric == FabricKind::kUdp) {
        TW_LOG_ERROR(
            "virtual HCA: vhca%u has no address: over UDP TAGWIRE_VHCA_ADDRESS must list one per "
            "device, separated by commas",
            index);
        return EINVAL;
    }
    return 0;
}

/// Two numbers with a colon between them.
int fill_class(const Options& options, EngineConfig* config) {
    constexpr unsigned kLevelMax = 15, kClassMax = 255;
    const std::string_view text = options.network_class.text;
    if (text.empty())
        return 0;
    unsigned level = 0, traffic = 0;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, level);
    const bool has_colon = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
    const auto second = std::from_chars(has_colon ? first.ptr + 1 : end, end, traffic);
    if (second.ec != std::errc() || second.ptr != end || level > kLevelMax || traffic > kClassMax) {
        TW_LOG_ERROR(
            "TAGWIRE_VHCA_NETWORK_CLASS is '%s': it has to be a service level of at most 15 and a "
            "traffic class of at most 255, such as 3:96",
            options.network_class.text);
        return EINVAL;
    }
    config->faults.carried = {static_cast<std::uint8_t>(level), static_cast<std::uint8_t>(traffic)};
    return 0;
}

/// Seed of all devices of this process; one that was chosen here is short enough to type again.
std::uint64_t seed_of(const Options& options) {
    static const std::uint64_t chosen = 1 + (ucs::random_u64() & 0x7fffffff);
    return options.seed != 0 ? options.seed : chosen;
}

int fill(unsigned index, EngineConfig* config) {
    Options options;
    if (ucs::config_fill(option_table(), &options) != UCS_OK)
        return EINVAL;  // the option was named in the log
    config->device = limits_of(hardware_profile(), options);
    config->fabric = options.fabric == 0 ? FabricKind::kShm : FabricKind::kUdp;
    config->index = index;
    if (const int error = fill_mtu(options, index, config))
        return error;
    if (const int error = fill_address(options, index, config))
        return error;
    if (const int error = fill_class(options, config))
        return error;
    config->link_layer = static_cast<LinkLayer>(options.link_layer);
    if (config->link_layer == LinkLayer::kOfFabric && hardware_profile().is_ethernet)
        config->link_layer = LinkLayer::kEthernet;
    config->device.guid = kGuidBase;
    config->trace = options.trace.text;
    config->has_summary = options.stats;
    config->summary_seed = seed_of(options);
    // Devices with the same seed would lose the same packets.
    const std::uint64_t seed = config->summary_seed + index;
    config->seed = seed;
    config->faults.loss = options.loss;
    config->faults.duplication = options.dup;
    config->faults.reordering = options.reorder;
    config->faults.delay_ns = options.delay_ns;
    config->faults.seed = seed;
    return 0;
}

}  // namespace

int check_options() {
    Options options;
    if (ucs::config_fill(option_table(), &options) != UCS_OK)
        return EINVAL;
    for (unsigned index = 0; index < options.devices; ++index) {
        EngineConfig config;
        if (const int error = fill(index, &config))
            return error;
    }
    return 0;
}

unsigned device_count() {
    static const auto count = [] {
        Options options;
        const ucs_status_t status = ucs::config_fill(option_table(), &options);
        return status == UCS_OK ? static_cast<unsigned>(options.devices) : 1U;
    }();
    return count;
}

int attach_engine(unsigned index, EventSink& sink, Adapt adapt, Engine** engine_p) {
    EngineConfig config;
    if (const int error = fill(index, &config))
        return error;
    if (adapt != nullptr)
        adapt(config.device);
    Engine* engine = nullptr;
    if (const int error = Engine::get(config, &engine))
        return error;
    engine->set_sink(&sink);
    *engine_p = engine;
    return 0;
}

std::uint64_t guid_without_engine() {
    return kGuidBase;
}

}  // namespace tagwire::vhca
