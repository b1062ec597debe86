// SPDX-License-Identifier: BSD-3-Clause
// Cost of one more peer to an interface. One process makes COUNT endpoints of one interface, each
// to another target, and prints as JSON the bytes allocated for one, the time that making it took,
// and the queue pairs of the interface.
//
// Usage: peer_cost TRANSPORT COUNT [DEVICE]
//
// Where endpoints connect to interfaces (dc) the targets are interfaces that were open only while
// their address was read: no message goes there. Where they connect to endpoints (rc) each gets one
// of another interface of this process; only the first interface's side is measured. An endpoint
// that cannot be made ends the measurement, and is reported beside the result.
#include <malloc.h>

#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "uct_side.hpp"

namespace tagwire::bench {
namespace {

/// Bytes and time of what lies between start() and stop(), summed up.
class Meter {
  public:
    void start() {
        bytes_before_ = allocated();
        before_ = Clock::now();
    }

    void stop() {
        ns_ += std::chrono::duration<double, std::nano>(Clock::now() - before_).count();
        bytes_ += allocated() - bytes_before_;
    }

    double ns() const { return ns_; }
    double bytes() const { return bytes_; }

  private:
    using Clock = std::chrono::steady_clock;

    static double allocated() {
        const struct mallinfo2 info = mallinfo2();
        return static_cast<double>(info.uordblks + info.hblkhd);
    }

    double bytes_before_ = 0;
    double bytes_ = 0;
    double ns_ = 0;
    Clock::time_point before_;
};

struct Endpoints {
    std::vector<uct_ep_h> made;
    std::vector<uct_ep_h> others;  // of the other interface
    ucs_status_t stopped_by = UCS_OK;
};

/// Interfaces come and go: the memory of one is for the next.
void keep_freed_memory() {
    constexpr int kKeptBytes = 1 << 30;
    constexpr int kMappedFromBytes = 32 << 20;
    mallopt(M_TRIM_THRESHOLD, kKeptBytes);
    mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
}

void make_to_interfaces(const Side& side, uct_iface_h iface, std::size_t count, Meter* meter,
                        Endpoints* endpoints) {
    const std::vector<Target> targets = past_targets(side, count);
    meter->start();
    for (const Target& target : targets) {
        uct_ep_h ep = nullptr;
        endpoints->stopped_by = make_endpoint_to(iface, target, &ep);
        if (endpoints->stopped_by != UCS_OK)
            break;
        endpoints->made.push_back(ep);
    }
    meter->stop();
}

/// As many as can be made, `count` at most.
void make_unconnected(uct_iface_h iface, std::size_t count, std::vector<uct_ep_h>* eps,
                      ucs_status_t* stopped_by) {
    while (eps->size() < count && *stopped_by == UCS_OK) {
        uct_ep_h ep = nullptr;
        *stopped_by = make_endpoint(iface, &ep);
        if (*stopped_by == UCS_OK)
            eps->push_back(ep);
    }
}

void make_to_endpoints(uct_iface_h iface, uct_iface_h other, std::size_t count, Meter* meter,
                       Endpoints* endpoints) {
    // In parts: what stops it stops both sides at about the same number.
    constexpr std::size_t kPart = 16;
    const Target here = target_at(iface);
    const Target there = target_at(other);
    const std::size_t bytes = attributes(iface).ep_addr_len;
    std::size_t connected = 0;
    while (connected < count && endpoints->stopped_by == UCS_OK) {
        const std::size_t wanted = std::min(count, connected + kPart);
        make_unconnected(other, wanted, &endpoints->others, &endpoints->stopped_by);
        meter->start();
        make_unconnected(iface, endpoints->others.size(), &endpoints->made, &endpoints->stopped_by);
        for (std::size_t i = connected; i < endpoints->made.size(); ++i)
            must(connect(endpoints->made[i], endpoints->others[i], there, bytes), "connect");
        meter->stop();
        for (; connected < endpoints->made.size(); ++connected) {
            must(connect(endpoints->others[connected], endpoints->made[connected], here, bytes),
                 "connect");
        }
    }
}

/// The number of queue pairs, as the interface tells; -1 when it does not.
long queue_pairs(uct_iface_h iface) {
    long number = -1;
    const auto look = [](void* arg, const char* key, const char* value) {
        if (std::strcmp(key, "qps") == 0)
            *static_cast<long*>(arg) = std::strtol(value, nullptr, 10);
    };
    must(tagwire_uct_iface_describe(iface, look, &number), "tagwire_uct_iface_describe");
    return number;
}

void print(const Side& side, std::size_t count, const Meter& meter, const Endpoints& endpoints,
           long qps) {
    const auto made = static_cast<double>(endpoints.made.size());
    std::printf("{\"transport\": \"%s\", \"peers\": %zu, \"made\": %zu, ", side.transport.c_str(),
                count, endpoints.made.size());
    if (endpoints.made.empty()) {
        std::printf("\"bytes_per_peer\": null, \"setup_ns_per_peer\": null, ");
    } else {
        std::printf("\"bytes_per_peer\": %.0f, \"setup_ns_per_peer\": %.0f, ", meter.bytes() / made,
                    meter.ns() / made);
    }
    std::printf("\"qps\": %ld, ", qps);
    if (endpoints.stopped_by == UCS_OK)
        std::printf("\"stopped_by\": null}\n");
    else
        std::printf("\"stopped_by\": \"%s\"}\n", ucs_status_string(endpoints.stopped_by));
}

int measure(const char* transport, std::size_t count, const char* device) {
    keep_freed_memory();
    const Side side = open_side(transport, device);
    const uct_iface_h iface = open_interface(side);
    Endpoints endpoints;
    endpoints.made.reserve(count);
    endpoints.others.reserve(count);
    Meter meter;
    uct_iface_h other = nullptr;
    if (connects_to_interface(iface)) {
        make_to_interfaces(side, iface, count, &meter, &endpoints);
    } else {
        other = open_interface(side);
        make_to_endpoints(iface, other, count, &meter, &endpoints);
    }
    print(side, count, meter, endpoints, queue_pairs(iface));
    for (const std::vector<uct_ep_h>* eps : {&endpoints.made, &endpoints.others})
        for (const uct_ep_h ep : *eps)
            uct_ep_destroy(ep);
    uct_iface_close(iface);
    if (other != nullptr)
        uct_iface_close(other);
    close_side(side);
    return 0;
}

}  // namespace
}  // namespace tagwire::bench

int main(int argc, char** argv) {
    if (argc < 3 || argc > 4) {
        std::fprintf(stderr, "usage: peer_cost TRANSPORT COUNT [DEVICE]\n");
        return 2;
    }
    return tagwire::bench::measure(argv[1], std::strtoull(argv[2], nullptr, 10),
                                   argc > 3 ? argv[3] : "");
}
