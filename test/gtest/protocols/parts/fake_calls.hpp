// SPDX-License-Identifier: BSD-3-Clause
// The world of remote calls: active messages that are written down, requests that end when the test
// says so, and a clock that the test moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/call/call_port.hpp"
#include "protocols/wire/call_messages.hpp"

namespace tagwire::test {

class FakeCallWorld {
  public:
    struct Sent {
        tw_ep_h ep;
        std::uint64_t to;
        unsigned id;
        std::vector<std::byte> header;
        const void* data;
        std::size_t length;
        tw_op_t op;
        tw_request_h request;
        tw_status_t answer;
    };

    proto::CallPort port(bool is_multi = false) {
        return {.worker = nullptr, .is_multi = is_multi, .owner = this, .calls = kFunctions};
    }
    std::uint64_t counted(proto::WorkerCounter counter) { return counts[counter]; }
    /// The message of that number has been sent, or not: its completion.
    void complete(const Sent& one, tw_status_t status) { end(one.op, status, one.length); }
    static void end(const tw_op_t& op, tw_status_t status, std::size_t length) {
        tw_completion_t done{};
        done.context = op.context;
        done.status = status;
        done.length = length;
        op.complete(&done);
    }
    template <class Header>
    static tw_am_t am(const Header& header, std::uint64_t source, const void* data = nullptr,
                      std::size_t length = 0, std::uint32_t flags = 0) {
        tw_am_t message{};
        message.header = &header;
        message.header_length = sizeof header;
        message.data = (flags & TW_AM_RNDV) != 0 ? nullptr : data;
        message.length = length;
        message.source = source;
        message.flags = flags;
        return message;
    }
    template <class Header>
    static Header header_of(const Sent& one) {
        Header header;
        EXPECT_EQ(one.header.size(), sizeof header);
        std::memcpy(&header, one.header.data(), sizeof header);
        return header;
    }

    std::deque<Sent> sent;
    std::deque<tw_op_t> received;
    std::vector<tw_request_h> cancelled;
    std::vector<tw_message_h> released;
    std::uint64_t now = 1000;
    tw_status_t sends = TW_OK;  // the answer to sends
    tw_status_t receives = TW_INPROGRESS;
    std::function<void()> while_sending = [] {};
    std::map<proto::WorkerCounter, std::uint64_t> counts;

  private:
    static FakeCallWorld& world(void* owner) { return *static_cast<FakeCallWorld*>(owner); }
    tw_status_t send(tw_ep_h ep, std::uint64_t to, const proto::CallMessage& message,
                     const tw_op_t& op, tw_request_h* request_p) {
        const nomem::Spared spared;
        const auto* const header = static_cast<const std::byte*>(message.header);
        const auto handle =
            reinterpret_cast<tw_request_h>(static_cast<std::uintptr_t>(sent.size() + 1));
        sent.push_back({ep,
                        to,
                        message.id,
                        {header, header + message.header_bytes},
                        message.data,
                        message.length,
                        op,
                        handle,
                        sends});
        while_sending();
        if (sends == TW_INPROGRESS && request_p != nullptr)
            *request_p = handle;
        return sends;
    }

    static const proto::CallFunctions kFunctions;
};

inline constexpr proto::CallFunctions FakeCallWorld::kFunctions{
    .send =
        [](void* owner, tw_ep_h ep, const proto::CallMessage& message, const tw_op_t& op,
           tw_request_h* request_p) { return world(owner).send(ep, 0, message, op, request_p); },
    .send_to =
        [](void* owner, std::uint64_t to, const proto::CallMessage& message, const tw_op_t& op,
           tw_request_h* request_p) {
            return world(owner).send(nullptr, to, message, op, request_p);
        },
    .receive =
        [](void* owner, tw_message_h, void*, std::size_t, const tw_op_t& op) {
            const nomem::Spared spared;
            world(owner).received.push_back(op);
            return world(owner).receives;
        },
    .keep =
        [](void*, tw_am_t& am, tw_message_h* message_p) {
            *message_p = reinterpret_cast<tw_message_h>(&am);
            return TW_OK;
        },
    .release =
        [](void* owner, tw_message_h message) {
            const nomem::Spared spared;
            world(owner).released.push_back(message);
        },
    .cancel =
        [](void* owner, tw_request_h request) {
            const nomem::Spared spared;
            world(owner).cancelled.push_back(request);
        },
    .count =
        [](void* owner, proto::WorkerCounter counter) {
            const nomem::Spared spared;
            ++world(owner).counts[counter];
        },
    .now_ns = [](void* owner) { return world(owner).now; },
};

}  // namespace tagwire::test
