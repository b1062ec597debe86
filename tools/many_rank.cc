// SPDX-License-Identifier: BSD-3-Clause
#include "tools/many_rank.hpp"

#include "cli/failure.hpp"
#include "tools/msg_link.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kMeetTag = ~std::uint64_t{0};

}  // namespace

ManyRank::ManyRank(tagwire::Bootstrap job, const Setup& setup)
    : job_(std::move(job)),
      yields_(setup.wait == Wait::kYield),
      context_(msg::Context::adopt(open_context(setup))) {
    worker_.emplace(context_, failed_);
    const std::vector<std::vector<std::byte>> addresses = job_.exchange(worker_->address());
    for (std::size_t peer = 0; peer < addresses.size(); ++peer)
        ranks_.push_back(peer);
    eps_.resize(addresses.size());
    for (std::size_t peer = 0; peer < addresses.size(); ++peer)
        if (peer != rank())
            eps_[peer].emplace(*worker_, addresses[peer], &ranks_[peer]);
}

void ManyRank::Failed::operator()(tw_ep_h ep, tw_status_t status) {
    if (!self->lost_)
        self->lost_ = Lost{*static_cast<const std::size_t*>(tw_ep_user_data(ep)), status};
}

void ManyRank::tell_lost(std::size_t rank, tw_status_t status) {
    throw Failure(text("rank %zu is lost: %s", rank, tw_status_string(status)));
}

/// A message from each to each: what is measured next is no part of a connection, and begins
/// everywhere within the time of a message.
void ManyRank::meet() {
    std::size_t left = 2 * (size() - 1);
    tw_status_t worst = TW_OK;
    auto ended = [&](const tw_completion_t& done) {
        --left;
        worst = done.status < TW_OK ? done.status : worst;
    };
    const auto take = [&](tw_status_t status) {
        left -= status == TW_INPROGRESS ? 0 : 1;
        msg::check(status, "cannot exchange a message with another rank");
    };
    for (std::size_t peer = 0; peer < size(); ++peer) {
        if (peer != rank()) {
            take(worker_->tag_recv({}, kMeetTag, 0,
                                   msg::Op().on_complete(ended).from(to(peer).get())));
        }
    }
    for (std::size_t peer = 0; peer < size(); ++peer)
        if (peer != rank())
            take(to(peer).tag_send({}, kMeetTag, msg::Op().on_complete(ended)));
    wait_until([&] { return left == 0; });
    msg::check(worst, "cannot exchange a message with another rank");
}

void ManyRank::part() {
    std::size_t left = 0;
    tw_status_t worst = TW_OK;
    auto ended = [&](const tw_completion_t& done) {
        --left;
        worst = done.status < TW_OK ? done.status : worst;
    };
    for (std::optional<msg::Endpoint>& ep : eps_) {
        if (!ep)
            continue;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        wait_until([&] {
            status = ep->close(msg::Op().on_complete(ended));
            return status != TW_ERR_NO_RESOURCE;
        });
        left += status == TW_INPROGRESS ? 1 : 0;
        msg::check(status, "cannot close the endpoint to another rank");
    }
    wait_until([&] { return left == 0; });
    msg::check(worst, "cannot close the endpoint to another rank");
    gather(0);
}

}  // namespace tagwire::tools
