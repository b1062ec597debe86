// SPDX-License-Identifier: BSD-3-Clause
// put_lat, put_bw, put_rate, get_lat and get_bw at level msg: as measure_put.cc and measure_get.cc,
// through the one-sided operations of the messaging layer. The owner of the memory makes progress
// meanwhile, which some transports need.
#include <cstring>
#include <memory>

#include "tools/limits.hpp"
#include "tools/loops.hpp"
#include "tools/msg_inbox.hpp"
#include "tools/msg_post.hpp"
#include "tools/put_arrivals.hpp"

namespace tagwire::tools {
namespace {

class MsgPutLatPort {
  public:
    using Connection = MsgLink;

    MsgPutLatPort(MsgLink& link, const Job& job)
        : link_(link),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, job.size),
          size_(job.size),
          marker_(job, stream_from(other(link.side()), job)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_post(
            sequence, "tw_put",
            [this, sequence](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                marker_.write(sequence, data);
                return tw_put(link_.endpoint(), data, size_, inbox_.remote(), inbox_.key(), op,
                              request);
            });
    }

    bool arrived(std::uint64_t sequence) {
        return marker_.has_arrived(inbox_, sequence, [this] { link_.progress(); });
    }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    Outcome outcome() const { return marker_.outcome().with(sender_.errors()); }

  private:
    MsgLink& link_;
    MsgSender sender_;
    MsgInbox inbox_;
    std::size_t size_;
    PutMarker marker_;
};

/// After its last message the sender writes the peer's control word behind a fence; the peer
/// answers with the sender's.
class MsgPutBwPort {
  public:
    using Connection = MsgLink;
    static constexpr bool kReceives = true;

    MsgPutBwPort(MsgLink& link, const Job& job)
        : link_(link),
          size_(job.size),
          slots_(job),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, slots_.bytes()) {}

    ucs_status_t try_send(std::uint64_t sequence, bool has_more = false) {
        const std::uint64_t address = inbox_.remote() + slots_.offset_of(sequence);
        return sender_.try_post(
            sequence, "tw_put",
            [this, address](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                return tw_put(link_.endpoint(), data, size_, address, inbox_.key(), op, request);
            },
            has_more);
    }

    ucs_status_t try_finish(std::uint64_t end) { return inbox_.try_put_control(end); }
    bool received_all(std::uint64_t end) const { return inbox_.control() >= end; }

    ucs_status_t try_ack(std::uint64_t end) {
        slots_.check(inbox_.data(), end);
        return inbox_.try_put_control(end);
    }

    bool acked(std::uint64_t end) const { return inbox_.control() >= end; }
    void drain() { sender_.drain(); }
    Outcome outcome() const { return slots_.outcome().with(sender_.errors()); }

  private:
    MsgLink& link_;
    std::size_t size_;
    PutSlots slots_;
    MsgSender sender_;
    MsgInbox inbox_;
};

class MsgGetPort {
  public:
    using Connection = MsgLink;
    static constexpr bool kReceives = false;

    MsgGetPort(MsgLink& link, const Job& job)
        : link_(link),
          job_(job),
          stream_(stream_from(Side::kPeer, job)),
          sender_(link, one_by_one(job), 0),
          inbox_(link, job.memory, job.size) {
        if (job.validate)
            Pattern(stream_, 0).fill(inbox_.data(), job.size);
    }

    ucs_status_t try_send(std::uint64_t sequence) {
        if (unchecked_ != nullptr && !try_check()) [[unlikely]]
            return UCS_ERR_NO_RESOURCE;
        return sender_.try_post(
            sequence, "tw_get",
            [this](std::uint8_t* data, const tw_op_t* op, tw_request_h* request) {
                const tw_status_t status = tw_get(link_.endpoint(), data, job_.size,
                                                  inbox_.remote(), inbox_.key(), op, request);
                unchecked_ = job_.validate && status >= 0 ? data : nullptr;
                return status;
            });
    }

    void drain() {
        sender_.drain();
        if (unchecked_ != nullptr) [[unlikely]]
            try_check();
    }

    ucs_status_t try_finish(std::uint64_t) {
        return sender_.has_ended() ? UCS_OK : UCS_ERR_NO_RESOURCE;
    }

    bool acked(std::uint64_t) const { return true; }
    bool received_all(std::uint64_t) const { return true; }
    ucs_status_t try_ack(std::uint64_t) { return UCS_OK; }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    bool try_check() {
        if (!sender_.has_ended())
            return false;
        errors_ += Pattern(stream_, 0).matches(unchecked_, job_.size) ? 0 : 1;
        ++validated_;
        std::memset(unchecked_, 0, job_.size);  // so that the next one cannot pass with these bytes
        unchecked_ = nullptr;
        return true;
    }

    MsgLink& link_;
    const Job job_;
    std::uint64_t stream_;
    MsgSender sender_;
    MsgInbox inbox_;
    std::uint8_t* unchecked_ = nullptr;  // the bytes of the last get
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_msg_rma_test(MsgLink& link, const Job& job) {
    if (const std::string why = refusal_at_level_msg(job.test, job.size); !why.empty())
        throw Failure(why);
    switch (job.test) {
        case TestId::kPutLat:
            return std::make_unique<PingPong<MsgPutLatPort>>(link, job);
        case TestId::kPutBw:
        case TestId::kPutRate:
            return std::make_unique<Stream<MsgPutBwPort>>(link, job);
        case TestId::kGetLat:
            return std::make_unique<Fetch<MsgGetPort>>(link, job);
        case TestId::kGetBw:
            return std::make_unique<Stream<MsgGetPort>>(link, job);
        default:
            return make_msg_atomic_test(link, job);
    }
}

}  // namespace tagwire::tools
