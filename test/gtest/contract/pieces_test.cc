// SPDX-License-Identifier: BSD-3-Clause
// Many puts or gets in one call (tagwire_uct_ep_put_pieces()).
#include <uct/api/tagwire_uct.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "fixture.hpp"

namespace tagwire::test {
namespace {

class PiecesContract : public Contract {
  protected:
    using Move = decltype(&tagwire_uct_ep_put_pieces);

    /// Moves all, in as many calls as it takes, and waits for the completions.
    ucs_status_t move_all(Move move, const std::vector<tagwire_uct_piece_t>& pieces) {
        uct_completion_t done{[](uct_completion_t*) {}, 1, UCS_OK};
        std::size_t at = 0;
        ucs_status_t status = UCS_OK;
        const bool has_ended = until(
            [&] {
                while (at < pieces.size() && status == UCS_OK) {
                    std::size_t begun = 0;
                    status = move(ep(), pieces.data() + at, pieces.size() - at, &begun, &done);
                    at += begun;
                    if (status == UCS_ERR_NO_RESOURCE) {
                        EXPECT_EQ(begun, 0U);
                        status = UCS_OK;
                        return false;
                    }
                    EXPECT_TRUE(status != UCS_OK || begun > 0);
                }
                return done.count == 1;
            },
            2'000'000);
        EXPECT_TRUE(has_ended);
        return status != UCS_OK ? status : done.status;
    }
    std::size_t longest() {
        return std::min(
            {attr().cap.put.max_zcopy, attr().cap.get.max_zcopy, std::size_t{1'000'000}});
    }
};

class Pieces : public PiecesContract {};
INSTANTIATE_TEST_SUITE_P(Contract, Pieces, ::testing::ValuesIn(all_setups()), setup_label);

TEST_P(Pieces, of_several_memories_are_moved) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    constexpr std::size_t kBytes = 3'000'000;
    for (const Backing local_kind : local_backings(sender())) {
        std::vector<std::unique_ptr<Buffer>> remotes;
        std::vector<std::unique_ptr<RemoteKey>> keys;
        for (const Backing kind : remote_backings(receiver())) {
            remotes.push_back(std::make_unique<Buffer>(receiver(), kBytes, kind));
            keys.push_back(std::make_unique<RemoteKey>(sender(), remotes.back()->packed_rkey()));
        }
        Buffer local(sender(), kBytes, local_kind);
        fill_pattern(local.span(), 3);
        std::vector<tagwire_uct_piece_t> pieces;
        std::vector<std::pair<std::size_t, std::size_t>> places;  // of each: local, remote
        std::mt19937_64 random(5);
        for (std::size_t at = 0; at < kBytes;) {
            const std::size_t which = random() % remotes.size();
            const std::size_t wanted =
                random() % 50 == 0 ? longest() : 1 + random() % (random() % 4 == 0 ? 30000 : 64);
            const std::size_t length = std::min(wanted, kBytes - at);
            pieces.push_back({local.data() + at, length, remotes[which]->address() + at,
                              local.memh(), keys[which]->get()});
            at += length;
        }
        ASSERT_EQ(move_all(tagwire_uct_ep_put_pieces, pieces), UCS_OK);
        flush_ep(ep());
        const auto are_same = [&] {
            return std::ranges::all_of(pieces, [](const tagwire_uct_piece_t& piece) {
                return std::memcmp(piece.buffer, reinterpret_cast<const void*>(piece.remote_addr),
                                   piece.length) == 0;
            });
        };
        EXPECT_TRUE(until(are_same, 100'000));
        std::ranges::fill(local.span(), std::byte{0});
        std::ranges::shuffle(pieces, random);
        ASSERT_EQ(move_all(tagwire_uct_ep_get_pieces, pieces), UCS_OK);
        EXPECT_TRUE(are_same());
        EXPECT_TRUE(has_pattern(local.span(), 3));
    }
}

TEST_P(Pieces, that_are_many_end_once) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    constexpr std::size_t kCount = 20'000;
    Buffer remote(receiver(), 8 * kCount, remote_backings(receiver()).front());
    const RemoteKey key(sender(), remote.packed_rkey());
    Buffer local(sender(), 8 * kCount, local_backings(sender()).front());
    fill_pattern(local.span(), 9);
    std::vector<tagwire_uct_piece_t> pieces;
    for (std::size_t i = 0; i < kCount; ++i)
        pieces.push_back(
            {local.data() + 8 * i, 8, remote.address() + 8 * i, local.memh(), key.get()});
    ASSERT_EQ(move_all(tagwire_uct_ep_put_pieces, pieces), UCS_OK);
    flush_ep(ep());
    EXPECT_TRUE(until([&] { return has_pattern(remote.span(), 9); }, 100'000));
    std::ranges::fill(local.span(), std::byte{0});
    ASSERT_EQ(move_all(tagwire_uct_ep_get_pieces, pieces), UCS_OK);
    EXPECT_TRUE(has_pattern(local.span(), 9));
}

TEST_P(Pieces, of_wrong_arguments_are_refused) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    Buffer remote(receiver(), 64, remote_backings(receiver()).front());
    const RemoteKey key(sender(), remote.packed_rkey());
    Buffer local(sender(), 64, local_backings(sender()).front());
    uct_completion_t done{[](uct_completion_t*) {}, 1, UCS_OK};
    std::size_t begun = 7;
    const tagwire_uct_piece_t piece{local.data(), 8, remote.address(), local.memh(), key.get()};
    EXPECT_EQ(tagwire_uct_ep_put_pieces(nullptr, &piece, 1, &begun, &done), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_ep_put_pieces(ep(), nullptr, 1, &begun, &done), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_ep_get_pieces(ep(), &piece, 1, nullptr, &done), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(tagwire_uct_ep_get_pieces(ep(), &piece, 1, &begun, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(begun, 7U);
    EXPECT_EQ(tagwire_uct_ep_put_pieces(ep(), nullptr, 0, &begun, &done), UCS_OK);
    EXPECT_EQ(begun, 0U);
    EXPECT_EQ(done.count, 1);
    ASSERT_EQ(move_all(tagwire_uct_ep_put_pieces, {piece}), UCS_OK);
}

TEST_P(Pieces, outside_of_their_key_fail_alone) {
    TW_NEED(UCT_IFACE_FLAG_PUT_ZCOPY | UCT_IFACE_FLAG_GET_ZCOPY);
    const std::string& transport = GetParam().resource.transport;
    if (transport != "sm" && transport != "tcp")
        GTEST_SKIP() << "the device finds it, and the endpoint fails";
    for (const Backing kind : remote_backings(receiver())) {
        Buffer remote(receiver(), 64, kind);
        const RemoteKey key(sender(), remote.packed_rkey());
        Buffer local(sender(), 64, local_backings(sender()).front());
        fill_pattern(local.span(), 4);
        std::vector<tagwire_uct_piece_t> pieces;
        for (std::size_t i = 0; i < 8; ++i)
            pieces.push_back(
                {local.data() + 8 * i, 8, remote.address() + 8 * i, local.memh(), key.get()});
        ASSERT_EQ(move_all(tagwire_uct_ep_put_pieces, {pieces[7]}), UCS_OK);  // it is connected
        pieces[5].remote_addr = remote.address() - 1;
        uct_completion_t done{[](uct_completion_t*) {}, 1, UCS_OK};
        std::size_t begun = 0;
        EXPECT_EQ(tagwire_uct_ep_put_pieces(ep(), pieces.data(), 8, &begun, &done),
                  UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(begun, 5U);
        EXPECT_TRUE(until([&] { return done.count == 1; }, 100'000));
        flush_ep(ep());
        EXPECT_TRUE(until(
            [&] { return std::equal(local.data(), local.data() + 40, remote.data()); }, 100'000));
    }
}

}  // namespace
}  // namespace tagwire::test
