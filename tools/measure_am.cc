// SPDX-License-Identifier: BSD-3-Clause
// am_lat, am_bw and am_rate.
#include "tools/levels.hpp"

namespace tagwire::tools {
namespace {

template <class Level>
class AmPort {
  public:
    using Connection = typename Level::Connection;
    static constexpr bool kReceives = true;

    AmPort(Connection& link, const Job& job)
        : validate_(job.validate),
          sender_(link, job, stream_from(link.side(), job)),
          arrivals_(link, job) {}

    ucs_status_t try_send(std::uint64_t sequence, bool has_more = false) {
        return sender_.send_am(sequence, has_more);
    }

    bool arrived(std::uint64_t sequence) const { return arrivals_.messages() > sequence; }
    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    void refresh(std::uint64_t sequence) { sender_.refresh(sequence); }

    ucs_status_t try_finish(std::uint64_t) { return UCS_OK; }
    bool received_all(std::uint64_t end) const { return arrivals_.messages() >= end; }
    bool acked(std::uint64_t end) const { return arrivals_.acked() >= end; }
    ucs_status_t try_ack(std::uint64_t end) { return arrivals_.try_ack(end); }

    Outcome outcome() const {
        return {validate_ ? arrivals_.messages() : 0, arrivals_.errors() + sender_.errors()};
    }

  private:
    bool validate_;
    typename Level::Sender sender_;
    typename Level::AmArrivals arrivals_;
};

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_am_test(AnyLink& link, const Job& job) {
    return job.test == TestId::kAmLat ? make_for_level<PingPong, AmPort>(link, job)
                                      : make_for_level<Stream, AmPort>(link, job);
}

template std::unique_ptr<Test> make_am_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_am_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
