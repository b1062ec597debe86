// SPDX-License-Identifier: BSD-3-Clause
// One side of a conversation: memory domain, worker and interface, and a record of everything the
// library told us through a callback. A hook may be put on each kind of callback; it runs first and
// its status is returned.
//
// Owner thread only. Endpoints and receives must be gone before their Entity is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/nomem.hpp"
#include "resource.hpp"

namespace tagwire::test {

using Bytes = std::vector<std::byte>;

struct AmMessage {
    std::uint8_t id;
    unsigned flags;
    void* data;  // valid in a hook, or as long as a hook kept the descriptor
    Bytes bytes;
};

struct EagerMessage {  // an unexpected eager message, put together from its fragments
    uct_tag_t tag;
    std::uint64_t imm;
    unsigned fragments;
    Bytes bytes;
};

struct EagerFragment {  // what one callback said
    void* data;
    std::size_t length;
    unsigned flags;
    uct_tag_t tag;
    std::uint64_t imm;
    void** context;
};

struct RndvMessage {
    uct_tag_t tag;
    unsigned flags;
    Bytes header;
    std::uint64_t remote_addr;
    std::size_t length;
    Bytes rkey;  // empty for a software rendezvous request
    const void* header_data;
};

struct PeerError {
    uct_ep_h ep;
    ucs_status_t status;
};

struct EntityOptions {
    std::size_t rx_headroom = 0;
    bool has_tag_callbacks = true;
    std::size_t am_alignment = 0;  // 0: the parameter is not given
    std::size_t am_align_offset = 0;
    std::vector<std::pair<std::string, std::string>> iface_config = {};
    std::vector<std::pair<std::string, std::string>> md_config = {};
    std::uint64_t features = UCT_IFACE_FEATURE_AM | UCT_IFACE_FEATURE_PUT | UCT_IFACE_FEATURE_GET |
                             UCT_IFACE_FEATURE_AMO32 | UCT_IFACE_FEATURE_AMO64 |
                             UCT_IFACE_FEATURE_TAG;
    /// Runs when the memory domain is open and the interface is not: there a test makes the device
    /// refuse what some drivers refuse.
    std::function<void(uct_md_h)> before_iface = {};
    ucs_thread_mode_t thread_mode = UCS_THREAD_MODE_SINGLE;
};

class Entity {
  public:
    static constexpr std::uint8_t kAmId = 5;  // has a recording handler from the start

    explicit Entity(const Resource& resource, const EntityOptions& options = {});
    ~Entity();
    Entity(const Entity&) = delete;
    Entity& operator=(const Entity&) = delete;

    const Resource& resource() const { return resource_; }
    uct_component_h component() const { return component_; }
    uct_md_h md() const { return md_; }
    uct_worker_h worker() const { return worker_; }
    uct_iface_h iface() const { return iface_; }
    const uct_iface_attr_t& attr() const { return attr_; }
    const uct_md_attr_t& md_attr() const { return md_attr_; }
    bool offers(std::uint64_t flags) const { return (attr_.cap.flags & flags) == flags; }
    std::size_t rx_headroom() const { return rx_headroom_; }

    /// With libnomem.so preloaded allocations fail in it, and nobody may notice.
    unsigned progress() {
        const NoMemory failing(nomem::Where::kOutside);
        return uct_worker_progress(worker_);
    }

    /// Records messages of `id` from now on.
    void record_am(std::uint8_t id);
    /// Closes the interface early; everything else stays.
    void close_iface();

    Bytes device_address() const;
    Bytes iface_address() const;

    std::vector<AmMessage> am;
    std::vector<EagerMessage> eager;
    std::vector<RndvMessage> rndv;
    std::vector<PeerError> errors;
    bool keep_record = true;  // off: count only, for floods
    std::uint64_t am_count = 0;
    std::uint64_t eager_count = 0;
    std::uint64_t rndv_count = 0;

    std::function<ucs_status_t(const AmMessage&)> on_am;
    std::function<ucs_status_t(const EagerFragment&)> on_eager;
    std::function<ucs_status_t(const RndvMessage&)> on_rndv;
    std::function<void(const PeerError&)> on_error;

  private:
    struct AmSlot {
        Entity* self;
        std::uint8_t id;
    };
    // The callbacks' args differ on purpose: a transport that mixes them up is found by the magic.
    struct EagerArg {
        std::uint64_t magic;
        Entity* self;
    };
    struct RndvArg {
        std::uint64_t magic;
        Entity* self;
    };

    void open(const EntityOptions& options);
    void close();
    void open_md(const EntityOptions& options);
    void open_iface(const EntityOptions& options);

    static ucs_status_t am_handler(void* arg, void* data, std::size_t length, unsigned flags);
    static ucs_status_t eager_handler(void* arg, void* data, std::size_t length, unsigned flags,
                                      uct_tag_t tag, std::uint64_t imm, void** context);
    static ucs_status_t rndv_handler(void* arg, unsigned flags, std::uint64_t tag,
                                     const void* header, unsigned header_length,
                                     std::uint64_t remote_addr, std::size_t length,
                                     const void* rkey);
    static ucs_status_t error_handler(void* arg, uct_ep_h ep, ucs_status_t status);

    Resource resource_;
    std::size_t rx_headroom_;
    uct_component_h component_ = nullptr;
    ucs_async_context_t* async_ = nullptr;
    uct_md_h md_ = nullptr;
    uct_worker_h worker_ = nullptr;
    uct_iface_h iface_ = nullptr;
    uct_iface_attr_t attr_ = {};
    uct_md_attr_t md_attr_ = {};
    EagerArg eager_arg_;
    RndvArg rndv_arg_;
    std::map<std::uint8_t, std::unique_ptr<AmSlot>> am_slots_;
    // By the token that we put in the message's context.
    std::map<std::uintptr_t, EagerMessage> partial_;
    std::uintptr_t next_token_ = 1;
};

/// Owner of one endpoint.
class Endpoint {
  public:
    Endpoint() = default;
    explicit Endpoint(uct_ep_h ep) : ep_(ep) {}
    Endpoint(Endpoint&& other) noexcept : ep_(std::exchange(other.ep_, nullptr)) {}
    Endpoint& operator=(Endpoint&& other) noexcept;
    ~Endpoint() { reset(); }

    void reset();
    uct_ep_h get() const { return ep_; }
    uct_ep_h release() { return std::exchange(ep_, nullptr); }
    operator uct_ep_h() const { return ep_; }

  private:
    uct_ep_h ep_ = nullptr;
};

/// Endpoint of `from` to an interface whose addresses were fetched elsewhere (another process, a
/// closed interface). `status_p` null: throws when it fails.
Endpoint connect_to_address(Entity& from, const Bytes& device, const Bytes& iface,
                            ucs_status_t* status_p = nullptr);

struct Connection {
    Endpoint forward;   // from -> to
    Endpoint backward;  // to -> from; only made by itself where endpoints connect to endpoints
};
Connection connect(Entity& from, Entity& to);

/// Value of a fact that the interface or endpoint tells of itself; -1: it has none of that name.
long fact_of(const Entity& entity, const std::string& key);
long fact_of(uct_ep_h ep, const std::string& key);
/// The same as text; empty: none of that name.
std::string text_of(const Entity& entity, const std::string& key);
/// Why `peer` cannot be reached; empty when it can.
std::string why_unreachable(const Entity& entity, const Entity& peer);
/// All that the interface and the endpoint tell of themselves, for who has to find out why.
std::string facts_of(const Entity& entity, uct_ep_h ep);

}  // namespace tagwire::test
