// SPDX-License-Identifier: BSD-3-Clause
// Where the face meets the engine.
#include <cerrno>

#include "vhca/face/context.hpp"
#include "vhca/face/look.hpp"
#include "vhca/face/options.hpp"
#include "vhca/face/sink.hpp"

namespace tagwire::vhca {
namespace {

// Mellanox's company id, then letters of ours; the fabric puts the node where the zeros are.
constexpr std::uint64_t kGuidBase = 0x0002c90374770000;

int fill(EngineConfig* config) {
    Options options;
    if (ucs::config_fill(option_table(), &options) != UCS_OK) {
        return EINVAL;  // the option was named in the log
    }
    config->device = limits_of(look(), options);
    config->fabric = options.fabric == 0 ? FabricKind::kShm : FabricKind::kUdp;
    config->address = options.address.text;
    config->link_layer = static_cast<LinkLayer>(options.link_layer);
    if (config->link_layer == LinkLayer::kOfFabric && look().is_ethernet) {
        config->link_layer = LinkLayer::kEthernet;
    }
    config->device.guid = kGuidBase;
    config->seed = options.seed;
    config->faults.loss = options.loss;
    config->faults.duplication = options.dup;
    config->faults.reordering = options.reorder;
    config->faults.delay_ns = options.delay_ns;
    config->faults.seed = options.seed;
    return 0;
}

}  // namespace

int attach_engine(Engine** engine_p) {
    EngineConfig config;
    if (const int error = fill(&config)) {
        return error;
    }
    Engine* engine = nullptr;
    if (const int error = Engine::get(config, &engine)) {
        return error;
    }
    engine->set_sink(&face_sink());
    *engine_p = engine;
    return 0;
}

std::uint64_t device_guid() {
    Engine* engine = nullptr;
    return attach_engine(&engine) == 0 ? engine->guid() : kGuidBase;
}

}  // namespace tagwire::vhca
