// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <random>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

TW_CONTRACT(Atomic);

constexpr uct_atomic_op_t kOperations[] = {UCT_ATOMIC_OP_ADD, UCT_ATOMIC_OP_AND, UCT_ATOMIC_OP_OR,
                                           UCT_ATOMIC_OP_XOR, UCT_ATOMIC_OP_SWAP};

template <class Word>
Word expected(uct_atomic_op_t operation, Word old_value, Word operand) {
    switch (operation) {
        case UCT_ATOMIC_OP_ADD:
            return old_value + operand;
        case UCT_ATOMIC_OP_AND:
            return old_value & operand;
        case UCT_ATOMIC_OP_OR:
            return old_value | operand;
        case UCT_ATOMIC_OP_XOR:
            return old_value ^ operand;
        default:
            return operand;
    }
}

ucs_status_t post(uct_ep_h ep, uct_atomic_op_t op, std::uint32_t value, std::uint64_t at,
                  uct_rkey_t key) {
    return uct_ep_atomic32_post(ep, op, value, at, key);
}
ucs_status_t post(uct_ep_h ep, uct_atomic_op_t op, std::uint64_t value, std::uint64_t at,
                  uct_rkey_t key) {
    return uct_ep_atomic64_post(ep, op, value, at, key);
}
ucs_status_t fetch(uct_ep_h ep, uct_atomic_op_t op, std::uint32_t value, std::uint32_t* result,
                   std::uint64_t at, uct_rkey_t key, uct_completion_t* completion) {
    return uct_ep_atomic32_fetch(ep, op, value, result, at, key, completion);
}
ucs_status_t fetch(uct_ep_h ep, uct_atomic_op_t op, std::uint64_t value, std::uint64_t* result,
                   std::uint64_t at, uct_rkey_t key, uct_completion_t* completion) {
    return uct_ep_atomic64_fetch(ep, op, value, result, at, key, completion);
}
ucs_status_t cswap(uct_ep_h ep, std::uint32_t compare, std::uint32_t swap, std::uint64_t at,
                   uct_rkey_t key, std::uint32_t* result, uct_completion_t* completion) {
    return uct_ep_atomic_cswap32(ep, compare, swap, at, key, result, completion);
}
ucs_status_t cswap(uct_ep_h ep, std::uint64_t compare, std::uint64_t swap, std::uint64_t at,
                   uct_rkey_t key, std::uint64_t* result, uct_completion_t* completion) {
    return uct_ep_atomic_cswap64(ep, compare, swap, at, key, result, completion);
}

template <class Word>
std::pair<std::uint64_t, std::uint64_t> flags_of(const uct_iface_attr_t& attr) {
    if (sizeof(Word) == 4)
        return {attr.cap.atomic32.op_flags, attr.cap.atomic32.fop_flags};
    return {attr.cap.atomic64.op_flags, attr.cap.atomic64.fop_flags};
}

template <class Word>
Word word_at(const Buffer& buffer, std::size_t offset) {
    Word word = 0;
    std::memcpy(&word, buffer.data() + offset, sizeof word);
    return word;
}

class AtomicOf : public Contract {
  protected:
    template <class Word>
    void posts_change_the_word() {
        for (const Backing backing : remote_backings(receiver())) {
            Buffer remote(receiver(), 64, backing);
            const RemoteKey key(sender(), remote.packed_rkey());
            for (const uct_atomic_op_t op : kOperations) {
                if ((flags_of<Word>(attr()).first & UCS_BIT(op)) == 0)
                    continue;
                SCOPED_TRACE(std::string(name_of(backing)) + ", operation " + std::to_string(op));
                fill_pattern(remote.span(), static_cast<std::uint64_t>(op));
                const Bytes before(remote.data(), remote.data() + 64);
                const auto old_value = word_at<Word>(remote, 8);
                const auto operand = static_cast<Word>(0xf0f1f2f3c0ffee11);
                ASSERT_EQ(UCS_OK, retry([&] {
                              return post(ep(), op, operand, remote.address() + 8, key.get());
                          }));
                flush_ep(ep());
                const Word wanted = expected(op, old_value, operand);
                ASSERT_TRUE(until([&] { return word_at<Word>(remote, 8) == wanted; }, 100000));
                EXPECT_EQ(0, std::memcmp(before.data(), remote.data(), 8));
                EXPECT_EQ(0, std::memcmp(before.data() + 8 + sizeof(Word),
                                         remote.data() + 8 + sizeof(Word), 56 - sizeof(Word)));
            }
        }
    }

    template <class Word>
    void fetches_return_the_old_word() {
        for (const Backing backing : remote_backings(receiver())) {
            Buffer remote(receiver(), 64, backing);
            const RemoteKey key(sender(), remote.packed_rkey());
            for (const uct_atomic_op_t op : kOperations) {
                if ((flags_of<Word>(attr()).second & UCS_BIT(op)) == 0)
                    continue;
                SCOPED_TRACE(std::string(name_of(backing)) + ", operation " + std::to_string(op));
                fill_pattern(remote.span(), static_cast<std::uint64_t>(op) + 9);
                const auto old_value = word_at<Word>(remote, 16);
                const auto operand = static_cast<Word>(0x123456789abcdef0);
                Word result = 0;
                ASSERT_EQ(UCS_OK, run([&](uct_completion_t* completion) {
                              return fetch(ep(), op, operand, &result, remote.address() + 16,
                                           key.get(), completion);
                          }));
                EXPECT_EQ(old_value, result);
                EXPECT_EQ(expected(op, old_value, operand), word_at<Word>(remote, 16));
            }
        }
    }

    template <class Word>
    void compare_and_swap_swaps_only_when_equal() {
        if ((flags_of<Word>(attr()).second & UCS_BIT(UCT_ATOMIC_OP_CSWAP)) == 0)
            GTEST_SKIP() << "not offered: compare and swap of this width";
        for (const Backing backing : remote_backings(receiver())) {
            SCOPED_TRACE(name_of(backing));
            Buffer remote(receiver(), 64, backing);
            const RemoteKey key(sender(), remote.packed_rkey());
            const Word old_value = 77;
            std::memcpy(remote.data(), &old_value, sizeof old_value);
            Word result = 0;
            const auto swap = [&](Word compare, Word value) {
                return run([&](uct_completion_t* completion) {
                    return cswap(ep(), compare, value, remote.address(), key.get(), &result,
                                 completion);
                });
            };
            ASSERT_EQ(UCS_OK, swap(76, 1));
            EXPECT_EQ(77u, result);
            EXPECT_EQ(77u, word_at<Word>(remote, 0));
            ASSERT_EQ(UCS_OK, swap(77, 2));
            EXPECT_EQ(77u, result);
            EXPECT_EQ(2u, word_at<Word>(remote, 0));
        }
    }

    template <class Word>
    void what_is_not_advertised_is_unsupported() {
        Word result = 0;
        for (const uct_atomic_op_t op : kOperations) {
            if ((flags_of<Word>(attr()).first & UCS_BIT(op)) == 0) {
                EXPECT_EQ(UCS_ERR_UNSUPPORTED, post(ep(), op, Word{1}, 0, 0)) << op;
            }
            if ((flags_of<Word>(attr()).second & UCS_BIT(op)) == 0) {
                EXPECT_EQ(UCS_ERR_UNSUPPORTED, fetch(ep(), op, Word{1}, &result, 0, 0, nullptr))
                    << op;
            }
        }
        EXPECT_LT(post(ep(), UCT_ATOMIC_OP_CSWAP, Word{1}, 0, 0), UCS_OK);
        EXPECT_LT(post(ep(), UCT_ATOMIC_OP_LAST, Word{1}, 0, 0), UCS_OK);
    }
};

class Atomics : public AtomicOf {};
INSTANTIATE_TEST_SUITE_P(Contract, Atomics, ::testing::ValuesIn(all_setups()), setup_label);

TEST_P(Atomics, posts_change_the_word_32) {
    posts_change_the_word<std::uint32_t>();
}
TEST_P(Atomics, posts_change_the_word_64) {
    posts_change_the_word<std::uint64_t>();
}
TEST_P(Atomics, fetches_return_the_old_word_32) {
    fetches_return_the_old_word<std::uint32_t>();
}
TEST_P(Atomics, fetches_return_the_old_word_64) {
    fetches_return_the_old_word<std::uint64_t>();
}
TEST_P(Atomics, compare_and_swap_32) {
    compare_and_swap_swaps_only_when_equal<std::uint32_t>();
}
TEST_P(Atomics, compare_and_swap_64) {
    compare_and_swap_swaps_only_when_equal<std::uint64_t>();
}
TEST_P(Atomics, what_is_not_advertised_is_unsupported) {
    what_is_not_advertised_is_unsupported<std::uint32_t>();
    what_is_not_advertised_is_unsupported<std::uint64_t>();
}

// Each initiator fetches; had two additions been torn, a fetched value would appear twice.
TEST_P(Atomic, additions_of_several_initiators_are_never_lost) {
    if ((attr().cap.atomic64.fop_flags & UCS_BIT(UCT_ATOMIC_OP_ADD)) == 0)
        GTEST_SKIP() << "not offered: 64-bit fetch and add";
    Entity& other = add_entity();
    uct_ep_h other_ep = connect_more(other, receiver());
    for (const Backing backing : remote_backings(receiver())) {
        SCOPED_TRACE(name_of(backing));
        Buffer remote(receiver(), 64, backing);
        std::memset(remote.data(), 0, 64);
        const Bytes packed = remote.packed_rkey();
        const RemoteKey key(sender(), packed);
        const RemoteKey other_key(other, packed);
        constexpr std::uint64_t kRounds = 1000;
        std::vector<std::uint64_t> seen(2 * kRounds, ~std::uint64_t{0});
        std::vector<std::unique_ptr<Completion>> completions;
        for (std::uint64_t i = 0; i < 2 * kRounds; ++i) {
            const bool mine = i % 2 == 0;
            completions.push_back(std::make_unique<Completion>());
            const ucs_status_t status = retry([&] {
                return uct_ep_atomic64_fetch(mine ? ep() : other_ep, UCT_ATOMIC_OP_ADD, 1, &seen[i],
                                             remote.address(), mine ? key.get() : other_key.get(),
                                             completions.back().get());
            });
            ASSERT_GE(status, UCS_OK);
            if (status == UCS_OK)
                completions.pop_back();
        }
        ASSERT_TRUE(until([&] {
            return std::all_of(completions.begin(), completions.end(),
                               [](const auto& completion) { return completion->calls == 1; });
        }));
        std::sort(seen.begin(), seen.end());
        for (std::uint64_t i = 0; i < 2 * kRounds; ++i)
            ASSERT_EQ(i, seen[i]);
        EXPECT_EQ(2 * kRounds, word_at<std::uint64_t>(remote, 0));
    }
}

}  // namespace
}  // namespace tagwire::test
