// SPDX-License-Identifier: BSD-3-Clause
// A transport without a wire: a domain, an interface and an endpoint that remember their calls, for
// tests of the base classes and of the facade.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "uct/base_iface.hpp"
#include "uct/base_md.hpp"
#include "uct/worker.hpp"

namespace tagwire::test {

class FakeIface;

struct FakeEp : uct::BaseEp {
    using BaseEp::BaseEp;

    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy() { delete this; }
    ucs_status_t am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                          unsigned length);
    ssize_t put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                      uct_rkey_t rkey);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);
};

struct FakeWatch : uct::PeerWatch {
    Peers look_at_peers(const uct::Whereabouts&) override { return peers; }
    Peers look_at_peer(uct_ep_h, const uct::Whereabouts&) override { return peers; }

    Peers peers = Peers::kNone;
};

class FakeIface : public uct::BaseIface {
  public:
    FakeIface(uct::Md& md, uct::Worker& worker);

    using BaseIface::invoke_am;
    using BaseIface::report_failure;
    using BaseIface::take_params;

    unsigned progress() {
        ++progress_calls;
        if (!finds_nothing)
            return progress_calls;
        worker().found_nothing(*this, 1);
        return 0;
    }
    void close() { delete this; }
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t event_arm(unsigned events);
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    ucs::CounterSet counters() const override;
    uct::PeerWatch* peer_watch() override { return &watch; }
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

    unsigned progress_calls = 0;
    bool finds_nothing = false;
    FakeWatch watch;
    unsigned armed_events = 0;
    std::uint64_t flags = UCT_IFACE_FLAG_AM_SHORT;
};

class FakeMd : public uct::Md {
  public:
    FakeMd();

    ucs_status_t query(uct_md_attr_t* attr) override;
    ucs_status_t query_tl_resources(std::vector<uct::TlDevice>* devices) override;
    ucs_status_t iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                            const void* values, uct_iface_h* iface_p) override;
    ucs_status_t mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                           unsigned flags, const char* name, uct_mem_h* memh_p) override;
    ucs_status_t mem_free(uct_mem_h memh) override;

    std::uint64_t flags = 0;
    std::size_t max_alloc = 1 << 20;
    int allocations = 0;
};

/// A domain, a worker and parameters with which an interface opens.
struct FakeWorld {
    FakeWorld();
    ~FakeWorld();

    uct_iface_params_t params() const;
    ucs_status_t open(const uct_iface_params_t& params, uct_iface_h* iface_p);
    FakeIface& iface();

    ucs_async_context_t* async = nullptr;
    uct_worker_h worker = nullptr;
    FakeMd* md = nullptr;
    uct_iface_config_t* config = nullptr;
    uct_iface_h opened = nullptr;
};

}  // namespace tagwire::test
