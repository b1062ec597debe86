// SPDX-License-Identifier: BSD-3-Clause
// The facts that a worker tells about itself (tw_worker_describe()).
#include <uct/api/tagwire_uct.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/tx_contexts.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::proto {

namespace {

/// Adds the facts of a rail's interface as "iface_N_KEY".
void add_interface(const Rail& rail, std::vector<Fact>& facts) {
    struct Teller {
        std::string prefix;
        std::vector<Fact>& facts;
    } teller{fmt::format("iface_{}_", rail.index()), facts};
    const auto tell = [](void* to, const char* key, const char* value) {
        const Teller& one = *static_cast<const Teller*>(to);
        one.facts.push_back({one.prefix + key, value});
    };
    if (tagwire_uct_iface_describe(rail.iface(), tell, &teller) == UCS_ERR_NO_MEMORY)
        throw std::bad_alloc();
}

/// Adds how progress waits, as "progress_KEY".
void add_progress(uct_worker_h worker, std::vector<Fact>& facts) {
    const auto tell = [](void* to, const char* key, const char* value) {
        static_cast<std::vector<Fact>*>(to)->push_back({std::string("progress_") + key, value});
    };
    if (tagwire_uct_worker_describe(worker, tell, &facts) == UCS_ERR_NO_MEMORY)
        throw std::bad_alloc();
}

}  // namespace

std::vector<Fact> Worker::description() {
    std::vector<Fact> facts;
    const auto tell = [&](std::string key, std::string value) {
        facts.push_back({std::move(key), std::move(value)});
    };
    tell("worker_id", fmt::format("{:016x}", id_));
    tell("transports", context_.transports_text());
    if (!context_.given().empty())
        tell("options", context_.given().description());
    tell("address_bytes", fmt::format("{}", address(SIZE_MAX).size()));
    tell("peers",
         fmt::format("{} connected, {} remembered", endpoints_.size(), own_peers_.remembered()));
    if (requests_.extras() > 0)
        tell("operations_kept",
             fmt::format("{} of at most {}", requests_.extras(), requests_.extras_max()));
    for (const auto& rail : rails_) {
        if (rail->is_auxiliary) {
            tell(fmt::format("rail_{}", rail->index()),
                 fmt::format("{}:{}, for first contact only", rail->transport(), rail->device()));
            continue;
        }
        tell(fmt::format("rail_{}", rail->index()),
             fmt::format("{}:{}, latency {:.0f} ns, rendezvous from {} bytes, from {} bytes for "
                         "copied buffers, {} bytes carried of divided messages",
                         rail->transport(), rail->device(), rail->latency() * 1e9,
                         rail->selection().rndv_from(BufferKind::kPlain),
                         rail->selection().rndv_from(BufferKind::kUnmapped), rail->striped_bytes));
    }
    if (device_tags_ != nullptr)
        tell("tag_offload", device_tags_->description());
    if (own_tx == nullptr)
        add_progress(uct_, facts);
    tell("unexpected", matches_.description());
    if (RegCache* cache = context_.cache())
        tell("registration_cache", cache->description());
    endpoints_.for_each([&](Endpoint& ep) {
        tell(fmt::format("endpoint_{:016x}", ep.worker_id), ep.description());
    });
    for (const auto& rail : rails_)
        add_interface(*rail, facts);
    if (tx_contexts_ != nullptr)
        tx_contexts_->describe(facts);
    return facts;
}

}  // namespace tagwire::proto
