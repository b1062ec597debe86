// SPDX-License-Identifier: BSD-3-Clause
// Messages between providers where peers hang, are paused, or come and go: what one peer waits for
// does not depend on another, nor on messages that it has not received.
#include <malloc.h>

#include <cstdlib>
#include <optional>

#include "atomic_pair.hpp"

namespace tagwire::fi_test {

namespace {

/// A setting of the messaging layer for the domains that are opened while it lives.
class Setting {
  public:
    Setting(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name))
            before_ = before;
        ::setenv(name, value, 1);
    }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;
    ~Setting() {
        if (before_)
            ::setenv(name_, before_->c_str(), 1);
        else
            ::unsetenv(name_);
    }

  private:
    const char* name_;
    std::optional<Text> before_;
};

class FiLetters : public AtomicPair {
  protected:
    void open_all() {
        open_with({.caps = FI_MSG | FI_TAGGED | FI_RMA});
        add_region(memory_);
    }
    ssize_t fetch(Side& from, std::uint64_t* result) {
        return fi_fetch_atomic(from.ep.get(), &one_, 1, nullptr, result, nullptr, to_b, 0, kKey,
                               FI_UINT64, FI_SUM, nullptr);
    }
    /// A third endpoint with queues of its own: it makes progress by turn() alone.
    void open_other(Side& other) { open_side(other, {.caps = info->caps}); }
    fi_addr_t insert(Side& side) {
        fi_addr_t addr = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av.get(), side.name.data(), 1, &addr, 0, nullptr), 1);
        return addr;
    }
    static ssize_t turn(Side& side, fi_cq_tagged_entry* entry) {
        fi_cq_read(side.rx.get(), nullptr, 0);
        return fi_cq_read(side.tx.get(), entry, 1);
    }
    void fetch_and_wait(Side& other) {
        fi_cq_tagged_entry entry{};
        retry([&] {
            const ssize_t status = fetch(other, &result_);
            fi_cq_read(other.rx.get(), nullptr, 0);
            return status;
        });
        run_until([&] { return turn(other, &entry) == 1; });
    }
    /// Sends what the peer does not receive until that pauses the sender.
    void fill(Side& from, Side& to, fi_addr_t addr) {
        int refused = 0;
        for (int i = 0; i < 100000 && refused < 1000; ++i) {
            const bool is_sent = fi_tinject(from.ep.get(), nullptr, 0, addr, 77) == 0;
            refused = is_sent ? 0 : refused + 1;
            for (const Side* side : {&from, &to})
                fi_cq_read(side->rx.get(), nullptr, 0);
        }
        EXPECT_EQ(refused, 1000);
    }
    /// An atomic with a result, a read by a key that is not known, and a write of `a` end.
    void expect_a_served() {
        retry([&] { return fetch(a, &result_); });
        expect_entry(FI_READ, nullptr);
        retry([&] { return fi_read(a.ep.get(), &result_, 8, nullptr, to_b, 0, kKey, nullptr); });
        EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_READ);
        EXPECT_EQ(result_, memory_[0]);
        retry([&] { return fi_write(a.ep.get(), &one_, 8, nullptr, to_b, 8, kKey, nullptr); });
        EXPECT_EQ(next(a.tx).flags, FI_RMA | FI_WRITE);
        run_until([&] { return memory_[1] == one_; });
    }

    std::array<std::uint64_t, 512> memory_{};
    std::uint64_t one_ = 1;
    std::uint64_t result_ = 0;
};

TEST_F(FiLetters, a_peer_that_hangs_and_is_removed_stops_nobody) {
    open_all();
    Side hung;
    open_other(hung);
    fi_addr_t to_hung = insert(hung);
    fetch_and_wait(hung);
    // Neither side has what the other one has sent, so that the connection cannot close.
    const Text data = text_of(4096);
    for (int i = 0; i < 400; ++i)
        if (fi_tsend(b.ep.get(), data.data(), data.size(), nullptr, to_hung, 1, nullptr) != 0)
            break;
    std::uint64_t results[8];
    for (std::uint64_t& result : results)
        fetch(hung, &result);
    ASSERT_EQ(fi_av_remove(av.get(), &to_hung, 1, 0), 0);
    run_some();
    expect_a_served();
    hung.ep.reset();
}

TEST_F(FiLetters, answers_come_although_messages_before_them_are_not_received) {
    const Setting few("TAGWIRE_UNEXPECTED_MAX", "100");
    open_all();
    fill(b, a, to_a);
    expect_a_served();
}

TEST_F(FiLetters, questions_are_answered_although_messages_before_them_are_not_received) {
    const Setting few("TAGWIRE_UNEXPECTED_MAX", "100");
    open_all();
    fill(a, b, to_b);
    expect_a_served();
}

TEST_F(FiLetters, the_longest_atomics_pass_a_pause) {
    const Setting few("TAGWIRE_UNEXPECTED_MAX", "100");
    open_all();
    fill(a, b, to_b);
    fill(b, a, to_a);
    std::array<std::uint64_t, 512> operands{};
    std::array<std::uint64_t, 512> results{};
    operands.fill(3);
    for (std::uint64_t i = 0; i < 200; ++i) {
        retry([&] {
            return fi_compare_atomic(a.ep.get(), operands.data(), operands.size(), nullptr,
                                     memory_.data(), nullptr, results.data(), nullptr, to_b, 0,
                                     kKey, FI_UINT64, FI_CSWAP, nullptr);
        });
        expect_entry(FI_READ, nullptr);
        EXPECT_EQ(results[511], i == 0 ? 0U : 3U);
    }
    EXPECT_EQ(memory_, operands);
}

TEST_F(FiLetters, a_peer_has_a_thousand_atomics_at_most_and_each_ends) {
    open_all();
    std::vector<std::uint64_t> results(2000);
    std::size_t begun = 0;
    while (begun < results.size() && fetch(a, &results[begun]) == 0)
        ++begun;
    EXPECT_EQ(begun, 1024U);
    EXPECT_EQ(fetch(a, &results[begun]), -FI_EAGAIN);
    for (std::size_t i = 0; i < begun; ++i)
        expect_entry(FI_READ, nullptr);
    EXPECT_EQ(memory_[0], begun);
    // One that was cancelled counts until its reply has come.
    for (begun = 0; begun < results.size(); ++begun) {
        if (fi_fetch_atomic(a.ep.get(), &one_, 1, nullptr, &results[0], nullptr, to_b, 0, kKey,
                            FI_UINT64, FI_SUM, &contexts_[0]) != 0)
            break;
        EXPECT_EQ(fi_cancel(&a.ep->fid, &contexts_[0]), 0);
        EXPECT_EQ(next_error(a.tx).err, FI_ECANCELED);
    }
    run_some();
    retry([&] { return fetch(a, &results[0]); });
    expect_entry(FI_READ, nullptr);
}

/// Clients that nobody has inserted, as a server has them.
TEST_F(FiLetters, nothing_is_kept_of_clients_that_have_gone) {
    const char* transports = std::getenv("FI_TAGWIRE_TRANSPORTS");
    if (transports != nullptr && (Text(transports) == "rc" || Text(transports) == "dc"))
        GTEST_SKIP() << "the virtual device keeps memory of its own in this process";
    open_all();
    const auto serve = [&](int clients) {
        for (int i = 0; i < clients; ++i) {
            Side client;
            open_other(client);
            fetch_and_wait(client);
            client.ep.reset();
            run_some();
        }
        return mallinfo2().uordblks + mallinfo2().hblkhd;
    };
    serve(10);
    const std::size_t before = serve(10);
    const std::size_t after = serve(40);
    EXPECT_LT(after, before + std::size_t{40} * 1024);
}

}  // namespace

}  // namespace tagwire::fi_test
