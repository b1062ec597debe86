// SPDX-License-Identifier: BSD-3-Clause
// The port by which receives that a device matches (device_tags.hpp) reach their worker.
#include "protocols/eager/receiver.hpp"
#include "protocols/match/arrival.hpp"
#include "protocols/offload/device_tags.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker.hpp"

namespace tagwire::proto {

namespace {

Worker& as_worker(void* owner) {
    return *static_cast<Worker*>(owner);
}

Endpoint& endpoint_as(MatchPeer& peer) {
    return static_cast<Endpoint&>(peer);
}

}  // namespace

constinit const DeviceTagCalls Worker::kDeviceTagCalls{
    .find = [](void* worker, std::uint32_t sender) -> MatchPeer* {
        return as_worker(worker).endpoints_.find(sender);
    },
    .arrive =
        [](void* worker, MatchPeer& from, const Arrival& arrival, Request* request) {
            as_worker(worker).own_receiver_.arrive(endpoint_as(from), arrival, request);
        },
    .arrive_unmatched =
        [](void* worker, MatchPeer& from, const Arrival& arrival) {
            as_worker(worker).own_receiver_.arrive_unmatched(endpoint_as(from), arrival);
        },
    .end_in_place =
        [](void* worker, Request& request, MatchPeer& from, const Arrival& arrival) {
            as_worker(worker).own_receiver_.end_in_place(request, endpoint_as(from), arrival);
        },
    .take_announced =
        [](void* worker, MatchPeer& from, const Placeholder& place, std::uint64_t tag,
           Request* request) {
            return as_worker(worker).own_receiver_.take_announced(endpoint_as(from), place, tag,
                                                                  request);
        },
    .garbage = [](void* worker, const char* what,
                  std::size_t length) { return as_worker(worker).garbage(what, length); },
    .of_nobody =
        [](void* worker, std::uint32_t sender, const char* what, std::size_t length) {
            return as_worker(worker).of_nobody(sender, what, length);
        },
};

}  // namespace tagwire::proto
