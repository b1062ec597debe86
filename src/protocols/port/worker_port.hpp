// SPDX-License-Identifier: BSD-3-Clause
// The port by which parts that send and receive reach their worker. A worker has one, for all its
// endpoints. As lane_port.hpp.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "protocols/port/worker_counters.hpp"

namespace tagwire::proto {

class Attention;
enum class RegUse : std::uint8_t;
struct MatchPeer;
struct Options;
struct RegLease;
struct Request;
class RequestTable;

struct WorkerCalls {
    void (*set_outstanding)(void* owner, Request& request, MatchPeer& peer);
    void (*finish)(void* owner, Request& request, ucs_status_t status);
    RegLease* (*cache_region)(void* owner, const Request& request, std::size_t domain, RegUse use);
    std::uint64_t (*arrivals)(const void* owner);
    void (*drained)(void* owner, Request& request, ucs_status_t status);
};

struct WorkerPort {
    void* const owner;
    const WorkerCalls& calls;
    WorkerCounters& counters;
    const Options& options;
    RequestTable& requests;
    Attention& attention;
    const bool has_cache;  // of registrations

    void count(WorkerCounter counter, std::uint64_t amount = 1) const {
        counters.add(counter, amount);
    }
    /// A message is malformed, or cannot come now: it is counted and logged. Returns false.
    bool drop(const char* what, std::size_t length) const;
    /// The request was sent to the peer, or has matched a message of it, and ends later.
    void set_outstanding(Request& request, MatchPeer& peer) const {
        calls.set_outstanding(owner, request, peer);
    }
    /// The operation has ended.
    void finish(Request& request, ucs_status_t status) const {
        calls.finish(owner, request, status);
    }
    /// A region of the cache for what is sent or received; nullptr: none, or a list.
    RegLease* cache_region(const Request& request, std::size_t domain, RegUse use) const {
        return calls.cache_region(owner, request, domain, use);
    }
    /// Messages of programs that have come: to a transmit context, those of its worker.
    std::uint64_t arrivals() const { return calls.arrivals(owner); }
    /// The last read or write has ended of a request that has lost its endpoint.
    void drained(Request& request, ucs_status_t status) const {
        calls.drained(owner, request, status);
    }
};

}  // namespace tagwire::proto
