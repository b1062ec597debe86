// SPDX-License-Identifier: BSD-3-Clause
// Cost of idle progress with many connected peers. One hub interface; the argument is the number of
// other interfaces that have an endpoint to it and have sent one message each. Budget: 64 peers at
// most twice 1 peer.
#include <benchmark/benchmark.h>
#include <uct/api/uct.h>

#include <cstdlib>
#include <vector>

namespace {

constexpr std::uint8_t kAmId = 1;

void must(ucs_status_t status) {
    if (status != UCS_OK)
        std::abort();
}

ucs_status_t count_message(void* arg, void*, std::size_t, unsigned) {
    ++*static_cast<std::uint64_t*>(arg);
    return UCS_OK;
}

/// A hub on a worker of its own, and senders on another one.
class Star {
  public:
    explicit Star(std::size_t senders) {
        open_md();
        must(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async_));
        must(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &hub_worker_));
        must(uct_worker_create(async_, UCS_THREAD_MODE_SINGLE, &sender_worker_));
        hub_ = open_interface(hub_worker_);
        must(uct_iface_set_am_handler(hub_, kAmId, &count_message, &received_, 0));
        for (std::size_t i = 0; i < senders; ++i) {
            senders_.push_back(open_interface(sender_worker_));
            endpoints_.push_back(connect(senders_.back()));
        }
        for (const uct_ep_h ep : endpoints_)
            while (uct_ep_am_short(ep, kAmId, 0, nullptr, 0) == UCS_ERR_NO_RESOURCE)
                progress_all();
        while (received_ < senders)
            progress_all();
    }

    ~Star() {
        for (const uct_ep_h ep : endpoints_)
            uct_ep_destroy(ep);
        for (const uct_iface_h iface : senders_)
            uct_iface_close(iface);
        uct_iface_close(hub_);
        uct_worker_destroy(sender_worker_);
        uct_worker_destroy(hub_worker_);
        ucs_async_context_destroy(async_);
        uct_release_tl_resource_list(resources_);
        uct_md_close(md_);
    }

    Star(const Star&) = delete;
    Star& operator=(const Star&) = delete;

    unsigned progress_hub() { return uct_worker_progress(hub_worker_); }

  private:
    void open_md() {
        uct_component_h* components = nullptr;
        unsigned count = 0;
        must(uct_query_components(&components, &count));
        uct_md_resource_desc_t resource{};
        uct_component_attr_t attr{};
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attr.md_resources = &resource;
        must(uct_component_query(components[0], &attr));
        uct_md_config_t* config = nullptr;
        must(uct_md_config_read(components[0], nullptr, nullptr, &config));
        must(uct_md_open(components[0], resource.md_name, config, &md_));
        uct_config_release(config);
        uct_release_component_list(components);
        must(uct_md_query_tl_resources(md_, &resources_, &count));
    }

    uct_iface_h open_interface(uct_worker_h worker) const {
        uct_iface_config_t* config = nullptr;
        must(uct_md_iface_config_read(md_, resources_[0].tl_name, nullptr, nullptr, &config));
        uct_iface_params_t params{};
        params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
        params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
        params.mode.device.tl_name = resources_[0].tl_name;
        params.mode.device.dev_name = resources_[0].dev_name;
        uct_iface_h iface = nullptr;
        must(uct_iface_open(md_, worker, &params, config, &iface));
        uct_config_release(config);
        uct_iface_progress_enable(iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        return iface;
    }

    uct_ep_h connect(uct_iface_h iface) const {
        uct_iface_attr_t attr{};
        must(uct_iface_query(hub_, &attr));
        std::vector<std::uint64_t> device(attr.device_addr_len / 8 + 1);
        std::vector<std::uint64_t> address(attr.iface_addr_len / 8 + 1);
        auto* const device_address = reinterpret_cast<uct_device_addr_t*>(device.data());
        auto* const iface_address = reinterpret_cast<uct_iface_addr_t*>(address.data());
        must(uct_iface_get_device_address(hub_, device_address));
        must(uct_iface_get_address(hub_, iface_address));
        uct_ep_params_t params{};
        params.field_mask =
            UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
        params.iface = iface;
        params.dev_addr = device_address;
        params.iface_addr = iface_address;
        uct_ep_h ep = nullptr;
        must(uct_ep_create(&params, &ep));
        return ep;
    }

    void progress_all() const {
        uct_worker_progress(hub_worker_);
        uct_worker_progress(sender_worker_);
    }

    uct_md_h md_ = nullptr;
    uct_tl_resource_desc_t* resources_ = nullptr;
    ucs_async_context_t* async_ = nullptr;
    uct_worker_h hub_worker_ = nullptr;
    uct_worker_h sender_worker_ = nullptr;
    uct_iface_h hub_ = nullptr;
    std::vector<uct_iface_h> senders_;
    std::vector<uct_ep_h> endpoints_;
    std::uint64_t received_ = 0;
};

void idle_progress(benchmark::State& state) {
    Star star(static_cast<std::size_t>(state.range(0)));
    for (auto _ : state)
        benchmark::DoNotOptimize(star.progress_hub());
}

BENCHMARK(idle_progress)->ArgName("peers")->Arg(1)->Arg(8)->Arg(64)->Arg(256);

}  // namespace
