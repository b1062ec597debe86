// SPDX-License-Identifier: BSD-3-Clause
// `--peers N` at level msg: the peer process has N workers, each connected to the driver's one. The
// first gets the messages; the others are there for the cost of an endpoint to one more.
#include <sched.h>

#include <algorithm>
#include <array>

#include "tools/allocated.hpp"
#include "tools/msg_link.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

// So few at a time that the driver's requests for them do not make its pool grow.
constexpr std::size_t kSparesPerMessage = 16;
constexpr std::uint64_t kSpareTag = ~std::uint64_t{1};

/// An operation that is under way has not failed.
void check_begun(tw_status_t status, const char* call) {
    check(status == TW_INPROGRESS ? TW_OK : status, call);
}

/// Ends when the peer has matched it: both sides are connected then.
tw_op_t until_matched() {
    tw_op_t op{};
    op.flags = TW_OP_MATCH_COMPLETE;
    return op;
}

}  // namespace

void MsgLink::connect_spares() {
    const std::size_t all = peers_ - 1;
    std::int64_t allocated = 0;
    std::size_t measured = 0;
    for (std::size_t done = 0; done < all; done += kSparesPerMessage) {
        const std::size_t count = std::min(kSparesPerMessage, all - done);
        if (side_ == Side::kPeer) {
            offer_spares(count);
        } else {
            const std::int64_t bytes = measure_spares(count);
            // The first also make what all of them share, such as the initiators of dc.
            if (done > 0 || all <= kSparesPerMessage) {
                allocated += bytes;
                measured += count;
            }
        }
    }
    if (measured > 0 && allocated > 0)
        bytes_per_peer_ = (static_cast<std::uint64_t>(allocated) + measured - 1) / measured;
}

/// The peer: makes so many workers, and progresses them until the driver is connected to each.
void MsgLink::offer_spares(std::size_t count) {
    Encoder message;
    const std::size_t first = objects_->spares.size();
    for (std::size_t i = 0; i < count; ++i) {
        tw_worker_h spare = nullptr;
        check(tw_worker_create(context(), nullptr, &spare), "tw_worker_create");
        objects_->spares.push_back(spare);
        check_begun(tw_tag_recv(spare, nullptr, 0, kSpareTag, 0, nullptr, nullptr), "tw_tag_recv");
        std::array<std::uint8_t, TW_ADDRESS_BYTES_MAX> address{};
        std::size_t length = address.size();
        check(tw_worker_address(spare, address.data(), &length), "tw_worker_address");
        message.blob(address.data(), length);
    }
    channel_->send(MessageType::kAddress, message);
    while (!channel_->readable()) {
        unsigned moved = tw_worker_progress(worker_);
        for (std::size_t i = first; i < objects_->spares.size(); ++i)
            moved += tw_worker_progress(objects_->spares[i]);
        if (moved == 0)
            sched_yield();
    }
    channel_->expect(MessageType::kReady).end();
}

/// The driver: connects to them; what that took of the allocator.
std::int64_t MsgLink::measure_spares(std::size_t count) {
    Decoder message = channel_->expect(MessageType::kAddress);
    std::array<Bytes, kSparesPerMessage> addresses;
    std::array<tw_request_h, kSparesPerMessage> requests{};
    for (std::size_t i = 0; i < count; ++i)
        addresses[i] = message.blob(TW_ADDRESS_BYTES_MAX);
    message.end();
    const tw_op_t op = until_matched();
    const std::int64_t before = allocated_bytes();
    for (std::size_t i = 0; i < count; ++i) {
        const tw_ep_params_t params{.address = addresses[i].data(),
                                    .address_length = addresses[i].size(),
                                    .user_data = nullptr};
        tw_ep_h ep = nullptr;
        check(tw_ep_create(worker_, &params, &ep), "tw_ep_create");
        check_begun(tw_tag_send(ep, nullptr, 0, kSpareTag, &op, &requests[i]), "tw_tag_send");
    }
    const std::uint64_t deadline = now_ns() + kConnectNs;
    for (std::size_t i = 0; i < count; ++i) {
        while (requests[i] != nullptr && tw_request_test(requests[i], nullptr) == TW_INPROGRESS) {
            if (tw_worker_progress(worker_) == 0)
                sched_yield();
            if (now_ns() > deadline)
                throw Failure("cannot connect to all workers of the peer within 30 s");
        }
        if (requests[i] != nullptr) {
            check(tw_request_test(requests[i], nullptr), "cannot connect to a worker of the peer");
            tw_request_free(requests[i]);
        }
    }
    const std::int64_t allocated = allocated_bytes() - before;
    channel_->send(MessageType::kReady);
    return allocated;
}

}  // namespace tagwire::tools
