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

}  // namespace

void check(tw_status_t status, const char* call) {
    if (status != TW_OK)
        throw Failure(text("%s: %s", call, tw_status_string(status)));
}

std::string transports_of(const Setup& setup) {
    if (setup.transport == "auto" || setup.transport.find_first_of(":,") != std::string::npos)
        return setup.transport;
    const Resource found = find_resource(setup.transport, setup.device, named_by(setup.transport));
    return setup.device.empty() ? setup.transport : setup.transport + ":" + found.device;
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
    check(status, "tw_context_create");
    return context;
}

MsgLink::MsgLink(Side side, const Setup& setup, Channel* channel)
    : side_(side), wait_(setup.wait), peers_(setup.peers), channel_(channel) {
    objects_.context = open_context(setup);
    context_ = objects_.context;
    open_worker(TW_THREAD_SINGLE);
}

MsgLink::MsgLink(tw_context_h context, const Setup& setup)
    : side_(Side::kDriver), wait_(setup.wait), channel_(nullptr), context_(context) {
    open_worker(TW_THREAD_MULTI);
    std::array<std::uint8_t, TW_ADDRESS_BYTES_MAX> own{};
    std::size_t length = own.size();
    check(tw_worker_address(objects_.worker, own.data(), &length), "tw_worker_address");
    make_endpoint(own.data(), length);
    exchange_messages();
    carrier_ = carrier_of(objects_.worker);
}

void MsgLink::open_worker(tw_thread_mode_t mode) {
    tw_worker_params_t params{};
    params.thread_mode = mode;
    params.ep_failed = [](void* arg, tw_ep_h, tw_status_t failure) {
        static_cast<MsgLink*>(arg)->failed_ = failure;
    };
    params.ep_failed_arg = this;
    check(tw_worker_create(context_, &params, &objects_.worker), "tw_worker_create");
}

tw_explanation_t MsgLink::explain(std::size_t size, tw_buffer_kind_t buffer) const {
    tw_explanation_t explanation{};
    check(tw_ep_explain(objects_.ep, size, buffer, &explanation), "tw_ep_explain");
    return explanation;
}

std::optional<std::uint64_t> MsgLink::buffer_bytes() const {
    std::optional<std::uint64_t> bytes;
    const Facts facts = facts_of(objects_.worker);
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
    tw_context_destroy(context);
}

void MsgLink::connect() {
    exchange_addresses();
    exchange_messages();
    carrier_ = carrier_of(objects_.worker);
    if (peers_ > 1)
        connect_spares();
}

void MsgLink::exchange_addresses() {
    std::array<std::uint8_t, TW_ADDRESS_BYTES_MAX> mine{};
    std::size_t length = mine.size();
    check(tw_worker_address(objects_.worker, mine.data(), &length), "tw_worker_address");
    Encoder message;
    channel_->send(MessageType::kAddress, message.blob(mine.data(), length));
    Decoder answer = channel_->expect(MessageType::kAddress);
    const Bytes theirs = answer.blob(TW_ADDRESS_BYTES_MAX);
    answer.end();
    make_endpoint(theirs.data(), theirs.size());
}

void MsgLink::make_endpoint(const std::uint8_t* address, std::size_t length) {
    const tw_ep_params_t params{.address = address, .address_length = length, .user_data = nullptr};
    check(tw_ep_create(objects_.worker, &params, &objects_.ep), "tw_ep_create");
}

void MsgLink::exchange_messages() {
    tw_request_h requests[2] = {};
    const tw_status_t statuses[2] = {
        tw_tag_recv(objects_.worker, nullptr, 0, kHelloTag, 0, nullptr, &requests[0]),
        tw_tag_send(objects_.ep, nullptr, 0, kHelloTag, nullptr, &requests[1])};
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
        if (tw_worker_progress(objects_.worker) == 0)
            sched_yield();
        check(failed_, "cannot connect to the peer");
        if (now_ns() > deadline)
            throw Failure("cannot connect to the peer: no message came or went for 30 s");
    }
}

void MsgLink::check_alive() const {
    if (failed_ != TW_OK)
        throw Failure(text("the connection failed: %s", tw_status_string(failed_)));
    if (channel_ != nullptr && channel_->stalled())
        throw Failure("the peer stopped in the middle of a measurement");
}

void MsgLink::idle() {
    if (wait_ == Wait::kSpin) {
        idle_budget_ = kSpinsBetweenChecks;
        check_alive();
        return;
    }
    idle_budget_ = 1;
    sched_yield();
    if (++idle_rounds_ % kYieldsBetweenChecks == 0)
        check_alive();
}

}  // namespace tagwire::tools
