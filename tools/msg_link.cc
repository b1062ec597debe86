// SPDX-License-Identifier: BSD-3-Clause
#include "tools/msg_link.hpp"

#include <sched.h>

#include <array>
#include <string_view>

#include "tools/describe.hpp"
#include "tools/resources.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kHelloTag = ~std::uint64_t{0};
/// Between two looks at whether the peer is there.
constexpr std::uint64_t kSleepNs = 1'000'000'000;

Facts facts_of(tw_worker_h worker) {
    Facts facts;
    tw_worker_describe(
        worker,
        [](void* arg, const char* key, const char* value) {
            static_cast<Facts*>(arg)->emplace_back(key, value);
        },
        &facts);
    return facts;
}

SharedContext shared(tw_context_h context) {
    return {context, &tw_context_destroy};
}

}  // namespace

void check(tw_status_t status, const char* call) {
    if (status != TW_OK)
        throw Failure(text("%s: %s", call, tw_status_string(status)));
}

std::string transports_of(const Setup& setup) {
    if (setup.device.empty())
        return setup.transport;  // the library knows what is wrong with it
    const Resource found = find_resource(setup.transport, setup.device, named_by(setup.transport));
    return setup.transport + ":" + found.device;
}

Carrier carrier_of(tw_worker_h worker) {
    constexpr std::string_view kOver = " over ";
    const Facts facts = facts_of(worker);
    Carrier carrier;
    for (const auto& [key, value] : facts) {
        const std::size_t at = value.find(kOver);
        if (key.starts_with("endpoint_") && at != std::string::npos) {
            const std::size_t begin = at + kOver.size();
            carrier.transport = value.substr(begin, value.find_first_of(", ", begin) - begin);
        }
    }
    for (const auto& [key, value] : facts) {
        const std::size_t begin = carrier.transport.size() + 1;
        if (key.starts_with("rail_") && value.starts_with(carrier.transport + ":") &&
            carrier.device.empty()) {
            carrier.device = value.substr(begin, value.find(',') - begin);
        }
    }
    return carrier;
}

tw_context_h open_context(const Setup& setup) {
    const std::string transports = transports_of(setup);
    tw_context_params_t params{};
    params.transports = transports.c_str();
    tw_context_h context = nullptr;
    const tw_status_t status = tw_context_create(&params, &context);
    if (status == TW_ERR_NO_DEVICE) {
        throw UsageError(text("%s: nothing of '%s' is here (tagwire info devices lists what is)",
                              named_by(transports), transports.c_str()));
    }
    if (status == TW_ERR_INVALID_PARAM)
        throw UsageError("the log says which option or transport is not accepted");
    check(status, "tw_context_create");
    return context;
}

MsgLink::MsgLink(Side side, const Setup& setup, Channel* channel)
    : side_(side),
      wait_(setup.wait),
      peers_(setup.peers),
      channel_(channel),
      objects_(std::make_shared<Objects>(shared(open_context(setup)))) {
    open_worker(TW_THREAD_SINGLE, setup.tx_contexts);
}

MsgLink::MsgLink(Side side, const Setup& setup, Channel* channel, SharedContext context)
    : side_(side),
      wait_(setup.wait),
      peers_(setup.peers),
      channel_(channel),
      objects_(std::make_shared<Objects>(std::move(context))),
      is_shared_(setup.share == Share::kWorker) {
    open_worker(TW_THREAD_MULTI, setup.tx_contexts);
}

MsgLink::MsgLink(const MsgLink& first, std::uint64_t stream)
    : side_(first.side_),
      wait_(first.wait_),
      peers_(first.peers_),
      channel_(first.channel_),
      objects_(first.objects_),
      worker_(first.worker_),
      ep_(first.ep_),
      stream_(stream),
      is_shared_(true),
      carrier_(first.carrier_) {}

void MsgLink::open_worker(tw_thread_mode_t mode, std::uint64_t tx_contexts) {
    tw_worker_params_t params{};
    params.thread_mode = mode;
    params.tx_contexts = static_cast<unsigned>(tx_contexts);
    params.ep_failed = [](void* arg, tw_ep_h, tw_status_t failure) {
        static_cast<Objects*>(arg)->failed.store(failure, std::memory_order_relaxed);
    };
    params.ep_failed_arg = objects_.get();
    check(tw_worker_create(context(), &params, &worker_), "tw_worker_create");
    objects_->worker = worker_;
}

tw_explanation_t MsgLink::explain(std::size_t size, tw_buffer_kind_t buffer) const {
    tw_explanation_t explanation{};
    check(tw_ep_explain(ep_, size, buffer, &explanation), "tw_ep_explain");
    return explanation;
}

std::optional<std::uint64_t> MsgLink::buffer_bytes() const {
    std::optional<std::uint64_t> bytes;
    const Facts facts = facts_of(worker_);
    for (const auto& [key, value] : facts)
        if (key.starts_with("iface_") && key.ends_with("_pool_bytes"))
            bytes = bytes.value_or(0) + number_in(facts, key).value_or(0);
    return bytes;
}

Side MsgLink::sending_side() const {
    return channel_ == nullptr || side_ == Side::kPeer ? Side::kDriver : Side::kPeer;
}

MsgLink::Objects::~Objects() {
    for (tw_worker_h spare : spares)
        tw_worker_destroy(spare);
    tw_worker_destroy(worker);
}

void MsgLink::connect() {
    exchange_addresses();
    exchange_messages();
    carrier_ = carrier_of(worker_);
    if (peers_ > 1)
        connect_spares();
}

void MsgLink::exchange_addresses() {
    std::array<std::uint8_t, TW_ADDRESS_BYTES_MAX> mine{};
    std::size_t length = mine.size();
    check(tw_worker_address(worker_, mine.data(), &length), "tw_worker_address");
    if (channel_ == nullptr) {
        make_endpoint(mine.data(), length);
        return;
    }
    Encoder message;
    channel_->send(MessageType::kAddress, message.blob(mine.data(), length));
    Decoder answer = channel_->expect(MessageType::kAddress);
    const Bytes theirs = answer.blob(TW_ADDRESS_BYTES_MAX);
    answer.end();
    make_endpoint(theirs.data(), theirs.size());
}

void MsgLink::make_endpoint(const std::uint8_t* address, std::size_t length) {
    const tw_ep_params_t params{.address = address, .address_length = length, .user_data = nullptr};
    check(tw_ep_create(worker_, &params, &ep_), "tw_ep_create");
}

void MsgLink::exchange_messages() {
    tw_request_h requests[2] = {};
    const tw_status_t statuses[2] = {
        tw_tag_recv(worker_, nullptr, 0, kHelloTag, 0, nullptr, &requests[0]),
        tw_tag_send(ep_, nullptr, 0, kHelloTag, nullptr, &requests[1])};
    for (std::size_t i = 0; i < 2; ++i) {
        tw_status_t status = statuses[i];
        if (status == TW_INPROGRESS) {
            connecting([&] {
                status = tw_request_test(requests[i], nullptr);
                return status != TW_INPROGRESS;
            });
            tw_request_free(requests[i]);
        }
        check(status, "cannot exchange a message with the peer");
    }
    if (channel_ == nullptr)
        return;
    // The other side may need this one's progress until it is connected, too.
    channel_->send(MessageType::kReady);
    connecting([this] { return channel_->readable(); });
    channel_->expect(MessageType::kReady).end();
}

/// Progress until `done()`, while the channel may carry the other side's next message.
template <class Predicate>
void MsgLink::connecting(Predicate done) {
    const std::uint64_t deadline = now_ns() + kConnectNs;
    while (!done()) {
        if (tw_worker_progress(worker_) == 0)
            sched_yield();
        check(failure(), "cannot connect to the peer");
        if (now_ns() > deadline)
            throw Failure("cannot connect to the peer: no message came or went for 30 s");
    }
}

void MsgLink::check_alive() const {
    if (const tw_status_t status = failure(); status != TW_OK)
        throw Failure(text("the connection failed: %s", tw_status_string(status)));
    if (channel_ != nullptr && channel_->stalled())
        throw Failure("the peer stopped in the middle of a measurement");
}

void MsgLink::idle() {
    switch (wait_) {
        case Wait::kSpin:
            idle_budget_ = kSpinsBetweenChecks;
            check_alive();
            return;
        case Wait::kYield:
            idle_budget_ = 1;
            sched_yield();
            if (++idle_rounds_ % kYieldsBetweenChecks == 0)
                check_alive();
            return;
        case Wait::kSleep:
            idle_budget_ = 1;
            const tw_status_t status = tw_worker_wait(worker_, TW_WAIT_SLEEP, kSleepNs);
            if (status != TW_ERR_TIMED_OUT)
                return check(status, "tw_worker_wait");
            check_alive();
    }
}

std::vector<std::unique_ptr<MsgLink>> make_msg_links(Side side, const Setup& setup,
                                                     Channel* channel) {
    std::vector<std::unique_ptr<MsgLink>> links;
    const SharedContext context =
        setup.share == Share::kNone ? nullptr : shared(open_context(setup));
    for (std::uint64_t i = 0; i < setup.threads; ++i) {
        if (i > 0 && setup.share == Share::kWorker) {
            links.push_back(std::make_unique<MsgLink>(*links.front(), i));
            continue;
        }
        links.push_back(context == nullptr
                            ? std::make_unique<MsgLink>(side, setup, channel)
                            : std::make_unique<MsgLink>(side, setup, channel, context));
        links.back()->connect();
    }
    return links;
}

}  // namespace tagwire::tools
