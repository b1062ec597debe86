// SPDX-License-Identifier: BSD-3-Clause
#include "entity.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <uct/api/tagwire_uct.h>

namespace tagwire::test {

namespace {

constexpr std::uint64_t kEagerMagic = 0x6561676572617267;
constexpr std::uint64_t kRndvMagic = 0x726e647661726721;

Bytes bytes_of(const void* data, std::size_t length) {
    const auto* first = static_cast<const std::byte*>(data);
    return length == 0 ? Bytes{} : Bytes(first, first + length);
}

// A callback cannot throw through C, and a suite that goes on after this would only confuse.
void check_callback(bool good, const char* what) {
    if (good)
        return;
    std::fprintf(stderr, "contract violated in a callback: %s\n", what);
    std::abort();
}

void modify(void* config, const std::vector<std::pair<std::string, std::string>>& settings) {
    for (const auto& [name, value] : settings)
        require_ok(uct_config_modify(config, name.c_str(), value.c_str()), "option " + name);
}

}  // namespace

Entity::Entity(const Resource& resource, const EntityOptions& options)
    : resource_(resource),
      rx_headroom_(options.rx_headroom),
      component_(component_handle(resource.component)),
      eager_arg_{kEagerMagic, this},
      rndv_arg_{kRndvMagic, this} {
    try {
        open(options);
    } catch (...) {
        close();
        throw;
    }
}

Entity::~Entity() {
    close();
}

void Entity::open(const EntityOptions& options) {
    open_md(options);
    require_ok(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK, &async_),
               "ucs_async_context_create");
    require_ok(uct_worker_create(async_, options.thread_mode, &worker_), "uct_worker_create");
    if (options.before_iface)
        options.before_iface(md_);
    open_iface(options);
    record_am(kAmId);
    uct_iface_progress_enable(iface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

/// All that is open.
void Entity::close() {
    close_iface();
    if (worker_ != nullptr)
        uct_worker_destroy(worker_);
    if (async_ != nullptr)
        ucs_async_context_destroy(async_);
    if (md_ != nullptr)
        uct_md_close(md_);
}

void Entity::open_md(const EntityOptions& options) {
    uct_md_config_t* config = nullptr;
    require_ok(uct_md_config_read(component_, nullptr, nullptr, &config), "uct_md_config_read");
    const std::unique_ptr<uct_md_config_t, void (*)(void*)> owner(config, uct_config_release);
    modify(config, options.md_config);
    require_ok(uct_md_open(component_, resource_.md.c_str(), config, &md_), "uct_md_open");
    require_ok(uct_md_query(md_, &md_attr_), "uct_md_query");
}

void Entity::open_iface(const EntityOptions& options) {
    uct_iface_config_t* config = nullptr;
    require_ok(
        uct_md_iface_config_read(md_, resource_.transport.c_str(), nullptr, nullptr, &config),
        "uct_md_iface_config_read");
    const std::unique_ptr<uct_iface_config_t, void (*)(void*)> owner(config, uct_config_release);
    modify(config, knobs_of(resource_).iface_config);
    modify(config, options.iface_config);

    uct_iface_params_t params = {};
    params.field_mask =
        UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
        UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
        UCT_IFACE_PARAM_FIELD_ERR_HANDLER | UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS |
        UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_ARG | UCT_IFACE_PARAM_FIELD_HW_TM_EAGER_CB |
        UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_ARG | UCT_IFACE_PARAM_FIELD_HW_TM_RNDV_CB |
        UCT_IFACE_PARAM_FIELD_FEATURES;
    params.open_mode = UCT_IFACE_OPEN_MODE_DEVICE;
    params.mode.device.tl_name = resource_.transport.c_str();
    params.mode.device.dev_name = resource_.device.c_str();
    params.rx_headroom = options.rx_headroom;
    params.err_handler = error_handler;
    params.err_handler_arg = this;
    params.err_handler_flags = 0;
    params.eager_arg = &eager_arg_;
    params.eager_cb = eager_handler;
    params.rndv_arg = &rndv_arg_;
    params.rndv_cb = rndv_handler;
    params.features = options.features;
    if (!options.has_tag_callbacks)
        params.eager_cb = nullptr, params.rndv_cb = nullptr;
    if (options.am_alignment != 0) {
        params.field_mask |=
            UCT_IFACE_PARAM_FIELD_AM_ALIGNMENT | UCT_IFACE_PARAM_FIELD_AM_ALIGN_OFFSET;
        params.am_alignment = options.am_alignment;
        params.am_align_offset = options.am_align_offset;
    }
    require_ok(uct_iface_open(md_, worker_, &params, config, &iface_),
               "uct_iface_open(" + resource_.label() + ")");
    require_ok(uct_iface_query(iface_, &attr_), "uct_iface_query");
}

void Entity::close_iface() {
    if (iface_ == nullptr)
        return;
    uct_iface_progress_disable(iface_, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
    uct_iface_close(std::exchange(iface_, nullptr));
}

void Entity::record_am(std::uint8_t id) {
    constexpr std::uint64_t kAnyAm =
        UCT_IFACE_FLAG_AM_SHORT | UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY;
    if ((attr_.cap.flags & kAnyAm) == 0)
        return;
    auto& slot = am_slots_[id];
    slot = std::make_unique<AmSlot>(AmSlot{this, id});
    require_ok(uct_iface_set_am_handler(iface_, id, am_handler, slot.get(), 0),
               "uct_iface_set_am_handler");
}

Bytes Entity::device_address() const {
    Bytes address(attr_.device_addr_len);
    require_ok(
        uct_iface_get_device_address(iface_, reinterpret_cast<uct_device_addr_t*>(address.data())),
        "uct_iface_get_device_address");
    return address;
}

Bytes Entity::iface_address() const {
    Bytes address(attr_.iface_addr_len);
    if (!offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE))
        return address;
    require_ok(uct_iface_get_address(iface_, reinterpret_cast<uct_iface_addr_t*>(address.data())),
               "uct_iface_get_address");
    return address;
}

ucs_status_t Entity::am_handler(void* arg, void* data, std::size_t length, unsigned flags) {
    const auto* slot = static_cast<AmSlot*>(arg);
    Entity& self = *slot->self;
    ++self.am_count;
    AmMessage message{slot->id, flags, data, {}};
    if (self.keep_record || self.on_am)
        message.bytes = bytes_of(data, length);
    if (self.keep_record)
        self.am.push_back(message);
    return self.on_am ? self.on_am(message) : UCS_OK;
}

ucs_status_t Entity::eager_handler(void* arg, void* data, std::size_t length, unsigned flags,
                                   uct_tag_t tag, std::uint64_t imm, void** context) {
    const auto* eager_arg = static_cast<EagerArg*>(arg);
    check_callback(eager_arg->magic == kEagerMagic, "the eager callback got another one's arg");
    Entity& self = *eager_arg->self;
    const bool is_first = (flags & UCT_CB_PARAM_FLAG_FIRST) != 0;
    const bool has_more = (flags & UCT_CB_PARAM_FLAG_MORE) != 0;

    if (self.keep_record) {
        std::uintptr_t token = 0;
        if (is_first) {
            token = self.next_token_++;
            self.partial_[token] = {tag, imm, 0, {}};
            if (has_more) {
                check_callback(context != nullptr, "a first fragment came without a context");
                *context = reinterpret_cast<void*>(token);
            }
        } else {
            check_callback(context != nullptr, "a later fragment came without a context");
            token = reinterpret_cast<std::uintptr_t>(*context);
        }
        const auto found = self.partial_.find(token);
        check_callback(found != self.partial_.end(),
                       "a fragment carries another message's context");
        EagerMessage& message = found->second;
        check_callback(message.tag == tag, "fragments of one message differ in their tag");
        check_callback(message.imm == imm, "fragments of one message differ in their immediate");
        const Bytes part = bytes_of(data, length);
        message.bytes.insert(message.bytes.end(), part.begin(), part.end());
        ++message.fragments;
        if (!has_more) {
            self.eager.push_back(std::move(message));
            self.partial_.erase(found);
        }
    }
    if (!has_more)
        ++self.eager_count;
    return self.on_eager ? self.on_eager({data, length, flags, tag, imm, context}) : UCS_OK;
}

ucs_status_t Entity::rndv_handler(void* arg, unsigned flags, std::uint64_t tag, const void* header,
                                  unsigned header_length, std::uint64_t remote_addr,
                                  std::size_t length, const void* rkey) {
    const auto* rndv_arg = static_cast<RndvArg*>(arg);
    check_callback(rndv_arg->magic == kRndvMagic, "the rendezvous callback got another one's arg");
    Entity& self = *rndv_arg->self;
    ++self.rndv_count;
    RndvMessage message{tag, flags, bytes_of(header, header_length), remote_addr, length,
                        {},  header};
    if (rkey != nullptr)
        message.rkey = bytes_of(rkey, self.md_attr_.rkey_packed_size);
    if (self.keep_record)
        self.rndv.push_back(message);
    return self.on_rndv ? self.on_rndv(message) : UCS_OK;
}

ucs_status_t Entity::error_handler(void* arg, uct_ep_h ep, ucs_status_t status) {
    auto& self = *static_cast<Entity*>(arg);
    const PeerError error{ep, status};
    self.errors.push_back(error);
    if (self.on_error)
        self.on_error(error);
    return UCS_OK;
}

Endpoint& Endpoint::operator=(Endpoint&& other) noexcept {
    if (this != &other) {
        reset();
        ep_ = std::exchange(other.ep_, nullptr);
    }
    return *this;
}

void Endpoint::reset() {
    if (ep_ != nullptr)
        uct_ep_destroy(std::exchange(ep_, nullptr));
}

Endpoint connect_to_address(Entity& from, const Bytes& device, const Bytes& iface,
                            ucs_status_t* status_p) {
    uct_ep_params_t params = {};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = from.iface();
    params.dev_addr = reinterpret_cast<const uct_device_addr_t*>(device.data());
    params.iface_addr = reinterpret_cast<const uct_iface_addr_t*>(iface.data());
    uct_ep_h ep = nullptr;
    const ucs_status_t status = uct_ep_create(&params, &ep);
    if (status_p != nullptr)
        *status_p = status;
    if (status_p == nullptr)
        require_ok(status, "uct_ep_create");
    return Endpoint(status == UCS_OK ? ep : nullptr);
}

namespace {

Endpoint create_unconnected(Entity& entity) {
    uct_ep_params_t params = {};
    params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
    params.iface = entity.iface();
    uct_ep_h ep = nullptr;
    require_ok(uct_ep_create(&params, &ep), "uct_ep_create(unconnected)");
    return Endpoint(ep);
}

void connect_one(Endpoint& ep, const Entity& to, Endpoint& peer) {
    Bytes address(to.attr().ep_addr_len);
    require_ok(uct_ep_get_address(peer, reinterpret_cast<uct_ep_addr_t*>(address.data())),
               "uct_ep_get_address");
    const Bytes device = to.device_address();
    require_ok(uct_ep_connect_to_ep(ep, reinterpret_cast<const uct_device_addr_t*>(device.data()),
                                    reinterpret_cast<const uct_ep_addr_t*>(address.data())),
               "uct_ep_connect_to_ep");
}

}  // namespace

Connection connect(Entity& from, Entity& to) {
    if (from.offers(UCT_IFACE_FLAG_CONNECT_TO_IFACE))
        return {connect_to_address(from, to.device_address(), to.iface_address()), Endpoint()};
    Connection link{create_unconnected(from), create_unconnected(to)};
    connect_one(link.forward, to, link.backward);
    connect_one(link.backward, from, link.forward);
    return link;
}

// ---- Facts

namespace {

struct Search {
    const std::string& key;
    long value = -1;
};

void take_fact(void* arg, const char* name, const char* value) {
    auto& wanted = *static_cast<Search*>(arg);
    if (wanted.key == name)
        wanted.value = std::strtol(value, nullptr, 10);
}

}  // namespace

std::string facts_of(const Entity& entity, uct_ep_h ep) {
    std::string facts;
    const auto add = [](void* arg, const char* key, const char* value) {
        static_cast<std::string*>(arg)->append(key).append("=").append(value).append("; ");
    };
    tagwire_uct_iface_describe(entity.iface(), add, &facts);
    tagwire_uct_ep_describe(ep, add, &facts);
    tagwire_uct_counter_t counters[64];
    unsigned count = 64;
    if (tagwire_uct_iface_query_counters(entity.iface(), counters, &count) == UCS_OK)
        for (unsigned i = 0; i < count; ++i)
            add(&facts, counters[i].name, std::to_string(counters[i].value).c_str());
    return facts;
}

long fact_of(const Entity& entity, const std::string& key) {
    Search search{key};
    require_ok(tagwire_uct_iface_describe(entity.iface(), take_fact, &search), "describe");
    return search.value;
}

std::string text_of(const Entity& entity, const std::string& key) {
    std::pair<std::string, std::string> wanted{key, ""};
    const auto take = [](void* arg, const char* name, const char* value) {
        auto& search = *static_cast<std::pair<std::string, std::string>*>(arg);
        if (search.first == name)
            search.second = value;
    };
    require_ok(tagwire_uct_iface_describe(entity.iface(), take, &wanted), "describe");
    return wanted.second;
}

std::string why_unreachable(const Entity& entity, const Entity& peer) {
    const Bytes device = peer.device_address();
    Bytes iface(peer.attr().iface_addr_len);
    require_ok(
        uct_iface_get_address(peer.iface(), reinterpret_cast<uct_iface_addr_t*>(iface.data())),
        "uct_iface_get_address");
    char reason[256] = "";
    const int answer = tagwire_uct_iface_is_reachable_reason(
        entity.iface(), reinterpret_cast<const uct_device_addr_t*>(device.data()),
        reinterpret_cast<const uct_iface_addr_t*>(iface.data()), reason, sizeof reason);
    return answer != 0 ? "" : reason;
}

long fact_of(uct_ep_h ep, const std::string& key) {
    Search search{key};
    require_ok(tagwire_uct_ep_describe(ep, take_fact, &search), "describe");
    return search.value;
}

}  // namespace tagwire::test
