// SPDX-License-Identifier: BSD-3-Clause
// FI_PEEK, FI_CLAIM and FI_DISCARD.
#include <algorithm>
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

Entry peek(Net& net, Bytes& buffer, std::uint64_t tag, std::uint64_t flags, std::size_t n) {
    net.trecvmsg(1, buffer, {.tag = tag, .flags = FI_PEEK | FI_COMPLETION | flags, .context = n});
    const Entry entry = net.next_received(1);
    same("context of the peek", net.context(n), entry.op_context);
    return entry;
}

// A peek for a message that has been sent.
Entry find(Net& net, Bytes& buffer, std::uint64_t tag, std::uint64_t flags = 0,
           std::size_t n = 50) {
    net.settle(0, 1);
    const Entry entry = peek(net, buffer, tag, flags, n);
    same("error of the peek", 0, entry.err);
    return entry;
}

void nothing_is_there() {
    Net net;
    Bytes none;
    net.settle(0, 1);
    same("error of the peek", FI_ENOMSG, peek(net, none, 1, 0, 50).err);
}

void a_peek_is_not_posted() {
    Net net;
    Bytes none;
    Bytes in(8);
    net.settle(0, 1);
    same("error of the peek", FI_ENOMSG, peek(net, none, 1, 0, 50).err);
    net.tsend(0, 1, pattern(8), 1, 2);
    net.settle(0, 1);
    net.quiet("the peek takes no later message", net.end(1).received);
    net.trecv(1, in, 1, 1);
    net.received(1);
    same_bytes("message", pattern(8), in);
}

void found_and_left() {
    Net net;
    for (const std::size_t length : {0UL, 100UL, 300000UL}) {
        Bytes none;
        Bytes in(length);
        const Bytes out = pattern(length);
        net.tsend(0, 1, out, 0x1234, 2);
        const Entry entry = find(net, none, 0x1234);
        same("length", length, entry.len);
        same("tag", 0x1234U, entry.tag);
        net.trecv(1, in, 0x1234, 1);
        same("length received", length, net.received(1).len);
        same_bytes("message", out, in);
        net.sent(0);
    }
}

void wildcard_tells_the_tag() {
    Net net;
    Bytes none;
    net.tsend(0, 1, pattern(8), 0x77, 2);
    net.settle(0, 1);
    net.trecvmsg(1, none, {.flags = FI_PEEK | FI_COMPLETION, .ignore = 0xff, .context = 50});
    same("tag", 0x77U, net.received(1).tag);
}

void tells_the_data() {
    Net net;
    Bytes none;
    const Bytes out = pattern(8);
    net.tsendmsg(0, 1, out, {.tag = 1, .flags = FI_REMOTE_CQ_DATA | FI_COMPLETION, .data = 99});
    const Entry entry = find(net, none, 1);
    holds("FI_REMOTE_CQ_DATA is in the flags", (entry.flags & FI_REMOTE_CQ_DATA) != 0);
    same("data", 99U, entry.data);
}

void tells_the_source() {
    Net net({.caps = FI_MSG | FI_TAGGED | FI_SOURCE});
    Bytes none;
    net.tsend(0, 1, pattern(8), 1, 2);
    same("source", net.address(0), find(net, none, 1).from);
}

void directed_peek() {
    Net net({.caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV, .ends = 3});
    Bytes none;
    net.tsend(0, 1, pattern(8), 1, 2);
    net.settle(0, 1);
    net.trecvmsg(
        1, none,
        {.tag = 1, .flags = FI_PEEK | FI_COMPLETION, .context = 50, .from = net.address(2)});
    same("error of a peek for another source", FI_ENOMSG, net.next_received(1).err);
    net.trecvmsg(
        1, none,
        {.tag = 1, .flags = FI_PEEK | FI_COMPLETION, .context = 50, .from = net.address(0)});
    same("error of a peek for the source", 0, net.next_received(1).err);
}

void buffer_may_be_filled() {
    Net net;
    for (const std::size_t room : {200UL, 40UL}) {
        Bytes copy(room);
        Bytes in(100);
        const Bytes out = pattern(100);
        net.tsend(0, 1, out, 1, 2);
        const Entry entry = find(net, copy, 1);
        same("length is the message's", 100U, entry.len);
        if (entry.buf != nullptr) {
            same("buffer", copy.data(), static_cast<const std::uint8_t*>(entry.buf));
            copy.resize(std::min<std::size_t>(room, 100));
            same_bytes("copy", Bytes(out.begin(), out.begin() + static_cast<long>(copy.size())),
                       copy);
        }
        net.trecv(1, in, 1, 1);
        net.received(1);
        same_bytes("message", out, in);
    }
}

void claimed() {
    Net net;
    for (const std::size_t length : {100UL, 300000UL}) {
        Bytes none;
        Bytes in(length);
        Bytes other(length);
        const Bytes out = pattern(length, 1);
        const Bytes later = pattern(length, 2);
        net.tsend(0, 1, out, 1, 2);
        net.tsend(0, 1, later, 1, 3);
        find(net, none, 1, FI_CLAIM);
        net.trecv(1, other, 1, 1);
        same("context", net.context(1), net.received(1).op_context);
        same_bytes("a receive takes the message behind the claimed", later, other);
        net.trecvmsg(1, in, {.tag = 1, .flags = FI_CLAIM | FI_COMPLETION, .context = 50});
        same("context of the claim", net.context(50), net.received(1).op_context);
        same_bytes("claimed message", out, in);
        net.sent(0);
        net.sent(0);
    }
}

void claims_in_any_order() {
    Net net;
    Bytes none;
    for (unsigned i = 0; i < 4; ++i)
        net.tsend(0, 1, pattern(64, i), 1, 2);
    for (unsigned i = 0; i < 4; ++i)
        find(net, none, 1, FI_CLAIM, 50 + i);
    for (unsigned i = 4; i-- > 0;) {
        Bytes in(64);
        net.trecvmsg(1, in, {.tag = 1, .flags = FI_CLAIM | FI_COMPLETION, .context = 50 + i});
        net.received(1);
        same_bytes("claimed message", pattern(64, i), in);
    }
}

void discarded() {
    Net net;
    for (const std::size_t length : {64UL, 300000UL}) {
        Bytes none;
        const Bytes out = pattern(length);
        net.tsend(0, 1, out, 1, 2);
        find(net, none, 1, FI_DISCARD);
        net.sent(0);
        same("error of a peek behind", FI_ENOMSG, peek(net, none, 1, 0, 51).err);
    }
}

void claimed_and_discarded() {
    Net net;
    for (const std::size_t length : {64UL, 300000UL}) {
        Bytes none;
        const Bytes out = pattern(length);
        net.tsend(0, 1, out, 1, 2);
        find(net, none, 1, FI_CLAIM);
        net.trecvmsg(1, none,
                     {.tag = 1, .flags = FI_CLAIM | FI_DISCARD | FI_COMPLETION, .context = 50});
        net.sent(0);
        net.settle(0, 1);
        net.end(1).received.clear();  // whether a discard has an entry the page leaves open
        same("error of a peek behind", FI_ENOMSG, peek(net, none, 1, 0, 51).err);
    }
}

constexpr const char* kPeek = "FI_PEEK";
constexpr const char* kClaim = "FI_PEEK with FI_CLAIM, then FI_CLAIM";
constexpr const char* kDiscard = "FI_DISCARD with FI_PEEK or FI_CLAIM";
constexpr std::array kPeekCases{
    Case{"peek_nothing", kPeek, "T21", "fi_tagged FI_PEEK", nothing_is_there},
    Case{"peek_not_posted", kPeek, "T20", "fi_tagged FI_PEEK", a_peek_is_not_posted},
    Case{"peek_found", kPeek, "T20", "fi_tagged FI_PEEK", found_and_left},
    Case{"peek_tag", kPeek, "T20", "fi_tagged FI_PEEK", wildcard_tells_the_tag},
    Case{"peek_data", kPeek, "T20", "fi_tagged FI_PEEK", tells_the_data},
    Case{"peek_source", kPeek, "T20", "fi_tagged FI_PEEK", tells_the_source},
    Case{"peek_directed", kPeek, "T12 T20", "fi_tagged FI_PEEK, src_addr", directed_peek},
    Case{"peek_buffer", kPeek, "T22", "fi_tagged FI_PEEK", buffer_may_be_filled},
    Case{"claim", kClaim, "T23", "fi_tagged FI_CLAIM", claimed},
    Case{"claim_any_order", kClaim, "T23", "fi_tagged FI_CLAIM", claims_in_any_order},
    Case{"peek_discard", kDiscard, "T24", "fi_tagged FI_DISCARD", discarded},
    Case{"claim_discard", kDiscard, "T25", "fi_tagged FI_DISCARD", claimed_and_discarded},
};

}  // namespace

std::span<const Case> peek_cases() {
    return kPeekCases;
}

}  // namespace conformance
