// SPDX-License-Identifier: BSD-3-Clause
// The level of a transport's interface; levels.hpp says what a level is.
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tools/grants.hpp"
#include "tools/inbox.hpp"
#include "tools/link.hpp"
#include "tools/loops.hpp"
#include "tools/sender.hpp"
#include "tools/tag_receiver.hpp"
#include "tools/uct_am_arrivals.hpp"

namespace tagwire::tools {

/// Posts by operations of one kind. All return UCS_OK or UCS_ERR_NO_RESOURCE, as
/// Sender::try_send().
template <Op op>
class UctSender : public Sender {
  public:
    using Sender::Sender;

    ucs_status_t send_tagged(std::uint64_t sequence, std::uint64_t tag, bool = false) {
        return try_send<kCompletes>(
            sequence, [this, tag](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                if constexpr (op == Op::kShort) {
                    return uct_ep_tag_eager_short(ep, tag, data, size());
                } else if constexpr (op == Op::kBcopy) {
                    Packed packed{data, size()};
                    return status_of(uct_ep_tag_eager_bcopy(ep, tag, 0, &Packed::pack, &packed, 0));
                } else if constexpr (op == Op::kZcopy) {
                    const uct_iov_t iov = iov_of(data);
                    return uct_ep_tag_eager_zcopy(ep, tag, 0, &iov, 1, 0, completion);
                } else {
                    const uct_iov_t iov = iov_of(data);
                    return status_of(
                        uct_ep_tag_rndv_zcopy(ep, tag, nullptr, 0, &iov, 1, 0, completion));
                }
            });
    }

    ucs_status_t send_am(std::uint64_t sequence, bool = false) {
        return try_send<kCompletes>(
            sequence, [this](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                if constexpr (op == Op::kShort) {
                    return UctAmArrivals::post_short(ep, UctAmArrivals::kDataId, data, size());
                } else if constexpr (op == Op::kBcopy) {
                    return UctAmArrivals::post_bcopy(ep, UctAmArrivals::kDataId, data, size());
                } else {
                    const uct_iov_t iov = iov_of(data);
                    return uct_ep_am_zcopy(ep, UctAmArrivals::kDataId, nullptr, 0, &iov, 1, 0,
                                           completion);
                }
            });
    }

    /// `prepare(data)` writes to the bytes before they go.
    template <class Prepare>
    ucs_status_t put(std::uint64_t sequence, const Inbox& inbox, std::size_t offset,
                     Prepare prepare, bool = false) {
        const std::uint64_t address = inbox.remote() + offset;
        const uct_rkey_t rkey = inbox.rkey();
        return try_send<kCompletes>(
            sequence, [&](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                prepare(data);
                if constexpr (op == Op::kShort) {
                    return uct_ep_put_short(ep, data, static_cast<unsigned>(size()), address, rkey);
                } else if constexpr (op == Op::kBcopy) {
                    Packed packed{data, size()};
                    return status_of(uct_ep_put_bcopy(ep, &Packed::pack, &packed, address, rkey));
                } else {
                    const uct_iov_t iov = iov_of(data);
                    return uct_ep_put_zcopy(ep, &iov, 1, address, rkey, completion);
                }
            });
    }

    /// `*place` is where the bytes come.
    ucs_status_t get(std::uint64_t sequence, const Inbox& inbox, std::uint8_t** place) {
        const std::uint64_t address = inbox.remote();
        const uct_rkey_t rkey = inbox.rkey();
        return try_send<true>(
            sequence, [&](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                *place = data;
                if constexpr (op == Op::kShort) {
                    return uct_ep_get_short(ep, data, static_cast<unsigned>(size()), address, rkey);
                } else if constexpr (op == Op::kBcopy) {
                    return uct_ep_get_bcopy(ep, &UctSender::unpack, data, size(), address, rkey,
                                            completion);
                } else {
                    const uct_iov_t iov = iov_of(data);
                    return uct_ep_get_zcopy(ep, &iov, 1, address, rkey, completion);
                }
            });
    }

    template <class Word>
    ucs_status_t add(std::uint64_t sequence, const Inbox& inbox) {
        return try_send<false>(sequence, [&](uct_ep_h ep, std::uint8_t*, uct_completion_t*) {
            if constexpr (kIsLong<Word>) {
                return uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, inbox.remote(), inbox.rkey());
            } else {
                return uct_ep_atomic32_post(ep, UCT_ATOMIC_OP_ADD, 1, inbox.remote(), inbox.rkey());
            }
        });
    }

    template <class Word>
    ucs_status_t fetch_and_add(std::uint64_t sequence, const Inbox& inbox, Word* result) {
        return try_send<true>(
            sequence, [&](uct_ep_h ep, std::uint8_t*, uct_completion_t* completion) {
                if constexpr (kIsLong<Word>) {
                    return uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, result, inbox.remote(),
                                                 inbox.rkey(), completion);
                } else {
                    return uct_ep_atomic32_fetch(ep, UCT_ATOMIC_OP_ADD, 1, result, inbox.remote(),
                                                 inbox.rkey(), completion);
                }
            });
    }

    template <class Word>
    ucs_status_t cswap(std::uint64_t sequence, const Inbox& inbox, const Word& expected, Word next,
                       Word* result) {
        return try_send<true>(
            sequence, [&](uct_ep_h ep, std::uint8_t*, uct_completion_t* completion) {
                if constexpr (kIsLong<Word>) {
                    return uct_ep_atomic_cswap64(ep, expected, next, inbox.remote(), inbox.rkey(),
                                                 result, completion);
                } else {
                    return uct_ep_atomic_cswap32(ep, expected, next, inbox.remote(), inbox.rkey(),
                                                 result, completion);
                }
            });
    }

    /// Whether all operations have ended, without progress.
    bool has_ended() const { return outstanding() == 0; }

  private:
    static constexpr bool kCompletes = op == Op::kZcopy || op == Op::kRndv;
    template <class Word>
    static constexpr bool kIsLong = std::is_same_v<Word, std::uint64_t>;

    uct_iov_t iov_of(std::uint8_t* data) const { return {data, size(), buffer().memh(), 0, 1}; }

    static void unpack(void* arg, const void* data, std::size_t length) {
        std::memcpy(arg, data, length);
    }
};

template <Op op>
struct UctLevel {
    using Connection = Link;
    using Sender = UctSender<op>;
    using Receiver = TagReceiver;
    using Inbox = tools::Inbox;
    using AmArrivals = UctAmArrivals;
    using Grants = tools::Grants;

    static std::size_t peers(const Link& link) { return link.peers(); }
    static std::size_t interfaces(const Link& link) { return link.interfaces().size(); }
    static std::uint64_t stream(const Link&) { return 0; }
    static Side sending_side(const Link& link) { return other(link.side()); }
    static bool is_shared(const Link&) { return false; }
    static std::uint64_t stray(const Link& link) { return link.stray(); }

    /// A whole 8-byte message outside of the measurement.
    static ucs_status_t try_send_word(const Link& link, std::uint64_t tag, std::uint64_t word) {
        const uct_ep_h ep = link.endpoint(0);
        if ((link.attr().cap.flags & UCT_IFACE_FLAG_TAG_EAGER_SHORT) != 0)
            return uct_ep_tag_eager_short(ep, tag, &word, sizeof(word));
        Packed packed{&word, sizeof(word)};
        return status_of(uct_ep_tag_eager_bcopy(ep, tag, 0, &Packed::pack, &packed, 0));
    }
};

}  // namespace tagwire::tools
