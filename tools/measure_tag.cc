// SPDX-License-Identifier: BSD-3-Clause
// tag_lat, tag_bw and tag_rate: every message is matched by a receive that was posted for it, with
// an exact tag, at least one round trip (or one window) ahead. With --unexpected, at level uct, no
// receive is posted and the unexpected callback counts.
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "cli/failure.hpp"
#include "tools/levels.hpp"
#include "tools/test_tags.hpp"

namespace tagwire::tools {
namespace {

/// Receives that stay posted during the test: nobody sends to them.
template <class Level>
class Bystanders {
  public:
    Bystanders(typename Level::Connection& link, const Job& job) {
        if (job.depth == 0)
            return;
        for (std::size_t place = 0; place < Level::interfaces(link); ++place) {
            receivers_.push_back(std::make_unique<Receiver>(
                link, ReceiverOptions{job.depth, job.size, false, 0, job.memory}));
            for (std::size_t i = 0; i < job.depth; ++i)
                receivers_.back()->post(i, kBystanderTag + i, place);
        }
    }

  private:
    using Receiver = typename Level::Receiver;

    std::vector<std::unique_ptr<Receiver>> receivers_;
};

template <class Level>
class TagPort {
  public:
    using Connection = typename Level::Connection;
    static constexpr bool kReceives = true;

    TagPort(Connection& link, const Job& job)
        : link_(link),
          job_(job),
          streams_(test_info(job.test).shape == Shape::kStream),
          ahead_(streams_ ? rounded_up(slots_of(job), Level::peers(link)) : kAhead),
          slots_(streams_ ? ahead_ : ahead_ + 1),
          own_tags_(Level::stream(link) << kThreadShift),
          bystanders_(link, job),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.validate,
                           stream_from(Level::sending_side(link), job), job.memory}),
          ack_(link, {1, sizeof(std::uint64_t), false, 0}),
          grants_(link, streams_ && !job.unexpected, ahead_) {
        for (std::uint64_t peer = 0; peer < Level::peers(link); ++peer)
            next_.push_back(peer);
        if constexpr (requires { receiver_.take_unexpected(); }) {
            if (job.unexpected)
                receiver_.take_unexpected();
        }
        for (std::size_t i = 0; i < ahead_ && !job.unexpected; ++i)
            post_next();
        if (streams_) {
            receiver_.set_on_received(&TagPort::on_received, this);
            ack_.post(0, kAckTag | own_tags_, 0);
        }
    }

    ~TagPort() { receiver_.set_on_received(nullptr, nullptr); }
    TagPort(const TagPort&) = delete;
    TagPort& operator=(const TagPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence, bool has_more = false) {
        if (!grants_.allow(sequence))
            return UCS_ERR_NO_RESOURCE;
        return sender_.send_tagged(sequence, tag_of(sequence), has_more);
    }

    bool arrived(std::uint64_t sequence) const { return receiver_.received() > sequence; }

    void prepare_next(std::uint64_t) {
        if (!job_.unexpected)
            post_next();
    }

    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    ucs_status_t try_finish(std::uint64_t) { return UCS_OK; }

    bool received_all(std::uint64_t end) {
        // SYNC refused(tag_port): pairs with post_again(). The slot is in waiting_ then.
        if (is_refused_.load(std::memory_order_acquire)) [[unlikely]]
            post_waiting();
        return grants_.try_tell() && receiver_.received() >= end;
    }

    ucs_status_t try_ack(std::uint64_t end) {
        return Level::try_send_word(link_, kAckTag | own_tags_, end);
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
                receiver_.errors() + ack_.errors() + sender_.errors() + Level::stray(link_)};
    }

  private:
    std::uint64_t tag_of(std::uint64_t sequence) const {
        return (job_.test == TestId::kTagBw ? kStreamTag : sequence) | own_tags_;
    }

    static std::size_t rounded_up(std::size_t count, std::size_t step) {
        return (count + step - 1) / step * step;
    }

    /// The receive of the peer's next message is posted.
    void advance(std::size_t peer) {
        next_[peer] += Level::peers(link_);
        grants_.posted(peer);
    }

    void post_next() {
        const std::size_t slot = posted_ % slots_;
        const std::size_t peer = in_turn(posted_, Level::peers(link_));
        ++posted_;
        const Posted posted = receiver_.post(slot, tag_of(next_[peer]), next_[peer]);
        advance(peer);
        // A stream's receive that ended in its call is posted again.
        if (posted == Posted::kHasCome && streams_)
            post_again(slot);
    }

    /// Streams: the receive waits for the next message of the same peer that none waits for.
    /// Messages are matched in their order, and may end in another. Any thread that progresses the
    /// worker, one at a time.
    static void on_received(void* arg, std::size_t slot) {
        static_cast<TagPort*>(arg)->post_again(slot);
    }

    void post_again(std::size_t slot) {
        // Receives of one tag are matched in the order of their posting: no one overtakes.
        if (!waiting_.empty() || !try_post_again(slot)) [[unlikely]] {
            waiting_.push_back(slot);
            // SYNC refused(tag_port): pairs with received_all().
            is_refused_.store(true, std::memory_order_release);
        }
    }

    bool try_post_again(std::size_t slot) {
        const std::size_t peer = in_turn(slot, Level::peers(link_));
        Posted posted = Posted::kHasCome;
        while (posted == Posted::kHasCome) {
            posted = receiver_.try_post(slot, tag_of(next_[peer]), next_[peer]);
            if (posted != Posted::kNoResource) [[likely]]
                advance(peer);
        }
        return posted == Posted::kWaits;
    }

    void post_waiting() {
        if (Level::is_shared(link_)) {
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

    Connection& link_;
    const Job job_;
    const bool streams_;
    const std::size_t ahead_;
    const std::size_t slots_;
    const std::uint64_t own_tags_;  // the bits that tell them from those of other threads
    Bystanders<Level> bystanders_;
    typename Level::Sender sender_;
    typename Level::Receiver receiver_;
    typename Level::Receiver ack_;
    typename Level::Grants grants_;
    std::uint64_t acks_seen_ = 0;
    std::uint64_t posted_ = 0;  // outside of callbacks
    // The rest is touched in callbacks, one of which runs at a time: with a shared worker in any
    // thread, else in the link's.
    std::vector<std::uint64_t> next_;   // of each peer, its first message without a receive
    std::vector<std::size_t> waiting_;  // slots whose receive was refused for lack of resources
    std::atomic<bool> is_refused_ = false;
};

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_tag_test(AnyLink& link, const Job& job) {
    return job.test == TestId::kTagLat ? make_tagged_for_level<PingPong, TagPort>(link, job)
                                       : make_tagged_for_level<Stream, TagPort>(link, job);
}

template std::unique_ptr<Test> make_tag_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_tag_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
