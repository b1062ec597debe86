// SPDX-License-Identifier: BSD-3-Clause
#include "party.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace tagwire::torture {
namespace {

std::uint64_t word_of(std::uint64_t number, std::size_t at) {
    return (number + 1) * 0x9e3779b97f4a7c15U + at;
}

}  // namespace

void must(tw_status_t status, const char* what) {
    if (status < TW_OK)
        throw std::runtime_error(std::string(what) + ": " + tw_status_string(status));
}

Party::Party(const tw_worker_params_t& params) {
    must(tw_context_create(nullptr, &context_), "tw_context_create");
    const tw_status_t status = tw_worker_create(context_, &params, &worker_);
    if (status != TW_OK) {
        tw_context_destroy(context_);
        must(status, "tw_worker_create");
    }
}

void Party::close() {
    tw_worker_destroy(std::exchange(worker_, nullptr));
    tw_context_destroy(std::exchange(context_, nullptr));
}

Address Party::address() const {
    Address address;
    address.length = address.bytes.size();
    must(tw_worker_address(worker_, address.bytes.data(), &address.length), "tw_worker_address");
    return address;
}

std::uint64_t Party::id() const {
    tw_worker_attr_t attr = {};
    must(tw_worker_query(worker_, &attr), "tw_worker_query");
    return attr.id;
}

tw_status_t Party::try_connect(const Address& to, tw_ep_h* ep_p) const {
    tw_ep_params_t params = {};
    params.address = to.bytes.data();
    params.address_length = to.length;
    return tw_ep_create(worker_, &params, ep_p);
}

tw_ep_h Party::connect(const Address& to) const {
    tw_ep_h ep = nullptr;
    must(try_connect(to, &ep), "tw_ep_create");
    return ep;
}

tw_status_t Party::send(tw_ep_h ep, std::span<const std::byte> bytes, std::uint64_t tag,
                        std::uint32_t flags) const {
    tw_op_t op = {};
    op.flags = flags;
    tw_request_h request = nullptr;
    tw_status_t status = TW_OK;
    while ((status = tw_tag_send(ep, bytes.data(), bytes.size(), tag, &op, &request)) ==
           TW_ERR_NO_RESOURCE) {
        if (progress() == 0)
            idle();
    }
    return status == TW_INPROGRESS ? finish(request) : status;
}

tw_status_t Party::close_in_order(tw_ep_h ep) const {
    tw_request_h request = nullptr;
    tw_status_t status = TW_OK;
    while ((status = tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, &request)) == TW_ERR_NO_RESOURCE)
        progress();
    return status == TW_INPROGRESS ? finish(request) : status;
}

tw_status_t Party::finish(tw_request_h request, tw_completion_t* done) const {
    tw_status_t status = TW_INPROGRESS;
    progress_until([&] { return (status = tw_request_test(request, done)) != TW_INPROGRESS; });
    tw_request_free(request);
    return status;
}

bool Party::drop_one(std::uint64_t ignore, bool is_tagged, std::uint64_t tag) const {
    tw_message_h message = nullptr;
    const tw_status_t status = is_tagged
                                   ? tw_tag_probe(worker_, tag, ignore, nullptr, nullptr, &message)
                                   : tw_msg_probe(worker_, nullptr, nullptr, &message);
    return status == TW_OK && tw_message_drop(worker_, message) == TW_OK;
}

void Party::idle() {
    sched_yield();
}

Receive::Receive(const Party& party, std::span<std::byte> buffer, std::uint64_t tag) {
    tw_message_info_t info{};
    tw_op_t op = {};
    op.info = &info;
    status_ = tw_tag_recv(party.worker(), buffer.data(), buffer.size(), tag, 0, &op, &request_);
    if (status_ != TW_INPROGRESS)
        done_ = msg::completion_of(status_, info, buffer.size());
}

Receive::~Receive() {
    if (request_ != nullptr)
        tw_request_free(request_);
}

bool Receive::has_ended() {
    if (request_ != nullptr && status_ == TW_INPROGRESS)
        status_ = tw_request_test(request_, &done_);
    return status_ != TW_INPROGRESS;
}

void Receive::cancel() {
    if (status_ == TW_INPROGRESS)
        must(tw_request_cancel(request_), "tw_request_cancel");
}

std::uint64_t id_of(const Address& address) {
    std::uint64_t id = 0;
    must(tw_address_worker_id(address.bytes.data(), address.length, &id), "tw_address_worker_id");
    return id;
}

void fill(std::span<std::byte> message, std::uint64_t number) {
    for (std::size_t at = 0; at < message.size(); at += sizeof number) {
        std::uint64_t word = word_of(number, at);
        if (message.size() >= kSelfDescribing && at < kSelfDescribing)
            word = at == 0 ? number : message.size();
        std::memcpy(message.data() + at, &word, std::min(sizeof word, message.size() - at));
    }
}

std::optional<std::uint64_t> number_of(std::span<const std::byte> received,
                                       std::size_t message_length) {
    std::uint64_t number = 0;
    std::uint64_t length = 0;
    if (received.size() < kSelfDescribing)
        return std::nullopt;
    std::memcpy(&number, received.data(), sizeof number);
    std::memcpy(&length, received.data() + sizeof number, sizeof length);
    if (length != message_length)
        return std::nullopt;
    for (std::size_t at = kSelfDescribing; at < received.size(); at += sizeof number) {
        const std::uint64_t word = word_of(number, at);
        const std::size_t bytes = std::min(sizeof word, received.size() - at);
        if (std::memcmp(received.data() + at, &word, bytes) != 0)
            return std::nullopt;
    }
    return number;
}

}  // namespace tagwire::torture
