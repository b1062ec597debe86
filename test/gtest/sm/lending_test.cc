// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that endpoints lend: the loan and its ends, and loans that a peer has made up.

#include <gtest/gtest.h>
#include <uct/api/tagwire_uct.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "operations.hpp"
#include "sm/hostile_fixture.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/lending.hpp"

namespace tagwire::test {
namespace {

constexpr int kLendSteps = 200'000;

// ---- An owner and a reader of one process -------------------------------------------------------

class SmLending : public ::testing::Test {
  protected:
    SmLending() {
        Connection both = connect(owner, reader);
        forward = std::move(both.forward);
        backward = connect(reader, owner).forward;
        // Either side knows the other when its first packet has come.
        tagwire_uct_loan_t loan;
        for (int i = 0; i < kLendSteps; ++i) {
            progress();
            if (tagwire_uct_ep_lend(forward, lent.data(), lent.size(), &loan) == UCS_OK &&
                tagwire_uct_ep_lend(backward, lent.data(), lent.size(), &loan) == UCS_OK)
                break;
        }
    }
    void progress() {
        owner.progress();
        reader.progress();
    }
    tagwire_uct_loan_t lend(uct_ep_h ep) {
        tagwire_uct_loan_t loan{};
        EXPECT_EQ(UCS_OK, tagwire_uct_ep_lend(ep, lent.data(), lent.size(), &loan));
        return loan;
    }
    ucs_status_t read(const tagwire_uct_loan_t& loan) {
        got.assign(lent.size(), std::byte{0});
        const uct_iov_t iov{got.data(), got.size(), UCT_MEM_HANDLE_NULL, 0, 1};
        return tagwire_uct_ep_read_lent(backward, &iov, 1, &loan, nullptr);
    }

    Entity owner{resource_of("sm")};
    Entity reader{resource_of("sm")};
    Endpoint forward, backward;
    Bytes lent = pattern(3000, 1);
    Bytes got;
};

TEST_F(SmLending, is_announced_by_its_flag) {
    EXPECT_TRUE(owner.offers(TAGWIRE_UCT_IFACE_FLAG_LEND));
}

TEST_F(SmLending, lent_memory_is_read_as_often_as_the_loan_lasts) {
    const tagwire_uct_loan_t loan = lend(forward);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(UCS_OK, read(loan));
        EXPECT_EQ(lent, got);
    }
    EXPECT_EQ(loan.generation, lend(forward).generation) << "one loan stands for all";
}

TEST_F(SmLending, data_goes_into_the_pieces_of_a_list) {
    const tagwire_uct_loan_t loan = lend(forward);
    got.assign(lent.size(), std::byte{0});
    std::vector<uct_iov_t> iov;
    constexpr std::size_t kPieces = 30;  // 100 bytes each, more than a system call takes
    for (std::size_t i = 0; i < kPieces; ++i)
        iov.push_back({got.data() + i * 100, 100, UCT_MEM_HANDLE_NULL, 0, 1});
    EXPECT_EQ(UCS_OK, tagwire_uct_ep_read_lent(backward, iov.data(), iov.size(), &loan, nullptr));
    EXPECT_EQ(lent, got);
}

TEST_F(SmLending, memory_of_the_domain_is_lent_by_its_place) {
    const Buffer buffer(owner, 5000, Backing::kAllocated);
    fill_pattern(buffer.span(), 3);
    tagwire_uct_loan_t loan{};
    ASSERT_EQ(UCS_OK, tagwire_uct_ep_lend(forward, buffer.data(), buffer.size(), &loan));
    EXPECT_NE(0U, loan.place & sm::kPlaceInArena);
    Bytes there(5000);
    const uct_iov_t iov{there.data(), there.size(), UCT_MEM_HANDLE_NULL, 0, 1};
    EXPECT_EQ(UCS_OK, tagwire_uct_ep_read_lent(backward, &iov, 1, &loan, nullptr));
    EXPECT_TRUE(has_pattern(there, 3));
}

TEST_F(SmLending, long_buffers_of_the_own_process_are_read_within_the_call) {
    lent = pattern(std::size_t{1} << 20, 4);
    const tagwire_uct_loan_t loan = lend(forward);
    EXPECT_EQ(UCS_OK, read(loan));
    EXPECT_EQ(lent, got);
}

TEST_F(SmLending, the_loan_ends_with_the_endpoint) {
    const tagwire_uct_loan_t loan = lend(forward);
    forward.reset();
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan));
}

TEST_F(SmLending, the_loan_ends_with_any_endpoint_of_the_connection) {
    const Endpoint second = connect(owner, reader).forward;
    const tagwire_uct_loan_t loan = lend(forward);
    EXPECT_EQ(loan.generation, lend(second).generation);
    forward.reset();
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan));
    const tagwire_uct_loan_t next = lend(second);
    EXPECT_NE(loan.generation, next.generation);
    EXPECT_EQ(UCS_OK, read(next));
    EXPECT_EQ(lent, got);
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan));
}

TEST_F(SmLending, the_loan_ends_with_a_flush_that_cancels) {
    const tagwire_uct_loan_t loan = lend(forward);
    EXPECT_EQ(UCS_OK, uct_ep_flush(forward, UCT_FLUSH_FLAG_CANCEL, nullptr));
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan));
    tagwire_uct_loan_t none{};
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, tagwire_uct_ep_lend(forward, lent.data(), lent.size(), &none));
}

TEST_F(SmLending, a_failed_endpoint_neither_lends_nor_reads) {
    const tagwire_uct_loan_t loan = lend(forward);
    forward.reset();
    owner.close_iface();
    for (int i = 0; i < kLendSteps && reader.errors.empty(); ++i)
        reader.progress();
    ASSERT_FALSE(reader.errors.empty());
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, read(loan));
    tagwire_uct_loan_t none{};
    EXPECT_EQ(UCS_ERR_UNSUPPORTED, tagwire_uct_ep_lend(backward, lent.data(), lent.size(), &none));
}

TEST_F(SmLending, a_call_of_progress_reads_no_more_than_its_share) {
    lent = pattern(40'000, 2);
    const tagwire_uct_loan_t loan = lend(forward);
    for (int call = 0; call < 2; ++call) {
        progress();
        std::size_t bytes = 0;
        ucs_status_t status = UCS_OK;
        while ((status = read(loan)) == UCS_OK && bytes <= sm::kReadBytesMax) {
            EXPECT_EQ(lent, got);
            bytes += lent.size();
        }
        EXPECT_EQ(UCS_ERR_NO_RESOURCE, status);
        EXPECT_LE(bytes, sm::kReadBytesMax);
        EXPECT_GT(bytes + lent.size(), sm::kReadBytesMax);
    }
}

// ---- A peer that makes loans up, in another process ---------------------------------------------

/// The puppet has copies of both, at the same addresses.
const std::uint64_t kProofWord = 0x70726f6f66776f72;
const std::array<char, 64> kLentByPuppet = {"lent by another process"};
std::array<std::byte, std::size_t{2} << 20> long_of_puppet;  // zeros

class HostileLender : public HostilePeer {
  protected:
    static constexpr std::uint32_t kKey = 5;
    static constexpr std::uint64_t kGeneration = 7;

    HostileLender() : HostilePeer(0, "auto"), peer(make_lender(kProofWord)), ep(back_to(peer)) {
        EXPECT_EQ(UCS_OK, ucs::map_shared(peer.arena_fd.get(), RawPeer::kArenaBytes, &arena_));
        set_generation(kKey, kGeneration);
        progress();
    }
    RawPeer make_lender(std::uint64_t word) {
        RawPeer made = make_peer();
        made.hello.probe_address = reinterpret_cast<std::uintptr_t>(&kProofWord);
        made.hello.probe_value = word;
        made.say_hello();
        made.offer_ring();
        progress();
        EXPECT_FALSE(made.is_ended());
        return made;
    }
    void SetUp() override {
        if (text_of_ep("zcopy_path") != "process_vm")
            GTEST_SKIP() << "process_vm_readv is not permitted";
    }
    std::string text_of_ep(const std::string& key) const {
        struct Asked {
            const std::string& key;
            std::string value;
        } asked{key, {}};
        tagwire_uct_ep_describe(
            ep,
            [](void* arg, const char* name, const char* value) {
                auto& wanted = *static_cast<Asked*>(arg);
                if (wanted.key == name)
                    wanted.value = value;
            },
            &asked);
        return asked.value;
    }
    void set_generation(std::uint32_t index, std::uint64_t generation) {
        reinterpret_cast<sm::Generation*>(arena_.base())[index].store(generation);
    }
    static tagwire_uct_loan_t loan_of_puppet() {
        return {reinterpret_cast<std::uintptr_t>(kLentByPuppet.data()), kGeneration, kKey, 0};
    }
    ucs_status_t read(const tagwire_uct_loan_t& loan, std::size_t bytes) {
        got.assign(bytes, std::byte{0});
        const uct_iov_t iov{got.data(), got.size(), UCT_MEM_HANDLE_NULL, 0, 1};
        progress(1);  // a new call: there is a limit for each
        return tagwire_uct_ep_read_lent(ep, &iov, 1, &loan, nullptr);
    }

    /// As read(), of one that may take several calls of progress.
    ucs_status_t begin(const tagwire_uct_loan_t& loan, std::size_t bytes, Completion* done) {
        got.assign(bytes, std::byte{0xee});
        const uct_iov_t iov{got.data(), got.size(), UCT_MEM_HANDLE_NULL, 0, 1};
        progress(1);
        return tagwire_uct_ep_read_lent(ep, &iov, 1, &loan, done);
    }
    static tagwire_uct_loan_t long_loan() {
        tagwire_uct_loan_t loan = loan_of_puppet();
        loan.place = reinterpret_cast<std::uintptr_t>(long_of_puppet.data());
        loan.id = 77;
        return loan;
    }

    RawPeer peer;
    Endpoint ep;
    Bytes got;

  private:
    ucs::Mapping arena_;
};

TEST_F(HostileLender, that_lends_its_own_memory_is_read) {
    ASSERT_EQ(UCS_OK, read(loan_of_puppet(), kLentByPuppet.size()));
    EXPECT_EQ(0, std::memcmp(got.data(), kLentByPuppet.data(), got.size()));
    EXPECT_EQ(1U, counter("lent_reads"));
}

TEST_F(HostileLender, that_has_ended_its_loan_is_not_read) {
    set_generation(kKey, kGeneration + 1);
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan_of_puppet(), 64));
    set_generation(kKey, kGeneration + 2);
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan_of_puppet(), 64));
    EXPECT_EQ(0U, counter("lent_reads"));
    EXPECT_EQ(2U, counter("lent_ended"));
}

TEST_F(HostileLender, gains_nothing_by_an_even_generation) {
    set_generation(kKey, 8);
    tagwire_uct_loan_t loan = loan_of_puppet();
    loan.generation = 8;
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan, 64));
    set_generation(kKey, 0);
    loan.generation = 0;
    EXPECT_EQ(UCS_ERR_CANCELED, read(loan, 64));
}

TEST_F(HostileLender, that_names_memory_it_does_not_have_is_refused) {
    const std::uint64_t places[] = {0,
                                    1,
                                    4096,
                                    std::uint64_t{1} << 47,
                                    (std::uint64_t{1} << 63) - 8,
                                    sm::kPlaceInArena | RawPeer::kArenaBytes,
                                    sm::kPlaceInArena | (RawPeer::kArenaBytes - 63),
                                    UINT64_MAX};
    for (const std::uint64_t place : places) {
        tagwire_uct_loan_t loan = loan_of_puppet();
        loan.place = place;
        EXPECT_EQ(UCS_ERR_INVALID_ADDR, read(loan, 64)) << place;
    }
    EXPECT_FALSE(peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileLender, that_lends_more_than_a_call_reads_needs_a_completion) {
    EXPECT_EQ(UCS_ERR_BUSY, read(long_loan(), sm::kReadBytesMax + 1));
    EXPECT_EQ(0U, counter("lent_reads"));
}

TEST_F(HostileLender, that_is_asked_to_help_and_does_not_is_read_alone) {
    Completion done;
    ASSERT_EQ(UCS_INPROGRESS, begin(long_loan(), long_of_puppet.size(), &done));
    progress();
    EXPECT_EQ(1, done.calls);
    EXPECT_EQ(UCS_OK, done.ended);
    EXPECT_TRUE(std::ranges::all_of(got, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(1U, counter("lent_reads"));
}

TEST_F(HostileLender, that_ends_its_loan_amid_a_long_read_is_not_read) {
    Completion done;
    ASSERT_EQ(UCS_INPROGRESS, begin(long_loan(), long_of_puppet.size(), &done));
    set_generation(kKey, kGeneration + 1);
    progress();
    EXPECT_EQ(1, done.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, done.ended);
    EXPECT_EQ(0U, counter("lent_reads"));
    EXPECT_EQ(1U, counter("lent_ended"));
}

TEST_F(HostileLender, that_names_long_memory_it_does_not_have_is_refused) {
    tagwire_uct_loan_t loan = long_loan();
    loan.place = std::uint64_t{1} << 40;
    Completion done;
    ucs_status_t status = begin(loan, long_of_puppet.size(), &done);
    progress();
    if (status == UCS_INPROGRESS)
        status = done.ended;
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, status);
    EXPECT_FALSE(peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileLender, cannot_keep_a_long_read_that_is_cancelled) {
    Completion done;
    ASSERT_EQ(UCS_INPROGRESS, begin(long_loan(), long_of_puppet.size(), &done));
    EXPECT_EQ(UCS_OK, uct_ep_flush(ep, UCT_FLUSH_FLAG_CANCEL, nullptr));
    EXPECT_EQ(1, done.calls);
    EXPECT_EQ(UCS_ERR_CANCELED, done.ended);
}

TEST_F(HostileLender, that_does_not_have_the_word_of_its_process_is_not_read) {
    const RawPeer other = make_lender(kProofWord + 1);
    const Endpoint to_other = back_to(other);
    progress();
    Bytes there(64);
    const uct_iov_t iov{there.data(), there.size(), UCT_MEM_HANDLE_NULL, 0, 1};
    const tagwire_uct_loan_t loan = loan_of_puppet();
    EXPECT_NE(UCS_OK, tagwire_uct_ep_read_lent(to_other, &iov, 1, &loan, nullptr));
}

// ---- A peer that asks for parts of what the victim lends

std::array<std::byte, 64> written_in_puppet;

class HostileReader : public HostileLender {
  protected:
    static constexpr std::uint32_t kId = 77;

    HostileReader() {
        answer_to_id = {ep, lent.data(), lent.size()};
        tagwire_uct_iface_set_lent_handler(
            victim.iface(),
            [](void* arg, std::uint32_t id, tagwire_uct_lent_t* lent_p) {
                if (id != kId)
                    return UCS_ERR_NO_ELEM;
                *lent_p = static_cast<HostileReader*>(arg)->answer_to_id;
                return UCS_OK;
            },
            this);
    }
    /// Bytes that the victim writes to the peer, which asks for `length` bytes from `remote` on.
    std::uint64_t ask(std::uint64_t remote, std::uint64_t length, std::uint32_t id = kId) {
        const std::uint64_t before = counter("helped_bytes");
        sm::RndvWord& word = peer.rndv(0);
        ++generation_;
        for (auto* const field : {&word.next, &word.done, &word.failed})
            field->store(sm::rndv_word(generation_, 0U), std::memory_order_relaxed);
        peer.publish(sm::Kind::kGetHelp,
                     sm::GetHelpBody{reinterpret_cast<std::uintptr_t>(written_in_puppet.data()),
                                     remote, length, generation_, id, 0, 1});
        progress();
        return counter("helped_bytes") - before;
    }
    std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uintptr_t>(lent.data()) + offset;
    }

    const Bytes lent = pattern(64, 1);
    tagwire_uct_lent_t answer_to_id{};

  private:
    std::uint32_t generation_ = 0;
};

TEST_F(HostileReader, gets_what_is_lent_to_it) {
    EXPECT_EQ(64U, ask(address(), 64));
    EXPECT_EQ(1U, ask(address(63), 1));
}

TEST_F(HostileReader, gets_nothing_but_what_is_lent) {
    for (const std::uint32_t id : {0U, 1U, kId + 1, ~0U})
        EXPECT_EQ(0U, ask(address(), 64, id)) << id;
    EXPECT_EQ(0U, ask(address() - 1, 8));
    EXPECT_EQ(0U, ask(address(1), 64));
    EXPECT_EQ(0U, ask(address(), 65));
    EXPECT_EQ(0U, ask(address(65), 1));
    EXPECT_EQ(0U, ask(0, 64));
    EXPECT_EQ(0U, ask(address(8), ~address(8)));
    EXPECT_FALSE(peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

TEST_F(HostileReader, gets_nothing_that_is_lent_to_others) {
    RawPeer other = make_lender(kProofWord);
    const Endpoint to_other = back_to(other);
    answer_to_id.ep = to_other;
    EXPECT_EQ(0U, ask(address(), 64));
    answer_to_id.ep = to_victim;  // of another interface
    EXPECT_EQ(0U, ask(address(), 64));
    EXPECT_FALSE(peer.is_ended());
}

TEST_F(HostileReader, gets_nothing_when_the_message_has_ended) {
    tagwire_uct_iface_set_lent_handler(victim.iface(), nullptr, nullptr);
    EXPECT_EQ(0U, ask(address(), 64));
    EXPECT_FALSE(peer.is_ended());
}

// Any key, any generation, any place and length end with a status, and nothing is taken from
// elsewhere: the key and the generation that are right are never met.
TEST_F(HostileLender, that_makes_up_loans_harms_nobody) {
    std::mt19937_64 random(4711);
    for (int i = 0; i < 20'000; ++i) {
        tagwire_uct_loan_t loan{random(), random(), static_cast<std::uint32_t>(random()),
                                static_cast<std::uint32_t>(random())};
        if (i % 4 == 0)  // one that is in force, of memory that is not there
            loan = {random(), kGeneration, kKey, 0};
        const ucs_status_t status = read(loan, random() % 2000);
        EXPECT_TRUE(status == UCS_ERR_CANCELED || status == UCS_ERR_INVALID_ADDR ||
                    (got.empty() && status == UCS_OK))
            << ucs_status_string(status);
    }
    EXPECT_FALSE(peer.is_ended());
    EXPECT_TRUE(others_go_on());
}

}  // namespace
}  // namespace tagwire::test
