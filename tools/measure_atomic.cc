// SPDX-License-Identifier: BSD-3-Clause
// add_lat (ping-pong: both sides add to each other's counter and poll their own), fadd_lat and
// cswap_lat (the driver waits for each result). Words of 8 or 4 bytes.
#include <type_traits>

#include "tools/atomic_results.hpp"
#include "tools/inbox.hpp"
#include "tools/loops.hpp"

namespace tagwire::tools {
namespace {

template <class Word>
class AddPort {
  public:
    AddPort(Link& link, const Job& job)
        : word_(job), sender_(link, job, 0), inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.try_send<false>(
            sequence, [this](uct_ep_h ep, std::uint8_t*, uct_completion_t*) {
                if constexpr (std::is_same_v<Word, std::uint64_t>) {
                    return uct_ep_atomic64_post(ep, UCT_ATOMIC_OP_ADD, 1, inbox_.remote(),
                                                inbox_.rkey());
                } else {
                    return uct_ep_atomic32_post(ep, UCT_ATOMIC_OP_ADD, 1, inbox_.remote(),
                                                inbox_.rkey());
                }
            });
    }

    bool arrived(std::uint64_t sequence) { return word_.has_arrived(inbox_, sequence); }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    AddedWord<Word> word_;
    Sender sender_;
    Inbox inbox_;
};

template <class Word, bool kSwaps>
class FetchPort {
  public:
    FetchPort(Link& link, const Job& job)
        : word_(job), sender_(link, without_data(job), 0), inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        word_.expect(sequence);
        return sender_.try_send<true>(
            sequence, [this](uct_ep_h ep, std::uint8_t*, uct_completion_t* completion) {
                return post(ep, completion);
            });
    }

    void drain() {
        sender_.drain();
        word_.check();
    }

    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    ucs_status_t post(uct_ep_h ep, uct_completion_t* completion) {
        const std::uint64_t address = inbox_.remote();
        const uct_rkey_t rkey = inbox_.rkey();
        if constexpr (kSwaps && std::is_same_v<Word, std::uint64_t>) {
            return uct_ep_atomic_cswap64(ep, word_.expected(), word_.next(), address, rkey,
                                         word_.result(), completion);
        } else if constexpr (kSwaps) {
            return uct_ep_atomic_cswap32(ep, word_.expected(), word_.next(), address, rkey,
                                         word_.result(), completion);
        } else if constexpr (std::is_same_v<Word, std::uint64_t>) {
            return uct_ep_atomic64_fetch(ep, UCT_ATOMIC_OP_ADD, 1, word_.result(), address, rkey,
                                         completion);
        } else {
            return uct_ep_atomic32_fetch(ep, UCT_ATOMIC_OP_ADD, 1, word_.result(), address, rkey,
                                         completion);
        }
    }

    FetchedWord<Word> word_;
    Sender sender_;
    Inbox inbox_;
};

template <class Word>
std::unique_ptr<Test> make_for_word(Link& link, const Job& job) {
    switch (job.test) {
        case TestId::kAddLat:
            return std::make_unique<PingPong<AddPort<Word>>>(link, job);
        case TestId::kFaddLat:
            return std::make_unique<Fetch<FetchPort<Word, false>>>(link, job);
        default:
            return std::make_unique<Fetch<FetchPort<Word, true>>>(link, job);
    }
}

}  // namespace

std::unique_ptr<Test> make_atomic_test(Link& link, const Job& job) {
    return job.size == sizeof(std::uint32_t) ? make_for_word<std::uint32_t>(link, job)
                                             : make_for_word<std::uint64_t>(link, job);
}

std::unique_ptr<Test> make_test(Link& link, const Job& job) {
    switch (job.test) {
        case TestId::kAmLat:
        case TestId::kAmBw:
        case TestId::kAmRate:
            return make_am_test(link, job);
        case TestId::kTagLat:
        case TestId::kTagBw:
        case TestId::kTagRate:
            return make_tag_test(link, job);
        case TestId::kMatch:
            return make_match_test(link, job);
        case TestId::kPutLat:
        case TestId::kPutBw:
        case TestId::kPutRate:
            return make_put_test(link, job);
        case TestId::kGetLat:
        case TestId::kGetBw:
            return make_get_test(link, job);
        default:
            return make_atomic_test(link, job);
    }
}

}  // namespace tagwire::tools
