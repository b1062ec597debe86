// SPDX-License-Identifier: BSD-3-Clause
// Keeps a stream of tagged messages behind the receives that are posted for it.
//
// Where software matches, a receive that is posted again inside its completion is there before the
// next message is looked at. A device matches by itself, as fast as messages come: one that
// overtakes its receive would be unexpected. There the receiver tells the sender, by active
// messages, how many of the stream have their receive; elsewhere everything is allowed and nothing
// is sent.
//
// Messages go to the peers in turn, so message i belongs to peer i mod peers, and those of one peer
// get their receives in order.
#pragma once

#include <uct/api/uct.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tools/link.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

class Grants {
  public:
    /// `ahead` receives are posted before the first message, on either side.
    Grants(Link& link, bool needed, std::uint64_t ahead)
        : link_(link),
          on_(needed && link.attr().cap.tag.recv.min_recv > 0),
          step_(std::max<std::uint64_t>(ahead / 2, 1)),
          granted_(on_ ? ahead : ~std::uint64_t{0}),
          told_(ahead) {
        for (std::uint64_t peer = 0; peer < link.peers(); ++peer)
            next_.push_back(peer);
        for (std::size_t i = 0; on_ && i < link.interfaces().size(); ++i)
            link.set_am_handler(i, kId, &Grants::on_grant, this);
    }

    ~Grants() {
        for (std::size_t i = 0; on_ && i < link_.interfaces().size(); ++i)
            link_.set_am_handler(i, kId, nullptr, nullptr);
    }

    Grants(const Grants&) = delete;
    Grants& operator=(const Grants&) = delete;

    /// Sender: message `sequence` has a receive.
    bool allow(std::uint64_t sequence) const { return sequence < granted_; }

    /// Receiver: the next message of this peer has a receive.
    void posted(std::size_t peer) { next_[peer] += next_.size(); }

    /// Receiver: tells the sender when enough has been posted since the last time. False: refused
    /// for lack of resources, to be tried again.
    bool try_tell() {
        if (!on_)
            return true;
        const std::uint64_t first_without = *std::min_element(next_.begin(), next_.end());
        if (first_without < told_ + step_)
            return true;
        if (try_send(first_without) != UCS_OK)
            return false;
        told_ = first_without;
        return true;
    }

  private:
    static constexpr std::uint8_t kId = 3;

    ucs_status_t try_send(std::uint64_t word) const {
        if ((link_.attr().cap.flags & UCT_IFACE_FLAG_AM_SHORT) != 0)
            return uct_ep_am_short(link_.endpoint(0), kId, word, nullptr, 0);
        Packed packed{&word, sizeof(word)};
        return status_of(uct_ep_am_bcopy(link_.endpoint(0), kId, &Packed::pack, &packed, 0));
    }

    static ucs_status_t on_grant(void* arg, void* data, std::size_t length, unsigned) {
        auto* self = static_cast<Grants*>(arg);
        std::uint64_t word = 0;
        if (length == sizeof(word)) {
            std::memcpy(&word, data, sizeof(word));
            self->granted_ = std::max(self->granted_, word);
        }
        return UCS_OK;
    }

    Link& link_;
    const bool on_;
    const std::uint64_t step_;
    std::uint64_t granted_;            // of the other direction: the number that this side may send
    std::uint64_t told_;               // of this direction: what the sender knows
    std::vector<std::uint64_t> next_;  // per peer, its first message without a receive
};

}  // namespace tagwire::tools
