// SPDX-License-Identifier: BSD-3-Clause
// The schedule of keepalive: chooses the endpoints whose peers are to be probed, and the time. With
// very many endpoints each interval probes some of them.
//
// Threads: owner of the interface.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tagwire::ib {

class Keepalive {
  public:
    /// 0: nobody is asked.
    void init(std::uint64_t interval_ns) { interval_ns_ = interval_ns; }

    /// Calls `probe(ep)` for each endpoint that is due. One for which it returns false, for lack of
    /// room, is the first of the next look, since others would have taken the room again by the
    /// next round. Many take several looks, so that their probes leave room for others.
    template <class Endpoints, class Probe>
    void look(std::uint64_t now, const Endpoints& eps, Probe&& probe) {
        if (interval_ns_ > 0 && now >= next_) {
            next_ = now + interval_ns_;
            left_ = std::min(eps.size(), kProbedMax);
        }
        for (std::size_t more = kProbedAtOnce; left_ > 0 && more > 0; --left_, --more) {
            if (next_probed_ >= eps.size())
                next_probed_ = 0;
            auto* const ep = eps[next_probed_];
            if (ep != nullptr && !probe(*ep))
                return;
            ++next_probed_;
        }
    }
    /// Some are due now.
    [[nodiscard]] bool is_due() const { return left_ > 0; }
    [[nodiscard]] bool is_on() const { return interval_ns_ != 0; }
    /// Until the next look is due, at least 1.
    [[nodiscard]] std::uint64_t sleep_ns(std::uint64_t now) const {
        return next_ > now ? next_ - now : 1;
    }

  private:
    static constexpr std::size_t kProbedMax = 4096;   // endpoints looked at in one interval
    static constexpr std::size_t kProbedAtOnce = 64;  // in one look

    std::uint64_t interval_ns_ = 0;
    std::uint64_t next_ = 0;       // ns
    std::size_t next_probed_ = 0;  // index of an endpoint
    std::size_t left_ = 0;         // endpoints to be looked at in this interval
};

}  // namespace tagwire::ib
