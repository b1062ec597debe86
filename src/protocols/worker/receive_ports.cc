// SPDX-License-Identifier: BSD-3-Clause
// The ports by which the receiver (receiver.hpp), that of active messages (am_receiver.hpp), and
// receives that a device matches (device_tags.hpp), reach their worker.
#include <cstddef>
#include <span>

#include "protocols/eager/receiver.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/worker/am_fast_path.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::proto {

namespace {

Worker& as_worker(void* owner) {
    return *static_cast<Worker*>(owner);
}

}  // namespace

constinit const ReceiverCalls Worker::kReceiverCalls{
    .begin_rndv =
        [](void*, Request& request, MatchPeer& from, const Rts& rts,
           std::span<const std::byte> keys) {
            static_cast<Endpoint&>(from).rndv_receiver().begin(request, rts, keys);
        },
    .learn =
        [](void*, MatchPeer& from, std::size_t bytes, const Timing& timing) {
            static_cast<Endpoint&>(from).rndv_receiver().learning().add(false, bytes, timing);
        },
    .complete_am = [](void* worker,
                      Unexpected& message) { as_worker(worker).ams().complete(message); },
    .posted = [](void* worker,
                 Request& request) { as_worker(worker).device_tags_->posted(request); },
    .unposted = [](void* worker,
                   Request& request) { as_worker(worker).device_tags_->left(request); },
};

AmReceiverPorts am_port_of(WorkerCore& worker, const WorkerPort& port, MatchTable& matches) {
    return {.worker = port,
            .matches = matches,
            .handle = &worker,
            .owner = &worker,
            .call = [](void* owner, const AmHandler& handler, AmCall& call) {
                call_am(*static_cast<WorkerCore*>(owner), handler, call);
            }};
}

constinit const DeviceTagCalls Worker::kDeviceTagCalls{
    .find = [](void* worker, std::uint32_t sender) -> MatchPeer* {
        return as_worker(worker).endpoints_.find(sender);
    },
    .arrive =
        [](void* worker, MatchPeer& from, const Arrival& arrival, Request* request) {
            as_worker(worker).own_receiver_.arrive(from, arrival, request);
        },
    .arrive_unmatched =
        [](void* worker, MatchPeer& from, const Arrival& arrival) {
            as_worker(worker).own_receiver_.arrive_unmatched(from, arrival);
        },
    .end_in_place =
        [](void* worker, Request& request, MatchPeer& from, const Arrival& arrival) {
            as_worker(worker).own_receiver_.end_in_place(request, from, arrival);
        },
    .take_announced =
        [](void* worker, MatchPeer& from, const Placeholder& place, std::uint64_t tag,
           Request* request) {
            return as_worker(worker).own_receiver_.take_announced(from, place, tag, request);
        },
    .garbage = [](void* worker, const char* what,
                  std::size_t length) { return as_worker(worker).garbage(what, length); },
    .drop_from_unknown =
        [](void* worker, std::uint32_t sender, const char* what, std::size_t length) {
            return as_worker(worker).drop_from_unknown(sender, what, length);
        },
};

}  // namespace tagwire::proto
