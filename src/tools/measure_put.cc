// SPDX-License-Identifier: BSD-3-Clause
// put_lat, put_bw and put_rate. The target sees a message by polling its memory: the last 8 bytes
// (or the last byte of a shorter one) carry the sequence number.
#include "tools/inbox.hpp"
#include "tools/loops.hpp"

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
        : link_(link),
          validate_(job.validate),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, job.size),
          stream_(stream_from(other(link.side()), job)),
          marker_bytes_(job.size >= sizeof(std::uint64_t) ? sizeof(std::uint64_t) : 1),
          marker_offset_(job.size - marker_bytes_) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<op == Op::kZcopy>(
            sequence,
            [this, sequence](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                const std::uint64_t marker = sequence + 1;
                std::memcpy(data + marker_offset_, &marker, marker_bytes_);
                return post_put<op>(ep, data, sender_, inbox_, 0, completion);
            });
    }

    bool arrived(std::uint64_t sequence) {
        const std::uint64_t marker = sequence + 1;
        const bool here = marker_bytes_ == 1 ? inbox_.load<std::uint8_t>(marker_offset_) ==
                                                   static_cast<std::uint8_t>(marker)
                                             : inbox_.load<std::uint64_t>(marker_offset_) == marker;
        if (here && validate_) [[unlikely]]
            check_bytes(sequence);
        return here;
    }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    /// A put promises nothing about the order of its bytes: those before the marker may come a
    /// little later.
    void check_bytes(std::uint64_t sequence) {
        constexpr unsigned kPatience = 1000000;
        const Pattern pattern(stream_, sequence);
        ++validated_;
        for (unsigned i = 0; i < kPatience; ++i) {
            if (pattern.matches(inbox_.data(), marker_offset_))
                return;
            asm volatile("" : : : "memory");  // look again
        }
        ++errors_;
    }

    Link& link_;
    bool validate_;
    Sender sender_;
    Inbox inbox_;
    std::uint64_t stream_;
    std::size_t marker_bytes_;
    std::size_t marker_offset_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

/// After its last message the sender waits until all are placed, then writes the peer's control
/// word; the peer answers with the sender's.
template <Op op>
class PutBwPort {
  public:
    static constexpr bool kReceives = true;

    PutBwPort(Link& link, const Job& job)
        : link_(link),
          job_(job),
          slots_(slots_of(job)),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, buffer_bytes(job, slots_)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        const std::size_t offset = (sequence % slots_) * stride_of(job_);
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
        if (job_.validate && checked_ < end)
            check_slots(end);
        return inbox_.try_put_control(end);
    }

    bool acked(std::uint64_t end) const { return inbox_.control() >= end; }
    void drain() { sender_.drain(); }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    /// Every slot holds the last message that went there.
    void check_slots(std::uint64_t end) {
        const std::uint64_t stream = stream_from(Side::kDriver, job_);
        for (std::uint64_t sequence = end > slots_ ? end - slots_ : 0; sequence < end; ++sequence) {
            const std::uint8_t* data = inbox_.data() + (sequence % slots_) * stride_of(job_);
            errors_ += Pattern(stream, sequence).matches(data, job_.size) ? 0 : 1;
            ++validated_;
        }
        checked_ = end;
    }

    Link& link_;
    const Job job_;
    std::size_t slots_;
    Sender sender_;
    Inbox inbox_;
    std::uint64_t checked_ = 0;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_put_test(Link& link, const Job& job) {
    return job.test == TestId::kPutLat ? make_for_op<PingPong, PutLatPort>(link, job)
                                       : make_for_op<Stream, PutBwPort>(link, job);
}

}  // namespace tagwire::tools
