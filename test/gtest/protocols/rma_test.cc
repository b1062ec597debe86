// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations. Only the public API.
#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLengths[] = {0,    1,    7,    8,     64,    100,   1000,   2048,   2049,
                                    4096, 8192, 8256, 20000, 65536, 70001, 300000, 3000001};
constexpr std::size_t kLengthMax = 3000001;
constexpr std::uint32_t kLevels[] = {0, TW_OP_TRANSMIT_COMPLETE, TW_OP_DELIVERY_COMPLETE,
                                     TW_OP_MATCH_COMPLETE, TW_OP_SENT_COMPLETE};
/// An operation that has ended at this level has taken effect.
constexpr bool is_at_target(std::uint32_t level) {
    return level != 0 && level != TW_OP_SENT_COMPLETE;
}

using MsgRma = RmaTest;

TEST_F(MsgRma, puts_and_gets_of_every_length_move_the_data) {
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), kLengthMax + 64, kind);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        Bytes read(kLengthMax);
        tw_mem_h mapped = nullptr;
        ASSERT_EQ(tw_mem_map(context_.get(), read.data(), read.size(), nullptr, &mapped), TW_OK);
        std::uint64_t seed = 0;
        for (const std::size_t length : kLengths) {
            for (const std::size_t offset : {std::size_t{0}, std::size_t{3}}) {
                SCOPED_TRACE(testing::Message() << length << " bytes at " << offset);
                const Bytes data = pattern(length, ++seed);
                std::fill_n(memory.at(), offset + length + 8, std::byte{0xee});
                const std::uint64_t to = memory.address() + offset;
                const std::uint32_t level = kLevels[seed % std::size(kLevels)];
                ASSERT_EQ(put(ep, data.data(), length, to, key, level), TW_OK);
                if (!is_at_target(level)) {
                    ASSERT_EQ(flush(ep), TW_OK);
                }
                EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at() + offset));
                EXPECT_EQ(memory.at()[offset + length], std::byte{0xee});
                for (const tw_mem_h mem : {tw_mem_h{}, mapped}) {
                    std::ranges::fill(read, std::byte{0});
                    ASSERT_EQ(get(ep, read.data(), length, to, key, 0, mem), TW_OK);
                    EXPECT_TRUE(std::equal(data.begin(), data.end(), read.begin()));
                    // ... and from there.
                    std::fill_n(memory.at(), length, std::byte{0});
                    ASSERT_EQ(put(ep, read.data(), length, to, key, TW_OP_DELIVERY_COMPLETE, mem),
                              TW_OK);
                    EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at() + offset));
                }
            }
        }
        EXPECT_EQ(tw_mem_unmap(context_.get(), mapped), TW_OK);
        tw_key_free(key);
    }
}

TEST_F(MsgRma, lists_are_gathered_and_scattered) {
    const Shared memory(context_.get(), 100000);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    for (const std::size_t length : {std::size_t{40}, std::size_t{5000}, std::size_t{90000}}) {
        const Bytes data = pattern(length, length);
        Bytes read(length);
        tw_iov_t from[TW_IOV_MAX], to[TW_IOV_MAX];
        for (std::size_t i = 0; i < TW_IOV_MAX; ++i) {
            const std::size_t begin = length * i / TW_IOV_MAX;
            const std::size_t bytes = length * (i + 1) / TW_IOV_MAX - begin;
            from[i] = {const_cast<std::byte*>(data.data()) + begin, bytes};
            to[i] = {read.data() + begin, bytes};
        }
        ASSERT_EQ(run([&](tw_request_h* request) {
                      return tw_putv(ep, from, TW_IOV_MAX, memory.address(), key, nullptr, request);
                  }),
                  TW_OK);
        ASSERT_EQ(flush(ep), TW_OK);
        EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at()));
        ASSERT_EQ(run([&](tw_request_h* request) {
                      return tw_getv(ep, to, TW_IOV_MAX, memory.address(), key, nullptr, request);
                  }),
                  TW_OK);
        EXPECT_EQ(read, data);
    }
    tw_key_free(key);
}

TEST_F(MsgRma, injected_data_may_change_after_the_call) {
    const Shared memory(context_.get(), 4096);
    tw_ep_h ep = node(0).to(node(1));  // not connected yet: the put waits
    const tw_key_h key = memory.key_for(node(0));
    Bytes data = pattern(40, 1);
    const Bytes before = data;
    tw_op_t how = op(&data, TW_OP_INJECT);
    ASSERT_GE(tw_put(ep, data.data(), data.size(), memory.address(), key, &how, nullptr), TW_OK);
    std::ranges::fill(data, std::byte{0});
    ASSERT_EQ(flush(ep), TW_OK);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.at()));
    tw_key_free(key);
}

// ---- Atomics

template <class T>
T model(int operation, T number, T operand) {
    using U = std::make_unsigned_t<T>;
    switch (operation) {
        case TW_ATOMIC_ADD:
            return static_cast<T>(static_cast<U>(number) + static_cast<U>(operand));
        case TW_ATOMIC_AND:
            return number & operand;
        case TW_ATOMIC_OR:
            return number | operand;
        case TW_ATOMIC_XOR:
            return number ^ operand;
        case TW_ATOMIC_SWAP:
            return operand;
        case TW_ATOMIC_MIN:
            return std::min(number, operand);
        default:
            return std::max(number, operand);
    }
}

template <class T>
class RmaAtomic : public RmaTest {
  protected:
    static constexpr tw_atomic_type_t kType = sizeof(T) == 4
                                                  ? (std::is_signed_v<T> ? TW_INT32 : TW_UINT32)
                                                  : (std::is_signed_v<T> ? TW_INT64 : TW_UINT64);

    void use(Shared::Kind kind) {
        const Shared memory(context_.get(), 64, kind);
        const tw_ep_h ep = connected(node(0), node(1));
        const tw_key_h key = memory.key_for(node(0));
        const T numbers[] = {0,
                             1,
                             5,
                             static_cast<T>(-3),
                             std::numeric_limits<T>::max(),
                             std::numeric_limits<T>::min()};
        const std::uint64_t at = memory.address() + sizeof(T);
        for (int operation = TW_ATOMIC_ADD; operation <= TW_ATOMIC_MAX; ++operation) {
            for (const T number : numbers) {
                for (const T operand : numbers) {
                    const auto kind_of = static_cast<tw_atomic_op_t>(operation);
                    std::memcpy(memory.at() + sizeof(T), &number, sizeof number);
                    const T after = model(operation, number, operand);
                    tw_op_t how{};
                    how.flags = kLevels[static_cast<unsigned>(operation) % std::size(kLevels)];
                    ASSERT_EQ(run([&](tw_request_h* request) {
                                  return tw_atomic(ep, kind_of, kType, &operand, at, key, &how,
                                                   request);
                              }),
                              TW_OK);
                    if (!is_at_target(how.flags)) {
                        ASSERT_EQ(flush(ep), TW_OK);
                    }
                    EXPECT_EQ(memory.number<T>(sizeof(T)), after) << operation;
                    T before = 99;
                    ASSERT_EQ(run([&](tw_request_h* request) {
                                  return tw_atomic_fetch(ep, kind_of, kType, &operand, &before, at,
                                                         key, nullptr, request);
                              }),
                              TW_OK);
                    EXPECT_EQ(before, after) << operation;
                    EXPECT_EQ(memory.number<T>(sizeof(T)), model(operation, after, operand));
                }
            }
        }
        const auto swap = [&](T compare, T with, T* before) {
            return run([&](tw_request_h* request) {
                return tw_atomic_cswap(ep, kType, &compare, &with, before, at, key, nullptr,
                                       request);
            });
        };
        const T start = 41;
        std::memcpy(memory.at() + sizeof(T), &start, sizeof start);
        T before = 0;
        ASSERT_EQ(swap(40, 7, &before), TW_OK);
        EXPECT_EQ(before, 41);
        EXPECT_EQ(memory.number<T>(sizeof(T)), 41);
        ASSERT_EQ(swap(41, 7, &before), TW_OK);
        EXPECT_EQ(before, 41);
        EXPECT_EQ(memory.number<T>(sizeof(T)), 7);
        EXPECT_EQ(memory.number<T>(), 0);
        EXPECT_EQ(memory.number<T>(2 * sizeof(T)), 0);
        tw_key_free(key);
    }
};

using MsgRmaU32 = RmaAtomic<std::uint32_t>;
using MsgRmaS32 = RmaAtomic<std::int32_t>;
using MsgRmaU64 = RmaAtomic<std::uint64_t>;
using MsgRmaS64 = RmaAtomic<std::int64_t>;

TEST_F(MsgRmaU32, atomics_do_what_their_names_say) {
    use(Shared::Kind::kMapped);
}
TEST_F(MsgRmaS32, atomics_do_what_their_names_say) {
    use(Shared::Kind::kMapped);
}
TEST_F(MsgRmaU64, atomics_do_what_their_names_say) {
    use(Shared::Kind::kMapped);
}
TEST_F(MsgRmaS64, atomics_do_what_their_names_say) {
    use(Shared::Kind::kMapped);
}
TEST_F(MsgRmaS32, atomics_on_allocated_memory) {
    use(Shared::Kind::kAllocated);
}
TEST_F(MsgRmaS64, atomics_on_allocated_memory) {
    use(Shared::Kind::kAllocated);
}

TEST_F(MsgRma, different_operations_on_one_number_are_atomic) {
    constexpr std::uint64_t kRounds = 200;
    for (const auto kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), 64, kind);
        struct Peer {
            tw_ep_h ep;
            tw_key_h key;
        };
        std::vector<Peer> peers;
        for (std::size_t i = 1; i < 4; ++i) {
            const tw_ep_h ep = connected(node(i), node(0));
            peers.push_back({ep, memory.key_for(node(i))});
        }
        // One adds, one swaps what it has read last for one more, one takes the maximum with 0.
        std::uint64_t swapped = 0, last = 0, ignored[2] = {};
        const std::uint64_t one = 1, zero = 0, at = memory.address();
        for (std::uint64_t round = 0; round < kRounds; ++round) {
            const std::uint64_t compare = last, next = last + 1;
            const std::function<tw_status_t(tw_request_h*)> calls[] = {
                [&](tw_request_h* request) {
                    return tw_atomic_fetch(peers[0].ep, TW_ATOMIC_ADD, TW_UINT64, &one, &ignored[0],
                                           at, peers[0].key, nullptr, request);
                },
                [&](tw_request_h* request) {
                    return tw_atomic_cswap(peers[1].ep, TW_UINT64, &compare, &next, &last, at,
                                           peers[1].key, nullptr, request);
                },
                [&](tw_request_h* request) {
                    return tw_atomic_fetch(peers[2].ep, TW_ATOMIC_MAX, TW_UINT64, &zero,
                                           &ignored[1], at, peers[2].key, nullptr, request);
                }};
            tw_request_h requests[3] = {};
            tw_status_t answers[3] = {};
            for (std::size_t turn = 0; turn < 3; ++turn) {
                const std::size_t i = (turn + round) % 3;
                run_until([&] {
                    answers[i] = calls[i](&requests[i]);
                    return answers[i] != TW_ERR_NO_RESOURCE;
                });
            }
            for (std::size_t i = 0; i < 3; ++i)
                ASSERT_EQ(end(answers[i], requests[i]), TW_OK);
            if (last == compare) {
                ++swapped;
                last = next;
            }
        }
        EXPECT_EQ(memory.number<std::uint64_t>(), kRounds + swapped);
        if (transports() == "sm" && kind == Shared::Kind::kAllocated) {
            EXPECT_GT(swapped, 0U);
        }
        for (const Peer& peer : peers)
            tw_key_free(peer.key);
    }
}

TEST_F(MsgRma, a_worker_is_a_peer_of_itself) {
    const Shared memory(context_.get(), 8192);
    const tw_ep_h ep = connected(node(0), node(0));
    const tw_ep_h other = connected(node(1), node(0));
    const tw_key_h key = memory.key_for(node(0)), other_key = memory.key_for(node(1));
    const Bytes data = pattern(5000, 1);
    Bytes read(5000);
    ASSERT_EQ(put(ep, data.data(), data.size(), memory.address() + 64, key), TW_OK);
    ASSERT_EQ(get(ep, read.data(), read.size(), memory.address() + 64, key, TW_OP_FENCE), TW_OK);
    EXPECT_EQ(read, data);
    for (const auto type : {TW_UINT64, TW_INT32}) {
        std::memset(memory.at(), 0, 8);
        for (std::uint64_t i = 0; i < 20; ++i) {
            const std::uint64_t one = 1;
            std::uint64_t before = 0;
            const bool is_own = i % 2 == 0;
            ASSERT_EQ(run([&](tw_request_h* request) {
                          return tw_atomic_fetch(is_own ? ep : other, TW_ATOMIC_ADD, type, &one,
                                                 &before, memory.address(),
                                                 is_own ? key : other_key, nullptr, request);
                      }),
                      TW_OK);
            EXPECT_EQ(before, i);
        }
    }
    tw_key_free(key);
    tw_key_free(other_key);
}

// Whatever transports there are, and while the endpoint still connects.
TEST_F(MsgRma, operations_of_a_worker_on_its_own_memory_end_in_their_calls) {
    for (const Shared::Kind kind : {Shared::Kind::kMapped, Shared::Kind::kAllocated}) {
        const Shared memory(context_.get(), 8192, kind);
        const tw_ep_h ep = node(0).to(node(0));
        const tw_key_h key = memory.key_for(node(0));
        const std::uint64_t at = memory.address();
        Bytes data = pattern(5000, 1), read(5000);
        EXPECT_EQ(tw_put(ep, data.data(), data.size(), at + 64, key, nullptr, nullptr), TW_OK);
        EXPECT_EQ(std::memcmp(memory.at() + 64, data.data(), data.size()), 0);
        tw_op_t levels{};
        levels.flags = TW_OP_DELIVERY_COMPLETE | TW_OP_QUEUE;
        const tw_iov_t iov[] = {{read.data(), 1000}, {read.data() + 1000, 4000}};
        EXPECT_EQ(tw_getv(ep, iov, 2, at + 64, key, nullptr, nullptr), TW_OK);
        EXPECT_EQ(read, data);
        EXPECT_EQ(tw_putv(ep, iov, 2, at, key, &levels, nullptr), TW_OK);
        EXPECT_EQ(std::memcmp(memory.at(), data.data(), data.size()), 0);

        const tw_piece_t pieces[] = {{data.data(), at + 7, 100, key, nullptr},
                                     {data.data() + 300, at + 300, 0, key, nullptr}};
        const tw_stride_t strides[] = {{data.data() + 500, at + 500, 10, 5, 10, 20, key, nullptr}};
        tw_list_t list{};
        list.pieces = pieces;
        list.piece_count = 2;
        list.strides = strides;
        list.stride_count = 1;
        EXPECT_EQ(tw_put_list(ep, &list, nullptr, nullptr), TW_OK);
        EXPECT_EQ(std::memcmp(memory.at() + 7, data.data(), 100), 0);
        for (std::size_t i = 0; i < 5; ++i)
            EXPECT_EQ(std::memcmp(memory.at() + 500 + i * 20, data.data() + 500 + i * 10, 10), 0);

        std::memset(memory.at(), 0, 8);
        for (std::int32_t i = 0; i < 3; ++i) {
            const std::int32_t one = 1;
            std::int32_t before = -1;
            EXPECT_EQ(tw_atomic_fetch(ep, TW_ATOMIC_ADD, TW_INT32, &one, &before, at, key, nullptr,
                                      nullptr),
                      TW_OK);
            EXPECT_EQ(before, i);
        }
        tw_key_free(key);
    }
}

TEST_F(MsgRma, the_ends_of_operations_on_own_memory_are_told) {
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = node(0).to(node(0));
    const tw_key_h key = memory.key_for(node(0));
    tw_counter_h counter = nullptr;
    ASSERT_EQ(tw_counter_create(&counter), TW_OK);
    tw_completion_t told{};
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &told;
    how.counter = counter;
    how.complete = [](const tw_completion_t* done) {
        *static_cast<tw_completion_t*>(done->context) = *done;
    };
    EXPECT_EQ(tw_put(ep, "own", 3, memory.address(), key, &how, nullptr), TW_INPROGRESS);
    EXPECT_EQ(std::memcmp(memory.at(), "own", 3), 0);
    run_until([&] { return told.flags != 0; });
    EXPECT_EQ(told.status, TW_OK);
    EXPECT_EQ(told.flags, TW_DONE_PUT);
    EXPECT_EQ(told.length, 3U);
    EXPECT_EQ(told.ep, ep);
    how.flags = 0;
    EXPECT_EQ(tw_put(ep, "two", 3, memory.address(), key, &how, nullptr), TW_OK);
    std::uint64_t successes = 0;
    std::uint64_t failures = 0;
    EXPECT_EQ(tw_counter_read(counter, &successes, &failures), TW_OK);
    EXPECT_EQ(successes, 2U);
    EXPECT_EQ(failures, 0U);
    EXPECT_EQ(put(ep, "end", 3, memory.address(), key, TW_OP_FENCE | TW_OP_DELIVERY_COMPLETE),
              TW_OK);
    EXPECT_EQ(std::memcmp(memory.at(), "end", 3), 0);
    tw_counter_destroy(counter);
    tw_key_free(key);
}

// ---- Notices, order

TEST_F(MsgRma, the_target_of_a_put_with_an_immediate_is_told_when_its_data_is_there) {
    const Shared memory(context_.get(), kLengthMax);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    for (const std::size_t length : kLengths) {
        SCOPED_TRACE(length);
        const Bytes data = pattern(length, length);
        node(1).done.clear();
        tw_op_t how{};
        how.flags = TW_OP_IMM;
        how.imm = length + 5;
        tw_request_h request = nullptr;
        const tw_status_t answer =
            tw_put(ep, data.data(), length, memory.address(), key, &how, &request);
        ASSERT_GE(answer, TW_OK);
        run_until([&] { return !node(1).done.empty(); });
        const tw_completion_t& done = node(1).done.front();
        EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at()));
        EXPECT_EQ(done.flags, unsigned{TW_DONE_REMOTE | TW_DONE_PUT | TW_DONE_IMM});
        EXPECT_EQ(done.imm, length + 5);
        EXPECT_EQ(done.length, length);
        EXPECT_EQ(done.buffer, memory.at());
        EXPECT_EQ(done.source, node(0).id());
        EXPECT_EQ(end(answer, request), TW_OK);
    }
    tw_key_free(key);
}

TEST_F(MsgRma, the_callback_of_a_worker_takes_notices) {
    struct Told {
        std::vector<std::uint64_t> imms;
    } told;
    tw_worker_params_t params{};
    params.rma_event = [](void* arg, const tw_completion_t* done) {
        static_cast<Told*>(arg)->imms.push_back(done->imm);
    };
    params.rma_event_arg = &told;
    Node target(context_.get(), params);
    const Shared memory(context_.get(), 64);
    const tw_ep_h ep = node(0).to(target);
    const tw_key_h key = memory.key_for(node(0));
    const std::uint64_t value = 3;
    for (std::uint64_t i = 0; i < 10; ++i) {
        tw_op_t how{};
        how.flags = TW_OP_IMM;
        how.imm = i;
        run_until([&] {
            target.progress();
            return tw_put(ep, &value, sizeof value, memory.address(), key, &how, nullptr) !=
                   TW_ERR_NO_RESOURCE;
        });
    }
    run_until([&] {
        target.progress();
        return told.imms.size() == 10;
    });
    for (std::uint64_t i = 0; i < 10; ++i)
        EXPECT_EQ(told.imms[i], i);
    tw_key_free(key);
    EXPECT_EQ(tw_ep_close(ep, TW_CLOSE_FORCE, nullptr, nullptr), TW_OK);
}

TEST_F(MsgRma, a_message_behind_a_fence_comes_when_the_data_is_visible) {
    const Shared memory(context_.get(), kLengthMax);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    for (const std::size_t length : kLengths) {
        SCOPED_TRACE(length);
        const Bytes data = pattern(length, length);
        tw_request_h request = nullptr;
        const tw_status_t answer =
            tw_put(ep, data.data(), length, memory.address(), key, nullptr, &request);
        ASSERT_GE(answer, TW_OK);
        int mark = 0;
        const tw_op_t how = op(&mark);
        ASSERT_EQ(tw_tag_recv(node(1).worker(), nullptr, 0, 9, 0, &how, nullptr), TW_INPROGRESS);
        tw_op_t fenced{};
        fenced.flags = TW_OP_FENCE;
        ASSERT_GE(tw_tag_send(ep, nullptr, 0, 9, &fenced, nullptr), TW_OK);
        end_of(node(1), &mark);
        EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.at()));
        EXPECT_EQ(end(answer, request), TW_OK);
    }
    tw_key_free(key);
}

TEST_F(MsgRma, a_fenced_operation_sees_what_came_before) {
    const Shared memory(context_.get(), 100000);
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    for (std::uint64_t round = 1; round < 50; ++round) {
        const std::size_t length = round % 3 == 0 ? 90000 : 64;
        const Bytes data = pattern(length, round);
        tw_request_h written = nullptr, got = nullptr;
        const tw_status_t first =
            tw_put(ep, data.data(), length, memory.address(), key, nullptr, &written);
        ASSERT_GE(first, TW_OK);
        Bytes read(length);
        tw_op_t fenced{};
        fenced.flags = TW_OP_FENCE;
        const tw_status_t second =
            tw_get(ep, read.data(), length, memory.address(), key, &fenced, &got);
        ASSERT_GE(second, TW_OK);
        EXPECT_EQ(end(second, got), TW_OK);
        EXPECT_EQ(read, data);
        EXPECT_EQ(end(first, written), TW_OK);
    }
    tw_key_free(key);
}

TEST_F(MsgRma, delivered_puts_are_there_when_they_end_however_many_are_under_way) {
    constexpr std::size_t kOps = 1000;
    const Shared memory(context_.get(), kOps * sizeof(std::uint64_t));
    const tw_ep_h ep = connected(node(0), node(1));
    const tw_key_h key = memory.key_for(node(0));
    struct Put {
        const Shared* memory;
        std::uint64_t value;  // and its place, from 1 on
        int ends;
        bool is_there;
    };
    std::vector<Put> puts(kOps, Put{&memory, 0, 0, false});
    for (std::size_t i = 0; i < kOps; ++i) {
        Put& put = puts[i];
        put.value = i + 1;
        tw_op_t how{};
        how.flags = TW_OP_DELIVERY_COMPLETE | TW_OP_COMPLETION;
        how.context = &put;
        how.complete = [](const tw_completion_t* done) {
            Put& ended = *static_cast<Put*>(done->context);
            ++ended.ends;
            ended.is_there = done->status == TW_OK && ended.memory->number<std::uint64_t>(
                                                          (ended.value - 1) * 8) == ended.value;
        };
        while (tw_put(ep, &put.value, sizeof put.value, memory.address() + i * 8, key, &how,
                      nullptr) == TW_ERR_NO_RESOURCE)
            node(0).progress();
    }
    run_until(
        [&] { return std::ranges::all_of(puts, [](const Put& put) { return put.ends > 0; }); });
    EXPECT_TRUE(
        std::ranges::all_of(puts, [](const Put& put) { return put.ends == 1 && put.is_there; }));
    tw_key_free(key);
}

TEST_F(MsgRma, many_operations_at_once_all_end) {
    constexpr std::size_t kOps = 2000;
    const Shared memory(context_.get(), kOps * 64 + 8);
    const tw_ep_h ep = node(0).to(node(1));  // connects meanwhile
    const tw_key_h key = memory.key_for(node(0));
    std::vector<Bytes> data;
    std::vector<tw_request_h> requests(2 * kOps);
    std::vector<tw_status_t> answers(2 * kOps);
    const std::uint64_t counter = memory.address() + kOps * 64;
    const std::uint64_t one = 1;
    for (std::size_t i = 0; i < kOps; ++i) {
        data.push_back(pattern(64, i));
        run_until([&] {
            answers[i] = tw_put(ep, data[i].data(), 64, memory.address() + i * 64, key, nullptr,
                                &requests[i]);
            return answers[i] != TW_ERR_NO_RESOURCE;
        });
        run_until([&] {
            answers[kOps + i] = tw_atomic(ep, TW_ATOMIC_ADD, TW_UINT64, &one, counter, key, nullptr,
                                          &requests[kOps + i]);
            return answers[kOps + i] != TW_ERR_NO_RESOURCE;
        });
    }
    ASSERT_EQ(flush(ep), TW_OK);
    for (std::size_t i = 0; i < 2 * kOps; ++i)
        ASSERT_EQ(end(answers[i], requests[i]), TW_OK);
    for (std::size_t i = 0; i < kOps; ++i)
        ASSERT_TRUE(std::equal(data[i].begin(), data[i].end(), memory.at() + i * 64)) << i;
    EXPECT_EQ(memory.number<std::uint64_t>(kOps * 64), kOps);
    tw_key_free(key);
}

}  // namespace
}  // namespace tagwire::test
