// SPDX-License-Identifier: BSD-3-Clause
// tag_lat, tag_bw and tag_rate: every message is matched by a receive that was posted for it, with
// an exact tag, at least one round trip (or one window) ahead. With --unexpected no receive is
// posted and the unexpected callback counts.
#include <optional>

#include "tools/grants.hpp"
#include "tools/loops.hpp"
#include "tools/tag_post.hpp"
#include "tools/tag_receiver.hpp"
#include "tools/test_tags.hpp"

namespace tagwire::tools {
namespace {

/// Receives that stay posted during the test.
class Bystanders {
  public:
    Bystanders(Link& link, const Job& job) {
        if (job.depth == 0)
            return;
        for (std::size_t peer = 0; peer < link.interfaces().size(); ++peer) {
            receivers_.push_back(std::make_unique<TagReceiver>(
                link, TagReceiver::Options{job.depth, job.size, job.memory, false, 0}));
            for (std::size_t i = 0; i < job.depth; ++i)
                receivers_.back()->post(i, {link.interface(peer), kBystanderTag + i, 0});
        }
    }

  private:
    std::vector<std::unique_ptr<TagReceiver>> receivers_;
};

template <Op op>
class TagPort {
  public:
    static constexpr bool kReceives = true;

    TagPort(Link& link, const Job& job)
        : link_(link),
          job_(job),
          streams_(test_info(job.test).shape == Shape::kStream),
          ahead_(streams_ ? rounded_up(slots_of(job), link.peers()) : kAhead),
          slots_(streams_ ? ahead_ : ahead_ + 1),
          bystanders_(link, job),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.memory, job.validate,
                           stream_from(other(link.side()), job)}),
          ack_(link, {1, sizeof(std::uint64_t), MemoryKind::kUser, false, 0}),
          grants_(link, streams_ && !job.unexpected, ahead_) {
        if (job.unexpected)
            link.set_unexpected(&TagReceiver::on_unexpected, &receiver_);
        else
            for (std::size_t i = 0; i < ahead_; ++i)
                post_next();
        if (streams_) {
            receiver_.set_on_received(&TagPort::on_received, this);
            ack_.post(0, {link.interface(0), kAckTag, 0});
        }
    }

    ~TagPort() {
        link_.set_unexpected(nullptr, nullptr);
        receiver_.set_on_received(nullptr, nullptr);
    }
    TagPort(const TagPort&) = delete;
    TagPort& operator=(const TagPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        if (!grants_.allow(sequence))
            return UCS_ERR_NO_RESOURCE;
        return sender_.try_send<completes(op)>(
            sequence,
            [this, sequence](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                return post_tagged<op>(ep, tag_of(sequence), data, sender_, completion);
            });
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
        if (!waiting_.empty()) [[unlikely]]
            post_waiting();
        return grants_.try_tell() && receiver_.received() >= end;
    }
    ucs_status_t try_ack(std::uint64_t end) { return try_post_word(link_, kAckTag, end); }

    bool acked(std::uint64_t end) {
        if (ack_.received() == acks_seen_)
            return false;
        ++acks_seen_;
        ack_.post(0, {link_.interface(0), kAckTag, 0});
        std::uint64_t word = 0;
        std::memcpy(&word, ack_.data(0), sizeof(word));
        return word == end;
    }

    Outcome outcome() const {
        const std::uint64_t errors =
            receiver_.errors() + ack_.errors() + sender_.errors() + link_.stray();
        return {job_.validate ? receiver_.received() : 0, errors};
    }

  private:
    uct_tag_t tag_of(std::uint64_t sequence) const {
        return job_.test == TestId::kTagBw ? kStreamTag : sequence;
    }

    static std::size_t rounded_up(std::size_t count, std::size_t step) {
        return (count + step - 1) / step * step;
    }

    void post_next() {
        receiver_.post(posted_ % slots_,
                       {link_.interface(posted_ % link_.peers()), tag_of(posted_), posted_});
        grants_.posted(posted_ % link_.peers());
        ++posted_;
    }

    /// Streams: the receive waits for the message one window later, which the same peer sends.
    static void on_received(void* arg, std::size_t slot) {
        auto* self = static_cast<TagPort*>(arg);
        // Receives of one tag are matched in the order of their posting: no one overtakes.
        if (!self->waiting_.empty() || !self->try_post_again(slot)) [[unlikely]]
            self->waiting_.push_back(slot);
    }

    bool try_post_again(std::size_t slot) {
        TagReceiver::Expected next = receiver_.expected(slot);
        next.sequence += ahead_;
        next.tag = tag_of(next.sequence);
        if (!receiver_.try_post_again(slot, next))
            return false;
        grants_.posted(next.sequence % link_.peers());
        return true;
    }

    void post_waiting() {
        std::size_t posted = 0;
        while (posted < waiting_.size() && try_post_again(waiting_[posted]))
            ++posted;
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(posted));
    }

    Link& link_;
    const Job job_;
    const bool streams_;
    const std::size_t ahead_;
    const std::size_t slots_;
    Bystanders bystanders_;
    Sender sender_;
    TagReceiver receiver_;
    TagReceiver ack_;
    Grants grants_;
    std::vector<std::size_t> waiting_;  // slots whose receive was refused for lack of resources
    std::uint64_t posted_ = 0;
    std::uint64_t acks_seen_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_tag_test(Link& link, const Job& job) {
    return job.test == TestId::kTagLat ? make_for_tag_op<PingPong, TagPort>(link, job)
                                       : make_for_tag_op<Stream, TagPort>(link, job);
}

}  // namespace tagwire::tools
