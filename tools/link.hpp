// SPDX-License-Identifier: BSD-3-Clause
// One side's transport objects: memory domain, worker, interfaces and the endpoints to the other
// side.
//
//     driver: one interface, with an endpoint to each target
//     peer: an interface for each target, with an endpoint back
//
// Message i of a test travels between the driver and the peer's interface i mod peers(). The peer
// has at most kOpenPeersMax interfaces at a time. A target beyond them is an interface that was
// open only while its address was read, or, where endpoints connect to endpoints, one more endpoint
// of an open interface; endpoints to these are made, measured and never used. One thread uses a
// Link.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/channel.hpp"
#include "tools/job.hpp"
#include "tools/pause.hpp"
#include "tools/resources.hpp"

namespace tagwire::tools {

/// `i` modulo `count`, without a division where that is one, as it mostly is.
constexpr std::size_t in_turn(std::size_t i, std::size_t count) {
    return count == 1 ? 0 : i % count;
}

class Link {
  public:
    using UnexpectedEager = ucs_status_t (*)(void* arg, void* data, std::size_t length,
                                             unsigned flags, uct_tag_t tag, std::uint64_t immediate,
                                             void** context);

    Link(Side side, const Setup& setup, Channel* channel);
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    /// Exchanges addresses over the channel and connects; both sides call it.
    void connect();

    Side side() const { return side_; }
    /// Those that carry messages.
    std::size_t peers() const { return setup_.open_peers(); }
    uct_ep_h endpoint(std::size_t i) const { return objects_.endpoints[i]; }
    /// The interface on which what comes from endpoint i arrives.
    uct_iface_h interface(std::size_t i) const {
        return objects_.interfaces[in_turn(i, objects_.interfaces.size())];
    }
    const std::vector<uct_iface_h>& interfaces() const { return objects_.interfaces; }
    const uct_iface_attr_t& attr() const { return attr_; }
    const uct_md_attr_t& md_attr() const { return md_attr_; }
    const Resource& resource() const { return resource_; }
    uct_md_h md() const { return md_.get(); }
    uct_worker_h worker() const { return objects_.worker; }
    Channel& channel() const { return *channel_; }
    /// Bytes that each endpoint took from the allocator when it was made and connected; nothing
    /// where the allocator does not tell.
    std::optional<std::uint64_t> allocated_per_peer() const;

    /// Calls `handler` for active messages with this id on interface `index`.
    void set_am_handler(std::size_t index, std::uint8_t id, uct_am_callback_t handler, void* arg);

    /// Tagged messages that no receive was posted for; without a handler they count as stray().
    void set_unexpected(UnexpectedEager handler, void* arg) {
        unexpected_ = handler;
        unexpected_arg_ = arg;
    }
    std::uint64_t stray() const { return stray_; }

    /// One round of progress; when it found nothing, waits as the user asked (spin, yield, sleep).
    /// Throws Failure when the endpoint failed or the peer is gone.
    /// False: it found nothing.
    bool progress() {
        if (uct_worker_progress(objects_.worker) != 0)
            return true;
        if (--idle_budget_ == 0) [[unlikely]]
            idle();
        return false;
    }

    /// Makes progress until the predicate holds.
    template <class Predicate>
    void wait_until(Predicate done) {
        while (!done())
            progress();
    }

  private:
    /// Destroyed in the order that UCT asks for, also when a constructor throws half-way.
    struct Objects {
        Objects() = default;
        ~Objects();
        Objects(const Objects&) = delete;
        Objects& operator=(const Objects&) = delete;

        ucs_async_context_t* async = nullptr;
        uct_worker_h worker = nullptr;
        std::vector<uct_iface_h> interfaces;
        std::vector<uct_ep_h> endpoints;
    };

    void open_interface(std::size_t index);
    bool connects_to_interface() const {
        return (attr_.cap.flags & UCT_IFACE_FLAG_CONNECT_TO_IFACE) != 0;
    }
    void create_endpoints();
    bool is_spare(std::size_t index) const { return index >= setup_.open_peers(); }
    Encoder addresses(std::size_t first, std::size_t count);
    void write_addresses(std::size_t index, uct_iface_h iface, Encoder* message) const;
    void connect_endpoints(std::size_t first, std::size_t count, Decoder addresses);
    void connect_endpoint(std::size_t index, Decoder* addresses);
    void destroy_spare_endpoints();
    void idle();
    void sleep();
    void check_alive() const;

    static ucs_status_t on_error(void* arg, uct_ep_h ep, ucs_status_t status);
    static ucs_status_t on_unexpected_eager(void* arg, void* data, std::size_t length,
                                            unsigned flags, uct_tag_t tag, std::uint64_t immediate,
                                            void** context);
    static ucs_status_t on_unexpected_rndv(void* arg, unsigned flags, std::uint64_t tag,
                                           const void* header, unsigned header_length,
                                           std::uint64_t remote_address, std::size_t length,
                                           const void* rkey);

    Side side_;
    Setup setup_;
    Channel* channel_;
    Resource resource_;
    MdHandle md_;
    Objects objects_;
    uct_iface_attr_t attr_{};
    uct_md_attr_t md_attr_{};
    std::uint32_t idle_budget_ = 1;
    std::uint32_t idle_rounds_ = 0;
    ucs_status_t failed_ = UCS_OK;
    UnexpectedEager unexpected_ = nullptr;
    void* unexpected_arg_ = nullptr;
    std::uint64_t stray_ = 0;
    std::int64_t allocated_ = 0;  // for all endpoints
};

}  // namespace tagwire::tools
