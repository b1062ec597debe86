// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_pool.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "ucs/log/log.hpp"
#include "uct/ib/codes.hpp"
#include "uct/ib/dc/dc_ep.hpp"

namespace tagwire::dc {

namespace {

// The ring that streams share. Its tail is where the completion that was polled last belongs: it
// may lie as far behind the oldest request as the newest lies before that.
constexpr unsigned kRingsPerShare = 2;

}  // namespace

DciPool::DciPool(ib::MessageIface& owner, const DcOptions& options, ib::WorkQueue::Post post_call)
    : owner_(owner),
      retries_(options.retries),
      options_(options.dci),
      policy_(static_cast<Policy>(options.dci.policy)),
      post_call_(post_call),
      dcis_max_(options.dci.dcis) {}

// Twice as many are asked for as are used: so all of them may have failed and be reset one by one.
// Without the reset, each peer that dies would take a stream with it until none is left.
void DciPool::choose_streams(const DcVerbs& dc) {
    dc_ = &dc;
    ib::MessageLimits& limits = owner_.limits;
    const ib::Device& device = owner_.ib_md().device();
    const unsigned log_max = dc_streams_log_max(device, dc);
    const std::uint64_t offered = log_max < 2 ? 1 : std::uint64_t{1} << (log_max - 1);
    streams_ = static_cast<unsigned>(std::min(
        {options_.streams, offered, std::max<std::uint64_t>(limits.options.tx_depth / 8, 1)}));
    const auto longest = static_cast<std::uint64_t>(device.attr().orig_attr.max_qp_wr);
    if (kRingsPerShare * limits.options.tx_depth > longest)
        streams_ = 1;
    if (streams_ > 1 && !can_reset_streams(owner_.ib_md(), dc, owner_.port())) {
        TW_LOG_DEBUG("%s: DCIs have no streams: without DEVX libmlx5 cannot reset a failed stream",
                     device.name().c_str());
        streams_ = 1;
    }
    limits.queue_shares = streams_;
}

ucs_status_t DciPool::open(void* context) {
    const ib::MessageLimits& limits = owner_.limits;
    params_ = {.cq = owner_.sends.cq().get(),
               .context = context,
               .depth = static_cast<unsigned>(limits.options.tx_depth) *
                        (streams_ == 1 ? 1 : streams_ * kRingsPerShare),
               .sges_max = limits.sges_max,
               .inline_bytes = limits.inline_wanted(),
               .streams_log = streams_ == 1 ? 0 : std::bit_width(streams_ - 1) + 1U,
               .timeout_code = ib::timeout_code(retries_.timeout_ns),
               .retry_count = static_cast<std::uint8_t>(retries_.retry_count),
               .rnr_retry = static_cast<std::uint8_t>(retries_.rnr_retry),
               .reads = static_cast<std::uint8_t>(limits.reads_out_max),
               .mtu = owner_.port().attr.active_mtu,
               .is_first = true};
    // The first tells what all have.
    Dci* dci = nullptr;
    const ucs_status_t status = new_dci(&dci);
    params_.is_first = false;
    if (status != UCS_OK)
        return status;
    Channel* first = add_to_pool(*dci);
    if (!is_shared())
        idle_.push_back(*first);
    if (params_.inline_bytes < kQuestionBytes) {
        TW_LOG_ERROR("%s allows %u bytes of inline data per request; dc needs %zu",
                     owner_.ib_md().device().name().c_str(), params_.inline_bytes, kQuestionBytes);
        return UCS_ERR_UNSUPPORTED;
    }
    return owner_.limits.take_inline(owner_.ib_md().device(), params_.inline_bytes);
}

void DciPool::close() {
    for (const auto& dci : dcis_)
        dci->initiator = {};
}

ucs_status_t DciPool::new_dci(Dci** dci_p) {
    auto dci = std::make_unique<Dci>();
    const ucs_status_t status =
        make_initiator(owner_.ib_md(), *dc_, owner_.port(), params_, &dci->initiator);
    if (status != UCS_OK)
        return status;
    dcis_.push_back(std::move(dci));
    *dci_p = dcis_.back().get();
    return UCS_OK;
}

Channel* DciPool::new_channel(Dci& dci) {
    auto channel = std::make_unique<Channel>();
    channel->dci = &dci;
    channel->stream = static_cast<std::uint16_t>(dci.channels.size());
    channel->qp = dci.initiator.qp.get();
    channel->post_call = post_call_;
    channel->free = static_cast<std::uint32_t>(owner_.limits.options.tx_depth);
    channel->id = static_cast<std::uint32_t>(channels_.size());
    channel->is_shared = is_shared();
    channel->set_reserve();
    channel->is_special = is_shared() || dci.initiator.has_streams;
    dci.channels.push_back(channel.get());
    if (is_shared())
        channel->sent = std::make_unique<SentRing>(channel->free);
    owner_.sends.add(*channel);
    channels_.push_back(std::move(channel));
    return channels_.back().get();
}

// First one of each DCI, then further streams of them.
Channel* DciPool::grow() {
    Dci* dci = nullptr;
    if (pool_.size() < dcis_max_ && new_dci(&dci) != UCS_OK) {
        TW_LOG_WARN("%s: only %zu DCIs could be created, not TAGWIRE_DC_DCIS=%zu",
                    owner_.ib_md().device().name().c_str(), pool_.size(), dcis_max_);
        dcis_max_ = pool_.size();
    }
    if (pool_.size() == dcis_max_ * streams_)
        return nullptr;
    if (dci == nullptr)
        dci = pool_[pool_.size() % dcis_max_]->dci;
    return add_to_pool(*dci);
}

Channel* DciPool::add_to_pool(Dci& dci) {
    Channel* channel = new_channel(dci);
    channel->index = static_cast<std::uint16_t>(pool_.size());
    pool_.push_back(channel);
    return channel;
}

// A DCI that goes to another target disconnects from the old one: so an endpoint gets the channel
// that it had, if it can, or one that nobody used for long.
Channel* DciPool::take(const DcEp& ep) {
    Channel* last = ep.last_channel < pool_.size() ? pool_[ep.last_channel] : nullptr;
    if (last != nullptr && idle_.is_linked(*last)) {
        idle_.erase(*last);
        return last;
    }
    Channel* grown = grow();
    return grown != nullptr ? grown : idle_.pop_front();
}

// Answers owed to peers get a DCI of their own when all others are taken: an endpoint that holds
// one of those may itself wait for an answer of a peer.
Channel* DciPool::take_answer_channel() {
    if (answer_channel_ == nullptr) {
        Dci* dci = nullptr;
        if (new_dci(&dci) != UCS_OK)
            return nullptr;
        answer_channel_ = new_channel(*dci);
    }
    return answer_channel_->owner == nullptr ? answer_channel_ : nullptr;
}

Channel* DciPool::draw(std::uint64_t number) {
    const auto index = static_cast<std::size_t>(number % (dcis_max_ * streams_));
    while (pool_.size() <= index && grow() != nullptr) {
    }
    return pool_.empty() ? nullptr : pool_[index % pool_.size()];
}

// A DCI or a stream where a request failed goes on with others.
void DciPool::restart(Channel& channel) {
    const Initiator& initiator = channel.dci->initiator;
    if (initiator.has_streams)
        restart_stream(owner_.ib_md(), *dc_, initiator, channel.stream);
    else
        dc::restart(owner_.ib_md(), owner_.port(), params_, initiator);
}

void DciPool::restart(Dci& dci) {
    dc::restart(owner_.ib_md(), owner_.port(), params_, dci.initiator);
}

void DciPool::describe(const uct::DescribeSink& sink) const {
    static constexpr const char* kPolicies[] = {"dcs", "dcs_quota", "rand", "hash"};
    sink.text("policy", kPolicies[static_cast<std::size_t>(policy_)]);
    sink.number("quota", options_.quota);
    sink.number("credits", owner_.limits.options.credits);
    sink.number("dcis_max", options_.dcis);
    sink.number("dcis", dcis_.size());
    sink.number("qps", dcis_.size() + 1);  // and the DCT
    sink.number("streams_per_dci", streams_);
    sink.number("channels", channels_.size());
    const auto idle = std::ranges::count_if(channels_, [](const auto& channel) {
        return channel->owner == nullptr && !channel->is_shared;
    });
    sink.number("channels_idle", static_cast<std::uint64_t>(idle));
}

}  // namespace tagwire::dc
