// SPDX-License-Identifier: BSD-3-Clause
// add_lat, fadd_lat and cswap_lat at level msg: as measure_atomic.cc, through the atomic operations
// of the messaging layer.
#include <memory>
#include <type_traits>

#include "tools/atomic_results.hpp"
#include "tools/loops.hpp"
#include "tools/msg_inbox.hpp"
#include "tools/msg_post.hpp"

namespace tagwire::tools {
namespace {

template <class Word>
constexpr tw_atomic_type_t kTypeOf = std::is_same_v<Word, std::uint32_t> ? TW_UINT32 : TW_UINT64;

template <class Word>
class MsgAddPort {
  public:
    using Connection = MsgLink;

    MsgAddPort(MsgLink& link, const Job& job)
        : link_(link),
          word_(job),
          sender_(link, without_data(job), 0),
          inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_post(
            sequence, "tw_atomic", [this](std::uint8_t*, const tw_op_t*, tw_request_h* request) {
                constexpr Word kOne = 1;
                return tw_atomic(link_.endpoint(), TW_ATOMIC_ADD, kTypeOf<Word>, &kOne,
                                 inbox_.remote(), inbox_.key(), nullptr, request);
            });
    }

    bool arrived(std::uint64_t sequence) { return word_.has_arrived(inbox_, sequence); }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    MsgLink& link_;
    AddedWord<Word> word_;
    MsgSender sender_;
    MsgInbox inbox_;
};

template <class Word, bool kSwaps>
class MsgFetchPort {
  public:
    using Connection = MsgLink;

    MsgFetchPort(MsgLink& link, const Job& job)
        : link_(link),
          word_(job),
          sender_(link, without_data(job), 0),
          inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        word_.expect(sequence);
        return sender_.try_post(
            sequence, kSwaps ? "tw_atomic_cswap" : "tw_atomic_fetch",
            [this](std::uint8_t*, const tw_op_t*, tw_request_h* request) { return post(request); });
    }

    void drain() {
        sender_.drain();
        word_.check();
    }

    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    tw_status_t post(tw_request_h* request) {
        if constexpr (kSwaps) {
            const Word next = word_.next();
            return tw_atomic_cswap(link_.endpoint(), kTypeOf<Word>, &word_.expected(), &next,
                                   word_.result(), inbox_.remote(), inbox_.key(), nullptr, request);
        } else {
            constexpr Word kOne = 1;
            return tw_atomic_fetch(link_.endpoint(), TW_ATOMIC_ADD, kTypeOf<Word>, &kOne,
                                   word_.result(), inbox_.remote(), inbox_.key(), nullptr, request);
        }
    }

    MsgLink& link_;
    FetchedWord<Word> word_;  // before the sender, whose destructor waits for what would write here
    MsgSender sender_;
    MsgInbox inbox_;
};

template <class Word>
std::unique_ptr<Test> make_msg_for_word(MsgLink& link, const Job& job) {
    switch (job.test) {
        case TestId::kAddLat:
            return std::make_unique<PingPong<MsgAddPort<Word>>>(link, job);
        case TestId::kFaddLat:
            return std::make_unique<Fetch<MsgFetchPort<Word, false>>>(link, job);
        default:
            return std::make_unique<Fetch<MsgFetchPort<Word, true>>>(link, job);
    }
}

}  // namespace

std::unique_ptr<Test> make_msg_atomic_test(MsgLink& link, const Job& job) {
    return job.size == sizeof(std::uint32_t) ? make_msg_for_word<std::uint32_t>(link, job)
                                             : make_msg_for_word<std::uint64_t>(link, job);
}

}  // namespace tagwire::tools
