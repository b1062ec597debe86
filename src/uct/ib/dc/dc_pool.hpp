// SPDX-License-Identifier: BSD-3-Clause
// The pool of channels: makes DCIs and channels as they are needed, up to TAGWIRE_DC_DCIS, and
// keeps the idle ones. Beside it there is one DCI for answers.
//
//   first take() -> a channel of a new DCI, while there may be more; then further streams of them
//   later takes  -> the channel that the endpoint had, or the one that was idle for longest
//
// Threads: owner of the interface.
// Invariant: the pool grows only, and a channel never moves.
#pragma once

#include <cstdint>
#include <memory>

#include "ucs/datastruct/queue.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/describe.hpp"
#include "uct/ib/dc/dc_channel.hpp"
#include "uct/ib/dc/dc_options.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::dc {

class DciPool {
  public:
    DciPool(ib::MessageIface& owner, const DcOptions& options, ib::WorkQueue::Post post_call);

    /// Before the depths are fitted: a DCI's requests are shared by its streams.
    void choose_streams(const DcVerbs& dc);
    /// Makes the first DCI, which tells what all have. `context`: the mailbox of their events.
    ucs_status_t open(void* context);
    /// From then on the device writes nothing of ours.
    void close();

    [[nodiscard]] bool is_shared() const { return policy_ >= Policy::kRand; }
    /// One for the endpoint alone, null: all are taken.
    Channel* take(const DcEp& ep);
    /// The one of answers, null: it is taken.
    Channel* take_answer_channel();
    [[nodiscard]] bool is_answer_channel(const Channel& channel) const {
        return &channel == answer_channel_;
    }
    void put_idle(Channel& channel) { idle_.push_back(channel); }
    /// One of all that there may be, by a random number; it is made when it is the first time.
    /// Null: not even one can be made.
    Channel* draw(std::uint64_t number);
    [[nodiscard]] const ucs::ReserveVector<std::unique_ptr<Dci>>& dcis() const { return dcis_; }
    /// All that endpoints get.
    [[nodiscard]] const ucs::ReserveVector<Channel*>& channels() const { return pool_; }
    /// Channels of endpoints and that of answers. Grows within callbacks: look at it by index.
    [[nodiscard]] const ucs::ReserveVector<std::unique_ptr<Channel>>& all_channels() const {
        return channels_;
    }

    /// A DCI or a stream where a request failed goes on with others.
    void restart(Channel& channel);
    /// Whatever is under way in all of its channels is gone without a completion.
    void restart(Dci& dci);

    void describe(const uct::DescribeSink& sink) const;

  private:
    ucs_status_t new_dci(Dci** dci_p);
    Channel* new_channel(Dci& dci);
    Channel* add_to_pool(Dci& dci);
    Channel* grow();

    ib::MessageIface& owner_;
    const DcVerbs* dc_ = nullptr;
    const ib::RetryOptions retries_;
    const DciOptions options_;
    const Policy policy_;
    const ib::WorkQueue::Post post_call_;
    InitiatorParams params_{};
    unsigned streams_ = 1;  // of each DCI
    ucs::ReserveVector<std::unique_ptr<Dci>> dcis_;
    ucs::ReserveVector<std::unique_ptr<Channel>> channels_;
    ucs::ReserveVector<Channel*> pool_;
    std::size_t dcis_max_;  // in it; fewer than the option says when the device had no more
    Channel* answer_channel_ = nullptr;             // of endpoints back, when all others are taken
    ucs::List<Channel, &Channel::idle_link> idle_;  // owned ones; the one used last is the last
};

}  // namespace tagwire::dc
