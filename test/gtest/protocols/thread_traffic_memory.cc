// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/thread_traffic_memory.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kThreadInjectedPutMax = 1024;
constexpr std::uint64_t kAddedMax = 1000;
constexpr std::size_t kBehind = 8;  // bytes behind the buffer of a get

}  // namespace

ThreadTrafficMemory::~ThreadTrafficMemory() {
    for (const Window& each : windows_)
        EXPECT_EQ(tw_mem_unmap(traffic_.context_, each.handle), TW_OK);
}

void ThreadTrafficMemory::open() {
    const std::size_t threads = traffic_.threads_.size();
    const std::size_t bytes = kNumbersBytes + kOwnBytes * threads;
    for (std::size_t i = 0; i < traffic_.workers_.size(); ++i) {
        Window& made = windows_.emplace_back();
        if (traffic_.chance(traffic_.main_, 2)) {
            made.own = std::make_unique<std::byte[]>(bytes);
            made.at = made.own.get();
            EXPECT_EQ(tw_mem_map(traffic_.context_, made.at, bytes, nullptr, &made.handle), TW_OK);
        } else {
            void* at = nullptr;
            EXPECT_EQ(tw_mem_alloc(traffic_.context_, bytes, nullptr, &at, &made.handle), TW_OK);
            made.at = static_cast<std::byte*>(at);
        }
        made.key_bytes = made.key.size();
        EXPECT_EQ(tw_mem_pack(made.handle, made.key.data(), &made.key_bytes), TW_OK);
        for (std::size_t thread = 0; thread < threads; ++thread) {
            auto& chunks = made.chunks.emplace_back();
            for (std::size_t k = 0; k < kChunks.size(); ++k)
                chunks.at(k).bytes.resize(kChunks.at(k));
        }
    }
}

/// Most share one for each endpoint; some have their own, which is freed when the call returns.
ThreadTrafficMemory::Key ThreadTrafficMemory::key_to(TrafficThread& self, ThreadEp& ep) {
    Key key;
    key.is_for_once = traffic_.chance(self, 8);
    const std::lock_guard lock(keys_lock_);
    tw_key_h& shared = keys_[&ep];
    tw_key_h& wanted = key.is_for_once ? key.handle : shared;
    if (wanted == nullptr) {
        const Window& of = windows_[ep.to];
        const tw_status_t status = tw_key_unpack(ep.handle, of.key.data(), of.key_bytes, &wanted);
        if (status != TW_OK && !traffic_.is_broken(ep))
            traffic_.wrong(std::string("a key is not unpacked: ") + tw_status_string(status));
    }
    key.handle = wanted;
    return key;
}

void ThreadTrafficMemory::free_keys(unsigned worker) {
    const std::lock_guard lock(keys_lock_);
    std::erase_if(keys_, [&](const auto& each) {
        if (each.first->from != worker)
            return false;
        tw_key_free(each.second);
        return true;
    });
}

void ThreadTrafficMemory::act(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(traffic_.pick(self, traffic_.workers_.size()));
    const std::shared_lock use = traffic_.use_ep(worker, to);
    if (!use)
        return;
    ThreadEp& ep = *traffic_.way(worker, to).ep;
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
            add(self, ep, key.handle);
    }
    if (key.is_for_once)
        tw_key_free(key.handle);
}

// ---- Chunks

std::size_t ThreadTrafficMemory::place_of(unsigned thread, std::size_t chunk) {
    return kNumbersBytes + kOwnBytes * thread +
           std::accumulate(kChunks.begin(), kChunks.begin() + static_cast<std::ptrdiff_t>(chunk),
                           std::size_t{0});
}

std::uint64_t ThreadTrafficMemory::address_of(unsigned window, std::size_t place) const {
    return reinterpret_cast<std::uintptr_t>(windows_[window].at + place);
}

ThreadTrafficMemory::Chunk& ThreadTrafficMemory::chunk_of(const ThreadOp& op) {
    return windows_[op.peer].chunks[op.owner->number].at(op.number);
}

ThreadTrafficMemory::Chunk* ThreadTrafficMemory::draw_chunk(TrafficThread& self, ThreadEp& ep,
                                                            std::size_t* index_p) {
    const std::size_t index = traffic_.pick(self, kChunks.size());
    Chunk& chunk = windows_[ep.to].chunks[self.number].at(index);
    // SYNC thread_chunk: pairs with the release in end(): the chunk is this thread's again.
    if (chunk.state.load(std::memory_order_acquire) != State::kIdle)
        return nullptr;
    if (chunk.unsure != nullptr && chunk.unsure != &ep)
        return nullptr;
    *index_p = index;
    return &chunk;
}

/// `number`: the chunk; `match`: the first byte in it.
ThreadOp& ThreadTrafficMemory::new_op(TrafficThread& self, ThreadEp& ep, bool is_put,
                                      std::size_t index) {
    ThreadOp& op =
        traffic_.new_op(self, is_put ? ThreadOp::Kind::kPut : ThreadOp::Kind::kGet, ep.from);
    op.peer = ep.to;
    op.ep = &ep;
    op.number = static_cast<std::uint32_t>(index);
    traffic_.draw_report(self, op);
    op.match = traffic_.pick(self, kChunks.at(index));
    const std::size_t rest = kChunks.at(index) - op.match;
    op.length =
        traffic_.chance(self, 3) ? std::min<std::size_t>(8, rest) : traffic_.pick(self, rest + 1);
    if (chunk_of(op).unsure != nullptr || traffic_.chance(self, 16))
        op.flags |= TW_OP_FENCE;
    return op;
}

void ThreadTrafficMemory::put(TrafficThread& self, ThreadEp& ep, tw_key_h key) {
    std::size_t index = 0;
    Chunk* const chunk = draw_chunk(self, ep, &index);
    if (chunk == nullptr)
        return;
    ThreadOp& op = new_op(self, ep, true, index);
    if (!traffic_.chance(self, 4))
        op.flags |= TW_OP_DELIVERY_COMPLETE;
    if (op.length <= kThreadInjectedPutMax && traffic_.chance(self, 4))
        op.flags |= TW_OP_INJECT;
    const bool is_injected = (op.flags & TW_OP_INJECT) != 0;
    Bytes data = pattern(op.length, self.random());
    traffic_.draw_list(self, op, data);
    const Bytes before = chunk->bytes;
    std::ranges::copy(data, chunk->bytes.begin() + static_cast<std::ptrdiff_t>(op.match));
    // Relaxed: this thread's, until the operation ends.
    chunk->state.store(State::kBusy, std::memory_order_relaxed);
    if (!is_injected)
        op.bytes = std::move(data);
    Bytes& stays = is_injected ? data : op.bytes;
    const std::uint64_t address = address_of(ep.to, place_of(self.number, index) + op.match);
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
        chunk->bytes = before;
        chunk->state.store(State::kIdle, std::memory_order_relaxed);  // Relaxed: this thread's
    }
}

void ThreadTrafficMemory::get(TrafficThread& self, ThreadEp& ep, tw_key_h key) {
    std::size_t index = 0;
    Chunk* const chunk = draw_chunk(self, ep, &index);
    if (chunk == nullptr)
        return;
    ThreadOp& op = new_op(self, ep, false, index);
    op.bytes.assign(op.length + kBehind, std::byte{0xee});
    traffic_.draw_list(self, op, op.bytes);
    chunk->state.store(State::kBusy, std::memory_order_relaxed);  // Relaxed: as in put()
    const std::uint64_t address = address_of(ep.to, place_of(self.number, index) + op.match);
    const bool is_posted =
        traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
            return op.list.empty()
                       ? tw_get(ep.handle, op.bytes.data(), op.length, address, key, how, request_p)
                       : tw_getv(ep.handle, op.list.data(), op.list.size(), address, key, how,
                                 request_p);
        });
    if (!is_posted)
        chunk->state.store(State::kIdle, std::memory_order_relaxed);  // Relaxed: as in put()
}

// ---- Numbers

/// `number`: the number; `match`: what is added.
void ThreadTrafficMemory::add(TrafficThread& self, ThreadEp& ep, tw_key_h key) {
    ThreadOp& op = traffic_.new_op(self, ThreadOp::Kind::kAdd, ep.from);
    op.peer = ep.to;
    op.ep = &ep;
    op.number = static_cast<std::uint32_t>(traffic_.pick(self, 2 * kNumbers));
    op.length = sizeof(std::uint64_t);
    op.match = 1 + traffic_.pick(self, kAddedMax);
    op.bytes.resize(sizeof(std::uint64_t));
    traffic_.draw_report(self, op);
    if (traffic_.chance(self, 16))
        op.flags |= TW_OP_FENCE;
    const std::uint64_t address = address_of(ep.to, op.number * sizeof(std::uint64_t));
    const std::uint64_t added = op.match;
    traffic_.post(self, op, [&](const tw_op_t* how, tw_request_h* request_p) {
        return op.number < kNumbers ? tw_atomic_fetch(ep.handle, TW_ATOMIC_ADD, TW_UINT64, &added,
                                                      op.bytes.data(), address, key, how, request_p)
                                    : tw_atomic(ep.handle, TW_ATOMIC_ADD, TW_UINT64, &added,
                                                address, key, how, request_p);
    });
}

void ThreadTrafficMemory::end_add(ThreadOp& op, const tw_completion_t& done) {
    if (done.status != TW_OK || op.number >= kNumbers)
        return;
    std::uint64_t found = 0;
    std::memcpy(&found, op.bytes.data(), sizeof found);
    Number& number = windows_[op.peer].numbers.at(op.number);
    const std::lock_guard guard(number.guard);
    number.steps.emplace_back(found, op.match);
}

// ---- Ends

void ThreadTrafficMemory::end(ThreadOp& op, const tw_completion_t& done) {
    const bool is_put = op.kind == ThreadOp::Kind::kPut, is_get = op.kind == ThreadOp::Kind::kGet;
    const unsigned flag = is_put ? TW_DONE_PUT : is_get ? TW_DONE_GET : TW_DONE_ATOMIC;
    if (done.flags != flag)
        traffic_.wrong("it ends as an operation of another kind", &op);
    if (!is_put && !is_get)
        return end_add(op, done);
    Chunk& chunk = chunk_of(op);
    const bool is_good = done.status == TW_OK;
    const auto* const wanted = chunk.bytes.data() + op.match;
    if (is_get && is_good && !std::equal(wanted, wanted + op.length, op.bytes.data()))
        traffic_.wrong("a get has other bytes than were put", &op);
    if (is_get && std::any_of(op.bytes.data() + op.length, op.bytes.data() + op.bytes.size(),
                              [](std::byte byte) { return byte != std::byte{0xee}; }))
        traffic_.wrong("a get has written behind its buffer", &op);
    // A put before this one is there, as this one has had a fence then.
    if (is_good)
        chunk.unsure = is_put && (op.flags & TW_OP_DELIVERY_COMPLETE) == 0 ? op.ep : nullptr;
    // SYNC thread_chunk: pairs with the acquire in draw_chunk().
    chunk.state.store(is_good || is_get ? State::kIdle : State::kLost, std::memory_order_release);
}

void ThreadTrafficMemory::check_chunks(unsigned worker) {
    const Window& window = windows_[worker];
    for (unsigned thread = 0; thread < window.chunks.size(); ++thread) {
        for (std::size_t i = 0; i < kChunks.size(); ++i) {
            const Chunk& chunk = window.chunks[thread].at(i);
            if (chunk.state != State::kIdle ||
                (chunk.unsure != nullptr && traffic_.is_broken(*chunk.unsure)))
                continue;
            if (!std::equal(chunk.bytes.begin(), chunk.bytes.end(),
                            window.at + place_of(thread, i)))
                traffic_.wrong("chunk " + std::to_string(i) + " of thread " +
                               std::to_string(thread) + " at worker " + std::to_string(worker) +
                               " has other bytes than were put");
        }
    }
}

void ThreadTrafficMemory::check_number(unsigned worker, std::size_t index) {
    Number& number = windows_[worker].numbers.at(index);
    std::uint64_t left = 0, next = 0;
    std::memcpy(&left, windows_[worker].at + index * sizeof left, sizeof left);
    bool is_right = left >= number.sure && left <= number.sure + number.unsure;
    std::ranges::sort(number.steps);
    for (const auto& [found, added] : number.steps) {
        is_right &= number.unsure > 0 ? found >= next : found == next;
        next = found + added;
    }
    is_right &= left >= next;
    if (!is_right)
        traffic_.wrong("number " + std::to_string(index) + " at worker " + std::to_string(worker) +
                       " is " + std::to_string(left) + " after additions of " +
                       std::to_string(number.sure) + " and maybe " + std::to_string(number.unsure) +
                       ", or they have not found each other");
}

void ThreadTrafficMemory::check() {
    traffic_.for_each_op([&](const ThreadOp& op) {
        if (op.kind != ThreadOp::Kind::kAdd || op.is_refused)
            return;
        const bool is_fetched = op.number < kNumbers;
        const bool is_sure =
            op.is_over() && op.status == TW_OK && (is_fetched || !traffic_.is_broken(*op.ep));
        Number& number = windows_[op.peer].numbers.at(op.number);
        (is_sure ? number.sure : number.unsure) += op.match;
    });
    for (unsigned worker = 0; worker < windows_.size(); ++worker) {
        check_chunks(worker);
        for (std::size_t i = 0; i < 2 * kNumbers; ++i)
            check_number(worker, i);
    }
}

}  // namespace tagwire::test
