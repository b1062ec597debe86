// SPDX-License-Identifier: BSD-3-Clause
// One side's objects of the messaging layer: a context of the wanted transports, a worker and the
// endpoint to the other side's. At level uct it is a Link. One thread uses a MsgLink; those of
// several threads may share the context, or worker and endpoint as well.
#pragma once

#include <tagwire.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/failure.hpp"
#include "tools/channel.hpp"
#include "tools/job.hpp"
#include "tools/pause.hpp"

namespace tagwire::tools {

/// The transports of a setup's context. A single one is looked up first, so that the error for one
/// that is not here lists what is. Throws UsageError.
std::string transports_of(const Setup& setup);

/// A context of these. Throws Failure or UsageError.
tw_context_h open_context(const Setup& setup);

/// A context that lives as long as one of its owners.
using SharedContext = std::shared_ptr<tw_context>;

/// Throws Failure with the call's name, if it failed.
void check(tw_status_t status, const char* call);

/// The longest time that the two sides wait for each other.
inline constexpr std::uint64_t kConnectNs = 30'000'000'000;

/// The transport and device that carry a worker's messages to its last peer.
struct Carrier {
    std::string transport;
    std::string device;
};
Carrier carrier_of(tw_worker_h worker);

class MsgLink {
  public:
    /// A context and a worker of one thread.
    MsgLink(Side side, const Setup& setup, Channel* channel);
    /// A worker in thread mode multi. Without a channel it is for messages to itself.
    MsgLink(Side side, const Setup& setup, Channel* channel, SharedContext context);
    /// The worker and the endpoint of `first`, which is connected, for the messages of one more
    /// thread.
    MsgLink(const MsgLink& first, std::uint64_t stream);
    MsgLink(const MsgLink&) = delete;
    MsgLink& operator=(const MsgLink&) = delete;

    /// Exchanges addresses over the channel, if there is one, and connects; both sides call it.
    /// Returns when a message has gone either way, so that what is measured is no part of the
    /// connection.
    void connect();

    Side side() const { return side_; }
    /// Whose messages come here.
    Side sending_side() const;
    /// The place of this link among those that share the worker, whose messages are told apart by
    /// it.
    std::uint64_t stream() const { return stream_; }
    /// Whether other threads progress the worker, too.
    bool is_shared() const { return is_shared_; }
    tw_context_h context() const { return objects_->context.get(); }
    tw_worker_h worker() const { return worker_; }
    tw_ep_h endpoint() const { return ep_; }
    /// To the other side; there is none for messages to itself.
    Channel& channel() const { return *channel_; }
    /// The transport and device that carry the endpoint's messages.
    const std::string& transport() const { return carrier_.transport; }
    const std::string& device() const { return carrier_.device; }
    /// Bytes that an endpoint to one more connected worker takes from the allocator; known on the
    /// driver, with several peers.
    std::optional<std::uint64_t> bytes_per_peer() const { return bytes_per_peer_; }
    /// The way in which such messages go over the connection now.
    tw_explanation_t explain(std::size_t size, tw_buffer_kind_t buffer) const;
    /// Bytes that the worker's interfaces may use for buffers of messages, as far as they state it.
    std::optional<std::uint64_t> buffer_bytes() const;

    /// As Link::progress(). Another thread's progress moves nothing for this one, which may yield.
    bool progress() {
        const unsigned moved = tw_worker_progress(worker_);
        if (moved == TW_PROGRESS_BUSY)
            keep_away();
        else if (moved != 0)
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
    struct Objects {
        explicit Objects(SharedContext shared) : context(std::move(shared)) {}
        ~Objects();
        Objects(const Objects&) = delete;
        Objects& operator=(const Objects&) = delete;

        SharedContext context;
        tw_worker_h worker = nullptr;
        std::vector<tw_worker_h> spares;  // of the peer: the others of its workers
        /// Written in the progress of any thread. Relaxed: nothing else is read for it.
        std::atomic<tw_status_t> failed = TW_OK;
    };

    /// Another thread progresses the worker, the faster the less it is disturbed.
    static void keep_away() {
        constexpr unsigned kPauses = 128;  // some microseconds
        for (unsigned i = 0; i < kPauses; ++i)
            pause_cpu();
    }

    void open_worker(tw_thread_mode_t mode, std::uint64_t tx_contexts);
    void make_endpoint(const std::uint8_t* address, std::size_t length);
    tw_status_t failure() const { return objects_->failed.load(std::memory_order_relaxed); }
    void exchange_addresses();
    void exchange_messages();
    void connect_spares();
    void offer_spares(std::size_t count);
    std::int64_t measure_spares(std::size_t count);
    template <class Predicate>
    void connecting(Predicate done);
    void idle();
    void check_alive() const;

    Side side_;
    Wait wait_;
    std::uint64_t peers_ = 1;
    Channel* channel_;  // null: there is no other side
    std::shared_ptr<Objects> objects_;
    tw_worker_h worker_ = nullptr;
    tw_ep_h ep_ = nullptr;
    std::uint64_t stream_ = 0;
    bool is_shared_ = false;
    Carrier carrier_;
    std::optional<std::uint64_t> bytes_per_peer_;
    std::uint32_t idle_budget_ = 1;
    std::uint32_t idle_rounds_ = 0;
};

/// The connected links of a setup's threads, which share what it says. Both sides call it; without
/// a channel each link leads to its own worker.
std::vector<std::unique_ptr<MsgLink>> make_msg_links(Side side, const Setup& setup,
                                                     Channel* channel);

/// Ordinary memory: page aligned and touched.
class Pages {
  public:
    explicit Pages(std::size_t bytes) : bytes_((bytes / kPage + 1) * kPage) {
        data_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(kPage, bytes_)));
        if (data_ == nullptr)
            throw Failure(text("out of memory for a buffer of %zu bytes", bytes));
        std::memset(data_.get(), 0, bytes_);
    }

    std::uint8_t* data() const { return data_.get(); }
    /// The size in bytes, a multiple of the page size.
    std::size_t bytes() const { return bytes_; }

  private:
    static constexpr std::size_t kPage = 4096;

    struct Free {
        void operator()(std::uint8_t* data) const { std::free(data); }
    };
    std::size_t bytes_;
    std::unique_ptr<std::uint8_t, Free> data_;
};

}  // namespace tagwire::tools
