// SPDX-License-Identifier: BSD-3-Clause
// Which operations are reported, and when.
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void selective_sends() {
    Net net({.selective_tx = true});
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsendmsg(0, 1, pattern(8), {.tag = 1, .context = 2});
    net.received(1);
    net.quiet("no entry without FI_COMPLETION", net.end(0).sent);
    net.trecv(1, in, 1, 1);
    net.tsendmsg(0, 1, pattern(8), {.tag = 1, .flags = FI_COMPLETION, .context = 3});
    net.received(1);
    same("context", net.context(3), net.sent(0).op_context);
}

void selective_receives() {
    Net net({.selective_rx = true});
    Bytes first(8);
    Bytes second(8);
    net.trecvmsg(1, first, {.tag = 1, .context = 1});
    net.trecvmsg(1, second, {.tag = 1, .flags = FI_COMPLETION, .context = 2});
    net.tsend(0, 1, pattern(8, 1), 1, 3);
    net.tsend(0, 1, pattern(8, 2), 1, 3);
    same("context", net.context(2), net.received(1).op_context);
    same_bytes("message without an entry", pattern(8, 1), first);
    net.quiet("no entry without FI_COMPLETION", net.end(1).received);
}

void selective_errors() {
    Net net({.selective_rx = true});
    Bytes in(8);
    net.trecvmsg(1, in, {.tag = 1, .context = 1});
    net.tsend(0, 1, pattern(16), 1, 3);
    same("context", net.context(1), net.failed(1, FI_ETRUNC).op_context);
}

void completion_is_ignored_without_selective() {
    Net net;
    Bytes in(8);
    net.trecvmsg(1, in, {.tag = 1, .context = 1});
    net.tsendmsg(0, 1, pattern(8), {.tag = 1, .context = 2});
    same("context of the receive", net.context(1), net.received(1).op_context);
    same("context of the send", net.context(2), net.sent(0).op_context);
}

void default_of_the_endpoint() {
    Net net({.tx_op_flags = FI_COMPLETION, .selective_tx = true});
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(8), 1, 2);
    same("context", net.context(2), net.sent(0).op_context);
}

// The operation completes once, whatever its length; it is read when the provider answers hints
// with that level.
void level(std::uint64_t flag) {
    Net net({.tx_op_flags = flag});
    for (const std::size_t length : {0UL, 64UL, 10000UL, 1000000UL}) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.trecv(1, in, 1, 1);
        net.tsendmsg(0, 1, out, {.tag = 1, .flags = flag | FI_COMPLETION, .context = 2});
        same("context", net.context(2), net.sent(0).op_context);
        net.received(1);
        same_bytes("message", out, in);
    }
    net.quiet("one entry for one operation", net.end(0).sent);
}

void inject_complete() {
    level(FI_INJECT_COMPLETE);
}
void transmit_complete() {
    level(FI_TRANSMIT_COMPLETE);
}
void delivery_complete() {
    level(FI_DELIVERY_COMPLETE);
}

void transmit_complete_on_receives() {
    Net net;
    for (const std::size_t length : {64UL, 300000UL}) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.recvmsg(1, in, {.flags = FI_TRANSMIT_COMPLETE | FI_COMPLETION, .context = 1});
        net.send(0, 1, out, 2);
        same("length", length, net.received(1).len);
        net.sent(0);
        same_bytes("message", out, in);
    }
}

void match_complete_waits() {
    Net net({.tx_op_flags = FI_MATCH_COMPLETE});
    for (const std::size_t length : {0UL, 64UL, 300000UL}) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.tsendmsg(0, 1, out,
                     {.tag = 1, .flags = FI_MATCH_COMPLETE | FI_COMPLETION, .context = 2});
        net.quiet("no entry before the match", net.end(0).sent);
        net.trecv(1, in, 1, 1);
        net.received(1);
        same("context", net.context(2), net.sent(0).op_context);
        same_bytes("message", out, in);
    }
}

void match_complete_of_discarded() {
    Net net({.tx_op_flags = FI_MATCH_COMPLETE});
    Bytes none;
    net.tsendmsg(0, 1, pattern(64),
                 {.tag = 1, .flags = FI_MATCH_COMPLETE | FI_COMPLETION, .context = 2});
    net.quiet("no entry before the target knows", net.end(0).sent);
    net.until("the message at the target", [&] {
        net.trecvmsg(1, none, {.tag = 1, .flags = FI_PEEK | FI_DISCARD, .context = 1});
        return net.next_received(1).err == 0;
    });
    same("context", net.context(2), net.sent(0).op_context);
}

void strongest_on_untagged() {
    Net net({.tx_op_flags = FI_DELIVERY_COMPLETE});
    Bytes in(64);
    net.recv(1, in, 1);
    net.sendmsg(0, 1, pattern(64), {.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION, .context = 2});
    same("context", net.context(2), net.sent(0).op_context);
    net.received(1);
    same_bytes("message", pattern(64), in);
}

constexpr const char* kSelective = "FI_COMPLETION and FI_SELECTIVE_COMPLETION";
constexpr std::array kCompletionCases{
    Case{"selective_sends", kSelective, "T13", "fi_tagged FI_COMPLETION", selective_sends},
    Case{"selective_receives", kSelective, "T13", "fi_tagged FI_COMPLETION", selective_receives},
    Case{"selective_errors", kSelective, "T13", "fi_endpoint FI_SELECTIVE_COMPLETION",
         selective_errors},
    Case{"completion_ignored", kSelective, "T13", "fi_tagged FI_COMPLETION",
         completion_is_ignored_without_selective},
    Case{"completion_default", kSelective, "T13", "fi_endpoint op_flags", default_of_the_endpoint},
    Case{"inject_complete", "FI_INJECT_COMPLETE", "T15", "fi_tagged FI_INJECT_COMPLETE",
         inject_complete},
    Case{"transmit_complete", "FI_TRANSMIT_COMPLETE", "T16", "fi_tagged FI_TRANSMIT_COMPLETE",
         transmit_complete},
    Case{"transmit_complete_recv", "FI_TRANSMIT_COMPLETE", "M7", "fi_msg FI_TRANSMIT_COMPLETE",
         transmit_complete_on_receives},
    Case{"delivery_complete", "FI_DELIVERY_COMPLETE", "M6", "fi_msg FI_DELIVERY_COMPLETE",
         delivery_complete},
    Case{"delivery_complete_untagged", "FI_DELIVERY_COMPLETE", "M6", "fi_msg FI_DELIVERY_COMPLETE",
         strongest_on_untagged},
    Case{"match_complete", "FI_MATCH_COMPLETE", "T17", "fi_tagged FI_MATCH_COMPLETE",
         match_complete_waits},
    Case{"match_complete_discard", "FI_MATCH_COMPLETE", "T18", "fi_tagged FI_MATCH_COMPLETE",
         match_complete_of_discarded},
};

}  // namespace

std::span<const Case> completion_cases() {
    return kCompletionCases;
}

}  // namespace conformance
