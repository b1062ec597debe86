// SPDX-License-Identifier: BSD-3-Clause
// add_lat, fadd_lat and cswap_lat at level msg: as measure_atomic.cc, through the atomic operations
// of the messaging layer.
#include <memory>
#include <type_traits>

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
          validate_(job.validate),
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

    bool arrived(std::uint64_t sequence) {
        const Word value = inbox_.load<Word>(0);
        const Word expected = static_cast<Word>(sequence + 1);
        if (value != expected && value != static_cast<Word>(sequence)) [[unlikely]]
            ++errors_;
        validated_ += validate_ && value == expected ? 1 : 0;
        return value == expected;
    }

    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    MsgLink& link_;
    bool validate_;
    MsgSender sender_;
    MsgInbox inbox_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
};

template <class Word, bool kSwaps>
class MsgFetchPort {
  public:
    using Connection = MsgLink;

    MsgFetchPort(MsgLink& link, const Job& job)
        : link_(link),
          validate_(job.validate),
          sender_(link, without_data(job), 0),
          inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        expected_ = static_cast<Word>(sequence);
        return sender_.try_post(
            sequence, kSwaps ? "tw_atomic_cswap" : "tw_atomic_fetch",
            [this](std::uint8_t*, const tw_op_t*, tw_request_h* request) { return post(request); });
    }

    void drain() {
        sender_.drain();
        if (result_ != expected_) [[unlikely]]
            ++errors_;
        validated_ += validate_ ? 1 : 0;
    }

    Outcome outcome() const { return {validated_, errors_ + sender_.errors()}; }

  private:
    tw_status_t post(tw_request_h* request) {
        if constexpr (kSwaps) {
            const Word next = static_cast<Word>(expected_ + 1);
            return tw_atomic_cswap(link_.endpoint(), kTypeOf<Word>, &expected_, &next, &result_,
                                   inbox_.remote(), inbox_.key(), nullptr, request);
        } else {
            constexpr Word kOne = 1;
            return tw_atomic_fetch(link_.endpoint(), TW_ATOMIC_ADD, kTypeOf<Word>, &kOne, &result_,
                                   inbox_.remote(), inbox_.key(), nullptr, request);
        }
    }

    MsgLink& link_;
    bool validate_;
    Word result_ = 0;  // before the sender, whose destructor waits for what would write here
    Word expected_ = 0;
    MsgSender sender_;
    MsgInbox inbox_;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
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
