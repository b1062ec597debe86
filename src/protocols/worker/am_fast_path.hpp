// SPDX-License-Identifier: BSD-3-Clause
// The fast path of a short active message, beside that of other messages (fast_path.hpp): a call
// that asks for nothing but header and data, and a handler that gets both where they are.
#pragma once

#include <uct/api/uct.h>

#include <cstring>

#include "protocols/am/am_receiver.hpp"
#include "protocols/wire/am_header.hpp"
#include "protocols/wire/am_part.hpp"
#include "protocols/worker/endpoint.hpp"
#include "protocols/worker/worker_core.hpp"
#include "ucs/memory/copy_short.hpp"

namespace tagwire::proto {

/// A plain send of bytes_of() that may_send_short(). False: the slow path.
[[gnu::always_inline]] inline bool try_send_am_short(Endpoint& ep, const AmPart& am,
                                                     const void* data, std::size_t length) {
    constexpr auto kId = static_cast<std::uint8_t>(AmId::kAm);
    ucs_status_t status;
    constexpr std::size_t kFew = sizeof(ShortMessage::data);
    if (am.header_bytes <= kFew && length <= kFew - am.header_bytes) {
        ShortMessage message;
        message.tag = am.word();
        if (am.header_bytes > 0)
            ucs::copy_short(message.data, am.header, am.header_bytes);
        ucs::copy_short(message.data + am.header_bytes, data, length);
        status =
            uct_ep_am_short(ep.lane(), kId, ShortMessage::head(ep.peer_names, false), &message,
                            static_cast<unsigned>(sizeof message.tag + am.header_bytes + length));
    } else {
        struct {
            Header header;
            std::byte own[TW_AM_HEADER_MAX];
        } head;
        head.header = {ep.peer_names, 0, am.word()};
        ucs::copy_short(head.own, am.header, am.header_bytes);
        const uct_iov_t iov[] = {{&head, sizeof head.header + am.header_bytes, nullptr, 0, 1},
                                 {const_cast<void*>(data), length, nullptr, 0, 1}};
        status = uct_ep_am_short_iov(ep.lane(), kId, iov, 2);
    }
    if (status != UCS_OK) [[unlikely]]
        return false;
    ep.worker.count(WorkerCounter::kTxShort);
    ep.window().add_message(am.header_bytes + length);
    return true;
}

/// Apart, so that the other modes save no registers for it.
[[gnu::noinline]] inline void call_am_unlocked(WorkerCore& worker, AmHandler handler,
                                               AmCall& call) {
    const Unlocked callback(worker);
    handler.callback(handler.arg, &call);
}

/// `handler` may be replaced meanwhile.
[[gnu::always_inline]] inline void call_am(WorkerCore& worker, const AmHandler& handler,
                                           AmCall& call) {
    worker.count(WorkerCounter::kRxAm);
    if (worker.is_multi) [[unlikely]]
        return call_am_unlocked(worker, handler, call);
    const InCallback callback(worker.attention());
    handler.callback(handler.arg, &call);
}

}  // namespace tagwire::proto
