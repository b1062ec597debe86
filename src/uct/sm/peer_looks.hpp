// SPDX-License-Identifier: BSD-3-Clause
// Looks at peers that the worker waits for: whether their processes make progress, by the counts in
// their bell pages; and naps on the own one.
//
// Threads: the owner of the interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "uct/peer_watch.hpp"
#include "uct/sm/link.hpp"

namespace tagwire::sm {

class PeerLooks : public uct::PeerWatch {
  public:
    explicit PeerLooks(SmIface& owner) : iface_(owner) {}

    [[nodiscard]] std::size_t peers() const override;
    /// At some of all, in turn. A link to ourselves tells nothing: the caller has a processor.
    Peers look_at_peers(const uct::Whereabouts& here) override;
    Peers look_at_peer(uct_ep_h ep, const uct::Whereabouts& here) override;
    std::uint64_t moved() const override;
    void tell_wait(const uct::Whereabouts& here, bool is_away) override;
    /// This process had its processor since `begin`: it waits for others, and did not give it away.
    bool had_processor(const uct::Whereabouts& here, std::uint64_t begin) override;
    void expect_naps(bool are_expected) override;
    /// Packets on sockets wait for the end of the nap.
    ucs_status_t prepare_nap(tagwire_uct_nap_t* nap) override;
    void end_nap() override;
    void wake_nap() override;

  private:
    static constexpr unsigned kPerLook = 16;
    static constexpr unsigned kPerLongTurn = 128;  // a turn is long: milliseconds

    template <class Visit>
    void visit_some(unsigned most, const Visit& visit);
    bool is_own(const Link& link);

    SmIface& iface_;
    std::uint64_t own_name_ = 0;  // of the interface, once it was asked
    std::size_t next_ = 0;        // in its links
};

}  // namespace tagwire::sm
