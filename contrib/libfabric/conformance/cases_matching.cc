// SPDX-License-Identifier: BSD-3-Clause
// Which message a receive takes.
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void equal_tags_match() {
    Net net;
    Bytes a(8);
    Bytes b(8);
    net.trecv(1, a, 6, 6);
    net.trecv(1, b, 5, 5);
    net.tsend(0, 1, pattern(8, 50), 5);
    same("context", net.context(5), net.received(1).op_context);
    net.tsend(0, 1, pattern(8, 60), 6);
    same("context", net.context(6), net.received(1).op_context);
    same_bytes("tag 5", pattern(8, 50), b);
    same_bytes("tag 6", pattern(8, 60), a);
}

void ignored_bits_do_not_count() {
    Net net;
    Bytes in(8);
    net.trecvmsg(1, in, {.tag = 0x100, .ignore = 0xff, .context = 1});
    net.tsend(0, 1, pattern(8, 1), 0x200, 9);
    net.tsend(0, 1, pattern(8, 2), 0x1a5, 9);
    const Entry entry = net.received(1);
    same("tag", 0x1a5U, entry.tag);
    same_bytes("message", pattern(8, 2), in);
}

void receives_match_in_their_order() {
    Net net;
    std::array<Bytes, 3> in{Bytes(4), Bytes(4), Bytes(4)};
    net.trecv(1, in[0], 7, 0);
    net.trecvmsg(1, in[1], {.tag = 0, .ignore = ~0ULL, .context = 1});
    net.trecv(1, in[2], 7, 2);
    for (unsigned i = 0; i < 3; ++i)
        net.tsend(0, 1, pattern(4, i), 7, 10);
    for (unsigned i = 0; i < 3; ++i)
        net.received(1);
    for (unsigned i = 0; i < 3; ++i)
        same_bytes("message", pattern(4, i), in.at(i));
}

void unexpected_messages_keep_their_order() {
    Net net;
    for (unsigned i = 0; i < 4; ++i)
        net.tsend(0, 1, pattern(16, i), 3, 10 + i);
    net.settle(0, 1);
    for (unsigned i = 0; i < 4; ++i) {
        Bytes in(16);
        net.trecv(1, in, 3, i);
        same("context", net.context(i), net.received(1).op_context);
        same_bytes("message", pattern(16, i), in);
    }
}

void tagged_and_untagged_are_apart() {
    Net net;
    Bytes tagged(8);
    Bytes untagged(8);
    net.trecvmsg(1, tagged, {.ignore = ~0ULL, .context = 1});
    net.recv(1, untagged, 2);
    net.send(0, 1, pattern(8, 1), 3);
    same("context", net.context(2), net.received(1).op_context);
    net.tsend(0, 1, pattern(8, 2), 0, 4);
    same("context", net.context(1), net.received(1).op_context);
    same_bytes("untagged", pattern(8, 1), untagged);
    same_bytes("tagged", pattern(8, 2), tagged);
}

constexpr std::uint64_t kDirected = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;

void tagged_receive_takes_its_source() {
    Net net({.caps = kDirected, .ends = 3});
    Bytes in(8);
    net.trecvmsg(2, in, {.tag = 1, .context = 1, .from = net.address(1)});
    net.tsend(0, 2, pattern(8, 1), 1, 3);
    net.settle(0, 2);
    net.quiet("the other source's message is not received", net.end(2).received);
    net.tsend(1, 2, pattern(8, 2), 1, 4);
    net.received(2);
    same_bytes("message of the source", pattern(8, 2), in);
    net.trecvmsg(2, in, {.tag = 1, .context = 2, .from = net.address(0)});
    net.received(2);
    same_bytes("message that waited", pattern(8, 1), in);
}

void untagged_receive_takes_its_source() {
    Net net({.caps = kDirected, .ends = 3});
    Bytes in(8);
    net.recvmsg(2, in, {.context = 1, .from = net.address(1)});
    net.send(0, 2, pattern(8, 1), 3);
    net.settle(0, 2);
    net.quiet("the other source's message is not received", net.end(2).received);
    net.send(1, 2, pattern(8, 2), 4);
    net.received(2);
    same_bytes("message of the source", pattern(8, 2), in);
}

void unspecified_source_is_any() {
    Net net({.caps = kDirected, .ends = 3});
    for (std::size_t from = 0; from < 2; ++from) {
        Bytes in(8);
        net.trecv(2, in, 1, from);
        net.tsend(from, 2, pattern(8, 5), 1, 4);
        net.received(2);
        same_bytes("message", pattern(8, 5), in);
    }
}

void source_is_ignored_without_the_capability() {
    Net net({.ends = 3});
    if ((net.info().caps & FI_DIRECTED_RECV) != 0)
        throw Unsupported("the capability is always there");
    Bytes in(8);
    net.trecvmsg(2, in, {.tag = 1, .context = 1, .from = net.address(1)});
    net.tsend(0, 2, pattern(8, 1), 1, 3);
    net.received(2);
    same_bytes("message", pattern(8, 1), in);
}

void order_holds_across_lengths() {
    Net net;
    if ((net.info().tx_attr->msg_order & FI_ORDER_SAS) == 0)
        throw Unsupported("FI_ORDER_SAS is not offered");
    constexpr std::array<std::size_t, 6> kLengths{8, 300000, 0, 20000, 4096, 1000000};
    std::vector<Bytes> out;
    for (unsigned i = 0; i < 48; ++i)
        out.push_back(pattern(kLengths.at(i % kLengths.size()), i));
    for (unsigned i = 0; i < 24; ++i)
        net.tsend(0, 1, out[i], 1, 100 + i);
    std::vector<Bytes> in(out.size(), Bytes(1000000));
    for (unsigned i = 0; i < out.size(); ++i)
        net.trecv(1, in[i], 1, i);
    for (unsigned i = 24; i < out.size(); ++i)
        net.tsend(0, 1, out[i], 1, 100 + i);
    for (unsigned i = 0; i < out.size(); ++i) {
        const Entry entry = net.received(1);
        const auto n = static_cast<std::size_t>(static_cast<fi_context2*>(entry.op_context) -
                                                static_cast<fi_context2*>(net.context(0)));
        same("length", out.at(n).size(), entry.len);
        in[n].resize(entry.len);
    }
    for (unsigned i = 0; i < out.size(); ++i)
        same_bytes("message", out[i], in[i]);
}

void messages_to_oneself() {
    Net net({.ends = 1});
    for (const std::size_t length : {0UL, 64UL, 100000UL}) {
        Bytes in(length);
        net.trecv(0, in, 1, 1);
        net.tsend(0, 0, pattern(length), 1, 2);
        same("length", length, net.received(0).len);
        net.sent(0);
        same_bytes("tagged message", pattern(length), in);
        in.assign(length, 0);
        net.recv(0, in, 1);
        net.send(0, 0, pattern(length), 2);
        net.received(0);
        net.sent(0);
        same_bytes("untagged message", pattern(length), in);
    }
}

constexpr const char* kTags = "tag match and ignore, posting order";
constexpr const char* kSource = "directed receive";
constexpr std::array kMatchingCases{
    Case{"tag_equal", kTags, "T1", "fi_tagged DESCRIPTION", equal_tags_match},
    Case{"tag_ignore", kTags, "T1", "fi_tagged DESCRIPTION", ignored_bits_do_not_count},
    Case{"posting_order", kTags, "T2", "fi_tagged fi_trecv", receives_match_in_their_order},
    Case{"unexpected_order", kTags, "T2", "fi_tagged DESCRIPTION",
         unexpected_messages_keep_their_order},
    Case{"name_spaces", "tagged and untagged messages apart", "M1", "fi_msg DESCRIPTION",
         tagged_and_untagged_are_apart},
    Case{"directed_tagged", kSource, "T12", "fi_tagged src_addr", tagged_receive_takes_its_source},
    Case{"directed_untagged", kSource, "T12", "fi_msg src_addr", untagged_receive_takes_its_source},
    Case{"source_unspecified", kSource, "T12", "fi_tagged src_addr", unspecified_source_is_any},
    Case{"source_ignored", kSource, "T12", "fi_tagged src_addr",
         source_is_ignored_without_the_capability},
    Case{"order_of_lengths", "message order", "W1", "fi_endpoint FI_ORDER_SAS",
         order_holds_across_lengths},
    Case{"to_oneself", "messages to oneself", "T3", "fi_av, fi_endpoint", messages_to_oneself},
};

}  // namespace

std::span<const Case> matching_cases() {
    return kMatchingCases;
}

}  // namespace conformance
