// SPDX-License-Identifier: BSD-3-Clause
// One side's transport objects: memory domain, worker, interfaces and the endpoints to the other
// side.
//
//     driver: one interface, one endpoint to each of the peer's      peer: `peers` interfaces, one
//     endpoint from each
//
// Message i of a test travels between the driver and the peer's interface i mod peers. One thread
// uses a Link.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/channel.hpp"
#include "tools/job.hpp"
#include "tools/resources.hpp"

namespace tagwire::tools {

inline void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
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
    std::size_t peers() const { return objects_.endpoints.size(); }
    const std::vector<uct_ep_h>& endpoints() const { return objects_.endpoints; }
    uct_ep_h endpoint(std::size_t i) const { return objects_.endpoints[i]; }
    /// The interface on which what comes from endpoint i arrives.
    uct_iface_h interface(std::size_t i) const {
        return objects_.interfaces[objects_.interfaces.size() == 1 ? 0 : i];
    }
    const std::vector<uct_iface_h>& interfaces() const { return objects_.interfaces; }
    const uct_iface_attr_t& attr() const { return attr_; }
    const uct_md_attr_t& md_attr() const { return md_attr_; }
    const Resource& resource() const { return resource_; }
    uct_md_h md() const { return md_.get(); }
    uct_worker_h worker() const { return objects_.worker; }
    Channel& channel() const { return *channel_; }

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
        if (uct_worker_progress(objects_.worker) != 0) {
            return true;
        }
        if (--idle_budget_ == 0) [[unlikely]] {
            idle();
        }
        return false;
    }

    /// Makes progress until the predicate holds.
    template <class Predicate>
    void wait_until(Predicate done) {
        while (!done()) {
            progress();
        }
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
    void create_endpoints();
    Encoder addresses() const;
    void connect_endpoints(Decoder addresses);
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
};

}  // namespace tagwire::tools
