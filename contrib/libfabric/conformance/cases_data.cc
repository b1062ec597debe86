// SPDX-License-Identifier: BSD-3-Clause
// Cases of data transfer: lengths, boundaries, lists, remote CQ data, injected messages.
#include <algorithm>
#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

constexpr std::array<std::size_t, 15> kDataLengths{
    0, 1, 63, 64, 192, 193, 4095, 4096, 4097, 8192, 16384, 65536, 1048576, 1048577, 8388608};

void boundaries_are_kept() {
    Net net;
    for (const std::size_t length : {3UL, 0UL, 100UL})
        net.tsend(0, 1, pattern(length), 1, 9);
    for (const std::size_t length : {3UL, 0UL, 100UL}) {
        Bytes in(200);
        net.trecv(1, in, 1, 1);
        same("length", length, net.received(1).len);
        in.resize(length);
        same_bytes("message", pattern(length), in);
    }
}

// A message of `length` into `room` bytes; nothing behind them is touched.
void truncate(bool tagged, std::size_t length, std::size_t room) {
    Net net;
    Bytes in(room + 8);
    const auto receive = [&] {
        return tagged
                   ? fi_trecv(net.ep(1), in.data(), room, nullptr, FI_ADDR_UNSPEC, 1, 0,
                              net.context(1))
                   : fi_recv(net.ep(1), in.data(), room, nullptr, FI_ADDR_UNSPEC, net.context(1));
    };
    net.post("receive", receive);
    const Bytes out = pattern(length);
    tagged ? net.tsend(0, 1, out, 1, 2) : net.send(0, 1, out, 2);
    const Entry entry = net.failed(1, FI_ETRUNC);
    same("context", net.context(1), entry.op_context);
    same("olen", length - room, entry.olen);
    same("len", room, entry.len);
    same_bytes("what is behind the buffer", Bytes(8), Bytes(in.end() - 8, in.end()));
}

void truncated_tagged() {
    truncate(true, 100, 60);
}
void truncated_untagged() {
    truncate(false, 100, 60);
}
void truncated_long() {
    truncate(true, 1000000, 64);
}

void lengths_expected() {
    Net net;
    for (const std::size_t length : kDataLengths) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.trecv(1, in, 1, 1);
        net.tsend(0, 1, out, 1, 2);
        same("length", length, net.received(1).len);
        net.sent(0);
        same_bytes("message", out, in);
    }
}

void lengths_unexpected() {
    Net net;
    for (const std::size_t length : kDataLengths) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.tsend(0, 1, out, 1, 2);
        net.settle(0, 1);
        net.trecv(1, in, 1, 1);
        same("length", length, net.received(1).len);
        net.sent(0);
        same_bytes("message", out, in);
    }
}

void lengths_untagged() {
    Net net;
    for (const std::size_t length : kDataLengths) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.recv(1, in, 1);
        net.send(0, 1, out, 2);
        same("length", length, net.received(1).len);
        net.sent(0);
        same_bytes("message", out, in);
    }
}

void zero_length() {
    Net net;
    net.post("fi_trecv", [&] {
        return fi_trecv(net.ep(1), nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, net.context(1));
    });
    net.post("fi_tsend", [&] {
        return fi_tsend(net.ep(0), nullptr, 0, nullptr, net.address(1), 1, net.context(2));
    });
    same("length", 0, net.received(1).len);
    net.sent(0);
}

void data_of(bool tagged, bool inject) {
    Net net;
    const std::uint64_t data =
        net.info().domain_attr->cq_data_size >= 8 ? 0x0123456789abcdefULL : 0x12345678ULL;
    const Bytes out = pattern(32);
    Bytes in(32);
    tagged ? net.trecv(1, in, 1, 1) : net.recv(1, in, 1);
    net.post("send with data", [&] {
        auto* ep = net.ep(0);
        const auto to = net.address(1);
        if (inject) {
            return tagged ? fi_tinjectdata(ep, out.data(), 32, data, to, 1)
                          : fi_injectdata(ep, out.data(), 32, data, to);
        }
        return tagged ? fi_tsenddata(ep, out.data(), 32, nullptr, data, to, 1, net.context(2))
                      : fi_senddata(ep, out.data(), 32, nullptr, data, to, net.context(2));
    });
    const Entry entry = net.received(1);
    holds("FI_REMOTE_CQ_DATA is in the entry's flags", (entry.flags & FI_REMOTE_CQ_DATA) != 0);
    same("data", data, entry.data);
    same_bytes("message", out, in);
    if (inject)
        net.quiet("no entry for an injected message", net.end(0).sent);
    else
        net.sent(0);
}

void tsenddata() {
    data_of(true, false);
}
void senddata() {
    data_of(false, false);
}
void tinjectdata() {
    data_of(true, true);
}
void injectdata() {
    data_of(false, true);
}

void data_by_flag() {
    Net net;
    for (const std::size_t length : {16UL, 200000UL}) {
        Bytes in(length);
        const Bytes out = pattern(length);
        net.trecv(1, in, 1, 1);
        net.tsendmsg(0, 1, out, {.tag = 1, .flags = FI_REMOTE_CQ_DATA | FI_COMPLETION, .data = 77});
        const Entry entry = net.received(1);
        holds("FI_REMOTE_CQ_DATA is in the flags", (entry.flags & FI_REMOTE_CQ_DATA) != 0);
        same("data", 77U, entry.data);
    }
}

void no_data_no_flag() {
    Net net;
    Bytes in(16);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(16), 1, 2);
    holds("FI_REMOTE_CQ_DATA is not in the flags of a message without",
          (net.received(1).flags & FI_REMOTE_CQ_DATA) == 0);
}

void inject_reuses(bool tagged) {
    Net net;
    const std::size_t length = net.info().tx_attr->inject_size;
    Bytes out = pattern(length);
    Bytes in(length);
    net.post("inject", [&] {
        return tagged ? fi_tinject(net.ep(0), out.data(), length, net.address(1), 1)
                      : fi_inject(net.ep(0), out.data(), length, net.address(1));
    });
    out.assign(length, 0xee);
    tagged ? net.trecv(1, in, 1, 1) : net.recv(1, in, 1);
    net.received(1);
    same_bytes("message", pattern(length), in);
    net.quiet("no entry for an injected message", net.end(0).sent);
}

void tinject_reuses() {
    inject_reuses(true);
}
void inject_untagged() {
    inject_reuses(false);
}

void inject_is_limited() {
    Net net;
    const std::size_t length = net.info().tx_attr->inject_size + 1;
    const Bytes out = pattern(length);
    net.settle(0, 1);  // there is a connection: a refusal has no other reason
    const auto status = fi_tinject(net.ep(0), out.data(), length, net.address(1), 1);
    holds("a longer message than inject_size is refused", status < 0 && status != -FI_EAGAIN);
}

void inject_flag() {
    Net net;
    const std::size_t length = net.info().tx_attr->inject_size;
    Bytes out = pattern(length);
    Bytes in(length);
    net.tsendmsg(0, 1, out, {.tag = 1, .flags = FI_INJECT | FI_COMPLETION, .context = 2});
    out.assign(length, 0xee);
    net.trecv(1, in, 1, 1);
    net.received(1);
    same("context", net.context(2), net.sent(0).op_context);
    same_bytes("message", pattern(length), in);
}

// `count` pieces of unequal length of one message each way.
void lists(bool tagged) {
    Net net;
    const std::size_t count =
        std::min(net.info().tx_attr->iov_limit, net.info().rx_attr->iov_limit);
    for (const std::size_t piece : {5UL, 30000UL}) {
        const std::size_t length = piece * count;
        Bytes out = pattern(length);
        Bytes in(length);
        std::vector<iovec> from;
        std::vector<iovec> to;
        for (std::size_t i = 0; i < count; ++i) {
            from.push_back({out.data() + i * piece, piece});
            to.push_back({in.data() + length - (i + 1) * piece, piece});
        }
        net.post("receive a list", [&] {
            auto* ep = net.ep(1);
            return tagged ? fi_trecvv(ep, to.data(), nullptr, count, FI_ADDR_UNSPEC, 1, 0,
                                      net.context(1))
                          : fi_recvv(ep, to.data(), nullptr, count, FI_ADDR_UNSPEC, net.context(1));
        });
        net.post("send a list", [&] {
            auto* ep = net.ep(0);
            return tagged
                       ? fi_tsendv(ep, from.data(), nullptr, count, net.address(1), 1,
                                   net.context(2))
                       : fi_sendv(ep, from.data(), nullptr, count, net.address(1), net.context(2));
        });
        same("length", length, net.received(1).len);
        net.sent(0);
        for (std::size_t i = 0; i < count; ++i) {
            const auto* part = static_cast<const std::uint8_t*>(to[i].iov_base);
            same_bytes("piece", Bytes(out.data() + i * piece, out.data() + (i + 1) * piece),
                       Bytes(part, part + piece));
        }
    }
}

void lists_tagged() {
    lists(true);
}
void lists_untagged() {
    lists(false);
}

void messages_by_structure() {
    Net net;
    Bytes in(64);
    net.recvmsg(1, in, {.flags = FI_COMPLETION, .context = 1});
    net.sendmsg(0, 1, pattern(64), {.flags = FI_COMPLETION, .context = 2});
    same("context of the receive", net.context(1), net.received(1).op_context);
    same("context of the send", net.context(2), net.sent(0).op_context);
    same_bytes("message", pattern(64), in);
}

void list_is_limited() {
    Net net;
    const std::size_t count = net.info().tx_attr->iov_limit + 1;
    Bytes out = pattern(count);
    std::vector<iovec> list;
    for (auto& byte : out)
        list.push_back({&byte, 1});
    net.settle(0, 1);
    const auto status =
        fi_tsendv(net.ep(0), list.data(), nullptr, count, net.address(1), 1, net.context(1));
    holds("a longer list than iov_limit is refused", status < 0 && status != -FI_EAGAIN);
}

constexpr const char* kBounds = "message boundaries and truncation";
constexpr const char* kInject = "inject";
constexpr const char* kData = "remote CQ data";
constexpr const char* kSizes = "lengths";
constexpr const char* kLists = "lists and message structures";
constexpr std::array kDataCases{
    Case{"boundaries", kBounds, "T3", "fi_tagged fi_trecv", boundaries_are_kept},
    Case{"truncated_tagged", kBounds, "M3", "fi_cq FI_ETRUNC", truncated_tagged},
    Case{"truncated_untagged", kBounds, "M3", "fi_cq FI_ETRUNC", truncated_untagged},
    Case{"truncated_long", kBounds, "M3", "fi_cq FI_ETRUNC", truncated_long},
    Case{"lengths_expected", kSizes, "M2 T5", "fi_msg len", lengths_expected},
    Case{"lengths_unexpected", kSizes, "M2 T4", "fi_msg len", lengths_unexpected},
    Case{"lengths_untagged", kSizes, "M2", "fi_msg len", lengths_untagged},
    Case{"zero_length", kSizes, "M2", "fi_msg len", zero_length},
    Case{"tsenddata", kData, "T11", "fi_tagged fi_tsenddata", tsenddata},
    Case{"senddata", kData, "T11", "fi_msg fi_senddata", senddata},
    Case{"tinjectdata", kData, "T11", "fi_tagged fi_tinjectdata", tinjectdata},
    Case{"injectdata", kData, "T11", "fi_msg fi_injectdata", injectdata},
    Case{"data_by_flag", kData, "T11", "fi_tagged FI_REMOTE_CQ_DATA", data_by_flag},
    Case{"no_data_no_flag", kData, "T11", "fi_cq FI_REMOTE_CQ_DATA", no_data_no_flag},
    Case{"tinject", kInject, "T9", "fi_tagged fi_tinject", tinject_reuses},
    Case{"inject", kInject, "T9", "fi_msg fi_inject", inject_untagged},
    Case{"inject_limit", kInject, "T10", "fi_tagged fi_tinject", inject_is_limited},
    Case{"inject_flag", "FI_INJECT on sendmsg", "T9", "fi_tagged FI_INJECT", inject_flag},
    Case{"lists_tagged", kLists, "T8", "fi_tagged fi_tsendv, fi_trecvv", lists_tagged},
    Case{"lists_untagged", kLists, "T8", "fi_msg fi_sendv, fi_recvv", lists_untagged},
    Case{"structures", kLists, "T7 T8", "fi_msg fi_sendmsg, fi_recvmsg", messages_by_structure},
    Case{"list_limit", kLists, "T8", "fi_endpoint iov_limit", list_is_limited},
};

}  // namespace

std::span<const Case> data_cases() {
    return kDataCases;
}

}  // namespace conformance
