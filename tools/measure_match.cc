// SPDX-License-Identifier: BSD-3-Clause
// match: a tagged ping-pong in which both sides have `depth` receives posted beside the one that
// will match, and every message draws its tag at random from all of them. Costs that grow with the
// list show up here. match_wild: receives with masks stand among them, which no message matches.
#include <algorithm>
#include <optional>

#include "tools/levels.hpp"
#include "tools/random.hpp"
#include "tools/test_tags.hpp"

namespace tagwire::tools {
namespace {

// match_wild: so many receives with so many different masks.
constexpr std::size_t kWildcards = 100;
constexpr std::size_t kMasks = 10;

template <class Level>
class MatchPort {
  public:
    using Connection = typename Level::Connection;

    MatchPort(Connection& link, const Job& job)
        : link_(link),
          validate_(job.validate),
          tags_(job.depth + 1),
          slots_(std::max<std::size_t>(tags_, 2)),
          random_(static_cast<std::uint64_t>(link.side()) + 1),
          sender_(link, job, stream_from(link.side(), job)),
          receiver_(link, {slots_, job.size, job.validate, stream_from(other(link.side()), job),
                           job.memory}) {
        receiver_.set_on_received(&MatchPort::on_received, this);
        if (job.test == TestId::kMatchWild)
            wildcards_.emplace(link, ReceiverOptions{kWildcards, job.size, false, 0});
        std::size_t wild = 0;
        for (std::size_t slot = 0; slot < slots_; ++slot) {
            post(slot);
            // Evenly among the others.
            while (wildcards_ && wild < kWildcards * (slot + 1) / slots_)
                post_wildcard(wild++);
        }
    }

    MatchPort(const MatchPort&) = delete;
    MatchPort& operator=(const MatchPort&) = delete;

    ucs_status_t try_send(std::uint64_t sequence) {
        const ucs_status_t status = sender_.send_tagged(sequence, tag_);
        if (status == UCS_OK)
            draw();
        return status;
    }

    bool arrived(std::uint64_t sequence) const { return receiver_.received() > sequence; }

    void prepare_next(std::uint64_t) {
        // The driver sends first, so before its first arrival there is nothing to post again.
        if (consumed_) {
            consumed_ = false;
            post(slot_);
        }
    }

    void drain() { sender_.drain(); }

    Outcome outcome() const {
        return {validate_ ? receiver_.received() : 0,
                receiver_.errors() + sender_.errors() + Level::stray(link_)};
    }

  private:
    void post(std::size_t slot) {
        if (receiver_.post(slot, slot % tags_, kByArrival) == Posted::kHasCome)
            on_received(this, slot);
    }

    void post_wildcard(std::size_t index) {
        const std::uint64_t ignore = std::uint64_t{0xf} << (4 * (index % kMasks));
        wildcards_->post(index, kBystanderTag + (index << 40), index, ignore);
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

    Connection& link_;
    bool validate_;
    std::size_t tags_;
    std::size_t slots_;
    Random random_;
    typename Level::Sender sender_;
    typename Level::Receiver receiver_;
    std::optional<typename Level::Receiver> wildcards_;
    bool consumed_ = false;
    std::size_t slot_ = 0;
    std::uint64_t tag_ = 0;
};

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_match_test(AnyLink& link, const Job& job) {
    return make_tagged_for_level<PingPong, MatchPort>(link, job);
}

template std::unique_ptr<Test> make_match_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_match_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
