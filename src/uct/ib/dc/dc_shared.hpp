// SPDX-License-Identifier: BSD-3-Clause
// Channels that endpoints share (policies rand and hash). When a request fails there, those behind
// it are flushed: they were not carried out, because an initiator goes to another target only when
// all before it is acknowledged. So once everything posted has ended, requests of the other
// endpoints are posted again in their order; what was acknowledged never is. Those of endpoints
// that have failed end then, also where the others wait for places in the ring of their DCI.
//
// Where the target did not answer, or the DCI was stopped, it may have carried out what it did not
// acknowledge. So every endpoint that sends to the same target fails, too.
//
//   whole --a request failed--> broken --all posted is flushed--> over --there are places, and
//     ^                                                            |     the DCI works
//     '------------------------ posted again <---------------------'
//
// Threads: owner of the interface. The state is the channels' (dc_channel.hpp).
#pragma once

#include <cstdint>

#include "uct/ib/dc/dc_channel.hpp"
#include "uct/ib/dc/dc_pool.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::dc {

class SharedChannels {
  public:
    SharedChannels(ib::MessageIface& owner, DciPool& pool) : owner_(owner), pool_(pool) {}

    /// The endpoint whose request is under way there, the newest that has not failed.
    [[nodiscard]] static ib::MessageEp* poster_of(const Channel& channel);
    void completed(Channel& channel, const ib::Completion& completion);
    /// Places came back: a broken one that waited for them goes on.
    void use_places(Channel& channel);
    /// One that is over: requests of endpoints that have failed end with the failure.
    void end_failed(Channel& channel);
    /// One that is over, and its DCI works again: requests of endpoints that have not failed are
    /// posted again.
    void post_again(Channel& channel);

  private:
    [[nodiscard]] static bool lacks_places(const Channel& channel);
    void acknowledge(Channel& channel, std::uint32_t sn);
    void finish_acknowledged(Channel& channel, std::uint32_t sn);
    void break_off(Channel& channel, const ib::Completion& completion);
    void drop_unposted(Channel& channel, std::uint32_t from);
    void ask_for_completion(SentRequest& sent);
    bool post_one_again(Channel& channel, std::uint32_t sn);

    ib::MessageIface& owner_;
    DciPool& pool_;
};

}  // namespace tagwire::dc
