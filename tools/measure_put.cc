// SPDX-License-Identifier: BSD-3-Clause
// put_lat, put_bw and put_rate. The target sees a message by polling its memory.
#include "tools/levels.hpp"
#include "tools/put_arrivals.hpp"

namespace tagwire::tools {
namespace {

template <class Level>
class PutLatPort {
  public:
    using Connection = typename Level::Connection;

    PutLatPort(Connection& link, const Job& job)
        : sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, job.size),
          marker_(job, stream_from(other(link.side()), job)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.put(sequence, inbox_, 0,
                           [this, sequence](std::uint8_t* data) { marker_.write(sequence, data); });
    }

    bool arrived(std::uint64_t sequence) { return marker_.has_arrived(inbox_, sequence); }
    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }
    Outcome outcome() const { return marker_.outcome().with(sender_.errors()); }

  private:
    typename Level::Sender sender_;
    typename Level::Inbox inbox_;
    PutMarker marker_;
};

/// After its last message the sender writes the peer's control word behind all of them; the peer
/// answers with the sender's.
template <class Level>
class PutBwPort {
  public:
    using Connection = typename Level::Connection;
    static constexpr bool kReceives = true;

    PutBwPort(Connection& link, const Job& job)
        : slots_(job),
          sender_(link, job, stream_from(link.side(), job)),
          inbox_(link, job.memory, slots_.bytes()) {}

    ucs_status_t try_send(std::uint64_t sequence, bool has_more) {
        return sender_.put(
            sequence, inbox_, slots_.offset_of(sequence), [](std::uint8_t*) {}, has_more);
    }

    ucs_status_t try_finish(std::uint64_t end) { return inbox_.try_finish(end); }
    bool received_all(std::uint64_t end) const { return inbox_.control() >= end; }

    ucs_status_t try_ack(std::uint64_t end) {
        slots_.check(inbox_.data(), end);
        return inbox_.try_put_control(end);
    }

    bool acked(std::uint64_t end) const { return inbox_.control() >= end; }
    void drain() { sender_.drain(); }
    Outcome outcome() const { return slots_.outcome().with(sender_.errors()); }

  private:
    PutSlots slots_;
    typename Level::Sender sender_;
    typename Level::Inbox inbox_;
};

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_put_test(AnyLink& link, const Job& job) {
    return job.test == TestId::kPutLat ? make_for_level<PingPong, PutLatPort>(link, job)
                                       : make_for_level<Stream, PutBwPort>(link, job);
}

template std::unique_ptr<Test> make_put_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_put_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
