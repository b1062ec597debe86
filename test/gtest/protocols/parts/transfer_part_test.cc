// SPDX-License-Identifier: BSD-3-Clause
// A transfer alone, over the endpoint's own lane: its pieces, and their ends in any order, before
// and after that of its request. stripe_part_test.cc has the lanes beside it.
#include "protocols/transfer/transfer.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/parts/fake_worker.hpp"

namespace tagwire::test {
namespace {

using proto::Request;
using proto::RequestKind;
using proto::Transfer;

/// Ends of transfers that were told.
std::vector<ucs_status_t> told_ends;

class TransferPieces : public testing::Test {
  protected:
    static constexpr std::size_t kPiece = 100;
    static constexpr std::uint64_t kRemote = 0x1000;

    TransferPieces() {
        told_ends.clear();
        rail_.attributes().cap.put.max_zcopy = kPiece;
        rail_.attributes().cap.get.max_zcopy = kPiece / 2;
    }
    /// A transfer of `bytes` bytes, which belongs to the request.
    Request& begin(std::size_t bytes, bool is_put = true) {
        buffer_.resize(bytes);
        Request& request = worker_.make(RequestKind::kSend, buffer_);
        auto transfer = std::make_unique<Transfer>(
            request, proto::TransferPorts{worker_.port, peer_.lane},
            [](Request&, ucs_status_t status) { told_ends.push_back(status); });
        transfer->own.end = bytes;
        transfer->is_put = is_put;
        transfer->address = kRemote;
        request.transfer = transfer.release();
        return request;
    }
    /// As the queue does in its turn. False: there was no room.
    bool move(Request& request) {
        proto::TransferPart& part = request.transfer->own;
        if (!part.begin_pieces(uct_.ep(), rail_))
            return false;
        part.release();
        return true;
    }
    void end(Request& request) {
        proto::end_transfer(request);
        worker_.requests.release(request);
    }
    std::size_t queued() const { return peer_.fake.data.size(); }

    FakeWorker worker_;
    FakeMatchPeer peer_{1};
    FakeUct uct_;
    FakeRail rail_{worker_.options};
    std::vector<std::byte> buffer_;
};

TEST_F(TransferPieces, its_pieces_are_as_long_as_the_lane_moves_and_so_many_are_under_way) {
    Request& request = begin(6 * kPiece - 1);
    EXPECT_TRUE(move(request));
    ASSERT_EQ(uct_.pieces.size(), proto::kPiecesOut);
    for (std::size_t i = 0; i < uct_.pieces.size(); ++i) {
        EXPECT_TRUE(uct_.pieces[i].is_put);
        EXPECT_EQ(uct_.pieces[i].iov.buffer, buffer_.data() + i * kPiece);
        EXPECT_EQ(uct_.pieces[i].iov.length, kPiece);
        EXPECT_EQ(uct_.pieces[i].remote, kRemote + i * kPiece);
        EXPECT_EQ(queued(), 0U);
        uct_.end_piece(i);
    }
    EXPECT_EQ(queued(), 1U);
    EXPECT_TRUE(move(request));
    ASSERT_EQ(uct_.pieces.size(), 6U);
    EXPECT_EQ(uct_.pieces[5].iov.length, kPiece - 1);
    uct_.end_piece(5);
    EXPECT_TRUE(told_ends.empty());
    uct_.end_piece(4);
    EXPECT_EQ(told_ends, std::vector{UCS_OK});
    EXPECT_EQ(queued(), 1U);
    end(request);
}

TEST_F(TransferPieces, a_read_has_the_limit_of_reads) {
    Request& request = begin(kPiece, false);
    EXPECT_TRUE(move(request));
    ASSERT_EQ(uct_.pieces.size(), 2U);
    EXPECT_FALSE(uct_.pieces[0].is_put);
    EXPECT_EQ(uct_.pieces[0].iov.length, kPiece / 2);
    uct_.end_piece(1);
    uct_.end_piece(0);
    EXPECT_EQ(told_ends, std::vector{UCS_OK});
    end(request);
}

TEST_F(TransferPieces, pieces_that_end_in_their_call_end_it_when_the_queue_has_released_it) {
    uct_.piece_status = UCS_OK;
    Request& request = begin(kPiece);
    EXPECT_TRUE(request.transfer->own.begin_pieces(uct_.ep(), rail_));
    EXPECT_TRUE(told_ends.empty());
    request.transfer->own.release();
    EXPECT_EQ(told_ends, std::vector{UCS_OK});
    end(request);
}

TEST_F(TransferPieces, without_room_for_the_first_nothing_has_begun) {
    uct_.pieces_max = 0;
    Request& request = begin(kPiece);
    EXPECT_FALSE(move(request));
    EXPECT_FALSE(request.transfer->is_busy());
    EXPECT_EQ(request.transfer->own.next, 0U);
    end(request);
    EXPECT_TRUE(told_ends.empty());
}

TEST_F(TransferPieces, without_room_for_more_those_that_have_begun_are_waited_for) {
    uct_.pieces_max = 2;
    Request& request = begin(4 * kPiece);
    EXPECT_TRUE(move(request));
    EXPECT_EQ(uct_.pieces.size(), 2U);
    uct_.pieces_max = SIZE_MAX;
    uct_.end_piece(1);
    EXPECT_EQ(queued(), 0U);
    uct_.end_piece(0);
    EXPECT_EQ(queued(), 1U);
    EXPECT_TRUE(move(request));
    EXPECT_EQ(uct_.pieces.size(), 4U);
    EXPECT_EQ(uct_.pieces[2].iov.buffer, buffer_.data() + 2 * kPiece);
    uct_.end_piece(2);
    uct_.end_piece(3);
    EXPECT_EQ(told_ends, std::vector{UCS_OK});
    end(request);
}

TEST_F(TransferPieces, a_failure_is_its_end_when_all_pieces_have_ended_whatever_their_order) {
    std::array<std::size_t, 3> order{0, 1, 2};
    do {
        for (std::size_t failing = 0; failing < order.size(); ++failing) {
            told_ends.clear();
            uct_.pieces.clear();
            Request& request = begin(3 * kPiece);
            EXPECT_TRUE(move(request));
            for (const std::size_t i : order) {
                EXPECT_TRUE(told_ends.empty());
                uct_.end_piece(i, i == failing ? UCS_ERR_IO_ERROR : UCS_OK);
            }
            EXPECT_EQ(told_ends, std::vector{UCS_ERR_IO_ERROR});
            EXPECT_EQ(queued(), 0U);
            end(request);
        }
    } while (std::ranges::next_permutation(order).found);
}

TEST_F(TransferPieces, a_piece_that_is_refused_is_the_end_of_it) {
    for (const bool is_first : {true, false}) {
        told_ends.clear();
        uct_.pieces.clear();
        uct_.piece_status = is_first ? UCS_ERR_INVALID_ADDR : UCS_INPROGRESS;
        Request& request = begin(5 * kPiece);
        EXPECT_TRUE(move(request));
        if (!is_first) {
            for (std::size_t i = 0; i < proto::kPiecesOut; ++i)
                uct_.end_piece(i);
            uct_.piece_status = UCS_ERR_INVALID_ADDR;
            EXPECT_TRUE(move(request));
        }
        EXPECT_EQ(told_ends, std::vector{UCS_ERR_INVALID_ADDR});
        end(request);
    }
}

TEST_F(TransferPieces, the_end_of_the_lane_is_the_end_of_it) {
    Request& request = begin(5 * kPiece);
    EXPECT_TRUE(move(request));
    peer_.fake.port.fail(UCS_ERR_CONNECTION_RESET);
    for (std::size_t i = 0; i < proto::kPiecesOut; ++i)
        uct_.end_piece(i, UCS_ERR_CANCELED);
    EXPECT_EQ(told_ends, std::vector{UCS_ERR_CONNECTION_RESET});
    end(request);
}

TEST_F(TransferPieces, pieces_outlive_a_request_that_has_ended) {
    for (const std::size_t last : {0U, 1U}) {
        told_ends.clear();
        uct_.pieces.clear();
        Request& request = begin(2 * kPiece);
        EXPECT_TRUE(move(request));
        end(request);
        uct_.end_piece(1 - last);
        uct_.end_piece(last, UCS_ERR_CANCELED);  // the transfer goes
        EXPECT_TRUE(told_ends.empty());
        EXPECT_EQ(queued(), 0U);
    }
}

TEST_F(TransferPieces, one_that_drains_tells_the_worker_when_its_pieces_have_ended) {
    Request& request = begin(5 * kPiece);
    EXPECT_TRUE(move(request));
    request.transfer->ending = UCS_ERR_CONNECTION_RESET;
    for (std::size_t i = 0; i < proto::kPiecesOut; ++i) {
        EXPECT_TRUE(worker_.drained.empty());
        uct_.end_piece(i);
    }
    const std::vector drained{FakeWorker::End{&request, UCS_ERR_CONNECTION_RESET}};
    EXPECT_EQ(worker_.drained, drained);
    EXPECT_TRUE(told_ends.empty());
    end(request);
}

TEST_F(TransferPieces, pieces_of_a_list_end_with_its_elements) {
    Request& request = begin(100);
    std::array<tw_iov_t, 3> list{
        {{buffer_.data(), 30}, {buffer_.data() + 30, 60}, {buffer_.data() + 90, 10}}};
    request.buffer.base = nullptr;
    request.buffer.list = list.data();
    request.buffer.count = list.size();
    EXPECT_TRUE(move(request));
    ASSERT_EQ(uct_.pieces.size(), 3U);
    for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_EQ(uct_.pieces[i].iov.buffer, list[i].base);
        EXPECT_EQ(uct_.pieces[i].iov.length, list[i].length);
        uct_.end_piece(i);
    }
    EXPECT_EQ(told_ends, std::vector{UCS_OK});
    request.buffer.list = nullptr;  // it is the test's
    end(request);
}

}  // namespace
}  // namespace tagwire::test
