// SPDX-License-Identifier: BSD-3-Clause
// Buffered receives and variable-length messages.
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

// libfabric 2.0 has no buffered receives.
#ifdef FI_BUFFERED_RECV
constexpr std::uint64_t kBufferedRecv = FI_BUFFERED_RECV;
#else
constexpr std::uint64_t kBufferedRecv = 0;
#endif

Want buffered() {
    Want want;
    want.mode |= kBufferedRecv;
    return want;
}

Want variable() {
    Want want = buffered();
    want.caps |= FI_VARIABLE_MSG;
    return want;
}

void need_mode(Net& net) {
    if ((net.info().mode & kBufferedRecv) == 0 && (net.info().caps & FI_VARIABLE_MSG) == 0)
        throw Unsupported("FI_BUFFERED_RECV is not in the answer's mode");
}

// Posts the tag that is looked for, or nothing where messages are untagged.
void offer(Net& net, bool tagged) {
    Bytes none;
    if (tagged)
        net.trecv(1, none, 1, 1);
}

Entry shown(Net& net, bool tagged, const Bytes& out) {
    offer(net, tagged);
    tagged ? net.tsend(0, 1, out, 1, 2) : net.send(0, 1, out, 2);
    const Entry entry = net.received(1);
    same("length is the whole message's", out.size(), entry.len);
    holds("buf is the provider's buffer", out.empty() || entry.buf != nullptr);
    const auto* context = static_cast<const fi_recv_context*>(entry.op_context);
    if (tagged) {
        same("ep", nullptr, static_cast<const void*>(context->ep));
        same("context", net.context(1), context->context);
        same("tag", 1U, entry.tag);
    } else {
        same("ep", net.ep(1), static_cast<const void*>(context->ep));
        same("context", nullptr, static_cast<const void*>(context->context));
    }
    std::size_t known = out.size();
    if ((entry.flags & FI_MORE) != 0) {
        std::size_t length = sizeof known;
        done("fi_getopt",
             fi_getopt(&net.ep(1)->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_MIN, &known, &length));
    }
    const auto* start = static_cast<const std::uint8_t*>(entry.buf);
    same_bytes("start of the message", Bytes(out.data(), out.data() + known),
               Bytes(start, start + known));
    return entry;
}

// A receive with that flag for what was shown.
void settle_shown(Net& net, bool tagged, void* context, Bytes& in, std::uint64_t flag) {
    iovec list{in.data(), in.size()};
    net.post("claim or discard", [&] {
        if (tagged) {
            fi_msg_tagged call{};
            call.msg_iov = &list;
            call.iov_count = 1;
            call.addr = FI_ADDR_UNSPEC;
            call.tag = 1;
            call.context = context;
            return fi_trecvmsg(net.ep(1), &call, flag);
        }
        fi_msg call{};
        call.msg_iov = &list;
        call.iov_count = 1;
        call.addr = FI_ADDR_UNSPEC;
        call.context = context;
        return fi_recvmsg(net.ep(1), &call, flag);
    });
}

void claim(const Want& want, bool tagged) {
    Net net(want);
    need_mode(net);
    for (const std::size_t length : {64UL, 200000UL}) {
        const Bytes out = pattern(length);
        Bytes in(length);
        const Entry entry = shown(net, tagged, out);
        static_cast<fi_recv_context*>(entry.op_context)->context = net.context(7);
        settle_shown(net, tagged, entry.op_context, in, FI_CLAIM);
        const Entry end = net.received(1);
        same("context of the claim", net.context(7), end.op_context);
        holds("FI_CLAIM is in the flags", (end.flags & FI_CLAIM) != 0);
        same_bytes("message", out, in);
        net.sent(0);
    }
}

void discard(bool tagged) {
    Net net(buffered());
    need_mode(net);
    Bytes none;
    for (const std::size_t length : {64UL, 200000UL}) {
        const Bytes out = pattern(length);
        const Entry entry = shown(net, tagged, out);
        settle_shown(net, tagged, entry.op_context, none, FI_DISCARD);
        net.sent(0);
    }
    shown(net, tagged, pattern(10));
}

void claim_untagged() {
    claim(buffered(), false);
}
void claim_tagged() {
    claim(buffered(), true);
}
void discard_untagged() {
    discard(false);
}
void discard_tagged() {
    discard(true);
}
void variable_untagged() {
    claim(variable(), false);
}
void variable_tagged() {
    claim(variable(), true);
}

void limit_is_told() {
    Want want = buffered();
    want.enable = false;
    Net net(want);
    need_mode(net);
    std::size_t limit = 0;
    std::size_t length = sizeof limit;
    auto* fid = &net.ep(1)->fid;
    done("fi_getopt", fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &limit, &length));
    limit /= 2;
    done("fi_setopt", fi_setopt(fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &limit, length));
    std::size_t now = 0;
    done("fi_getopt", fi_getopt(fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &now, &length));
    same("FI_OPT_BUFFERED_LIMIT", limit, now);
}

constexpr const char* kBuffered = "buffered receives";
constexpr const char* kVariable = "variable-length messages";
constexpr std::array kBufferedCases{
    Case{"buffered_claim", kBuffered, "M10 M11 M12", "fi_msg Buffered Receives", claim_untagged},
    Case{"buffered_discard", kBuffered, "M12 M13", "fi_msg Buffered Receives", discard_untagged},
    Case{"buffered_claim_tagged", kBuffered, "T27", "fi_tagged Buffered Tagged Receives",
         claim_tagged},
    Case{"buffered_discard_tagged", kBuffered, "T27", "fi_tagged Buffered Tagged Receives",
         discard_tagged},
    Case{"buffered_limit", kBuffered, "M11", "fi_msg FI_OPT_BUFFERED_LIMIT", limit_is_told},
    Case{"variable", kVariable, "M15", "fi_msg Variable Length Messages", variable_untagged},
    Case{"variable_tagged", kVariable, "M15", "fi_tagged Variable Length Tagged Messages",
         variable_tagged},
};

}  // namespace

std::span<const Case> buffered_cases() {
    return kBufferedCases;
}

}  // namespace conformance
