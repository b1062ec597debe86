// SPDX-License-Identifier: BSD-3-Clause
// put_lat, put_bw and put_rate. The target sees a message by polling its memory.
#include "tools/inbox.hpp"
#include "tools/loops.hpp"
#include "tools/put_arrivals.hpp"

namespace tagwire::tools {
namespace {

template <Op op>
ucs_status_t post_put(uct_ep_h ep, std::uint8_t* data, const Sender& sender, const Inbox& inbox,
                      std::size_t offset, uct_completion_t* completion) {
    const std::uint64_t address = inbox.remote() + offset;
    if constexpr (op == Op::kShort) {
        return uct_ep_put_short(ep, data, static_cast<unsigned>(sender.size()), address,
                                inbox.rkey());
    } else if constexpr (op == Op::kBcopy) {
        Packed packed{data, sender.size()};
        return status_of(uct_ep_put_bcopy(ep, &Packed::pack, &packed, address, inbox.rkey()));
    } else {
        const uct_iov_t iov{data, sender.size(), sender.buffer().memh(), 0, 1};
        return uct_ep_put_zcopy(ep, &iov, 1, address, inbox.rkey(), completion);
    }
}

template <Op op>
class PutLatPort {
  public:
    PutLatPort(Link& link, const Job& job)
        : sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, job.size),
          marker_(job, stream_from(other(link.side()), job)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<op == Op::kZcopy>(
            sequence,
            [this, sequence](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                marker_.write(sequence, data);
                return post_put<op>(ep, data, sender_, inbox_, 0, completion);
            });
    }

    bool arrived(std::uint64_t sequence) {
        return marker_.has_arrived(inbox_, sequence, [] { asm volatile("" : : : "memory"); });
    }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    Outcome outcome() const { return marker_.outcome().with(sender_.errors()); }

  private:
    Sender sender_;
    Inbox inbox_;
    PutMarker marker_;
};

/// After its last message the sender waits until all are placed, then writes the peer's control
/// word; the peer answers with the sender's.
template <Op op>
class PutBwPort {
  public:
    static constexpr bool kReceives = true;

    PutBwPort(Link& link, const Job& job)
        : link_(link),
          slots_(job),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, slots_.bytes()) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        const std::size_t offset = slots_.offset_of(sequence);
        return sender_.try_send<op == Op::kZcopy>(
            sequence,
            [this, offset](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                return post_put<op>(ep, data, sender_, inbox_, offset, completion);
            });
    }

    ucs_status_t try_finish(std::uint64_t end) {
        const ucs_status_t flushed =
            uct_iface_flush(link_.interface(0), UCT_FLUSH_FLAG_LOCAL, nullptr);
        if (flushed != UCS_OK)
            return UCS_ERR_NO_RESOURCE;
        return inbox_.try_put_control(end);
    }

    bool received_all(std::uint64_t end) const { return inbox_.control() >= end; }

    ucs_status_t try_ack(std::uint64_t end) {
        slots_.check(inbox_.data(), end);
        return inbox_.try_put_control(end);
    }

    bool acked(std::uint64_t end) const { return inbox_.control() >= end; }
    void drain() { sender_.drain(); }
    Outcome outcome() const { return slots_.outcome().with(sender_.errors()); }

  private:
    Link& link_;
    PutSlots slots_;
    Sender sender_;
    Inbox inbox_;
};

}  // namespace

std::unique_ptr<Test> make_put_test(Link& link, const Job& job) {
    return job.test == TestId::kPutLat ? make_for_op<PingPong, PutLatPort>(link, job)
                                       : make_for_op<Stream, PutBwPort>(link, job);
}

}  // namespace tagwire::tools
