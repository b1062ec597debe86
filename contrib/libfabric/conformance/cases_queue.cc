// SPDX-License-Identifier: BSD-3-Clause
// Completion queues, counters, event queues.
#include <rdma/fi_eq.h>

#include <array>
#include <cstring>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

void format_is(fi_cq_format format) {
    Net net({.format = format});
    Bytes in(64);
    const Bytes out = pattern(64);
    net.trecv(1, in, 0x55, 1);
    net.post("fi_tsenddata", [&] {
        return fi_tsenddata(net.ep(0), out.data(), 64, nullptr, 9, net.address(1), 0x55,
                            net.context(2));
    });
    const Entry entry = net.received(1);
    same("op_context", net.context(1), entry.op_context);
    if (format >= FI_CQ_FORMAT_MSG) {
        holds("flags say FI_RECV and FI_TAGGED",
              (entry.flags & FI_RECV) != 0 && (entry.flags & FI_TAGGED) != 0);
        same("len", 64U, entry.len);
    }
    if (format >= FI_CQ_FORMAT_DATA)
        same("data", 9U, entry.data);
    if (format >= FI_CQ_FORMAT_TAGGED)
        same("tag", 0x55U, entry.tag);
    const Entry send = net.sent(0);
    same("op_context of the send", net.context(2), send.op_context);
    if (format >= FI_CQ_FORMAT_MSG) {
        holds("flags say FI_SEND and FI_TAGGED",
              (send.flags & FI_SEND) != 0 && (send.flags & FI_TAGGED) != 0);
    }
}

void format_context() {
    format_is(FI_CQ_FORMAT_CONTEXT);
}
void format_msg() {
    format_is(FI_CQ_FORMAT_MSG);
}
void format_data() {
    format_is(FI_CQ_FORMAT_DATA);
}
void format_tagged() {
    format_is(FI_CQ_FORMAT_TAGGED);
}

void untagged_flags() {
    Net net;
    Bytes in(8);
    net.recv(1, in, 1);
    net.send(0, 1, pattern(8), 2);
    const auto received = net.received(1).flags;
    const auto sent = net.sent(0).flags;
    holds("flags of a receive say FI_RECV and FI_MSG",
          (received & FI_RECV) != 0 && (received & FI_MSG) != 0);
    holds("flags of a send say FI_SEND and FI_MSG", (sent & FI_SEND) != 0 && (sent & FI_MSG) != 0);
}

void empty_queue() {
    Net net;
    fi_cq_tagged_entry entry{};
    fi_cq_err_entry error{};
    auto* queue = net.end(0).rx_queue.get();
    same("fi_cq_read", -FI_EAGAIN, fi_cq_read(queue, &entry, 1));
    same("fi_cq_readerr", -FI_EAGAIN, fi_cq_readerr(queue, &error, 0));
}

void errors_are_apart() {
    Net net;
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(64), 1, 2);
    auto* queue = net.end(1).rx_queue.get();
    fi_cq_tagged_entry entry{};
    // Not by progress(), which would take the error.
    std::int64_t got = -FI_EAGAIN;
    for (int round = 0; round < 1000000 && got == -FI_EAGAIN; ++round) {
        got = fi_cq_read(queue, &entry, 1);
        fi_cq_tagged_entry other{};
        fi_cq_read(net.end(0).tx_queue.get(), &other, 1);
    }
    same("fi_cq_read before an error", -FI_EAVAIL, got);
    same("fi_cq_read again", -FI_EAVAIL, fi_cq_read(queue, &entry, 1));
    fi_cq_err_entry error{};
    same("fi_cq_readerr", 1, fi_cq_readerr(queue, &error, 0));
    same("err", static_cast<int>(FI_ETRUNC), error.err);
    std::array<char, 128> text{};
    const char* said =
        fi_cq_strerror(queue, error.prov_errno, error.err_data, text.data(), text.size());
    holds("fi_cq_strerror has a text", said != nullptr && std::strlen(said) > 0);
    same("fi_cq_read after the error", -FI_EAGAIN, fi_cq_read(queue, &entry, 1));
}

void sread_ends_in_time() {
    Net net({.wait = FI_WAIT_UNSPEC});
    fi_cq_tagged_entry entry{};
    const auto got = fi_cq_sread(net.end(1).rx_queue.get(), &entry, 1, nullptr, 20);
    same("fi_cq_sread of an empty queue", -FI_EAGAIN, got);
}

void sread_gets() {
    Net net({.wait = FI_WAIT_UNSPEC});
    Bytes in(64);
    net.settle(0, 1);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(64), 1, 2);
    fi_cq_tagged_entry entry{};
    const auto got = fi_cq_sread(net.end(1).rx_queue.get(), &entry, 1, nullptr,
                                 static_cast<int>(patience().count() / 2));
    same("fi_cq_sread", 1, got);
    same("context", net.context(1), entry.op_context);
    same_bytes("message", pattern(64), in);
}

void source_is_told(bool tagged) {
    Net net({.caps = FI_MSG | FI_TAGGED | FI_SOURCE, .ends = 3});
    for (std::size_t from = 0; from < 2; ++from) {
        Bytes in(8);
        tagged ? net.trecv(2, in, 1, 1) : net.recv(2, in, 1);
        tagged ? net.tsend(from, 2, pattern(8), 1, 2) : net.send(from, 2, pattern(8), 2);
        same("source", net.address(from), net.received(2).from);
    }
}

void source_tagged() {
    source_is_told(true);
}
void source_untagged() {
    source_is_told(false);
}

void several_at_once() {
    Net net;
    std::array<Bytes, 8> in;
    for (std::size_t i = 0; i < in.size(); ++i) {
        in.at(i).resize(8);
        net.trecv(1, in.at(i), i, i);
        net.tsend(0, 1, pattern(8), i, 10);
    }
    std::array<fi_cq_tagged_entry, 16> entries{};
    std::size_t count = 0;
    for (int round = 0; round < 1000000 && count < in.size(); ++round) {
        fi_cq_tagged_entry other{};
        fi_cq_read(net.end(0).tx_queue.get(), &other, 1);
        const auto got =
            fi_cq_read(net.end(1).rx_queue.get(), &entries.at(count), entries.size() - count);
        count += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    count += net.end(1).received.size();  // what came while a send was posted
    same("entries", in.size(), count);
}

void counters_count() {
    Net net({.counters = true});
    for (unsigned i = 1; i <= 3; ++i) {
        Bytes in(8);
        net.trecv(1, in, 1, 1);
        net.tsend(0, 1, pattern(8), 1, 2);
        net.received(1);
        net.sent(0);
        net.until("the counters", [&] {
            return fi_cntr_read(net.end(0).tx_counter.get()) >= i &&
                   fi_cntr_read(net.end(1).rx_counter.get()) >= i;
        });
        same("sends", i, fi_cntr_read(net.end(0).tx_counter.get()));
        same("receives", i, fi_cntr_read(net.end(1).rx_counter.get()));
    }
}

void counters_count_errors() {
    Net net({.counters = true});
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(16), 1, 2);
    net.failed(1, FI_ETRUNC);
    same("errors", 1U, fi_cntr_readerr(net.end(1).rx_counter.get()));
    same("receives", 0U, fi_cntr_read(net.end(1).rx_counter.get()));
}

void counters_are_set() {
    Net net({.counters = true});
    auto* counter = net.end(0).tx_counter.get();
    done("fi_cntr_set", fi_cntr_set(counter, 40));
    done("fi_cntr_add", fi_cntr_add(counter, 2));
    net.until("the value", [&] { return fi_cntr_read(counter) == 42; });
}

void counters_wait() {
    Net net({.wait = FI_WAIT_UNSPEC, .counters = true});
    auto* counter = net.end(1).rx_counter.get();
    same("fi_cntr_wait for nothing", -FI_ETIMEDOUT, fi_cntr_wait(counter, 1, 20));
    Bytes in(8);
    net.trecv(1, in, 1, 1);
    net.tsend(0, 1, pattern(8), 1, 2);
    net.received(1);
    same("fi_cntr_wait", 0, fi_cntr_wait(counter, 1, static_cast<int>(patience().count() / 2)));
}

void event_queue() {
    Net net;
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    attr.flags = FI_WRITE;
    attr.size = 8;
    fid_eq* raw = nullptr;
    done("fi_eq_open", fi_eq_open(net.fabric(), &attr, &raw, nullptr));
    const Owned<fid_eq> queue(raw);
    std::uint32_t event = 0;
    fi_eq_entry entry{};
    same("fi_eq_read", -FI_EAGAIN, fi_eq_read(raw, &event, &entry, sizeof entry, 0));
    same("fi_eq_sread", -FI_EAGAIN, fi_eq_sread(raw, &event, &entry, sizeof entry, 20, 0));
    fi_eq_entry out{};
    out.data = 5;
    const auto written = fi_eq_write(raw, FI_NOTIFY, &out, sizeof out, 0);
    done("fi_eq_write", written);
    same("fi_eq_read", sizeof entry, fi_eq_read(raw, &event, &entry, sizeof entry, 0));
    same("event", static_cast<std::uint32_t>(FI_NOTIFY), event);
    same("data", 5U, entry.data);
}

constexpr const char* kQueue = "completion queues";
constexpr const char* kCounter = "counters";
constexpr std::array kQueueCases{
    Case{"format_context", kQueue, "T7", "fi_cq FI_CQ_FORMAT_CONTEXT", format_context},
    Case{"format_msg", kQueue, "T7", "fi_cq FI_CQ_FORMAT_MSG", format_msg},
    Case{"format_data", kQueue, "T7", "fi_cq FI_CQ_FORMAT_DATA", format_data},
    Case{"format_tagged", kQueue, "T7", "fi_cq FI_CQ_FORMAT_TAGGED", format_tagged},
    Case{"untagged_flags", kQueue, "T7", "fi_cq COMPLETION FLAGS", untagged_flags},
    Case{"empty_queue", kQueue, "", "fi_cq RETURN VALUES", empty_queue},
    Case{"error_entry", kQueue, "M3", "fi_cq fi_cq_readerr, fi_cq_strerror", errors_are_apart},
    Case{"sread_timeout", kQueue, "W11", "fi_cq fi_cq_sread", sread_ends_in_time},
    Case{"sread", kQueue, "W11", "fi_cq fi_cq_sread", sread_gets},
    Case{"several_entries", kQueue, "", "fi_cq fi_cq_read", several_at_once},
    Case{"source_tagged", "FI_SOURCE", "T12", "fi_cq fi_cq_readfrom", source_tagged},
    Case{"source_untagged", "FI_SOURCE", "T12", "fi_cq fi_cq_readfrom", source_untagged},
    Case{"counters", kCounter, "", "fi_cntr fi_cntr_read", counters_count},
    Case{"counter_errors", kCounter, "", "fi_cntr fi_cntr_readerr", counters_count_errors},
    Case{"counter_set", kCounter, "", "fi_cntr fi_cntr_set, fi_cntr_add", counters_are_set},
    Case{"counter_wait", kCounter, "", "fi_cntr fi_cntr_wait", counters_wait},
    Case{"event_queue", "event queues", "", "fi_eq fi_eq_read, fi_eq_write", event_queue},
};

}  // namespace

std::span<const Case> queue_cases() {
    return kQueueCases;
}

}  // namespace conformance
