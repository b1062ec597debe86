// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations, and the memory that they reach.
#include <rdma/fi_rma.h>

#include <array>

#include "cases.hpp"
#include "net.hpp"

namespace conformance {
namespace {

constexpr std::uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RMA;
constexpr int kBasicModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

// Memory that is registered: it belongs to the domain of all ends.
struct Memory {
    Memory(Net& net, std::size_t length, std::uint64_t access = kRemote, std::uint64_t key = 1)
        : bytes(pattern(length, 77)), mode(net.info().domain_attr->mr_mode) {
        fid_mr* made = nullptr;
        done("fi_mr_reg",
             fi_mr_reg(net.domain(), bytes.data(), length, access, 0, key, 0, &made, nullptr));
        mr.reset(made);
    }
    fi_rma_iov at(std::size_t offset, std::size_t length) const {
        const bool has_addresses = (mode & FI_MR_VIRT_ADDR) != 0;
        const auto base = reinterpret_cast<std::uintptr_t>(bytes.data());
        return {offset + (has_addresses ? base : 0), length, fi_mr_key(mr.get())};
    }
    Bytes part(std::size_t offset, std::size_t length) const {
        const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
        return {from, from + static_cast<std::ptrdiff_t>(length)};
    }

    Bytes bytes;
    int mode;
    Owned<fid_mr> mr;
};

struct Call {
    bool is_read = false;
    std::uint64_t flags = 0;
    std::uint64_t data = 0;
    std::size_t context = 1;
};

// From end 0 to end 1, by the calls with a message structure.
std::int64_t try_call(Net& net, Bytes& bytes, const fi_rma_iov& remote, const Call& call) {
    const iovec list{bytes.data(), bytes.size()};
    fi_msg_rma msg{};
    msg.msg_iov = &list;
    msg.iov_count = 1;
    msg.addr = net.address(1);
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.context = net.context(call.context);
    msg.data = call.data;
    return call.is_read ? fi_readmsg(net.ep(0), &msg, call.flags)
                        : fi_writemsg(net.ep(0), &msg, call.flags);
}

void call_msg(Net& net, Bytes& bytes, const fi_rma_iov& remote, const Call& call) {
    net.post("fi_readmsg, fi_writemsg", [&] { return try_call(net, bytes, remote, call); });
}

void write_delivered(Net& net, Memory& memory, Bytes bytes, std::size_t offset) {
    const fi_rma_iov remote = memory.at(offset, bytes.size());
    call_msg(net, bytes, remote, {.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION});
    const Entry entry = net.sent(0);
    same("context", net.context(1), entry.op_context);
    same("flags", std::uint64_t{FI_RMA | FI_WRITE}, entry.flags & (FI_RMA | FI_WRITE | FI_READ));
    same_bytes("memory of the target", bytes, memory.part(offset, bytes.size()));
}

Want with_delivery() {
    return {.caps = kCaps, .tx_op_flags = FI_DELIVERY_COMPLETE};
}

void write_changes(std::size_t length) {
    Net net(with_delivery());
    Memory memory(net, length + 64);
    write_delivered(net, memory, pattern(length, 1), 16);
    write_delivered(net, memory, pattern(length, 2), 17);
    same_bytes("bytes before it", Memory(net, length + 64, kRemote, 2).part(0, 16),
               memory.part(0, 16));
    net.quiet("no entry at the target", net.end(1).received);
}
void write_short() {
    write_changes(64);
}
void write_long() {
    write_changes(2000000);
}

void read_fetches(std::size_t length) {
    Net net({.caps = kCaps});
    const Memory memory(net, length + 64);
    const fi_rma_iov remote = memory.at(5, length);
    Bytes in(length);
    net.post("fi_read", [&] {
        return fi_read(net.ep(0), in.data(), length, nullptr, net.address(1), remote.addr,
                       remote.key, net.context(1));
    });
    const Entry entry = net.sent(0);
    same("context", net.context(1), entry.op_context);
    same("flags", std::uint64_t{FI_RMA | FI_READ}, entry.flags & (FI_RMA | FI_WRITE | FI_READ));
    same_bytes("what was read", memory.part(5, length), in);
}
void read_short() {
    read_fetches(64);
}
void read_long() {
    read_fetches(2000000);
}

void no_bytes() {
    Net net({.caps = kCaps});
    const Memory memory(net, 64);
    Bytes none;
    call_msg(net, none, memory.at(0, 0), {});
    net.sent(0);
    call_msg(net, none, memory.at(0, 0), {.is_read = true});
    net.sent(0);
}

void own_memory() {
    Net net({.caps = kCaps});
    Memory memory(net, 64);
    const fi_rma_iov remote = memory.at(8, 8);
    Bytes out = pattern(8);
    net.post("fi_write", [&] {
        return fi_write(net.ep(1), out.data(), 8, nullptr, net.address(1), remote.addr, remote.key,
                        net.context(1));
    });
    net.sent(1);
    net.until("the bytes", [&] { return memory.part(8, 8) == out; });
}

void lists() {
    Net net(with_delivery());
    if (net.info().tx_attr->iov_limit < 2)
        throw Unsupported("iov_limit is 1");
    Memory memory(net, 4096);
    const Bytes out = pattern(300, 3);
    Bytes one(out.begin(), out.begin() + 100);
    Bytes two(out.begin() + 100, out.end());
    const fi_rma_iov remote = memory.at(50, 300);
    std::array<iovec, 2> list{{{one.data(), one.size()}, {two.data(), two.size()}}};
    net.post("fi_writev", [&] {
        return fi_writev(net.ep(0), list.data(), nullptr, 2, net.address(1), remote.addr,
                         remote.key, net.context(1));
    });
    net.sent(0);
    same_bytes("memory of the target", out, memory.part(50, 300));
    one.assign(100, 0);
    two.assign(200, 0);
    net.post("fi_readv", [&] {
        return fi_readv(net.ep(0), list.data(), nullptr, 2, net.address(1), remote.addr, remote.key,
                        net.context(1));
    });
    net.sent(0);
    one.insert(one.end(), two.begin(), two.end());
    same_bytes("what was read", out, one);
}

void lists_of_remote_memory() {
    Net net(with_delivery());
    if (net.info().tx_attr->rma_iov_limit < 2)
        throw Unsupported("rma_iov_limit is less than 2");
    Memory first(net, 256, kRemote, 1);
    Memory second(net, 256, kRemote, 2);
    Bytes out = pattern(100, 3);
    const std::array<fi_rma_iov, 2> remote{first.at(10, 60), second.at(20, 40)};
    const iovec list{out.data(), out.size()};
    fi_msg_rma msg{};
    msg.msg_iov = &list;
    msg.iov_count = 1;
    msg.addr = net.address(1);
    msg.rma_iov = remote.data();
    msg.rma_iov_count = 2;
    msg.context = net.context(1);
    net.post("fi_writemsg",
             [&] { return fi_writemsg(net.ep(0), &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION); });
    net.sent(0);
    Bytes there = first.part(10, 60);
    const Bytes rest = second.part(20, 40);
    there.insert(there.end(), rest.begin(), rest.end());
    same_bytes("memory of the target", out, there);
    out.assign(100, 0);
    net.post("fi_readmsg", [&] { return fi_readmsg(net.ep(0), &msg, FI_COMPLETION); });
    net.sent(0);
    same_bytes("what was read", there, out);
}

void written_data() {
    Net net({.caps = kCaps | FI_SOURCE});
    Memory memory(net, 200000);
    for (const std::size_t length : {0UL, 64UL, 100000UL}) {
        const Bytes out = pattern(length, 4);
        const fi_rma_iov remote = memory.at(32, length);
        net.post("fi_writedata", [&] {
            return fi_writedata(net.ep(0), out.data(), length, nullptr, 0x1234, net.address(1),
                                remote.addr, remote.key, net.context(1));
        });
        net.sent(0);
        const Entry entry = net.received(1);
        constexpr std::uint64_t kFlags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        same("flags", kFlags, entry.flags & kFlags);
        same("data", 0x1234U, entry.data);
        same("source", net.address(0), entry.from);
        same_bytes("memory of the target", out, memory.part(32, length));
    }
}

void injected(bool has_data) {
    Net net({.caps = kCaps});
    const std::size_t length = std::min<std::size_t>(64, net.info().tx_attr->inject_size);
    Memory memory(net, 256);
    const fi_rma_iov remote = memory.at(32, length);
    Bytes out = pattern(length, 5);
    net.post("fi_inject_write", [&] {
        return has_data ? fi_inject_writedata(net.ep(0), out.data(), length, 99, net.address(1),
                                              remote.addr, remote.key)
                        : fi_inject_write(net.ep(0), out.data(), length, net.address(1),
                                          remote.addr, remote.key);
    });
    out.assign(length, 0);  // the buffer is the program's again
    if (has_data)
        same("data", 99U, net.received(1).data);
    net.until("the bytes", [&] { return memory.part(32, length) == pattern(length, 5); });
    net.quiet("no entry for an injected write", net.end(0).sent);
}
void inject_write() {
    injected(false);
}
void inject_writedata() {
    injected(true);
}

void inject_limit_of_writes() {
    Net net({.caps = kCaps});
    const std::size_t length = net.info().tx_attr->inject_size + 1;
    Memory memory(net, length);
    const fi_rma_iov remote = memory.at(0, length);
    const Bytes out(length);
    holds("more than inject_size is refused",
          fi_inject_write(net.ep(0), out.data(), length, net.address(1), remote.addr, remote.key) <
              0);
}

void selective() {
    Net net({.caps = kCaps, .selective_tx = true});
    Memory memory(net, 256);
    Bytes out = pattern(64);
    call_msg(net, out, memory.at(0, 64), {});
    net.until("the bytes", [&] { return memory.part(0, 64) == out; });
    net.quiet("no entry without FI_COMPLETION", net.end(0).sent);
    call_msg(net, out, memory.at(64, 64), {.flags = FI_COMPLETION, .context = 3});
    same("context", net.context(3), net.sent(0).op_context);
}

void fenced_read() {
    Net net({.caps = kCaps | FI_FENCE});
    Memory memory(net, 100000);
    for (unsigned round = 1; round < 10; ++round) {
        Bytes out = pattern(100000, round);
        Bytes in(100000);
        call_msg(net, out, memory.at(0, out.size()), {.flags = FI_COMPLETION, .context = 2});
        call_msg(net, in, memory.at(0, in.size()),
                 {.is_read = true, .flags = FI_FENCE | FI_COMPLETION, .context = 3});
        net.sent(0);
        net.sent(0);
        same_bytes("what a fenced read sees", out, in);
    }
}

// ---- Memory

void key_is_in_use() {
    Net net({.caps = kCaps});
    if ((net.info().domain_attr->mr_mode & FI_MR_PROV_KEY) != 0)
        throw Unsupported("the provider chooses keys");
    const Memory memory(net, 64, kRemote, 5);
    same("key", 5U, fi_mr_key(memory.mr.get()));
    Bytes other(64);
    fid_mr* made = nullptr;
    const int status =
        fi_mr_reg(net.domain(), other.data(), other.size(), kRemote, 0, 5, 0, &made, nullptr);
    same("a key that is in use", -FI_ENOKEY, status);
}

void key_is_used_again() {
    Net net(with_delivery());
    if ((net.info().domain_attr->mr_mode & FI_MR_PROV_KEY) != 0)
        throw Unsupported("the provider chooses keys");
    for (const std::size_t length : {64UL, 256UL, 128UL}) {
        Memory memory(net, length, kRemote, 5);
        write_delivered(net, memory, pattern(length, 6), 0);
    }
}

void addresses_of_the_target() {
    Want want = with_delivery();
    want.mr_mode = kBasicModes;
    Net net(want);
    holds("no mode is set that the program does not have",
          (net.info().domain_attr->mr_mode & ~kBasicModes) == 0);
    Memory memory(net, 256);
    write_delivered(net, memory, pattern(64, 7), 32);
}

void raw_key() {
    Net net(with_delivery());
    Memory memory(net, 256);
    std::uint64_t base = 0;
    std::array<std::uint8_t, 64> raw{};
    std::size_t length = raw.size();
    done("fi_mr_raw_attr", fi_mr_raw_attr(memory.mr.get(), &base, raw.data(), &length, 0));
    std::uint64_t key = 0;
    done("fi_mr_map_raw", fi_mr_map_raw(net.domain(), base, raw.data(), length, &key, 0));
    Bytes out = pattern(64, 7);
    fi_rma_iov remote = memory.at(32, 64);
    remote.key = key;
    call_msg(net, out, remote, {.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION});
    net.sent(0);
    same_bytes("memory of the target", out, memory.part(32, 64));
    done("fi_mr_unmap_key", fi_mr_unmap_key(net.domain(), key));
}

// By the call or by its entry; the memory stays what it was.
void is_refused(Net& net, const Memory& memory, const fi_rma_iov& remote, bool is_read) {
    Bytes bytes(remote.len);
    const Bytes before = memory.bytes;
    std::int64_t status = 0;
    net.until("the call", [&] {
        status = try_call(net, bytes, remote,
                          {.is_read = is_read, .flags = FI_DELIVERY_COMPLETE | FI_COMPLETION});
        return status != -FI_EAGAIN;
    });
    if (status == 0)
        holds("the operation fails", net.next_sent(0).err != 0);
    same_bytes("memory of the target", before, memory.bytes);
}

void unknown_key() {
    Net net(with_delivery());
    const Memory memory(net, 256);
    fi_rma_iov remote = memory.at(0, 64);
    remote.key ^= 0x55;
    is_refused(net, memory, remote, false);
    is_refused(net, memory, remote, true);
}

void outside_of_the_region() {
    Net net(with_delivery());
    const Memory memory(net, 256);
    is_refused(net, memory, memory.at(200, 64), false);
    is_refused(net, memory, memory.at(200, 64), true);
    is_refused(net, memory, memory.at(~std::size_t{0} - 70, 64), false);
}

void rights() {
    Net net(with_delivery());
    const Memory readable(net, 256, FI_REMOTE_READ, 1);
    const Memory writable(net, 256, FI_REMOTE_WRITE, 2);
    is_refused(net, readable, readable.at(0, 64), false);
    is_refused(net, writable, writable.at(0, 64), true);
}

void closed_region() {
    Net net(with_delivery());
    Memory memory(net, 256, kRemote, 1);
    Memory other(net, 256, kRemote, 2);
    write_delivered(net, memory, pattern(64), 0);
    const fi_rma_iov remote = memory.at(64, 64);
    memory.mr.reset();
    net.settle(1, 0);
    is_refused(net, memory, remote, false);
    write_delivered(net, other, pattern(64), 0);
}

// ---- Counters

struct Counter {
    Counter(Net& net, std::size_t at, std::uint64_t ways) {
        fi_cntr_attr how{};
        how.events = FI_CNTR_EVENTS_COMP;
        fid_cntr* made = nullptr;
        done("fi_cntr_open", fi_cntr_open(net.domain(), &how, &made, nullptr));
        cntr.reset(made);
        if (ways != 0)
            done("fi_ep_bind", fi_ep_bind(net.ep(at), &made->fid, ways));
    }
    Owned<fid_cntr> cntr;
};

void enable_all(Net& net) {
    for (std::size_t i = 0; i < 2; ++i)
        done("fi_enable", fi_enable(net.ep(i)));
    for (std::size_t i = 0; i < 2; ++i)
        net.add_address(net.name_of(i));
}

void reaches(Net& net, const Counter& counter, std::uint64_t count) {
    net.until("a count", [&] { return fi_cntr_read(counter.cntr.get()) >= count; });
    for (int round = 0; round < 100; ++round)
        net.progress();
    same("count", count, fi_cntr_read(counter.cntr.get()));
}

void counts_of_the_initiator() {
    Want want{.caps = kCaps};
    want.enable = false;
    // Endpoints end before what is bound to them.
    std::deque<Counter> counters;
    Net net(want);
    const Counter& reads = counters.emplace_back(net, 0, FI_READ);
    const Counter& writes = counters.emplace_back(net, 0, FI_WRITE);
    enable_all(net);
    Memory memory(net, 256);
    Bytes bytes = pattern(64);
    for (int i = 0; i < 3; ++i)
        call_msg(net, bytes, memory.at(0, 64), {.flags = FI_COMPLETION});
    call_msg(net, bytes, memory.at(0, 64), {.is_read = true, .flags = FI_COMPLETION});
    reaches(net, writes, 3);
    reaches(net, reads, 1);
    net.end(0).ep.reset();
    net.end(1).ep.reset();
    counters.clear();
}

void counts_of_the_target() {
    Want want{.caps = kCaps | FI_RMA_EVENT};
    want.enable = false;
    std::deque<Counter> counters;
    Net net(want);
    const Counter& reads = counters.emplace_back(net, 1, FI_REMOTE_READ);
    const Counter& writes = counters.emplace_back(net, 1, FI_REMOTE_WRITE);
    enable_all(net);
    Memory memory(net, 256);
    for (unsigned i = 1; i <= 3; ++i) {
        Bytes bytes = pattern(64, i);
        call_msg(net, bytes, memory.at(0, 64), {.flags = FI_COMPLETION});
        net.until("a count", [&] { return fi_cntr_read(writes.cntr.get()) >= i; });
        same_bytes("memory when it is counted", bytes, memory.part(0, 64));
    }
    Bytes in(64);
    call_msg(net, in, memory.at(0, 64), {.is_read = true, .flags = FI_COMPLETION});
    reaches(net, reads, 1);
    reaches(net, writes, 3);
    net.end(0).ep.reset();
    net.end(1).ep.reset();
    counters.clear();
}

void counts_of_a_region() {
    Net net({.caps = kCaps | FI_RMA_EVENT});
    const Counter counter(net, 1, 0);
    {
        Memory memory(net, 256);
        Memory other(net, 256, kRemote, 2);
        done("fi_mr_bind", fi_mr_bind(memory.mr.get(), &counter.cntr->fid, FI_REMOTE_WRITE));
        Bytes out = pattern(64);
        call_msg(net, out, memory.at(0, 64), {.flags = FI_COMPLETION});
        call_msg(net, out, other.at(0, 64), {.flags = FI_COMPLETION});
        net.sent(0);
        net.sent(0);
        reaches(net, counter, 1);
    }
}

// ---- Ends before the end

// Whether it is still under way when it is cancelled depends on the provider; it ends once.
void cancelled_write() {
    Net net({.caps = kCaps});
    Memory memory(net, 256);
    Bytes out = pattern(64);
    call_msg(net, out, memory.at(0, 64), {.flags = FI_COMPLETION});
    const auto status = fi_cancel(&net.ep(0)->fid, net.context(1));
    holds("fi_cancel finds it, or it has ended", status == 0 || status == -FI_ENOENT);
    const Entry entry = net.next_sent(0);
    holds("it is cancelled or has succeeded", entry.err == 0 || entry.err == FI_ECANCELED);
    same("context", net.context(1), entry.op_context);
    net.quiet("no second entry", net.end(0).sent);
    call_msg(net, out, memory.at(64, 64), {.flags = FI_COMPLETION, .context = 2});
    same("context of the next write", net.context(2), net.sent(0).op_context);
}

// ---- Hints

void calls_of_one_way() {
    Net net({.caps = kCaps | FI_READ | FI_REMOTE_READ});
    constexpr std::uint64_t kWays = FI_READ | FI_WRITE | kRemote;
    same("ways", std::uint64_t{FI_READ | FI_REMOTE_READ}, net.info().caps & kWays);
    const Memory memory(net, 256, FI_REMOTE_READ);
    const fi_rma_iov remote = memory.at(0, 64);
    Bytes bytes(64);
    call_msg(net, bytes, remote, {.is_read = true, .flags = FI_COMPLETION});
    net.sent(0);
    std::int64_t status = 0;
    net.until("an answer to a write", [&] {
        status = try_call(net, bytes, remote, {.flags = FI_COMPLETION});
        return status != -FI_EAGAIN;
    });
    holds("a write is refused", status < 0);
}

void all_memory() {
    Net net({.caps = kCaps});
    if (net.info().domain_attr->mr_mode != 0)
        throw Unsupported("memory is registered by its pages");
    fid_mr* made = nullptr;
    if (const int status =
            fi_mr_reg(net.domain(), nullptr, SIZE_MAX, kRemote, 0, 5, 0, &made, nullptr);
        status != 0)
        throw Unsupported("fi_mr_reg: " + std::string(fi_strerror(-status)));
    const Owned<fid_mr> everything(made);
    Bytes target(64);
    Bytes out = pattern(64);
    call_msg(net, out, {reinterpret_cast<std::uintptr_t>(target.data()), 64, 5},
             {.flags = FI_DELIVERY_COMPLETE | FI_COMPLETION});
    net.sent(0);
    same_bytes("memory of the target", out, target);
}

void ways_are_all_there() {
    const Info info = ask(*hints_of({.caps = FI_RMA}));
    if (!info)
        throw Unsupported("fi_getinfo has no answer to FI_RMA");
    constexpr std::uint64_t kWays = FI_READ | FI_WRITE | kRemote;
    same("ways when none is asked for", kWays, info->caps & kWays);
    holds("rma_iov_limit is 1 at least", info->tx_attr->rma_iov_limit >= 1);
}

constexpr const char* kCalls = "one-sided operations";
constexpr const char* kMemory = "keys and memory of one-sided operations";
constexpr const char* kCounters = "counters of one-sided operations";
constexpr std::array kRmaCases{
    Case{"rma_write", kCalls, "W90", "fi_rma fi_writemsg", write_short},
    Case{"rma_write_long", kCalls, "W90", "fi_rma fi_writemsg", write_long},
    Case{"rma_read", kCalls, "W90", "fi_rma fi_read", read_short},
    Case{"rma_read_long", kCalls, "W90", "fi_rma fi_read", read_long},
    Case{"rma_no_bytes", kCalls, "W90", "fi_rma DESCRIPTION", no_bytes},
    Case{"rma_own_memory", kCalls, "W90", "fi_getinfo FI_LOCAL_COMM", own_memory},
    Case{"rma_lists", kCalls, "W91", "fi_rma fi_writev, fi_readv", lists},
    Case{"rma_remote_lists", kCalls, "W91", "fi_rma fi_rma_iov", lists_of_remote_memory},
    Case{"rma_writedata", kCalls, "W94", "fi_rma FI_REMOTE_CQ_DATA", written_data},
    Case{"rma_inject", kCalls, "W92", "fi_rma fi_inject_write", inject_write},
    Case{"rma_injectdata", kCalls, "W92", "fi_rma fi_inject_writedata", inject_writedata},
    Case{"rma_inject_limit", kCalls, "W92", "fi_rma FI_INJECT", inject_limit_of_writes},
    Case{"rma_selective", kCalls, "", "fi_rma FI_COMPLETION", selective},
    Case{"rma_fence", kCalls, "W96", "fi_rma FI_FENCE", fenced_read},
    Case{"rma_caps", kCalls, "", "fi_getinfo FI_READ, FI_WRITE", ways_are_all_there},
    Case{"rma_one_way", kCalls, "", "fi_getinfo FI_READ, FI_WRITE", calls_of_one_way},
    Case{"rma_cancel", kCalls, "", "fi_endpoint fi_cancel", cancelled_write},
    Case{"mr_all_memory", kMemory, "", "fi_mr Default Memory Registration", all_memory},
    Case{"mr_key_in_use", kMemory, "", "fi_mr ERRORS", key_is_in_use},
    Case{"mr_key_again", kMemory, "W98", "fi_mr requested_key", key_is_used_again},
    Case{"mr_basic", kMemory, "", "fi_mr FI_MR_VIRT_ADDR, FI_MR_PROV_KEY", addresses_of_the_target},
    Case{"mr_raw_key", kMemory, "", "fi_mr fi_mr_raw_attr", raw_key},
    Case{"mr_unknown_key", kMemory, "W97", "fi_mr DESCRIPTION", unknown_key},
    Case{"mr_outside", kMemory, "W97", "fi_mr DESCRIPTION", outside_of_the_region},
    Case{"mr_rights", kMemory, "W97", "fi_mr access", rights},
    Case{"mr_closed", kMemory, "W98", "fi_mr fi_close", closed_region},
    Case{"rma_counters", kCounters, "", "fi_endpoint FI_READ, FI_WRITE", counts_of_the_initiator},
    Case{"rma_events", kCounters, "", "fi_getinfo FI_RMA_EVENT", counts_of_the_target},
    Case{"rma_events_region", kCounters, "", "fi_mr fi_mr_bind", counts_of_a_region},
};

}  // namespace

std::span<const Case> rma_cases() {
    return kRmaCases;
}

}  // namespace conformance
