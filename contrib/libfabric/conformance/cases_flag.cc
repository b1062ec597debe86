// SPDX-License-Identifier: BSD-3-Clause
// Fences, hints, and what an endpoint may refuse.
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

// The fenced message must not be there while the one before it has not completed.
void fence_waits(std::size_t length) {
    Net net({.caps = FI_MSG | FI_TAGGED | FI_FENCE});
    const Bytes out = pattern(length, 1);
    Bytes before(length);
    Bytes fenced(8);
    net.settle(0, 1);
    net.trecv(1, fenced, 2, 2);
    net.tsendmsg(0, 1, out, {.tag = 1, .flags = FI_COMPLETION, .context = 3});
    net.tsendmsg(0, 1, pattern(8), {.tag = 2, .flags = FI_FENCE | FI_COMPLETION, .context = 4});
    for (int round = 0; round < 2000; ++round) {
        net.progress();
        holds("the fenced message comes behind the completion of the one before it",
              net.end(1).received.empty() || !net.end(0).sent.empty());
    }
    net.trecv(1, before, 1, 1);
    same("context", net.context(3), net.sent(0).op_context);
    same("context", net.context(4), net.sent(0).op_context);
    net.received(1);
    net.received(1);
    same_bytes("message before the fence", out, before);
    same_bytes("fenced message", pattern(8), fenced);
}

void fence_of_short() {
    fence_waits(64);
}
void fence_of_long() {
    fence_waits(2000000);
}

void more_is_a_hint() {
    Net net;
    std::array<Bytes, 4> in{Bytes(32), Bytes(32), Bytes(32), Bytes(32)};
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t more = i < 3 ? FI_MORE : 0;
        net.trecvmsg(1, in.at(i), {.tag = 1, .flags = FI_COMPLETION | more, .context = i});
    }
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint64_t more = i < 3 ? FI_MORE : 0;
        const Bytes out = pattern(32, i);
        net.tsendmsg(0, 1, out, {.tag = 1, .flags = FI_COMPLETION | more, .context = 10 + i});
        net.sent(0);
    }
    for (unsigned i = 0; i < 4; ++i) {
        net.received(1);
        same_bytes("message", pattern(32, i), in.at(i));
    }
}

void multicast_is_refused() {
    Want want;
    want.caps |= FI_MULTICAST;
    const Info answer = ask(*hints_of(want));
    if (answer) {
        holds("FI_MULTICAST, if answered, is in the answer", (answer->caps & FI_MULTICAST) != 0);
        return;
    }
    Net net;
    const Bytes out = pattern(8);
    iovec list{const_cast<std::uint8_t*>(out.data()), out.size()};
    fi_msg call{};
    call.msg_iov = &list;
    call.iov_count = 1;
    call.addr = net.address(1);
    call.context = net.context(1);
    net.settle(0, 1);
    holds("a send with FI_MULTICAST is refused", fi_sendmsg(net.ep(0), &call, FI_MULTICAST) < 0);
}

void prefix_is_told() {
    Want want;
    want.mode |= FI_MSG_PREFIX;
    const Info answer = ask(*hints_of(want));
    holds("a program that can leave room for a prefix gets an answer", answer != nullptr);
    const bool prefix = (answer->mode & FI_MSG_PREFIX) != 0;
    holds("msg_prefix_size is set if, and only if, FI_MSG_PREFIX is asked for",
          prefix == (answer->ep_attr->msg_prefix_size != 0));
}

constexpr std::array kFlagCases{
    Case{"fence", "FI_FENCE", "T19", "fi_tagged FI_FENCE", fence_of_short},
    Case{"fence_long", "FI_FENCE", "T19", "fi_tagged FI_FENCE", fence_of_long},
    Case{"more", "FI_MORE", "T14", "fi_tagged FI_MORE", more_is_a_hint},
    Case{"multicast", "FI_MULTICAST and FI_MSG_PREFIX", "M9", "fi_msg FI_MULTICAST",
         multicast_is_refused},
    Case{"prefix", "FI_MULTICAST and FI_MSG_PREFIX", "M9", "fi_msg NOTES", prefix_is_told},
};

}  // namespace

std::span<const Case> flag_cases() {
    return kFlagCases;
}

}  // namespace conformance
