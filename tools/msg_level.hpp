// SPDX-License-Identifier: BSD-3-Clause
// The level of the messaging layer; levels.hpp says what a level is. The owner of memory makes
// progress while the other side works on it, which some transports need.
#pragma once

#include <tagwire.h>

#include <cstdint>
#include <type_traits>

#include "cli/failure.hpp"
#include "tools/msg_am_arrivals.hpp"
#include "tools/msg_inbox.hpp"
#include "tools/msg_link.hpp"
#include "tools/msg_post.hpp"

namespace tagwire::tools {

/// Posts by the calls of the messaging layer. All return UCS_OK or UCS_ERR_NO_RESOURCE, as
/// MsgSender::send_tagged().
class MsgOperations : public MsgSender {
  public:
    using MsgSender::MsgSender;

    ucs_status_t send_am(std::uint64_t sequence, bool has_more = false) {
        return try_post(
            sequence, "tw_am_send",
            [this](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                return tw_am_send(endpoint(), MsgAmArrivals::kDataId, nullptr, 0, data, size(), op,
                                  request);
            },
            has_more);
    }

    /// `prepare(data)` writes to the bytes before they go.
    template <class Prepare>
    ucs_status_t put(std::uint64_t sequence, const MsgInbox& inbox, std::size_t offset,
                     Prepare prepare, bool has_more = false) {
        return try_post(
            sequence, "tw_put",
            [&](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                prepare(data);
                return tw_put(endpoint(), data, size(), inbox.remote() + offset, inbox.key(), op,
                              request);
            },
            has_more);
    }

    /// `*place` is where the bytes come.
    ucs_status_t get(std::uint64_t sequence, const MsgInbox& inbox, std::uint8_t** place) {
        return try_post(
            sequence, "tw_get", [&](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                *place = data;
                return tw_get(endpoint(), data, size(), inbox.remote(), inbox.key(), op, request);
            });
    }

    template <class Word>
    ucs_status_t add(std::uint64_t sequence, const MsgInbox& inbox) {
        return try_post(sequence, "tw_atomic",
                        [&](std::uint8_t*, const tw_op_t*, tw_request_h* request) {
                            constexpr Word kOne = 1;
                            return tw_atomic(endpoint(), TW_ATOMIC_ADD, kTypeOf<Word>, &kOne,
                                             inbox.remote(), inbox.key(), nullptr, request);
                        });
    }

    template <class Word>
    ucs_status_t fetch_and_add(std::uint64_t sequence, const MsgInbox& inbox, Word* result) {
        return try_post(
            sequence, "tw_atomic_fetch", [&](std::uint8_t*, const tw_op_t*, tw_request_h* request) {
                constexpr Word kOne = 1;
                return tw_atomic_fetch(endpoint(), TW_ATOMIC_ADD, kTypeOf<Word>, &kOne, result,
                                       inbox.remote(), inbox.key(), nullptr, request);
            });
    }

    template <class Word>
    ucs_status_t cswap(std::uint64_t sequence, const MsgInbox& inbox, const Word& expected,
                       Word next, Word* result) {
        return try_post(
            sequence, "tw_atomic_cswap", [&](std::uint8_t*, const tw_op_t*, tw_request_h* request) {
                return tw_atomic_cswap(endpoint(), kTypeOf<Word>, &expected, &next, result,
                                       inbox.remote(), inbox.key(), nullptr, request);
            });
    }

  private:
    template <class Word>
    static constexpr tw_atomic_type_t kTypeOf =
        std::is_same_v<Word, std::uint32_t> ? TW_UINT32 : TW_UINT64;
};

/// The messaging layer keeps messages without a receive: every one may be sent.
struct NoGrants {
    NoGrants(const MsgLink&, bool, std::uint64_t) {}
    static bool allow(std::uint64_t) { return true; }
    static void posted(std::size_t) {}
    static bool try_tell() { return true; }
};

struct MsgLevel {
    using Connection = MsgLink;
    using Sender = MsgOperations;
    using Receiver = MsgReceiver;
    using Inbox = MsgInbox;
    using AmArrivals = MsgAmArrivals;
    using Grants = NoGrants;

    /// Messages go to one peer, whatever the number of those that are connected.
    static constexpr std::size_t peers(const MsgLink&) { return 1; }
    static constexpr std::size_t interfaces(const MsgLink&) { return 1; }
    static std::uint64_t stream(const MsgLink& link) { return link.stream(); }
    static Side sending_side(const MsgLink& link) { return link.sending_side(); }
    static bool is_shared(const MsgLink& link) { return link.is_shared(); }
    static constexpr std::uint64_t stray(const MsgLink&) { return 0; }

    /// A whole 8-byte message outside of the measurement.
    static ucs_status_t try_send_word(const MsgLink& link, std::uint64_t tag, std::uint64_t word) {
        tw_op_t op{};
        op.flags = TW_OP_INJECT;
        const tw_status_t status =
            tw_tag_send(link.endpoint(), &word, sizeof word, tag, &op, nullptr);
        if (status < 0 && status != TW_ERR_NO_RESOURCE)
            throw Failure(text("tw_tag_send: %s", tw_status_string(status)));
        return status >= 0 ? UCS_OK : UCS_ERR_NO_RESOURCE;
    }
};

}  // namespace tagwire::tools
