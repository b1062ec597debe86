// SPDX-License-Identifier: BSD-3-Clause
// tag_lat, tag_bw, tag_rate and match at level msg: as measure_tag.cc and measure_match.cc, through
// the public API of the messaging layer.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "tools/loops.hpp"
#include "tools/msg_post.hpp"
#include "tools/random.hpp"
#include "tools/test_tags.hpp"

namespace tagwire::tools {
namespace {

using Posted = MsgReceiver::Posted;

// match_wild: so many receives with so many different masks, which no message matches.
constexpr std::size_t kWildcards = 100;
constexpr std::size_t kMasks = 10;

class MsgTagPort {
  public:
    using Connection = MsgLink;
    static constexpr bool kReceives = true;

    MsgTagPort(MsgLink& link, const Job& job)
        : link_(link),
          job_(job),
          streams_(test_info(job.test).shape == Shape::kStream),
          ahead_(streams_ ? slots_of(job) : kAhead),
          slots_(streams_ ? ahead_ : ahead_ + 1),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.validate, stream_from(link.sending_side(), job),
                           job.memory}),
          ack_(link, {1, sizeof(std::uint64_t), false, 0}),
          own_tags_(link.stream() << kThreadShift) {
        if (job.depth > 0) {
            bystanders_.emplace(link, MsgReceiver::Options{job.depth, job.size, false, 0});
            for (std::size_t i = 0; i < job.depth; ++i)
                bystanders_->post(i, kBystanderTag + i, i);
        }
        for (std::size_t i = 0; i < ahead_; ++i)
            post_next();
        if (streams_) {
            receiver_.set_on_received(&MsgTagPort::on_received, this);
            ack_.post(0, kAckTag | own_tags_, 0);
        }
    }

    MsgTagPort(const MsgTagPort&) = delete;
    MsgTagPort& operator=(const MsgTagPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence, bool has_more = false) {
        return sender_.try_send(sequence, tag_of(sequence), has_more);
    }

    bool arrived(std::uint64_t sequence) const { return receiver_.received() > sequence; }
    void prepare_next(std::uint64_t) { post_next(); }
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    ucs_status_t try_finish(std::uint64_t) { return UCS_OK; }

    bool received_all(std::uint64_t end) {
        // SYNC refused(msg_tag_port): pairs with post_again(). The slot is in waiting_ then.
        if (is_refused_.load(std::memory_order_acquire)) [[unlikely]]
            post_waiting();
        return receiver_.received() >= end;
    }

    ucs_status_t try_ack(std::uint64_t end) {
        tw_op_t op{};
        op.flags = TW_OP_INJECT;
        const tw_status_t status =
            tw_tag_send(link_.endpoint(), &end, sizeof end, kAckTag | own_tags_, &op, nullptr);
        if (status < 0 && status != TW_ERR_NO_RESOURCE)
            throw Failure(text("tw_tag_send: %s", tw_status_string(status)));
        return status >= 0 ? UCS_OK : UCS_ERR_NO_RESOURCE;
    }

    bool acked(std::uint64_t end) {
        if (ack_.received() == acks_seen_)
            return false;
        ++acks_seen_;
        std::uint64_t word = 0;
        std::memcpy(&word, ack_.data(0), sizeof word);
        ack_.post(0, kAckTag | own_tags_, 0);
        return word == end;
    }

    Outcome outcome() const {
        return {job_.validate ? receiver_.received() : 0,
                receiver_.errors() + ack_.errors() + sender_.errors()};
    }

  private:
    std::uint64_t tag_of(std::uint64_t sequence) const {
        return (job_.test == TestId::kTagBw ? kStreamTag : sequence) | own_tags_;
    }

    void post_next() {
        const std::size_t slot = posted_ % slots_;
        const Posted posted = receiver_.post(slot, tag_of(posted_), posted_);
        ++posted_;
        // A stream's receive that ended in its call is posted again.
        if (posted == Posted::kHasCome && streams_)
            post_again(slot);
    }

    /// Streams: the receive waits for the next message that none waits for. Messages are matched in
    /// their order, and may end in another. Any thread that progresses the worker, one at a time.
    static void on_received(void* arg, std::size_t slot) {
        static_cast<MsgTagPort*>(arg)->post_again(slot);
    }

    void post_again(std::size_t slot) {
        // Receives of one tag are matched in the order of their posting: no one overtakes.
        if (!waiting_.empty() || !try_post_again(slot)) [[unlikely]] {
            waiting_.push_back(slot);
            // SYNC refused(msg_tag_port): pairs with received_all().
            is_refused_.store(true, std::memory_order_release);
        }
    }

    bool try_post_again(std::size_t slot) {
        Posted posted = Posted::kHasCome;
        while (posted == Posted::kHasCome) {
            posted = receiver_.try_post(slot, tag_of(posted_), posted_);
            posted_ += posted == Posted::kNoResource ? 0 : 1;
        }
        return posted == Posted::kWaits;
    }

    void post_waiting() {
        if (link_.is_shared()) {
            throw Failure(
                "a receive of a thread that shares its worker cannot be posted: the worker has no "
                "more requests (fewer --threads or a smaller --window need fewer)");
        }
        std::size_t posted = 0;
        while (posted < waiting_.size() && try_post_again(waiting_[posted]))
            ++posted;
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(posted));
        is_refused_.store(!waiting_.empty(), std::memory_order_relaxed);
    }

    MsgLink& link_;
    const Job job_;
    const bool streams_;
    const std::size_t ahead_;
    const std::size_t slots_;
    std::optional<MsgReceiver> bystanders_;  // receives that nobody sends to
    MsgSender sender_;
    MsgReceiver receiver_;
    MsgReceiver ack_;
    const std::uint64_t own_tags_;  // the bits that tell them from those of other threads
    std::uint64_t acks_seen_ = 0;
    // The rest is touched in callbacks, one of which runs at a time: with a shared worker in any
    // thread, else in the link's.
    std::vector<std::size_t> waiting_;  // slots whose receive was refused for lack of requests
    std::atomic<bool> is_refused_ = false;
    std::uint64_t posted_ = 0;
};

class MsgMatchPort {
  public:
    using Connection = MsgLink;

    MsgMatchPort(MsgLink& link, const Job& job)
        : validate_(job.validate),
          tags_(job.depth + 1),
          slots_(std::max<std::size_t>(tags_, 2)),
          random_(static_cast<std::uint64_t>(link.side()) + 1),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.validate, stream_from(other(link.side()), job),
                           job.memory}) {
        receiver_.set_on_received(&MsgMatchPort::on_received, this);
        if (job.test == TestId::kMatchWild)
            wildcards_.emplace(link, MsgReceiver::Options{kWildcards, job.size, false, 0});
        std::size_t wild = 0;
        for (std::size_t slot = 0; slot < slots_; ++slot) {
            post(slot);
            // Evenly among the others.
            while (wildcards_ && wild < kWildcards * (slot + 1) / slots_)
                post_wildcard(wild++);
        }
    }

    MsgMatchPort(const MsgMatchPort&) = delete;
    MsgMatchPort& operator=(const MsgMatchPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        const ucs_status_t status = sender_.try_send(sequence, tag_);
        if (status == UCS_OK)
            draw();
        return status;
    }

    bool arrived(std::uint64_t sequence) const { return receiver_.received() > sequence; }

    void prepare_next(std::uint64_t) {
        // The driver sends first, so before its first arrival there is nothing to post again.
        if (consumed_) {
            consumed_ = false;
            post(slot_);
        }
    }

    void drain() { sender_.drain(); }

    Outcome outcome() const {
        return {validate_ ? receiver_.received() : 0, receiver_.errors() + sender_.errors()};
    }

  private:
    void post(std::size_t slot) {
        if (receiver_.post(slot, slot % tags_, MsgReceiver::kByArrival) == Posted::kHasCome)
            on_received(this, slot);
    }

    void post_wildcard(std::size_t index) {
        const std::uint64_t ignore = std::uint64_t{0xf} << (4 * (index % kMasks));
        wildcards_->post(index, kBystanderTag + (index << 40), index, ignore);
    }

    static void on_received(void* arg, std::size_t slot) {
        auto* self = static_cast<MsgMatchPort*>(arg);
        self->consumed_ = true;
        self->slot_ = slot;
    }

    /// Never the same tag twice in a row, so that its receive has been posted again by then. A
    /// single tag has two receives.
    void draw() {
        const std::uint64_t step = tags_ > 1 ? 1 + random_.below(tags_ - 1) : 0;
        tag_ = (tag_ + step) % tags_;
    }

    bool validate_;
    std::size_t tags_;
    std::size_t slots_;
    Random random_;
    MsgSender sender_;
    MsgReceiver receiver_;
    std::optional<MsgReceiver> wildcards_;
    bool consumed_ = false;
    std::size_t slot_ = 0;
    std::uint64_t tag_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_msg_test(MsgLink& link, const Job& job) {
    switch (job.test) {
        case TestId::kTagLat:
            return std::make_unique<PingPong<MsgTagPort>>(link, job);
        case TestId::kTagBw:
        case TestId::kTagRate:
            return std::make_unique<Stream<MsgTagPort>>(link, job);
        case TestId::kAmLat:
        case TestId::kAmBw:
        case TestId::kAmRate:
            return make_msg_am_test(link, job);
        case TestId::kMatchWild:
            return std::make_unique<PingPong<MsgMatchPort>>(link, job);
        case TestId::kMatch:
            if (job.unexpected)
                return make_msg_unexpected_test(link, job);
            return std::make_unique<PingPong<MsgMatchPort>>(link, job);
        default:
            if ((test_info(job.test).options & kOneSided) != 0)
                return make_msg_rma_test(link, job);
            throw Failure(text("%s is not a test of level msg", test_info(job.test).name));
    }
}

}  // namespace tagwire::tools
