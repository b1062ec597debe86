// SPDX-License-Identifier: BSD-3-Clause
// Long gets over sm, by key or by loan: the owner of the memory copies a part of them when it can.
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

#include "buffer.hpp"
#include "operations.hpp"
#include "pair.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kLongBytes = (std::size_t{4} << 20) + 17;
constexpr std::uint64_t kSeed = 11;

enum class Right { kKey, kLoan };
constexpr std::uint32_t kLentId = 5;

template <class T>
Bytes bytes_of(const T& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    return {first, first + sizeof value};
}
template <class T>
void take(const Bytes& bytes, T* value_p) {
    ASSERT_EQ(sizeof(T), bytes.size());
    std::ranges::copy(bytes, reinterpret_cast<std::byte*>(value_p));
}

std::uint64_t counter(const Entity& entity, std::string_view name) {
    tagwire_uct_counter_t counters[64];
    unsigned count = std::size(counters);
    EXPECT_EQ(UCS_OK, tagwire_uct_iface_query_counters(entity.iface(), counters, &count));
    for (unsigned i = 0; i < count; ++i)
        if (counters[i].name == name)
            return counters[i].value;
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

/// Memory with the pattern, of which it tells the reader. It is taken back when this ends.
class Owned {
  public:
    Owned(const Side& side, Right right, std::size_t bytes = kLongBytes)
        : side_(side), right_(right), memory_(side.self, bytes, Backing::kRegistered) {
        fill_pattern(memory_.span(), kSeed);
        tagwire_uct_loan_t loan{};
        if (right == Right::kLoan) {
            EXPECT_TRUE(progress_until(side.self, [&] {
                return tagwire_uct_ep_lend(side.peer, memory_.data(), memory_.size(), &loan) ==
                       UCS_OK;
            }));
            EXPECT_EQ(UCS_OK, tagwire_uct_iface_set_lent_handler(side.self.iface(), find, this));
            loan.id = kLentId;
        }
        side.control.send(
            pack({memory_.packed_rkey(), bytes_of(memory_.address()), bytes_of(loan)}));
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
        if (right_ != Right::kLoan)
            return;
        tagwire_uct_iface_set_lent_handler(side_.self.iface(), nullptr, nullptr);
        uct_ep_flush(side_.peer, UCT_FLUSH_FLAG_CANCEL, nullptr);
        std::ranges::fill(memory_.span(), std::byte{0xee});
    }
    std::span<std::byte> span() const { return memory_.span(); }

  private:
    static ucs_status_t find(void* arg, std::uint32_t id, tagwire_uct_lent_t* lent_p) {
        const auto& self = *static_cast<const Owned*>(arg);
        if (id != kLentId)
            return UCS_ERR_NO_ELEM;
        *lent_p = {self.side_.peer, self.memory_.data(), self.memory_.size()};
        return UCS_OK;
    }

    const Side& side_;
    const Right right_;
    Buffer memory_;
};

/// The owner's memory as the reader sees it.
class Remote {
  public:
    explicit Remote(const Side& side) : side_(side) {
        const auto told = side.control.receive();
        const auto parts = unpack(told.value_or(Bytes()));
        if (parts.size() != 3) {
            ADD_FAILURE() << "the owner told nothing";
            return;
        }
        key_ = std::make_unique<RemoteKey>(side.self, parts[0]);
        take(parts[1], &address_);
        take(parts[2], &loan_);
        // A read by loan is refused until the owner's first packet has come, as lending is.
        tagwire_uct_loan_t own{};
        EXPECT_TRUE(loan_.id == 0 || progress_until(side.self, [&] {
                        return tagwire_uct_ep_lend(side.peer, &own, sizeof own, &own) == UCS_OK;
                    }));
    }

    /// Into `to` at the same offset.
    ucs_status_t get(const Buffer& to, std::size_t offset, std::size_t bytes,
                     uct_completion_t* completion) const {
        const uct_iov_t iov = to.iov(offset, bytes);
        if (loan_.id != 0) {
            tagwire_uct_loan_t loan = loan_;
            loan.place += offset;
            return retry(side_.self, [&] {
                return tagwire_uct_ep_read_lent(side_.peer, &iov, 1, &loan, completion);
            });
        }
        return retry(side_.self, [&] {
            return uct_ep_get_zcopy(side_.peer, &iov, 1, address_ + offset, key_->get(),
                                    completion);
        });
    }

    /// To its end.
    ucs_status_t get_all(const Buffer& to, std::size_t offset, std::size_t bytes) const {
        Completion done;
        const ucs_status_t status = get(to, offset, bytes, &done);
        if (status != UCS_INPROGRESS)
            return status;
        EXPECT_TRUE(progress_until(side_.self, [&] { return done.calls > 0; }));
        return done.ended;
    }

  private:
    const Side& side_;
    std::unique_ptr<RemoteKey> key_;
    std::uint64_t address_ = 0;
    tagwire_uct_loan_t loan_{};
};

/// Progresses until the test or the other side says something.
void progress_until_told(const Side& side) {
    EXPECT_TRUE(progress_until(side.self, [&] { return side.control.has_message(); }));
    EXPECT_TRUE(side.control.await_signal());
}

/// Hands what the owner says to the reader.
void pass_on(Pair& pair) {
    const auto told = pair.second.channel().receive();
    ASSERT_TRUE(told.has_value());
    pair.first.channel().send(*told);
}

void end(Pair& pair) {
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.channel().signal();
    EXPECT_EQ(0, pair.first.join());
    EXPECT_EQ(0, pair.second.join());
}

/// The owner of memory with the pattern, until it has helped and was told to end.
void help(const Side& side, Right right) {
    const Owned memory(side, right);
    EXPECT_TRUE(progress_until(side.self, [&] { return counter(side.self, "helped_bytes") > 0; }));
    side.control.signal();
    progress_until_told(side);
}

/// The reader goes on until the owner has helped, which may not run for a while.
void pass_on_and_end(Pair& pair) {
    pass_on(pair);
    ASSERT_TRUE(pair.second.channel().await_signal());
    pair.first.channel().signal();
    end(pair);
}

class GetHelp : public ProcessTest, public ::testing::WithParamInterface<Right> {
  protected:
    /// The owner's part of a test that is about its help.
    static SideRole helper() {
        return [right = GetParam()](Side side) { help(side, right); };
    }
};

// Each long get asks for help; who does not progress gives none, and being asked is no harm.
TEST_P(GetHelp, an_owner_that_does_not_progress_is_not_asked_for_ever) {
    Pair pair(
        {},
        [](Side side) {
            const Remote remote(side);
            Buffer local(side.self, 64 << 10, Backing::kRegistered);
            // More than a ring holds, and than are queued behind it.
            for (int i = 0; i < 20'000; ++i)
                ASSERT_EQ(UCS_OK, remote.get_all(local, 0, local.span().size())) << i;
            EXPECT_TRUE(has_pattern(local.span(), kSeed));
            EXPECT_EQ(UCS_OK, uct_ep_am_short(side.peer, Entity::kAmId, 0, nullptr, 0))
                << "what nobody reads takes the room of messages";
            EXPECT_TRUE(side.self.errors.empty());
            side.control.signal();
        },
        [right = GetParam()](Side side) {
            const Owned memory(side, right, 64 << 10);
            EXPECT_TRUE(side.control.await_signal());  // meanwhile it computes
        });
    pass_on(pair);
    end(pair);
}

TEST_P(GetHelp, both_sides_copy_and_every_byte_is_right) {
    Pair pair(
        {},
        [](Side side) {
            const Remote remote(side);
            Buffer local(side.self, kLongBytes, Backing::kRegistered);
            for (int round = 0; round < 20 || !side.control.has_message(); ++round) {
                for (const std::size_t bytes : {256UL << 10, (256UL << 10) + 1, (1UL << 20) - 1,
                                                1UL << 20, (3UL << 20) + 4097, kLongBytes - 13}) {
                    std::ranges::fill(local.span(), std::byte{0});
                    ASSERT_EQ(UCS_OK, remote.get_all(local, 0, bytes)) << bytes;
                    ASSERT_EQ(bytes, first_mismatch(local.span().first(bytes), kSeed)) << bytes;
                    ASSERT_EQ(std::byte{0}, local.span()[bytes]);
                }
            }
            EXPECT_TRUE(side.control.await_signal());
            side.control.signal();
        },
        helper());
    pass_on_and_end(pair);
}

TEST_P(GetHelp, many_at_once_end_in_any_order) {
    Pair pair(
        {},
        [](Side side) {
            const Remote remote(side);
            Buffer local(side.self, kLongBytes, Backing::kRegistered);
            constexpr std::size_t kEach = 100'001;
            for (int round = 0; round < 20 || !side.control.has_message(); ++round) {
                std::ranges::fill(local.span(), std::byte{0});
                Completion done;
                done.count = 1;
                for (std::size_t at = 0; at < kLongBytes; at += kEach) {
                    ++done.count;
                    const std::size_t bytes = std::min(kEach, kLongBytes - at);
                    const ucs_status_t status = remote.get(local, at, bytes, &done);
                    ASSERT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
                    done.count -= status == UCS_OK ? 1 : 0;
                }
                if (--done.count > 0) {
                    ASSERT_TRUE(progress_until(side.self, [&] { return done.calls > 0; }));
                }
                ASSERT_EQ(kLongBytes, first_mismatch(local.span(), kSeed));
            }
            EXPECT_TRUE(side.control.await_signal());
            side.control.signal();
        },
        helper());
    pass_on_and_end(pair);
}

TEST_P(GetHelp, an_owner_that_does_not_progress_is_not_waited_for) {
    Pair pair(
        {},
        [](Side side) {
            const Remote remote(side);
            Buffer local(side.self, kLongBytes, Backing::kRegistered);
            ASSERT_EQ(UCS_OK, remote.get_all(local, 0, kLongBytes));
            EXPECT_TRUE(has_pattern(local.span(), kSeed));
            side.control.signal();
        },
        [right = GetParam()](Side side) {
            const Owned memory(side, right);
            EXPECT_TRUE(side.control.await_signal());
            // Requests that came meanwhile are over.
            for (int i = 0; i < 100; ++i)
                side.self.progress();
            EXPECT_EQ(counter(side.self, "helped_bytes"), 0U);
        });
    pass_on(pair);
    end(pair);
}

TEST_P(GetHelp, a_buffer_is_left_alone_after_its_get_was_cancelled) {
    Pair pair(
        {},
        [](Side side) {
            const Remote remote(side);
            Buffer local(side.self, kLongBytes, Backing::kRegistered);
            Completion done;
            // While the owner does not run, it is not asked to help, and the get is over at once.
            ucs_status_t status = UCS_OK;
            for (int i = 0; i < 10'000 && status == UCS_OK; ++i)
                status = remote.get(local, 0, kLongBytes, &done);
            ASSERT_EQ(UCS_INPROGRESS, status);
            ASSERT_EQ(UCS_OK, uct_ep_flush(side.peer, UCT_FLUSH_FLAG_CANCEL, nullptr));
            EXPECT_EQ(1, done.calls);
            EXPECT_EQ(UCS_ERR_CANCELED, done.ended);
            std::ranges::fill(local.span(), std::byte{0xee});
            side.control.signal();
            EXPECT_TRUE(side.control.await_signal());
            EXPECT_TRUE(std::ranges::all_of(
                local.span(), [](std::byte byte) { return byte == std::byte{0xee}; }));
            side.control.signal();
        },
        [right = GetParam()](Side side) {
            const Owned memory(side, right);
            progress_until_told(side);
            for (int i = 0; i < 10'000; ++i)
                side.self.progress();
            side.control.signal();
            progress_until_told(side);
        });
    pass_on(pair);
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.channel().signal();
    ASSERT_TRUE(pair.second.channel().await_signal());
    pair.first.channel().signal();
    end(pair);
}

TEST_P(GetHelp, memory_that_is_taken_back_ends_gets_with_an_error) {
    const ucs_status_t ended = GetParam() == Right::kKey ? UCS_ERR_INVALID_ADDR : UCS_ERR_CANCELED;
    Pair pair(
        {},
        [ended](Side side) {
            const Remote remote(side);
            Buffer local(side.self, kLongBytes, Backing::kRegistered);
            ucs_status_t status = UCS_OK;
            side.control.signal();
            for (int i = 0; i < 100'000 && status == UCS_OK; ++i) {
                status = remote.get_all(local, 0, kLongBytes);
                if (status == UCS_OK) {
                    ASSERT_TRUE(has_pattern(local.span(), kSeed));
                }
            }
            EXPECT_EQ(ended, status);
            side.control.signal();
        },
        [right = GetParam()](Side side) {
            {
                const Owned memory(side, right);
                progress_until_told(side);
                const std::uint64_t start = now_ns();
                progress_until(side.self, [&] { return now_ns() - start > 30'000'000; });
            }
            progress_until_told(side);
        });
    pass_on(pair);
    ASSERT_TRUE(pair.first.channel().await_signal());
    pair.second.channel().signal();
    end(pair);
}

TEST_P(GetHelp, an_owner_that_dies_ends_gets_with_an_error) {
    for (int round = 0; round < rounds_of_run(10); ++round) {
        Pair pair(
            {},
            [](Side side) {
                const Remote remote(side);
                Buffer local(side.self, kLongBytes, Backing::kRegistered);
                ucs_status_t status = UCS_OK;
                side.control.signal();
                while (status == UCS_OK) {
                    status = remote.get_all(local, 0, kLongBytes);
                    if (status == UCS_OK) {
                        ASSERT_TRUE(has_pattern(local.span(), kSeed));
                    }
                }
                EXPECT_EQ(UCS_ERR_CONNECTION_RESET, status);
            },
            [right = GetParam()](Side side) {
                const Owned memory(side, right);
                for (;;)
                    side.self.progress();
            });
        pass_on(pair);
        ASSERT_TRUE(pair.first.channel().await_signal());
        spin_ns(static_cast<std::uint64_t>(round) * 700'000);
        pair.second.kill_now();
        EXPECT_EQ(0, pair.first.join());
    }
}

TEST_P(GetHelp, a_reader_that_dies_leaves_its_owner_unharmed) {
    for (int round = 0; round < rounds_of_run(10); ++round) {
        Pair pair(
            {},
            [](Side side) {
                const Remote remote(side);
                Buffer local(side.self, kLongBytes, Backing::kRegistered);
                side.control.signal();
                for (;;)
                    remote.get_all(local, 0, kLongBytes);
            },
            [right = GetParam()](Side side) {
                const Owned memory(side, right);
                EXPECT_TRUE(progress_until(side.self, [&] { return !side.self.errors.empty(); }));
                EXPECT_TRUE(has_pattern(memory.span(), kSeed));
            });
        pass_on(pair);
        ASSERT_TRUE(pair.first.channel().await_signal());
        spin_ns(static_cast<std::uint64_t>(round) * 700'000);
        pair.first.kill_now();
        EXPECT_EQ(0, pair.second.join());
    }
}

INSTANTIATE_TEST_SUITE_P(Rights, GetHelp, ::testing::Values(Right::kKey, Right::kLoan),
                         [](const auto& of) { return of.param == Right::kKey ? "key" : "loan"; });

}  // namespace
}  // namespace tagwire::test
