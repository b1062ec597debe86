// SPDX-License-Identifier: BSD-3-Clause
// match: a tagged ping-pong in which both sides have `depth` receives posted beside the one that
// will match, and every message draws its tag at random from all of them. Costs that grow with the
// list show up here.
#include <algorithm>

#include "tools/loops.hpp"
#include "tools/random.hpp"
#include "tools/tag_post.hpp"
#include "tools/tag_receiver.hpp"

namespace tagwire::tools {
namespace {

template <Op op>
class MatchPort {
  public:
    MatchPort(Link& link, const Job& job)
        : link_(link),
          validate_(job.validate),
          tags_(job.depth + 1),
          slots_(std::max<std::size_t>(tags_, 2)),
          random_(static_cast<std::uint64_t>(link.side()) + 1),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.memory, job.validate,
                           stream_from(other(link.side()), job)}) {
        receiver_.set_on_received(&MatchPort::on_received, this);
        for (std::size_t slot = 0; slot < slots_; ++slot)
            post(slot);
    }

    MatchPort(const MatchPort&) = delete;
    MatchPort& operator=(const MatchPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<completes(op)>(
            sequence, [this](uct_ep_h ep, std::uint8_t* data, uct_completion_t* completion) {
                const ucs_status_t status = post_tagged<op>(ep, tag_, data, sender_, completion);
                if (status == UCS_OK || status == UCS_INPROGRESS)
                    draw();
                return status;
            });
    }

    bool arrived(std::uint64_t sequence) const { return receiver_.received() > sequence; }

    void prepare_next(std::uint64_t) {
        // The driver sends first, so before its first arrival there is nothing to post again.
        if (consumed_) {
            post(slot_);
            consumed_ = false;
        }
    }

    void drain() { sender_.drain(); }

    Outcome outcome() const {
        return {validate_ ? receiver_.received() : 0,
                receiver_.errors() + sender_.errors() + link_.stray()};
    }

  private:
    void post(std::size_t slot) {
        receiver_.post(slot, {link_.interface(0), slot % tags_, TagReceiver::kByArrival});
    }

    static void on_received(void* arg, std::size_t slot) {
        auto* self = static_cast<MatchPort*>(arg);
        self->consumed_ = true;
        self->slot_ = slot;
    }

    /// Never the same tag twice in a row, so that its receive has been posted again by then. A
    /// single tag has two receives.
    void draw() {
        const std::uint64_t step = tags_ > 1 ? 1 + random_.below(tags_ - 1) : 0;
        tag_ = (tag_ + step) % tags_;
    }

    Link& link_;
    bool validate_;
    std::size_t tags_;
    std::size_t slots_;
    Random random_;
    Sender sender_;
    TagReceiver receiver_;
    bool consumed_ = false;
    std::size_t slot_ = 0;
    uct_tag_t tag_ = 0;
};

}  // namespace

std::unique_ptr<Test> make_match_test(Link& link, const Job& job) {
    return make_for_tag_op<PingPong, MatchPort>(link, job);
}

}  // namespace tagwire::tools
