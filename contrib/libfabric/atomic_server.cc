// SPDX-License-Identifier: BSD-3-Clause
#include "atomic_server.hpp"

#include <rdma/fi_errno.h>

#include <array>
#include <cstring>

#include "ep.hpp"
#include "flags.hpp"
#include "mr.hpp"
#include "send_copy.hpp"

namespace tagwire::fi {

tw_status_t AtomicServer::listen() {
    return tw_am_register(owner_.worker, kAtomicAsk, on_request, this);
}

// ---- Requests that come

void AtomicServer::on_request(void* arg, tw_am_t* am) {
    auto& server = *static_cast<AtomicServer*>(arg);
    const bool is_here = (am->flags & TW_AM_RNDV) == 0;
    if (is_here && server.arrivals_.empty() && server.replies_.size() < kRepliesMax) [[likely]] {
        const auto* header = static_cast<const std::byte*>(am->header);
        const auto* data = static_cast<const std::byte*>(am->data);
        server.serve(am->source, {header, am->header_length}, {data, am->length});
        return;
    }
    server.arrive(*am);
}

void AtomicServer::arrive(tw_am_t& am) {
    const std::size_t before = arrivals_.size();
    tw_status_t status = TW_ERR_NO_MEMORY;
    without_exceptions([&] {
        Arrival& arrival = arrivals_.emplace_back();
        arrival.server = this;
        arrival.source = am.source;
        status = (am.flags & TW_AM_RNDV) == 0 ? keep(am) : receive(am);
        return 0;
    });
    if (status != TW_OK) {
        if (arrivals_.size() > before)
            arrivals_.pop_back();
        refuse(am.source, {static_cast<const std::byte*>(am.header), am.header_length}, status);
    }
    owner_.backlog_changed();
}

tw_status_t AtomicServer::keep(tw_am_t& am) {
    Arrival& arrival = arrivals_.back();
    const tw_status_t status = tw_am_keep(&am, &arrival.message);
    arrival.header = {static_cast<const std::byte*>(am.header), am.header_length};
    arrival.data = {static_cast<const std::byte*>(am.data), am.length};
    return status;
}

/// A request whose data is still with its sender, as happens while this side keeps much.
tw_status_t AtomicServer::receive(tw_am_t& am) {
    if (am.header_length != sizeof(AtomicHeader) || am.length > kAtomicDataMax)
        return TW_ERR_INVALID_PARAM;
    Arrival& arrival = arrivals_.back();
    arrival.memory = std::make_unique<std::byte[]>(am.header_length + am.length);
    std::memcpy(arrival.memory.get(), am.header, am.header_length);
    arrival.header = {arrival.memory.get(), am.header_length};
    arrival.data = {arrival.memory.get() + am.header_length, am.length};
    arrival.message = am.message;
    tw_status_t status = start_receive(arrival);
    if (status == TW_ERR_NO_RESOURCE) {
        arrival.state = State::kKept;
        status = tw_am_keep(&am, &arrival.message);
    }
    return status;
}

tw_status_t AtomicServer::start_receive(Arrival& arrival) {
    tw_op_t op;
    fill(op, 0);
    op.context = &arrival;
    op.complete = on_data;
    auto* data = const_cast<std::byte*>(arrival.data.data());
    const tw_status_t status =
        tw_am_recv(owner_.worker, arrival.message, data, arrival.data.size(), &op, nullptr);
    if (status == TW_OK || status == TW_INPROGRESS) {
        arrival.state = status == TW_OK ? State::kHere : State::kReceiving;
        arrival.message = nullptr;
        return TW_OK;
    }
    if (status == TW_ERR_CANCELED || status == TW_ERR_CONNECTION_RESET)
        arrival.message = nullptr;
    return status;
}

void AtomicServer::on_data(const tw_completion_t* done) {
    auto& arrival = *static_cast<Arrival*>(done->context);
    arrival.state = State::kHere;
    arrival.status = done->status;
}

void AtomicServer::resume() {
    while (!replies_.empty()) {
        const Reply& next = replies_.front();
        if (try_reply(next.to, next.header, next.results) == TW_ERR_NO_RESOURCE)
            break;
        replies_.pop_front();
    }
    while (!arrivals_.empty() && replies_.size() < kRepliesMax) {
        Arrival& next = arrivals_.front();
        if (next.state == State::kKept) {
            const tw_status_t status = start_receive(next);
            if (status == TW_ERR_NO_RESOURCE)
                return;
            next.status = status;
        }
        if (next.state == State::kReceiving)
            return;
        if (next.status == TW_OK)
            serve(next.source, next.header, next.data);
        else
            refuse(next.source, next.header, next.status);
        if (next.message != nullptr)
            tw_am_release(owner_.worker, next.message);
        arrivals_.pop_front();
    }
}

// ---- Serving

void AtomicServer::serve(std::uint64_t source, AtomicBytes header, AtomicBytes data) {
    std::array<std::byte, kAtomicBytesMax> results;
    AtomicRequest request;
    int error = decode(header, data, &request);
    if (error == 0)
        error = carry_out(request, results.data());
    else if (header.size() != sizeof(AtomicHeader))  // nobody knows whose it is
        return owner_.refusals.add(source, "a request of an atomic has another length");
    const AtomicReply answer = {.id = request.id, .error = static_cast<std::uint32_t>(error)};
    const bool has_results = error == 0 && request.kind != AtomicKind::kWrite;
    reply(source, answer, {results.data(), has_results ? request.bytes : 0});
}

/// 0, or a positive errno of libfabric: nothing was changed.
int AtomicServer::carry_out(const AtomicRequest& request, std::byte* results) {
    const bool reads = request.kind != AtomicKind::kWrite;
    const std::uint64_t access =
        (reads ? FI_REMOTE_READ : 0) | (request.changes ? FI_REMOTE_WRITE : 0);
    if (((access | FI_ATOMIC) & ~owner_.rx_caps) != 0)
        return FI_EACCES;
    std::array<std::byte*, kAtomicSegmentsMax> places;
    Mr* first = nullptr;
    for (std::size_t i = 0; i < request.segments.size(); ++i) {
        const AtomicSegment& segment = request.segments[i];
        Mr* const mr = owner_.domain.regions.find(segment.key);
        if (mr == nullptr)
            return FI_ENOKEY;
        if ((mr->range.access & access) != access)
            return FI_EACCES;
        void* const place =
            mr->find(segment.address, segment.count * request.element_bytes, access);
        if (place == nullptr)
            return FI_EINVAL;
        places[i] = static_cast<std::byte*>(place);
        first = first == nullptr ? mr : first;
    }
    std::size_t at = 0;
    const auto behind = [&at](auto* begin) { return begin == nullptr ? nullptr : begin + at; };
    for (std::size_t i = 0; i < request.segments.size(); ++i) {
        const std::size_t count = request.segments[i].count;
        request.apply({places[i], behind(request.operands), behind(request.compares),
                       reads ? results + at : nullptr, count});
        at += count * request.element_bytes;
    }
    owner_.key_service.count(first, reads ? Access::kRead : Access::kWrite);
    return 0;
}

// ---- Replies

/// Replies to a request that cannot be read, if it has an id.
void AtomicServer::refuse(std::uint64_t source, AtomicBytes header, tw_status_t status) {
    AtomicReply refusal{};
    if (header.size() != sizeof(AtomicHeader))
        return owner_.refusals.add(source, "a request of an atomic has another length");
    std::memcpy(&refusal.id, header.data(), sizeof refusal.id);
    refusal.error = static_cast<std::uint32_t>(error_of(status));
    reply(source, refusal, {});
}

void AtomicServer::reply(std::uint64_t to, const AtomicReply& header, AtomicBytes results) {
    tw_status_t status = TW_ERR_NO_RESOURCE;
    if (replies_.empty())
        status = try_reply(to, header, results);
    if (status == TW_ERR_NO_RESOURCE) {
        const int error = without_exceptions([&] {
            replies_.push_back({to, header, {results.begin(), results.end()}});
            return 0;
        });
        status = error == 0 ? TW_OK : TW_ERR_NO_MEMORY;
        owner_.backlog_changed();
    }
    if (status != TW_OK)
        FI_INFO(&provider, FI_LOG_EP_DATA, "a reply to an atomic operation was lost: %s\n",
                tw_status_string(status));
}

tw_status_t AtomicServer::try_reply(std::uint64_t to, const AtomicReply& header,
                                    AtomicBytes results) {
    tw_status_t status = TW_OK;
    tw_ep_h const ep = owner_.reply_to(to, &status);
    if (ep == nullptr)
        return status;
    return send_copy(ep, kAtomicTell, AtomicBytes(std::as_bytes(std::span(&header, 1))), results,
                     {.flags = 0, .inject_bytes_max = owner_.inject_bytes_max});
}

}  // namespace tagwire::fi
