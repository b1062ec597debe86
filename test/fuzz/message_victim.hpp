// SPDX-License-Identifier: BSD-3-Clause
// The victim of fuzz targets of message transports: an interface and the acts of its user: receives
// posted and cancelled, rendezvous sent, descriptors kept. At the end each receive buffer is posted
// again, or waits to be posted with others, and each operation has ended once.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ib/stranger.hpp"
#include "input.hpp"
#include "operations.hpp"

namespace tagwire::fuzz {

using test::Entity;
using test::fact_of;

inline constexpr std::size_t kSegBytes = 256;
inline constexpr std::size_t kMessageBytesMax = 384;  // longer than a buffer
inline constexpr int kStepsMax = 2'000'000;
inline constexpr unsigned kReceives = 4;

inline ib::IbMd& stranger_md() {
    static const test::VhcaMd md;
    return *md;
}

/// So few receive buffers that each is posted again at once, where no device matches tags: for one
/// there are at least 33, which are posted again in batches.
inline test::EntityOptions options_of(const std::string& prefix, bool by_device) {
    test::EntityOptions options;
    options.md_config = {{"IB_MTU", "1024"}};  // as the stranger's queue pairs have it
    options.iface_config = {{prefix + "_TAG_MATCHING", by_device ? "device" : "software"},
                            {prefix + "_SEG_BYTES", std::to_string(kSegBytes)},
                            {prefix + "_RX_DEPTH", "2"},
                            {prefix + "_RX_HELD", "64"},
                            {prefix + "_RNDV_MAX", "1"},
                            {prefix + "_TX_DEPTH", "16"},
                            {prefix + "_RNR_TIMER", "10us"},
                            {prefix + "_KEEPALIVE_INTERVAL", "0"}};
    if (prefix == "RC")
        options.iface_config.emplace_back("RC_TX_CQ_DEPTH", "64");  // dc derives it from its pool
    return options;
}

/// The interface under attack, and its user. `Attack` has the transport's name and options, makes
/// the endpoint that may fail, and sends.
template <class Attack>
class Victim {
  public:
    explicit Victim(bool by_device)
        : self_(test::resource_of(Attack::kTransport), Attack::options(by_device)) {
        self_.keep_record = false;
        const long wanted = fact_of(self_, "receive_buffers_wanted");
        posted_at_least_ = wanted - std::max(wanted / 2, 1L) + 1;  // fewer are missing than a batch
        for (Slot& slot : slots_) {
            slot.receive = std::make_unique<test::Receive>(self_, kSegBytes);
            slot.receive->on_done = [&slot](test::Receive& done) {
                require(std::exchange(slot.is_posted, false) && done.endings() == 1);
            };
        }
        payload_ = std::make_unique<test::Buffer>(self_, kSegBytes, test::Backing::kRegistered);
        self_.on_am = [this](const test::AmMessage& message) { return look_at(message.data); };
        self_.on_eager = [this](const test::EagerFragment& part) { return look_at(part.data); };
        self_.on_error = [this](const test::PeerError&) { require(!std::exchange(failed_, true)); };
        ep_ = attack_.open(self_);
    }

    void act(Input& input) {
        const auto step = input.take<std::uint8_t>();
        const unsigned argument = step / 8;
        Slot& slot = slots_[argument % kReceives];
        switch (step % 8) {
            case 0:
                if (!slot.is_posted)
                    slot.is_posted = slot.receive->post(argument % 8, ~uct_tag_t{0}) == UCS_OK;
                break;
            case 1:
                if (slot.is_posted && slot.receive->cancel(argument > 15) == UCS_OK)
                    slot.is_posted = argument <= 15;
                break;
            case 2:
                send_rendezvous();
                break;
            case 3:
                release(argument % 2 == 0 ? 1 : kept_.size());
                break;
            case 4:
                for (unsigned i = 0; i <= argument; ++i)
                    progress();
                break;
            default:
                until([&] { return failed_ || !attack_.is_full(); });
                if (!failed_)
                    send(input, argument % 2 != 0, argument % 8 == 6);
                break;
        }
    }

    /// Nothing is lost, nothing is under way.
    void end() {
        until([&] { return failed_ || attack_.is_idle(); });
        ep_.reset();
        until([&] { return fact_of(self_, "endpoints") <= Attack::kEndpointsLeft; });
        release(kept_.size());
        for (Slot& slot : slots_)
            if (slot.is_posted)
                slot.receive->cancel(true);
        require(sends_ended_ == sends_);
        until([&] { return fact_of(self_, "receive_buffers_posted") >= posted_at_least_; });
        require(fact_of(self_, "receive_buffers_held") == 0);
        require(fact_of(self_, "rendezvous_under_way") == 0);
    }

  private:
    struct Slot {
        std::unique_ptr<test::Receive> receive;
        bool is_posted = false;
    };

    /// The next bytes of the input, as they are but for a place where there is memory to read.
    void send(Input& input, bool has_imm, bool to_other) {
        const std::size_t bytes = input.take<std::uint16_t>() % (kMessageBytesMax + 1);
        std::byte* place = attack_.place();
        input.take_into(std::span(place, bytes));
        if (bytes >= 32 && place[24] == std::byte{0xff}) {  // RVH: its address and key
            const std::uint64_t va = htobe64(attack_.memory_address());
            const std::uint32_t rkey = htobe32(attack_.rkey());
            std::memcpy(place + 16, &va, sizeof va);
            std::memcpy(place + 24, &rkey, sizeof rkey);
        }
        test::Stranger::Way way;
        if (has_imm)
            way.imm = input.take<std::uint8_t>();
        way.to_other = to_other;
        attack_.prepare(std::span(place, bytes));
        attack_.send(bytes, way);
    }

    void send_rendezvous() {
        const uct_iov_t iov = payload_->iov();
        completions_.push_back(std::make_unique<test::Completion>());
        completions_.back()->on_done = [this] { ++sends_ended_; };
        const auto handle =
            uct_ep_tag_rndv_zcopy(ep_, 3, "head", 4, &iov, 1, 0, completions_.back().get());
        sends_ += UCS_PTR_IS_ERR(handle) ? 0 : 1;
    }

    ucs_status_t look_at(void* data) {
        if (std::to_integer<unsigned>(*static_cast<std::byte*>(data)) % 4 != 3 || kept_.size() > 20)
            return UCS_OK;
        kept_.push_back(data);
        return UCS_INPROGRESS;
    }

    void release(std::size_t count) {
        for (; count > 0 && !kept_.empty(); --count) {
            uct_iface_release_desc(kept_.back());
            kept_.pop_back();
        }
    }

    void progress() {
        self_.progress();
        attack_.progress();
    }

    template <class Condition>
    void until(Condition&& condition) {
        for (int i = 0; !condition(); ++i) {
            require(i < kStepsMax);
            progress();
        }
    }

    Entity self_;
    Attack attack_;
    std::vector<std::unique_ptr<test::Completion>> completions_;
    std::unique_ptr<test::Buffer> payload_;
    Slot slots_[kReceives];
    std::vector<void*> kept_;
    test::Endpoint ep_;
    long posted_at_least_ = 0;
    int sends_ = 0, sends_ended_ = 0;
    bool failed_ = false;
};

}  // namespace tagwire::fuzz
