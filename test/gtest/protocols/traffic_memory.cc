// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/traffic_memory.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/nomem.hpp"
#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kTrafficInjectedPutMax = 1024;
constexpr std::uint64_t kTrafficAddedMax = 1000;
/// An immediate of a put names its chunk.
constexpr unsigned kTrafficChunkBits = 3, kTrafficSlotBits = 12;
constexpr tw_atomic_op_t kTrafficAtomics[] = {TW_ATOMIC_ADD, TW_ATOMIC_AND,  TW_ATOMIC_OR,
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
    for (const Window& each : windows_)
        EXPECT_EQ(tw_mem_unmap(each.context, each.handle), TW_OK);
}

std::size_t TrafficMemory::slots() const {
    return traffic_.is_alone() ? traffic_.workers_max() : traffic_.threads_.size();
}

std::size_t TrafficMemory::slot_of(const TrafficOp& op) const {
    return traffic_.is_alone() ? op.worker : op.owner->number;
}

void TrafficMemory::open(const TrafficWorker& worker) {
    nomem::arm(nomem::Where::kNowhere);
    const std::size_t bytes = kNumbersBytes + kOwnBytes * slots();
    Window& made = windows_.emplace_back();
    made.context = worker.context;
    if (traffic_.chance(traffic_.main_, 2)) {
        made.own = std::make_unique<std::byte[]>(bytes);
        made.at = made.own.get();
        EXPECT_EQ(tw_mem_map(made.context, made.at, bytes, nullptr, &made.handle), TW_OK);
    } else {
        void* at = nullptr;
        EXPECT_EQ(tw_mem_alloc(made.context, bytes, nullptr, &at, &made.handle), TW_OK);
        made.at = static_cast<std::byte*>(at);
    }
    made.key_bytes = made.key.size();
    EXPECT_EQ(tw_mem_pack(made.handle, made.key.data(), &made.key_bytes), TW_OK);
    while (made.chunks.size() < slots()) {
        auto& chunks = made.chunks.emplace_back();
        for (std::size_t k = 0; k < kChunks.size(); ++k)
            chunks.at(k).bytes.resize(kChunks.at(k));
    }
}

/// Most share one for each endpoint; some have their own, which is freed when the call returns.
TrafficMemory::Key TrafficMemory::key_to(TrafficThread& self, TrafficEp& ep) {
    Key key;
    key.is_for_once = traffic_.chance(self, 8);
    const std::lock_guard lock(keys_lock_);
    tw_key_h& shared = keys_[&ep];
    tw_key_h& wanted = key.is_for_once ? key.handle : shared;
    if (wanted == nullptr) {
        const Window& of = windows_[ep.to];
        const tw_status_t status = tw_key_unpack(traffic_.workers_[ep.from].worker.get(),
                                                 of.key.data(), of.key_bytes, &wanted);
        if (status != TW_OK && !Traffic::is_for_lack_of_memory(status))
            traffic_.wrong(std::string("a key is not unpacked: ") + tw_status_string(status));
    }
    key.handle = wanted;
    return key;
}

void TrafficMemory::free_key(TrafficEp& ep) {
    const std::lock_guard lock(keys_lock_);
    if (const auto found = keys_.find(&ep); found != keys_.end())
        tw_key_free(std::exchange(found->second, nullptr));
}

void TrafficMemory::free_keys(unsigned worker) {
    const std::lock_guard lock(keys_lock_);
    std::erase_if(keys_, [&](const auto& each) {
        if (each.first->from != worker)
            return false;
        tw_key_free(each.second);
        return true;
    });
}

void TrafficMemory::act(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(traffic_.pick(self, traffic_.workers_.size()));
    const std::shared_lock use = traffic_.use_ep(worker, to);
    if (!use)
        return;
    TrafficEp& ep = *traffic_.way(worker, to).ep;
    const Key key = key_to(self, ep);
    if (key.handle == nullptr)
        return;
    switch (traffic_.pick(self, 3)) {
        case 0:
            put(self, ep, key.handle);
            break;
        case 1:
            get(self, ep, key.handle);
            break;
        default:
            combine(self, ep, key.handle);
    }
    if (key.is_for_once)
        tw_key_free(key.handle);
}

// ---- Chunks

std::size_t TrafficMemory::place_of(std::size_t slot, std::size_t chunk) {
    return kNumbersBytes + kOwnBytes * slot +
           std::accumulate(kChunks.begin(), kChunks.begin() + static_cast<std::ptrdiff_t>(chunk),
                           std::size_t{0});
}

std::uint64_t TrafficMemory::address_of(unsigned window, std::size_t place) const {
    return reinterpret_cast<std::uintptr_t>(windows_[window].at + place);
}

TrafficMemory::Chunk& TrafficMemory::chunk_of(const TrafficOp& op) {
    return windows_[op.peer].chunks[slot_of(op)].at(op.number);
}

/// `number`: the chunk; `match`: the first byte in it.
TrafficOp* TrafficMemory::draw(TrafficThread& self, TrafficEp& ep, bool is_put) {
    const std::size_t index = traffic_.pick(self, kChunks.size());
    Chunk& chunk = windows_[ep.to].chunks[traffic_.is_alone() ? ep.from : self.number].at(index);
    // SYNC traffic_chunk: pairs with the release in finish(): the chunk is this thread's again.
    if (chunk.state.load(std::memory_order_acquire) != State::kIdle)
        return nullptr;
    if (chunk.unsure != nullptr && chunk.unsure != &ep)
        return nullptr;
    TrafficOp& op =
        traffic_.new_op(self, is_put ? TrafficOp::Kind::kPut : TrafficOp::Kind::kGet, ep.from);
    op.peer = ep.to;
    op.ep = &ep;
    op.number = static_cast<std::uint32_t>(index);
    traffic_.draw_report(self, op);
    op.match = traffic_.pick(self, kChunks.at(index));
    const std::size_t rest = kChunks.at(index) - op.match;
    op.length =
        traffic_.chance(self, 3) ? std::min<std::size_t>(8, rest) : traffic_.pick(self, rest + 1);
    if (chunk.unsure != nullptr || traffic_.chance(self, 8))
        op.flags |= TW_OP_FENCE;
    // Relaxed: this thread's, until the operation ends.
    chunk.state.store(State::kBusy, std::memory_order_relaxed);
    chunk.left.store(1, std::memory_order_relaxed);
    return &op;
}

void TrafficMemory::put(TrafficThread& self, TrafficEp& ep, tw_key_h key) {
    TrafficOp* const drawn = draw(self, ep, true);
    if (drawn == nullptr)
        return;
    TrafficOp& op = *drawn;
    Chunk& chunk = chunk_of(op);
    if (!traffic_.chance(self, 3))
        op.flags |= TW_OP_DELIVERY_COMPLETE;
    if (op.length <= kTrafficInjectedPutMax && traffic_.chance(self, 4))
        op.flags |= TW_OP_INJECT;
    if (traffic_.chance(self, 3)) {
        op.flags |= TW_OP_IMM;
        const std::uint64_t name = slot_of(op) << kTrafficChunkBits | op.number;
        op.imm = ++puts_ << (kTrafficSlotBits + kTrafficChunkBits) | name;
        chunk.left.store(2, std::memory_order_relaxed);
    }
    const bool is_injected = op.has(TW_OP_INJECT);
    Bytes data = pattern(op.length, self.random());
    traffic_.draw_list(self, op, data);
    const Bytes before = chunk.bytes;
    std::ranges::copy(data, chunk.bytes.begin() + static_cast<std::ptrdiff_t>(op.match));
    chunk.put = &op;
    // SYNC traffic_put_drawn: pairs with the acquire in notice(): what is to be put.
    chunk.imm.store(op.imm, std::memory_order_release);
    if (!is_injected)
        op.bytes = std::move(data);
    Bytes& stays = is_injected ? data : op.bytes;
    const std::uint64_t address = address_of(ep.to, place_of(slot_of(op), op.number) + op.match);
    const bool is_posted =
        traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
            const tw_status_t status =
                op.list.empty()
                    ? tw_put(ep.handle, stays.data(), op.length, address, key, how, request_p)
                    : tw_putv(ep.handle, op.list.data(), op.list.size(), address, key, how,
                              request_p);
            if (is_injected)
                std::ranges::fill(stays, std::byte{0xdd});
            return status;
        });
    if (!is_posted) {
        chunk.bytes = before;
        chunk.imm.store(0, std::memory_order_relaxed);
        chunk.state.store(State::kIdle, std::memory_order_relaxed);  // Relaxed: this thread's
    }
}

void TrafficMemory::get(TrafficThread& self, TrafficEp& ep, tw_key_h key) {
    TrafficOp* const drawn = draw(self, ep, false);
    if (drawn == nullptr)
        return;
    TrafficOp& op = *drawn;
    op.bytes.assign(op.length + Traffic::kGuardBytes, Traffic::kEmpty);
    traffic_.draw_list(self, op, op.bytes);
    const std::uint64_t address = address_of(ep.to, place_of(slot_of(op), op.number) + op.match);
    const bool is_posted =
        traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
            return op.list.empty()
                       ? tw_get(ep.handle, op.bytes.data(), op.length, address, key, how, request_p)
                       : tw_getv(ep.handle, op.list.data(), op.list.size(), address, key, how,
                                 request_p);
        });
    if (!is_posted)
        chunk_of(op).state.store(State::kIdle, std::memory_order_relaxed);  // Relaxed: as in put()
}

/// Its end, or its notice: the later one gives the chunk back to its thread.
void TrafficMemory::finish(Chunk& chunk) {
    // SYNC traffic_chunk_left: pairs with the other call, of end_put() or notice(): what the thread
    // of that one has written.
    if (chunk.left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        // SYNC traffic_chunk: pairs with the acquire in draw().
        chunk.state.store(State::kIdle, std::memory_order_release);
    }
}

void TrafficMemory::end_put(TrafficOp& op, const tw_completion_t& done) {
    Chunk& chunk = chunk_of(op);
    if (done.status != TW_OK) {
        chunk.imm.store(0, std::memory_order_relaxed);
        // SYNC traffic_chunk: pairs with the acquire in draw().
        chunk.state.store(State::kLost, std::memory_order_release);
        return;
    }
    // A put before this one is there, as this one has had a fence then.
    chunk.unsure = op.has(TW_OP_DELIVERY_COMPLETE) ? nullptr : op.ep;
    chunk.unsure_since = traffic_.tick();
    // SYNC traffic_chunk_left: pairs with the acquire for the notice: what was put, and how.
    finish(chunk);
}

void TrafficMemory::end_get(TrafficOp& op, const tw_completion_t& done) {
    Chunk& chunk = chunk_of(op);
    const bool is_good = done.status == TW_OK;
    const auto* const wanted = chunk.bytes.data() + op.match;
    if (is_good && !std::equal(wanted, wanted + op.length, op.bytes.data()))
        traffic_.wrong("a get has other bytes than were put", &op);
    if (std::any_of(op.bytes.begin() + static_cast<std::ptrdiff_t>(op.length), op.bytes.end(),
                    [](std::byte byte) { return byte != Traffic::kEmpty; }))
        traffic_.wrong("a get has written behind its buffer", &op);
    if (is_good)
        chunk.unsure = nullptr;
    finish(chunk);
}

void TrafficMemory::flushed(const TrafficOp& flush) {
    if (windows_.empty())
        return;
    for (Chunk& chunk : windows_[flush.peer].chunks[slot_of(flush)])
        if (chunk.unsure == flush.ep && chunk.unsure_since < flush.call.begin)
            chunk.unsure = nullptr;
}

// ---- Notices

void TrafficMemory::on_event(void* arg, const tw_completion_t* done) {
    const auto& at = *static_cast<TrafficWorker*>(arg);
    at.traffic->memory_.notice(at.index, *done);
}

void TrafficMemory::notice(unsigned to, const tw_completion_t& done) {
    if (done.flags != (TW_DONE_PUT | TW_DONE_REMOTE | TW_DONE_IMM))
        traffic_.wrong("a notice says that it is something else");
    const std::size_t index = done.imm & ((1U << kTrafficChunkBits) - 1);
    const std::size_t slot =
        done.imm >> kTrafficChunkBits & ((std::uint64_t{1} << kTrafficSlotBits) - 1);
    if (slot >= slots())
        return traffic_.wrong("a notice that nobody has sent");
    Chunk& chunk = windows_[to].chunks[slot].at(index);
    std::uint64_t imm = done.imm;
    // SYNC traffic_put_drawn: pairs with the release in put().
    if (!chunk.imm.compare_exchange_strong(imm, 0, std::memory_order_acquire)) {
        if (!traffic_.is_anything_broken(to))
            traffic_.wrong("a notice that nobody has sent, or twice");
        return;
    }
    const TrafficOp& put = *chunk.put;
    std::byte* const at = windows_[to].at + place_of(slot, index) + put.match;
    if (done.source != traffic_.workers_[put.worker].id || done.buffer != at ||
        done.length != put.length)
        traffic_.wrong("a notice is not of what was put", &put);
    // ThreadSanitizer does not see what orders the data before its notice.
    if (traffic_.is_alone() && std::memcmp(at, chunk.bytes.data() + put.match, put.length) != 0)
        traffic_.wrong("a notice comes before its data", &put);
    finish(chunk);
}

bool TrafficMemory::is_quiet() {
    for (const Window& window : windows_)
        for (const auto& chunks : window.chunks)
            for (const Chunk& chunk : chunks)
                if (chunk.imm != 0 && chunk.put->is_over() && chunk.put->status == TW_OK &&
                    !traffic_.is_excused(*chunk.put))
                    return false;
    return true;
}

// ---- Atomics

TrafficMemory::NumberKind TrafficMemory::kind_of(const TrafficOp& op) {
    return static_cast<NumberKind>(op.number / kEachNumber);
}

/// `number`: the number; `tag`: the operation; `match`: the operand; `mask`: what is compared.
void TrafficMemory::combine(TrafficThread& self, TrafficEp& ep, tw_key_h key) {
    TrafficOp& op = traffic_.new_op(self, TrafficOp::Kind::kAtomic, ep.from);
    op.peer = ep.to;
    op.ep = &ep;
    op.number = static_cast<std::uint32_t>(traffic_.pick(self, kNumbers));
    const NumberKind kind = kind_of(op);
    const bool is_sum = kind == NumberKind::kSum || kind == NumberKind::kFetchedSum;
    const bool is_narrow = kind == NumberKind::kNarrow;
    const tw_atomic_type_t type = is_narrow ? TW_UINT32 : TW_UINT64;
    const auto operation =
        is_sum ? TW_ATOMIC_ADD : kTrafficAtomics[traffic_.pick(self, std::size(kTrafficAtomics))];
    op.length = is_narrow ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
    op.tag = operation;
    op.match = is_sum                     ? 1 + traffic_.pick(self, kTrafficAddedMax)
               : traffic_.chance(self, 4) ? traffic_.pick(self, 8)
                                          : self.random() & (is_narrow ? UINT32_MAX : UINT64_MAX);
    op.mask = traffic_.pick(self, 8);
    op.bytes.assign(sizeof(std::uint64_t), std::byte{0});
    traffic_.draw_report(self, op);
    if (traffic_.chance(self, 16))
        op.flags |= TW_OP_FENCE;
    const std::uint64_t address = address_of(ep.to, op.number * sizeof(std::uint64_t));
    const std::uint64_t operand = op.match, compare = op.mask;
    traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
        if (kind == NumberKind::kSum)
            return tw_atomic(ep.handle, operation, type, &operand, address, key, how, request_p);
        return operation == TW_ATOMIC_CSWAP
                   ? tw_atomic_cswap(ep.handle, type, &compare, &operand, op.bytes.data(), address,
                                     key, how, request_p)
                   : tw_atomic_fetch(ep.handle, operation, type, &operand, op.bytes.data(), address,
                                     key, how, request_p);
    });
}

void TrafficMemory::end_atomic(TrafficOp& op, const tw_completion_t& done) {
    const NumberKind kind = kind_of(op);
    if (done.status != TW_OK || kind == NumberKind::kSum)
        return;
    std::uint64_t found = 0;
    std::memcpy(&found, op.bytes.data(), op.length);
    const auto operation = static_cast<tw_atomic_op_t>(op.tag);
    const std::uint64_t step = kind == NumberKind::kFetchedSum ? op.match
                               : kind == NumberKind::kNarrow
                                   ? applied<std::uint32_t>(operation, found, op.match, op.mask)
                                   : applied<std::uint64_t>(operation, found, op.match, op.mask);
    Number& number = windows_[op.peer].numbers.at(op.number);
    const std::lock_guard guard(number.guard);
    number.steps.emplace_back(found, step);
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

void TrafficMemory::check_chunks(unsigned worker) {
    const Window& window = windows_[worker];
    for (std::size_t slot = 0; slot < window.chunks.size(); ++slot) {
        for (std::size_t i = 0; i < kChunks.size(); ++i) {
            const Chunk& chunk = window.chunks[slot].at(i);
            if (chunk.state != State::kIdle ||
                (chunk.unsure != nullptr && traffic_.is_broken(*chunk.unsure)))
                continue;
            if (!std::equal(chunk.bytes.begin(), chunk.bytes.end(), window.at + place_of(slot, i)))
                traffic_.wrong("chunk " + std::to_string(i) + " of " + std::to_string(slot) +
                               " at worker " + std::to_string(worker) +
                               " has other bytes than were put");
        }
    }
}

/// Each number is found as often as it is left, but for the ends, and all steps hang together.
bool TrafficMemory::is_path(const Number& number, std::uint64_t last) {
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
    return std::ranges::all_of(balance, [](const auto& each) { return each.second == 0; }) &&
           std::ranges::all_of(number.steps,
                               [&](const auto& step) { return find(step.first) == find(0); });
}

/// Each step has found at least what the steps before it have added, and no more if all are sure.
bool TrafficMemory::is_sum(Number& number, std::uint64_t last, bool is_fetched) {
    bool is_right = last >= number.sure && last <= number.sure + number.unsure;
    std::uint64_t next = 0;
    std::ranges::sort(number.steps);
    for (const auto& [found, added] : number.steps) {
        is_right &= number.unsure > 0 ? found >= next : found == next;
        next = found + added;
    }
    return is_right && (!is_fetched || last >= next);
}

void TrafficMemory::check_number(unsigned worker, unsigned index) {
    Number& number = windows_[worker].numbers.at(index);
    const auto kind = static_cast<NumberKind>(index / kEachNumber);
    std::uint64_t last = 0;
    std::memcpy(&last, windows_[worker].at + index * sizeof last,
                kind == NumberKind::kNarrow ? sizeof(std::uint32_t) : sizeof last);
    const bool is_any = kind == NumberKind::kWide || kind == NumberKind::kNarrow;
    const bool is_right = is_any ? number.unsure > 0 || is_path(number, last)
                                 : is_sum(number, last, kind == NumberKind::kFetchedSum);
    if (!is_right)
        traffic_.wrong(
            "number " + std::to_string(index) + " at worker " + std::to_string(worker) + " is " +
            std::to_string(last) + " after " + std::to_string(number.steps.size()) +
            " steps; of additions " + std::to_string(number.sure) + " are sure and " +
            std::to_string(number.unsure) + " are not, or they have not found each other");
}

void TrafficMemory::check() {
    if (windows_.empty())
        return;
    traffic_.for_each_op([&](const TrafficOp& op) {
        if (op.kind != TrafficOp::Kind::kAtomic || op.is_refused)
            return;
        const bool is_fetched = kind_of(op) != NumberKind::kSum;
        const bool is_sure =
            op.is_over() && op.status == TW_OK && (is_fetched || !traffic_.is_excused(op));
        Number& number = windows_[op.peer].numbers.at(op.number);
        const bool is_any = kind_of(op) == NumberKind::kWide || kind_of(op) == NumberKind::kNarrow;
        (is_sure ? number.sure : number.unsure) += is_any ? 1 : op.match;
    });
    for (const unsigned worker : traffic_.living()) {
        check_chunks(worker);
        for (unsigned i = 0; i < kNumbers; ++i)
            check_number(worker, i);
    }
}

}  // namespace tagwire::test
