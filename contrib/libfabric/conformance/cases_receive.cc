// SPDX-License-Identifier: BSD-3-Clause
// Multi-receives, cancelled receives, and being told to try again.
#include <algorithm>
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

constexpr std::uint64_t kMulti = FI_MSG | FI_TAGGED | FI_MULTI_RECV;

void set_minimum(Net& net, std::size_t minimum) {
    done("fi_setopt", fi_setopt(&net.ep(1)->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum,
                                sizeof minimum));
}

// Messages of 100 bytes into one buffer, until it is released; how many were in it.
std::size_t fill(Net& net, Bytes& in, bool reported) {
    net.recvmsg(1, in, {.flags = FI_MULTI_RECV | (reported ? FI_COMPLETION : 0), .context = 1});
    bool released = false;
    std::size_t messages = 0;
    for (unsigned i = 0; !released; ++i) {
        holds("the buffer is released when it is full", i <= in.size() / 100);
        net.send(0, 1, pattern(100, i), 2);
        net.sent(0);
        if (!reported) {
            ++messages;
            for (int round = 0; round < 2000 && net.end(1).received.empty(); ++round)
                net.progress();
            released = !net.end(1).received.empty();
            continue;
        }
        Entry entry = net.received(1);
        same("context", net.context(1), entry.op_context);
        if ((entry.flags & FI_RECV) != 0) {
            same("length", 100U, entry.len);
            const auto* at = static_cast<const std::uint8_t*>(entry.buf);
            holds("buf is inside the buffer", at >= in.data() && at + 100 <= in.data() + in.size());
            same_bytes("message", pattern(100, i), Bytes(at, at + 100));
            ++messages;
        }
        net.quiet("the release is the only other entry",
                  (entry.flags & FI_MULTI_RECV) != 0 ? net.end(1).received : net.end(0).sent);
        released = (entry.flags & FI_MULTI_RECV) != 0 || !net.end(1).received.empty();
    }
    if (!net.end(1).received.empty()) {
        const Entry last = net.received(1);
        holds("the release has the flag FI_MULTI_RECV", (last.flags & FI_MULTI_RECV) != 0);
    }
    return messages;
}

void multi_receive_packs() {
    Net net({.caps = kMulti});
    set_minimum(net, 100);
    Bytes in(1000);
    const auto messages = fill(net, in, true);
    holds("messages share the buffer until less than the minimum is free",
          messages >= 5 && messages <= 10);
}

void multi_receive_minimum() {
    Net net({.caps = kMulti});
    set_minimum(net, 512);
    std::size_t minimum = 0;
    std::size_t length = sizeof minimum;
    done("fi_getopt",
         fi_getopt(&net.ep(1)->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum, &length));
    same("FI_OPT_MIN_MULTI_RECV", 512U, minimum);
    Bytes in(1000);
    const auto messages = fill(net, in, true);
    holds("a higher minimum releases the buffer earlier", messages >= 3 && messages <= 5);
}

void multi_receive_always_released() {
    Net net({.caps = kMulti, .selective_rx = true});
    set_minimum(net, 100);
    Bytes in(1000);
    holds("several messages came before the release", fill(net, in, false) >= 5);
}

void cancelled() {
    Net net;
    Bytes first(8);
    Bytes second(8);
    net.trecv(1, first, 1, 1);
    net.trecv(1, second, 1, 2);
    done("fi_cancel", fi_cancel(&net.ep(1)->fid, net.context(1)));
    same("context", net.context(1), net.failed(1, FI_ECANCELED).op_context);
    net.tsend(0, 1, pattern(8), 1, 3);
    same("context", net.context(2), net.received(1).op_context);
    same_bytes("message", pattern(8), second);
    same_bytes("buffer of the cancelled receive", Bytes(8), first);
}

void cancelled_untagged() {
    Net net;
    Bytes in(8);
    net.recv(1, in, 1);
    done("fi_cancel", fi_cancel(&net.ep(1)->fid, net.context(1)));
    same("context", net.context(1), net.failed(1, FI_ECANCELED).op_context);
}

void cancelled_too_late() {
    Net net;
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(8), 1, 3);
    net.received(1);
    fi_cancel(&net.ep(1)->fid, net.context(1));  // any status: there is no such operation
    net.quiet("an operation that completed has no other entry", net.end(1).received);
}

// Sends without progress until the provider says to try again, or enough of them.
void again_loses_nothing() {
    Net net;
    net.settle(0, 1);
    constexpr unsigned kEnough = 20000;
    unsigned count = 0;
    for (; count < kEnough; ++count) {
        const auto status = fi_tinject(net.ep(0), &count, sizeof count, net.address(1), 1);
        if (status == -FI_EAGAIN)
            break;
        done("fi_tinject", status);
    }
    const unsigned refused = count;
    for (unsigned i = 0; i < count + 1; ++i) {
        Bytes in(sizeof count);
        net.trecv(1, in, 1, 1);
        if (i == refused / 2) {
            net.post("fi_tinject after progress", [&] {
                return fi_tinject(net.ep(0), &count, sizeof count, net.address(1), 1);
            });
        }
        net.received(1);
        unsigned got = 0;
        std::copy(in.begin(), in.end(), reinterpret_cast<std::uint8_t*>(&got));
        same("number of the message", i, got);
    }
    net.quiet("no entry for injected messages", net.end(0).sent);
}

constexpr const char* kMany = "FI_MULTI_RECV and FI_OPT_MIN_MULTI_RECV";
constexpr const char* kCancel = "cancel";
constexpr std::array kReceiveCases{
    Case{"multi_recv", kMany, "M4", "fi_msg FI_MULTI_RECV", multi_receive_packs},
    Case{"multi_recv_minimum", kMany, "M5", "fi_msg FI_MULTI_RECV", multi_receive_minimum},
    Case{"multi_recv_released", kMany, "M5", "fi_msg FI_MULTI_RECV", multi_receive_always_released},
    Case{"cancel", kCancel, "W4", "fi_endpoint fi_cancel", cancelled},
    Case{"cancel_untagged", kCancel, "W4", "fi_endpoint fi_cancel", cancelled_untagged},
    Case{"cancel_late", kCancel, "W4", "fi_endpoint fi_cancel", cancelled_too_late},
    Case{"again", "FI_EAGAIN", "M8", "fi_msg ERRORS", again_loses_nothing},
};

}  // namespace

std::span<const Case> receive_cases() {
    return kReceiveCases;
}

}  // namespace conformance
