// SPDX-License-Identifier: BSD-3-Clause
// A whole interface against a hostile peer: whatever a peer writes into the shared memory or sends
// over the socket may end its own connection, and nothing else. Sanitizers watch; every byte that a
// callback gets is read.
#include <uct/api/uct.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "contract/buffer.hpp"
#include "contract/entity.hpp"
#include "contract/operations.hpp"
#include "hostile_peer.hpp"
#include "target.hpp"

namespace tagwire::fuzz::sm_peer_fuzz {
namespace {

volatile std::uint8_t sink;

void read_all(const void* data, std::size_t length) {
    std::uint8_t sum = 0;
    for (std::size_t i = 0; i < length; ++i)
        sum = static_cast<std::uint8_t>(sum + static_cast<const std::uint8_t*>(data)[i]);
    sink = sum;
}

class Victim {
  public:
    Victim() : self_(test::resource_of("sm"), options()) {
        self_.keep_record = false;
        for (std::uint8_t id = 0; id < UCT_AM_ID_MAX; ++id)
            self_.record_am(id);
        self_.on_am = [this](const test::AmMessage& message) {
            return take(message.data, message.bytes.size(), message.flags);
        };
        self_.on_eager = [this](const test::EagerFragment& fragment) {
            return take(fragment.data, fragment.length, fragment.flags);
        };
        self_.on_rndv = [](const test::RndvMessage& message) {
            read_all(message.header.data(), message.header.size());
            read_all(message.rkey.data(), message.rkey.size());
            return UCS_OK;
        };
        for (uct_tag_t tag = 0; tag < 4; ++tag)
            receives_.push_back(std::make_unique<test::Receive>(self_, std::size_t{3000} << tag));
        memory_ = std::make_unique<test::Buffer>(self_, 10000, test::Backing::kRegistered);
    }

    sm::IfaceAddress address() const {
        std::string reason;
        const auto address = sm::parse_iface_address(self_.iface_address(), &reason);
        require(address.has_value());
        return *address;
    }

    void run(const std::uint8_t* data, std::size_t size) {
        static const test::Puppet puppet;  // before anything else is opened
        Input input(data, size);
        HostilePeer peer(puppet, address(), input);
        for (uct_tag_t tag = 0; tag < 4; ++tag)
            static_cast<void>(receives_[tag]->post(tag, tag == 3 ? 0 : ~uct_tag_t{0}));
        progress(20);
        std::deque<test::Completion> completions;  // live longer than what ends them
        int started = 0;
        const test::Endpoint ep = connect_back(peer.name());
        for (int acts = 0; acts < 200 && !input.at_end(); ++acts) {
            peer.act(input);
            if (input.take<std::uint8_t>() % 2 == 0)
                progress(2);
            if (ep.get() != nullptr && input.take<std::uint8_t>() % 4 == 0)
                started += operate(ep, input, completions.emplace_back()) ? 1 : 0;
        }
        release_kept();
        peer.hang_up();
        progress(3000);
        const auto is_over = [](const test::Completion& completion) {
            return completion.calls > 0;
        };
        for (int rounds = 0; std::ranges::count_if(completions, is_over) < started; ++rounds) {
            require(rounds < 1000);  // nothing waits for a peer who has gone
            progress(1000);
        }
        for (const auto& receive : receives_)
            if (receive->completed + receive->rndv_requests == 0)
                receive->cancel(true);
        progress(100);
    }

  private:
    static test::EntityOptions options() {
        test::EntityOptions options;
        options.rx_headroom = 24;
        // Straight copies would run against the puppet, which is innocent.
        options.iface_config = {{"SM_CMA", "off"},
                                {"SM_RING_SLOTS", "16"},
                                {"SM_POOL_BYTES", "64k"},
                                {"SM_SEG_BYTES", "1024"},
                                {"SM_LIVENESS_INTERVAL", "1us"}};
        options.md_config = {{"SM_ARENA_BYTES", "16m"}};
        return options;
    }

    void progress(int times) {
        for (int i = 0; i < times; ++i)
            self_.progress();
    }

    ucs_status_t take(void* data, std::size_t length, unsigned flags) {
        read_all(data, length);
        if ((flags & UCT_CB_PARAM_FLAG_DESC) == 0 || kept_.size() >= 6)
            return UCS_OK;
        std::memset(static_cast<std::byte*>(data) - self_.rx_headroom(), 0xab, self_.rx_headroom());
        kept_.push_back(static_cast<std::byte*>(data) - self_.rx_headroom());
        return UCS_INPROGRESS;
    }

    void release_kept() {
        for (void* descriptor : kept_)
            uct_iface_release_desc(descriptor);
        kept_.clear();
    }

    test::Endpoint connect_back(std::uint64_t name) {
        sm::IfaceAddress theirs = address();
        theirs.name = name;
        const auto bytes = sm::bytes_of(theirs);
        ucs_status_t status = UCS_OK;
        return test::connect_to_address(self_, self_.device_address(),
                                        test::Bytes(bytes.begin(), bytes.end()), &status);
    }

    /// Something of ours that the peer answers, or does not. True: `completion` tells its end.
    bool operate(uct_ep_h ep, Input& input, test::Completion& completion) {
        sm::PackedRkey packed{sm::kRkeyMagic, 1, ~std::uint64_t{0}, sm::kNoOffset, 0x1000,
                              0x100000,       1};
        const auto packed_bytes = sm::bytes_of(packed);
        const uct_iov_t iov = memory_->iov(0, 1 + input.below(9999));
        const auto what = input.take<std::uint8_t>() % 6;
        if (what == 0) {
            const void* handle = uct_ep_tag_rndv_zcopy(ep, 1, nullptr, 0, &iov, 1, 0, &completion);
            return !UCS_PTR_IS_ERR(handle);
        }
        if (what == 1) {
            test::send_eager_bytes(ep, 2, 0, memory_->span().first(700));
            return false;
        }
        if (what == 2) {
            release_kept();
            return false;
        }
        const test::RemoteKey key(self_, test::Bytes(packed_bytes.begin(), packed_bytes.end()));
        ucs_status_t status = UCS_OK;
        if (what == 3) {
            status = uct_ep_get_zcopy(ep, &iov, 1, 0x1000, key.get(), &completion);
        } else if (what == 4) {
            status = uct_ep_put_zcopy(ep, &iov, 1, 0x1000, key.get(), &completion);
        } else {
            status = uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, &fetched_, 0x1000, key.get(),
                                           &completion);
        }
        return status == UCS_INPROGRESS;
    }

    test::Entity self_;
    std::vector<std::unique_ptr<test::Receive>> receives_;
    std::unique_ptr<test::Buffer> memory_;
    std::vector<void*> kept_;
    std::uint64_t fetched_ = 0;
};

void run_input(const std::uint8_t* data, std::size_t size) {
    static Victim* victim = new Victim;  // never destroyed
    victim->run(data, size);
}

}  // namespace

extern const Target kTarget{"sm_peer", nullptr, run_input};

}  // namespace tagwire::fuzz::sm_peer_fuzz
