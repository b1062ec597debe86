// SPDX-License-Identifier: BSD-3-Clause
// match --unexpected at level msg: a tagged ping-pong in which `depth` unexpected messages wait on
// both sides, and every receive takes one at random from them and the one that has just come.
//
// Each direction has depth + 1 tags, of which one is free: the others are those of messages that
// wait. The next message has the free tag. Its receiver finds it by a peek, draws a tag and
// receives that message, whose tag is the free one then. The sender draws the same tags, so it
// knows which of its buffers is in use no more.
#include <sched.h>

#include <memory>
#include <vector>

#include "tools/loops.hpp"
#include "tools/msg_post.hpp"
#include "tools/random.hpp"

namespace tagwire::tools {
namespace {

constexpr std::uint64_t kAllHereTag = std::uint64_t{1} << 63;
constexpr std::uint64_t kMessageWaitNs = 30'000'000'000;

/// Which tag is free, on both sides of one direction.
class FreeTag {
  public:
    FreeTag(std::size_t tags, Side sender)
        : tags_(tags), free_(tags - 1), random_(static_cast<std::uint64_t>(sender) + 1) {}

    std::size_t value() const { return free_; }

    /// Draws the tag whose message is received.
    std::size_t next() { return free_ = random_.below(tags_); }

  private:
    std::size_t tags_;
    std::size_t free_;
    Random random_;
};

class MsgUnexpectedPort {
  public:
    using Connection = MsgLink;

    MsgUnexpectedPort(MsgLink& link, const Job& job)
        : link_(link),
          size_(job.size),
          depth_(job.depth),
          validate_(job.validate),
          out_stream_(stream_from(link.side(), job)),
          in_stream_(stream_from(other(link.side()), job)),
          stride_(stride_of(job)),
          out_(depth_ + 1),
          in_sequences_(depth_ + 1),
          out_pages_(stride_ * depth_ + size_),
          in_page_(size_),
          out_free_(depth_ + 1, link.side()),
          in_free_(depth_ + 1, other(link.side())) {
        try {
            exchange_waiting();
        } catch (...) {
            end();
            throw;
        }
    }

    ~MsgUnexpectedPort() { end(); }
    MsgUnexpectedPort(const MsgUnexpectedPort&) = delete;
    MsgUnexpectedPort& operator=(const MsgUnexpectedPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        if (!try_send_as(out_free_.value(), depth_ + sequence))
            return UCS_ERR_NO_RESOURCE;
        out_free_.next();
        return UCS_OK;
    }

    bool arrived(std::uint64_t sequence) {
        if (receiving_ == nullptr && received_ == sequence && is_here(in_free_.value())) {
            in_sequences_[in_free_.value()] = depth_ + sequence;
            receive(in_free_.next());
        }
        if (receiving_ != nullptr && tw_request_test(receiving_, &done_) != TW_INPROGRESS) {
            tw_request_free(receiving_);
            receiving_ = nullptr;
            count();
        }
        return received_ > sequence;
    }

    void prepare_next(std::uint64_t) {}
    /// Messages that wait by rendezvous end when they are received.
    void drain() {}
    Outcome outcome() const { return {validate_ ? received_ : 0, errors_}; }

  private:
    struct Sent {
        tw_request_h request = nullptr;  // of a send that has not ended
    };

    void exchange_waiting() {
        std::size_t sent = 0;
        std::size_t here = 0;
        progress_until([&] {
            if (sent < depth_ && try_send_as(sent, sent))
                ++sent;
            if (here < depth_ && is_here(here)) {
                in_sequences_[here] = here;
                ++here;
            }
            return sent == depth_ && here == depth_;
        });
        tell_that_all_are_here();
    }

    /// The other side's messages may still wait for room in its transport, so it goes on making
    /// progress until it hears this.
    void tell_that_all_are_here() {
        tw_op_t op{};
        op.flags = TW_OP_TRANSMIT_COMPLETE;
        tw_request_h telling = nullptr;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        progress_until([&] {
            status = tw_tag_send(link_.endpoint(), nullptr, 0, kAllHereTag, &op, &telling);
            return status != TW_ERR_NO_RESOURCE;
        });
        bool is_told = false;
        progress_until([&] {
            is_told = is_told || drop(kAllHereTag);
            if (status == TW_INPROGRESS)
                status = tw_request_test(telling, nullptr);
            return is_told && status != TW_INPROGRESS;
        });
        if (telling != nullptr)
            tw_request_free(telling);
        if (status != TW_OK)
            throw Failure(text("tw_tag_send: %s", tw_status_string(status)));
    }

    /// While both sides get ready; the channel already has the next message.
    template <class Predicate>
    void progress_until(Predicate done) {
        const std::uint64_t deadline = now_ns() + kMessageWaitNs;
        while (!done()) {
            if (tw_worker_progress(link_.worker()) == 0)
                sched_yield();
            if (now_ns() > deadline) {
                throw Failure(
                    text("%zu unexpected messages did not come within 30 s; TAGWIRE_UNEXPECTED_MAX "
                         "says how many a worker keeps",
                         depth_));
            }
        }
    }

    bool try_send_as(std::size_t tag, std::uint64_t sequence) {
        if (!has_ended(out_[tag]))
            return false;
        std::uint8_t* data = out_pages_.data() + stride_ * tag;
        if (validate_) [[unlikely]]
            Pattern(out_stream_, sequence).fill(data, size_);
        const tw_status_t status =
            tw_tag_send(link_.endpoint(), data, size_, tag, nullptr, &out_[tag].request);
        if (status < 0 && status != TW_ERR_NO_RESOURCE) [[unlikely]]
            throw Failure(text("tw_tag_send: %s", tw_status_string(status)));
        return status >= 0;
    }

    bool has_ended(Sent& sent) {
        if (sent.request == nullptr) [[likely]]
            return true;
        const tw_status_t status = tw_request_test(sent.request, nullptr);
        if (status == TW_INPROGRESS)
            return false;
        errors_ += status == TW_OK || is_closing_ ? 0 : 1;
        tw_request_free(sent.request);
        sent.request = nullptr;
        return true;
    }

    bool is_here(std::uint64_t tag) {
        return tw_tag_probe(link_.worker(), tag, 0, nullptr, nullptr, nullptr) == TW_OK;
    }
    bool drop(std::uint64_t tag) {
        tw_message_h message = nullptr;
        return tw_tag_probe(link_.worker(), tag, 0, nullptr, nullptr, &message) == TW_OK &&
               tw_message_drop(link_.worker(), message) == TW_OK;
    }

    void receive(std::size_t tag) {
        tw_op_t op{};
        op.info = &info_;
        expected_tag_ = tag;
        const tw_status_t status =
            tw_tag_recv(link_.worker(), in_page_.data(), size_, tag, 0, &op, &receiving_);
        if (status == TW_INPROGRESS)
            return;
        receiving_ = nullptr;
        done_ = msg::completion_of(status, info_, size_);
        count();
    }

    void count() {
        const bool is_whole = done_.status == TW_OK && done_.message_length == size_;
        if (!is_whole || done_.tag != expected_tag_) [[unlikely]] {
            ++errors_;
        } else if (validate_) [[unlikely]] {
            const Pattern pattern(in_stream_, in_sequences_[expected_tag_]);
            errors_ += pattern.matches(in_page_.data(), size_) ? 0 : 1;
        }
        ++received_;
    }

    /// Drops what waits, so that a later job does not find it, and takes back what has not ended.
    void end() {
        is_closing_ = true;
        for (std::size_t tag = 0; tag <= depth_; ++tag)
            drop(tag);
        if (receiving_ != nullptr)
            tw_request_cancel(receiving_);
        const std::uint64_t deadline = now_ns() + kMessageWaitNs / 10;
        std::size_t ended = 0;
        while (now_ns() < deadline && (ended < out_.size() || receiving_ != nullptr)) {
            tw_worker_progress(link_.worker());
            while (ended < out_.size() && has_ended(out_[ended]))
                ++ended;
            if (receiving_ != nullptr && tw_request_test(receiving_, nullptr) != TW_INPROGRESS) {
                tw_request_free(receiving_);
                receiving_ = nullptr;
            }
        }
    }

    MsgLink& link_;
    const std::size_t size_;
    const std::size_t depth_;
    const bool validate_;
    const std::uint64_t out_stream_, in_stream_;
    const std::size_t stride_;
    std::vector<Sent> out_;                    // by tag
    std::vector<std::uint64_t> in_sequences_;  // by tag: which message waits
    Pages out_pages_;
    Pages in_page_;
    FreeTag out_free_;
    FreeTag in_free_;
    tw_request_h receiving_ = nullptr;
    tw_message_info_t info_{};
    tw_completion_t done_{};
    std::uint64_t expected_tag_ = 0;
    std::uint64_t received_ = 0;
    std::uint64_t errors_ = 0;
    bool is_closing_ = false;
};

}  // namespace

std::unique_ptr<Test> make_msg_unexpected_test(MsgLink& link, const Job& job) {
    return std::make_unique<PingPong<MsgUnexpectedPort>>(link, job);
}

}  // namespace tagwire::tools
