// SPDX-License-Identifier: BSD-3-Clause
#include "api/fake_transport.hpp"

#include <cstdlib>

#include "ucs/debug/check.hpp"
#include "uct/ops.hpp"

namespace tagwire::test {

namespace {

constexpr ucs::CounterInfo kCounterInfos[] = {{"sent", "messages", "messages sent"},
                                              {"lost", "messages", "messages lost"}};
ucs::Counter fake_counters[2];

const ucs::OptionTable* no_options(const char* tl_name) {
    static_cast<void>(tl_name);
    return nullptr;
}

const uct::Component kFakeComponent{
    .name = "fake", .rkey_packed_bytes = 8, .iface_options = &no_options};

constexpr uct_iface_ops_t kOps = uct::make_ops<FakeIface, FakeEp>();

}  // namespace

ucs_status_t FakeEp::create(const uct_ep_params_t* params, uct_ep_h* ep_p) {
    *ep_p = new FakeEp(params->iface);
    return UCS_OK;
}

ucs_status_t FakeEp::am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                              unsigned length) {
    static_cast<void>(header);
    auto& owner = *static_cast<FakeIface*>(iface);
    return owner.invoke_am(id, const_cast<void*>(payload), length, 0);
}

ssize_t FakeEp::put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                          uct_rkey_t) {
    return static_cast<ssize_t>(pack(reinterpret_cast<void*>(remote_addr), arg));
}

ucs_status_t FakeEp::check(unsigned, uct_completion_t*) {
    return UCS_OK;
}

FakeIface::FakeIface(uct::Md& domain, uct::Worker& engine)
    : BaseIface(domain, engine, kOps, &progress_callback<FakeIface>) {}

ucs_status_t FakeIface::query(uct_iface_attr_t* attr) {
    attr->cap.flags = flags;
    attr->iface_addr_len = 4;
    return UCS_OK;
}

ucs_status_t FakeIface::event_arm(unsigned events) {
    armed_events = events;
    return UCS_OK;
}

bool FakeIface::reachable(const uct_device_addr_t*, const uct_iface_addr_t* iface_addr,
                          std::string* reason) {
    if (*reinterpret_cast<const char*>(iface_addr) == 'y')
        return true;
    if (reason != nullptr)
        *reason = "the address does not begin with y";
    return false;
}

ucs::CounterSet FakeIface::counters() const {
    return {kCounterInfos, fake_counters};
}

void FakeIface::describe(const uct::DescribeSink& sink) const {
    sink.text("kind", "fake");
    sink.number("peers", 3);
}

void FakeIface::describe_ep(uct_ep_h, const uct::DescribeSink& sink) const {
    sink.flag("connected", true);
}

FakeMd::FakeMd() : Md(kFakeComponent) {}

ucs_status_t FakeMd::query(uct_md_attr_t* attr) {
    attr->cap.flags = flags;
    attr->cap.max_alloc = max_alloc;
    attr->cap.alloc_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    return UCS_OK;
}

ucs_status_t FakeMd::query_tl_resources(std::vector<uct::TlDevice>* devices) {
    devices->push_back({"fake", "none", UCT_DEVICE_TYPE_SELF, UCS_SYS_DEVICE_ID_UNKNOWN});
    return UCS_OK;
}

ucs_status_t FakeMd::iface_open(uct::Worker& engine, const uct_iface_params_t& params, const void*,
                                uct_iface_h* iface_p) {
    auto iface = std::make_unique<FakeIface>(*this, engine);
    const ucs_status_t status = iface->take_params(params);
    if (status == UCS_OK)
        *iface_p = iface.release();
    return status;
}

ucs_status_t FakeMd::mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t, unsigned,
                               const char*, uct_mem_h* memh_p) {
    *address_p = std::malloc(*length_p);
    *memh_p = *address_p;
    ++allocations;
    return UCS_OK;
}

ucs_status_t FakeMd::mem_free(uct_mem_h memh) {
    std::free(memh);
    --allocations;
    return UCS_OK;
}

FakeWorld::FakeWorld() : md(new FakeMd) {
    TW_CHECK(ucs_async_context_create(UCS_ASYNC_MODE_POLL, &async) == UCS_OK);
    TW_CHECK(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) == UCS_OK);
    TW_CHECK(uct_md_iface_config_read(md, "fake", nullptr, nullptr, &config) == UCS_OK);
}

FakeWorld::~FakeWorld() {
    uct_iface_close(opened);
    uct_config_release(config);
    uct_md_close(md);
    uct_worker_destroy(worker);
    ucs_async_context_destroy(async);
}

uct_iface_params_t FakeWorld::params() const {
    uct_iface_params_t params{};
    params.field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = "fake";
    params.mode.device.dev_name = "none";
    return params;
}

ucs_status_t FakeWorld::open(const uct_iface_params_t& given, uct_iface_h* iface_p) {
    return uct_iface_open(md, worker, &given, config, iface_p);
}

FakeIface& FakeWorld::iface() {
    if (opened == nullptr)
        TW_CHECK(open(params(), &opened) == UCS_OK);
    return *static_cast<FakeIface*>(opened);
}

}  // namespace tagwire::test
