// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic_memory.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "common/nomem.hpp"
#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr tw_atomic_op_t kFetching[] = {TW_ATOMIC_ADD, TW_ATOMIC_AND,  TW_ATOMIC_OR,
                                        TW_ATOMIC_XOR, TW_ATOMIC_SWAP, TW_ATOMIC_MIN,
                                        TW_ATOMIC_MAX, TW_ATOMIC_CSWAP};

template <class T>
std::uint64_t applied(tw_atomic_op_t operation, std::uint64_t found, std::uint64_t operand,
                      std::uint64_t compare) {
    const auto a = static_cast<T>(found), b = static_cast<T>(operand);
    switch (operation) {
        case TW_ATOMIC_ADD:
            return static_cast<T>(a + b);
        case TW_ATOMIC_AND:
            return a & b;
        case TW_ATOMIC_OR:
            return a | b;
        case TW_ATOMIC_XOR:
            return a ^ b;
        case TW_ATOMIC_SWAP:
            return b;
        case TW_ATOMIC_MIN:
            return std::min(a, b);
        case TW_ATOMIC_MAX:
            return std::max(a, b);
        case TW_ATOMIC_CSWAP:
            return a == static_cast<T>(compare) ? b : a;
    }
    return 0;
}

}  // namespace

TrafficMemory::~TrafficMemory() {
    for (const auto& each : windows_)
        EXPECT_EQ(tw_mem_unmap(each->context, each->handle), TW_OK);
}

void TrafficMemory::open() {
    nomem::arm(nomem::Where::kNowhere);
    windows_.push_back(std::make_unique<Window>());
    Window& made = *windows_.back();
    made.context = traffic_.context_of(static_cast<unsigned>(windows_.size() - 1));
    const std::size_t bytes = kNumbersBytes + kOwnBytes * (traffic_.options_.workers + 1);
    if (traffic_.chance(2)) {
        made.own = std::make_unique<std::byte[]>(bytes);
        made.at = made.own.get();
        EXPECT_EQ(tw_mem_map(made.context, made.at, bytes, nullptr, &made.handle), TW_OK);
    } else {
        void* address = nullptr;
        EXPECT_EQ(tw_mem_alloc(made.context, bytes, nullptr, &address, &made.handle), TW_OK);
        made.at = static_cast<std::byte*>(address);
    }
    made.key_bytes = made.key.size();
    EXPECT_EQ(tw_mem_pack(made.handle, made.key.data(), &made.key_bytes), TW_OK);
}

TrafficMemory::Way& TrafficMemory::way(unsigned from, unsigned to) {
    std::deque<Way>& ways = window(to).ways;
    while (ways.size() <= from) {
        ways.emplace_back();
        for (const std::size_t bytes : kChunks) {
            ways.back().chunks.emplace_back();
            ways.back().chunks.back().bytes.resize(bytes);
        }
    }
    return ways[from];
}

std::byte* TrafficMemory::chunk_at(unsigned from, unsigned to, std::size_t index) {
    const std::size_t before =
        std::accumulate(kChunks.begin(), kChunks.begin() + index, std::size_t{0});
    return window(to).at + kNumbersBytes + kOwnBytes * from + before;
}

/// nullptr: there is no memory for it.
tw_key_h TrafficMemory::key_to(TrafficNode& node, unsigned peer, tw_ep_h ep) {
    Way& to = way(node.index, peer);
    if (to.key != nullptr && to.ep == ep)
        return to.key;
    tw_key_free(std::exchange(to.key, nullptr));
    const Window& of = window(peer);
    const tw_status_t status = tw_key_unpack(ep, of.key.data(), of.key_bytes, &to.key);
    EXPECT_TRUE(status == TW_OK || Traffic::is_for_lack_of_memory(status) ||
                traffic_.is_anything_broken())
        << tw_status_string(status);
    to.ep = ep;
    return status == TW_OK ? to.key : nullptr;
}

void TrafficMemory::forget_key(const TrafficNode& node, unsigned peer) {
    tw_key_free(std::exchange(way(node.index, peer).key, nullptr));
}

void TrafficMemory::never_ends(const TrafficOp& op) {
    if (op.kind == TrafficOp::Kind::kAtomic)
        number_of(op).is_excused = true;
}

void TrafficMemory::close(const TrafficNode& node) {
    for (const auto& each : windows_)
        if (node.index < each->ways.size())
            tw_key_free(std::exchange(each->ways[node.index].key, nullptr));
}

void TrafficMemory::act(TrafficNode& node) {
    const auto peer = static_cast<unsigned>(traffic_.pick(traffic_.nodes_.size()));
    const tw_ep_h ep = traffic_.ep_to(node, peer);
    if (ep == nullptr || !traffic_.nodes_[peer]->is_alive())
        return;
    const tw_key_h key = key_to(node, peer, ep);
    if (key == nullptr)
        return;
    switch (traffic_.pick(3)) {
        case 0:
            return put(node, peer, ep, key);
        case 1:
            return get(node, peer, ep, key);
        default:
            return combine(node, peer, ep, key);
    }
}

// ---- Put and get

void TrafficMemory::put(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key) {
    Way& to = way(node.index, peer);
    const std::size_t index = traffic_.pick(kChunks.size());
    Chunk& chunk = to.chunks[index];
    if (chunk.state != State::kIdle)
        return;
    TrafficOp& op = traffic_.new_op(node, TrafficOp::Kind::kPut);
    op.peer = peer;
    traffic_.draw_report(op);
    const std::size_t at = traffic_.pick(chunk.bytes.size());
    op.length = traffic_.chance(3) ? std::min<std::size_t>(8, chunk.bytes.size() - at)
                                   : traffic_.pick(chunk.bytes.size() - at + 1);
    op.bytes = pattern(op.length, ++imms_);
    op.record = index;
    if (!traffic_.chance(3))
        op.flags |= TW_OP_DELIVERY_COMPLETE;
    if (traffic_.chance(8))
        op.flags |= TW_OP_FENCE;
    if (traffic_.chance(4) && op.length <= 1024)
        op.flags |= TW_OP_INJECT;
    if (traffic_.chance(3))
        op.flags |= TW_OP_IMM;
    op.imm = (op.flags & TW_OP_IMM) != 0 ? imms_ : 0;
    traffic_.draw_list(op);
    const Bytes before = chunk.bytes;
    std::ranges::copy(op.bytes, chunk.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    chunk.state = State::kBusy;
    chunk.op = &op;
    chunk.awaits_notice = op.imm != 0;
    chunk.imm = op.imm;
    chunk.at = at;
    chunk.length = op.length;
    const std::uint64_t address = address_of(node.index, peer, index) + at;
    const tw_status_t status = traffic_.post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return op.list.empty()
                   ? tw_put(ep, op.bytes.data(), op.length, address, key, what, request_p)
                   : tw_putv(ep, op.list.data(), op.list.size(), address, key, what, request_p);
    });
    if (status == TW_ERR_NO_RESOURCE) {
        chunk.bytes = before;
        chunk.state = State::kIdle;
        chunk.awaits_notice = false;
        chunk.op = nullptr;
    } else if ((op.flags & TW_OP_INJECT) != 0) {
        std::ranges::fill(op.bytes, std::byte{0xdd});
    }
}

void TrafficMemory::end_put(TrafficOp& op, const tw_completion_t& done) {
    Way& to = way(op.node->index, op.peer);
    Chunk& chunk = to.chunks[op.record];
    chunk.op = nullptr;
    EXPECT_EQ(done.flags & ~unsigned{TW_DONE_IMM}, unsigned{TW_DONE_PUT});
    if (!traffic_.may_be_read_still(op))
        std::ranges::fill(op.bytes, std::byte{0xdd});
    if (chunk.state == State::kLost)
        return;
    if (done.status != TW_OK) {
        EXPECT_TRUE(traffic_.is_broken(op) || op.cancelled != kNever)
            << tw_status_string(done.status);
        chunk.state = State::kLost;
        chunk.awaits_notice = false;
        return;
    }
    chunk.state = State::kLanding;
    if ((op.flags & TW_OP_DELIVERY_COMPLETE) != 0)
        chunk.state = chunk.awaits_notice ? State::kBusy : State::kIdle;
    else
        to.landing.push_back(op.record);
}

std::size_t TrafficMemory::mark(const TrafficNode& from, unsigned to) const {
    const Window& of = *windows_[to];
    return from.index < of.ways.size() ? of.ways[from.index].landing.size() : 0;
}

void TrafficMemory::flushed(const TrafficNode& from, unsigned to, std::size_t mark) {
    Way& by = way(from.index, to);
    for (; by.landed < mark; ++by.landed) {
        Chunk& chunk = by.chunks[by.landing[by.landed]];
        if (chunk.state == State::kLanding)
            chunk.state = chunk.awaits_notice ? State::kBusy : State::kIdle;
    }
}

void TrafficMemory::on_event(void* arg, const tw_completion_t* done) {
    auto& node = *static_cast<TrafficNode*>(arg);
    node.traffic->memory_.notice(node.index, *done);
}

void TrafficMemory::notice(unsigned to, const tw_completion_t& done) {
    EXPECT_EQ(done.flags, unsigned{TW_DONE_PUT | TW_DONE_REMOTE | TW_DONE_IMM});
    const auto from = std::ranges::find_if(
        traffic_.nodes_, [&](const auto& node) { return node->id == done.source; });
    ASSERT_NE(from, traffic_.nodes_.end()) << "a notice of a worker that is none";
    const unsigned index = (*from)->index;
    Way& by = way(index, to);
    const auto found = std::ranges::find_if(by.chunks, [&](const Chunk& chunk) {
        return chunk.awaits_notice && chunk.imm == done.imm;
    });
    if (found == by.chunks.end()) {
        EXPECT_TRUE((*from)->broken[to] != 0 || !(*from)->is_alive())
            << "a notice that nobody has sent, or twice";
        return;
    }
    Chunk& chunk = *found;
    const auto place = static_cast<std::size_t>(found - by.chunks.begin());
    const std::byte* const at = chunk_at(index, to, place) + chunk.at;
    EXPECT_EQ(done.buffer, at);
    EXPECT_EQ(done.length, chunk.length);
    EXPECT_EQ(std::memcmp(at, chunk.bytes.data() + chunk.at, chunk.length), 0)
        << "its data is not there";
    chunk.awaits_notice = false;
    // It has ended before, and only the notice was missing.
    if (chunk.state == State::kBusy && chunk.op == nullptr)
        chunk.state = State::kIdle;
}

void TrafficMemory::get(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key) {
    Way& to = way(node.index, peer);
    const std::size_t index = traffic_.pick(kChunks.size());
    Chunk& chunk = to.chunks[index];
    if (chunk.state != State::kIdle)
        return;
    TrafficOp& op = traffic_.new_op(node, TrafficOp::Kind::kGet);
    op.peer = peer;
    traffic_.draw_report(op);
    op.match = traffic_.pick(chunk.bytes.size());
    op.length = traffic_.pick(chunk.bytes.size() - op.match + 1);
    op.bytes.assign(op.length + Traffic::kGuardBytes, std::byte{0xee});
    op.record = index;
    if (traffic_.chance(8))
        op.flags |= TW_OP_FENCE;
    traffic_.draw_list(op);
    chunk.state = State::kBusy;
    chunk.op = &op;
    const std::uint64_t address = address_of(node.index, peer, index) + op.match;
    const tw_status_t status = traffic_.post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return op.list.empty()
                   ? tw_get(ep, op.bytes.data(), op.length, address, key, what, request_p)
                   : tw_getv(ep, op.list.data(), op.list.size(), address, key, what, request_p);
    });
    if (status == TW_ERR_NO_RESOURCE) {
        chunk.op = nullptr;
        if (chunk.state == State::kBusy)
            chunk.state = State::kIdle;
    }
}

void TrafficMemory::end_get(TrafficOp& op, const tw_completion_t& done) {
    Chunk& chunk = way(op.node->index, op.peer).chunks[op.record];
    chunk.op = nullptr;
    EXPECT_EQ(done.flags, unsigned{TW_DONE_GET});
    if (chunk.state == State::kBusy)
        chunk.state = State::kIdle;
    if (done.status != TW_OK) {
        EXPECT_TRUE(traffic_.is_broken(op) || op.cancelled != kNever)
            << tw_status_string(done.status);
        return;
    }
    if (chunk.state != State::kLost) {
        EXPECT_EQ(std::memcmp(op.bytes.data(), chunk.bytes.data() + op.match, op.length), 0)
            << "chunk " << op.record << ", " << op.length << " bytes";
    }
    EXPECT_EQ(op.bytes[op.length], std::byte{0xee}) << "more was written";
}

// ---- Atomics

TrafficMemory::Number& TrafficMemory::number_of(const TrafficOp& op) {
    Window& of = window(op.peer);
    const std::size_t kind = op.record / kNumbers;
    return (kind == 0 ? of.wide : kind == 1 ? of.narrow : of.sums)[op.record % kNumbers];
}

/// `record`: the number; `tag`: the operation; `match`: the operand; `mask`: what is compared.
void TrafficMemory::combine(TrafficNode& node, unsigned peer, tw_ep_h ep, tw_key_h key) {
    TrafficOp& op = traffic_.new_op(node, TrafficOp::Kind::kAtomic);
    op.peer = peer;
    traffic_.draw_report(op);
    const std::size_t kind = traffic_.pick(3);
    const bool is_narrow = kind == 1;
    const tw_atomic_type_t type = is_narrow ? TW_UINT32 : TW_UINT64;
    const auto operation =
        kind == 2 ? TW_ATOMIC_ADD : kFetching[traffic_.pick(std::size(kFetching))];
    op.length = is_narrow ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
    op.record = kind * kNumbers + traffic_.pick(kNumbers);
    op.tag = operation;
    op.match = traffic_.chance(4) ? traffic_.pick(8) : traffic_.random_();
    if (is_narrow)
        op.match &= UINT32_MAX;
    op.mask = traffic_.pick(8);
    op.bytes.assign(sizeof(std::uint64_t), std::byte{0});
    const std::uint64_t address =
        reinterpret_cast<std::uintptr_t>(window(peer).at) + op.record * sizeof(std::uint64_t);
    const std::uint64_t operand = op.match, compare = op.mask;
    traffic_.post(op, [&](const tw_op_t* what, tw_request_h* request_p) {
        if (kind == 2)
            return tw_atomic(ep, operation, type, &operand, address, key, what, request_p);
        return operation == TW_ATOMIC_CSWAP
                   ? tw_atomic_cswap(ep, type, &compare, &operand, op.bytes.data(), address, key,
                                     what, request_p)
                   : tw_atomic_fetch(ep, operation, type, &operand, op.bytes.data(), address, key,
                                     what, request_p);
    });
}

void TrafficMemory::end_atomic(TrafficOp& op, const tw_completion_t& done) {
    Number& number = number_of(op);
    EXPECT_EQ(done.flags, unsigned{TW_DONE_ATOMIC});
    if (done.status != TW_OK) {
        EXPECT_TRUE(traffic_.is_broken(op) || op.cancelled != kNever)
            << tw_status_string(done.status);
        number.is_excused = true;
        return;
    }
    number.sum += op.match;
    if (op.record / kNumbers == 2)
        return;
    std::uint64_t found = 0;
    std::memcpy(&found, op.bytes.data(), op.length);
    const auto operation = static_cast<tw_atomic_op_t>(op.tag);
    const std::uint64_t left = op.length == 4
                                   ? applied<std::uint32_t>(operation, found, op.match, op.mask)
                                   : applied<std::uint64_t>(operation, found, op.match, op.mask);
    number.steps.emplace_back(found, left);
}

void TrafficMemory::end(TrafficOp& op, const tw_completion_t& done) {
    if (op.kind == TrafficOp::Kind::kPut)
        end_put(op, done);
    else if (op.kind == TrafficOp::Kind::kGet)
        end_get(op, done);
    else
        end_atomic(op, done);
}

// ---- The end

void TrafficMemory::excuse(unsigned a, unsigned b) {
    for (const auto& [from, to] : {std::pair{a, b}, {b, a}}) {
        for (Chunk& chunk : way(from, to).chunks) {
            if (chunk.state != State::kIdle)
                chunk.state = State::kLost;
            chunk.awaits_notice = false;
        }
        // Those that have ended may not have been carried out.
        for (Number& number : window(to).sums)
            number.is_excused = true;
    }
}

bool TrafficMemory::is_quiet() const {
    for (const auto& each : windows_)
        for (const Way& way : each->ways)
            for (const Chunk& chunk : way.chunks)
                if (chunk.awaits_notice)
                    return false;
    return true;
}

/// Some order of the steps is a path from 0 to `last`: each number is found as often as it is left,
/// but for the ends, and all steps hang together.
void TrafficMemory::check_number(const Number& number, std::uint64_t last,
                                 const std::string& which) const {
    std::map<std::uint64_t, std::int64_t> balance;
    std::map<std::uint64_t, std::uint64_t> root;
    const auto find = [&](std::uint64_t value) {
        root.try_emplace(value, value);
        while (root[value] != value)
            value = root[value] = root[root[value]];
        return value;
    };
    ++balance[0];
    --balance[last];
    for (const auto& [found, left] : number.steps) {
        --balance[found];
        ++balance[left];
        root[find(found)] = find(left);
    }
    for (const auto& [value, count] : balance)
        EXPECT_EQ(count, 0) << which << ": " << value << " was found and left unequally often";
    for (const auto& [found, left] : number.steps)
        EXPECT_EQ(find(found), find(0)) << which << ": " << found << " cannot be reached";
}

void TrafficMemory::check() {
    for (unsigned to = 0; to < windows_.size(); ++to) {
        Window& of = window(to);
        if (!traffic_.nodes_[to]->is_alive())
            continue;
        const std::string where = "worker " + std::to_string(to) + ", number ";
        for (std::size_t i = 0; i < kNumbers; ++i) {
            const auto last = [&](std::size_t kind, std::size_t bytes) {
                std::uint64_t value = 0;
                std::memcpy(&value, of.at + (kind * kNumbers + i) * sizeof value, bytes);
                return value;
            };
            if (!of.wide[i].is_excused)
                check_number(of.wide[i], last(0, 8), where + std::to_string(i));
            if (!of.narrow[i].is_excused)
                check_number(of.narrow[i], last(1, 4), where + std::to_string(i) + " of 32 bits");
            if (!of.sums[i].is_excused) {
                EXPECT_EQ(of.sums[i].sum, last(2, 8)) << where << i << ", a sum";
            }
        }
        for (unsigned from = 0; from < of.ways.size(); ++from) {
            for (std::size_t i = 0; i < kChunks.size(); ++i) {
                const Chunk& chunk = of.ways[from].chunks[i];
                if (chunk.state != State::kIdle)
                    continue;
                const std::byte* const at = chunk_at(from, to, i);
                EXPECT_EQ(std::memcmp(at, chunk.bytes.data(), chunk.bytes.size()), 0)
                    << "chunk " << i << " of worker " << from << " at worker " << to;
            }
        }
    }
}

}  // namespace tagwire::test
