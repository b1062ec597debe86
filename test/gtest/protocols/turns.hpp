// SPDX-License-Identifier: BSD-3-Clause
// Kinds of work of an endpoint, streams of them, and one of a kind beside others.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "protocols/rma_pair.hpp"

namespace tagwire::test {

enum class Work : std::uint8_t {
    kShort,      // a short message
    kParts,      // an eager message of several parts
    kRndv,       // data of a rendezvous to the peer
    kRndvToUs,   // data of a rendezvous from the peer
    kAm,         // an active message
    kPut,        // a short put
    kLongPut,    // a long put
    kGet,        // a short get
    kLongGet,    // a long get
    kGetFromUs,  // a get of the peer
    kAtomic,     // an atomic
    kNotice,     // a put with a notice
    kFlush,      // a flush
    kConnect,    // another endpoint of this worker connects
    kClose,      // another endpoint of this worker is closed
};
inline constexpr std::array kWorkNames = {
    "short",    "parts",       "rndv",   "rndv_to_us", "am",    "put",     "long_put", "get",
    "long_get", "get_from_us", "atomic", "notice",     "flush", "connect", "close"};
inline constexpr std::size_t kWorks = kWorkNames.size();
/// Kinds that streams are made of.
inline constexpr std::size_t kStreams = kWorks - 2;

inline const char* name_of(Work work) {
    return kWorkNames[static_cast<std::size_t>(work)];
}

inline constexpr std::size_t kShortBytes = 8, kPartsBytes = 20000, kLongBytes = 300000;
inline constexpr std::uint64_t kStreamTag = 1, kOtherTag = 2;
inline constexpr unsigned kHandler = 3;
/// A window of short messages that all wait for their turn takes some hundred rounds.
inline constexpr int kRoundsMax = 3000;

/// Operations of one kind.
struct Stream {
    std::uint64_t begun = 0;
    std::uint64_t ended = 0;
    tw_status_t failure = TW_OK;

    void add_end(tw_status_t status) {
        ++ended;
        if (status != TW_OK && failure == TW_OK)
            failure = status;
    }
};

/// A receive that is posted again when it has ended.
struct Standing {
    tw_worker_h worker = nullptr;
    std::uint64_t tag = 0;
    Bytes bytes = Bytes(kLongBytes);

    void post() {
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;  // also of one that a message waits for
        how.context = this;
        how.complete = [](const tw_completion_t* done) {
            if (done->status == TW_OK)
                static_cast<Standing*>(done->context)->post();
        };
        EXPECT_EQ(tw_tag_recv(worker, bytes.data(), bytes.size(), tag, 0, &how, nullptr),
                  TW_INPROGRESS);
    }
};

class TurnsTest : public RmaTest {
  protected:
    void SetUp() override {
        ours_ = connected(node(0), node(1));
        theirs_ = connected(node(1), node(0));
        key_ = memory_.key_for(node(0));
        their_key_ = memory_.key_for(node(1));
        EXPECT_EQ(tw_mem_map(context_.get(), data_.data(), data_.size(), nullptr, &mapped_), TW_OK);
    }
    void TearDown() override {
        tw_key_free(key_);
        tw_key_free(their_key_);
        destroy_nodes();
        EXPECT_EQ(tw_mem_unmap(context_.get(), mapped_), TW_OK);
    }
    /// Messages of both tags are received, and active ones handled, at both sides.
    void handle_messages() {
        for (Node* at : {&node(0), &node(1)}) {
            EXPECT_EQ(tw_am_register(
                          at->worker(), kHandler, [](void*, tw_am_t*) {}, nullptr),
                      TW_OK);
            for (const std::uint64_t tag : {kStreamTag, kOtherTag}) {
                for (int i = 0; i < 8; ++i) {
                    auto& standing = *receives_.emplace_back(std::make_unique<Standing>());
                    standing.worker = at->worker();
                    standing.tag = tag;
                    standing.post();
                }
            }
        }
    }

    tw_op_t counted_by(Stream& stream, std::uint32_t flags = 0) const {
        tw_op_t how{};
        how.flags = flags;
        how.context = &stream;
        how.complete = [](const tw_completion_t* done) {
            static_cast<Stream*>(done->context)->add_end(done->status);
        };
        return how;
    }
    /// Begins one. TW_ERR_NO_RESOURCE: not now.
    tw_status_t begin(Work work, std::uint64_t tag, Stream& stream) {
        tw_op_t how = counted_by(stream);
        const tw_status_t status = call(work, tag, how);
        stream.begun += status == TW_OK || status == TW_INPROGRESS ? 1 : 0;
        if (status == TW_OK)
            stream.add_end(TW_OK);
        return status;
    }
    tw_status_t call(Work work, std::uint64_t tag, tw_op_t& how) {
        const std::uint64_t at = memory_.address();
        switch (work) {
            case Work::kShort:
                return tw_tag_send(ours_, data_.data(), kShortBytes, tag, &how, nullptr);
            case Work::kParts:
                return tw_tag_send(ours_, data_.data(), kPartsBytes, tag, &how, nullptr);
            case Work::kRndv:
                return tw_tag_send(ours_, data_.data(), kLongBytes, tag, &how, nullptr);
            case Work::kRndvToUs:
                return tw_tag_send(theirs_, data_.data(), kLongBytes, tag, &how, nullptr);
            case Work::kAm:
                return tw_am_send(ours_, kHandler, nullptr, 0, data_.data(), kShortBytes, &how,
                                  nullptr);
            case Work::kPut:
                return tw_put(ours_, data_.data(), kShortBytes, at, key_, &how, nullptr);
            case Work::kLongPut:
                how.mem = mapped_;
                return tw_put(ours_, data_.data(), kLongBytes, at, key_, &how, nullptr);
            case Work::kGet:
                return tw_get(ours_, got_.data(), kShortBytes, at, key_, &how, nullptr);
            case Work::kLongGet:
                return tw_get(ours_, got_.data(), kLongBytes, at, key_, &how, nullptr);
            case Work::kGetFromUs:
                return tw_get(theirs_, got_.data(), kLongBytes, at, their_key_, &how, nullptr);
            case Work::kAtomic:
                return tw_atomic(ours_, TW_ATOMIC_ADD, TW_UINT64, &one_, at, key_, &how, nullptr);
            case Work::kNotice:
                how.flags |= TW_OP_IMM;
                return tw_put(ours_, data_.data(), kShortBytes, at, key_, &how, nullptr);
            case Work::kFlush:
                return tw_ep_flush(ours_, TW_FLUSH_DELIVERED, &how, nullptr);
            case Work::kConnect:
                how.flags |= TW_OP_DELIVERY_COMPLETE;
                return tw_tag_send(another_ep(), data_.data(), kShortBytes, kOtherTag, &how,
                                   nullptr);
            case Work::kClose:
                return tw_ep_close(another_ep(), TW_FLUSH_DELIVERED, &how, nullptr);
        }
        return TW_ERR_INVALID_PARAM;
    }
    /// To a worker of its own, which has a receive posted.
    tw_ep_h another_ep() {
        const Node& other = node(nodes_++);
        static_cast<void>(tw_tag_recv(other.worker(), got_.data(), got_.size(), kOtherTag, 0,
                                      nullptr, &ignored_.emplace_back()));
        return node(0).to(node(nodes_ - 1));
    }
    void progress_all() {
        for (std::size_t i = 0; i < nodes_; ++i)
            node(i).progress();
    }
    static std::uint64_t window_of(Work work) {
        switch (work) {
            case Work::kParts:
            case Work::kRndv:
            case Work::kRndvToUs:
            case Work::kLongPut:
            case Work::kLongGet:
            case Work::kGetFromUs:
                return 12;
            default:
                return 1000;
        }
    }
    void refill(Work work, Stream& stream) {
        const std::uint64_t window = window_of(work);
        // Those that end in the call need a limit, too.
        for (std::uint64_t i = 0; i < window && stream.begun - stream.ended < window; ++i) {
            const tw_status_t status = begin(work, kStreamTag, stream);
            if (status == TW_ERR_NO_RESOURCE)
                return;
            ASSERT_GE(status, TW_OK);
        }
    }
    /// One of `work` begins, and ends in time.
    template <class Fill>
    void expect_end_beside(Work work, Stream& stream, const Fill& fill) {
        const auto is_over = [&] {
            if (stream.begun == 0) {
                const tw_status_t status = begin(work, kOtherTag, stream);
                EXPECT_TRUE(status >= TW_OK || status == TW_ERR_NO_RESOURCE);
            }
            fill();
            return stream.begun != 0 && stream.ended == stream.begun;
        };
        // Transports look for peers that connect by the clock, not in each call.
        if (work == Work::kConnect || work == Work::kClose)
            return run_until(is_over);
        int round = 0;
        for (; round <= kRoundsMax && !is_over(); ++round)
            progress_all();
        EXPECT_LE(round, kRoundsMax);
    }
    const std::uint64_t one_ = 1;
    Bytes data_ = pattern(kLongBytes, 1);
    Bytes got_ = Bytes(kLongBytes);
    std::vector<std::unique_ptr<Standing>> receives_;
    std::deque<tw_request_h> ignored_;
    const Shared memory_{context_.get(), kLongBytes, Shared::Kind::kAllocated};
    tw_mem_h mapped_ = nullptr;
    tw_ep_h ours_ = nullptr, theirs_ = nullptr;
    tw_key_h key_ = nullptr, their_key_ = nullptr;
    std::size_t nodes_ = 2;
};

}  // namespace tagwire::test
