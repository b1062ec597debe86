// SPDX-License-Identifier: BSD-3-Clause
// add_lat (ping-pong: both sides add to each other's counter and poll their own), fadd_lat and
// cswap_lat (the driver waits for each result). Words of 8 or 4 bytes.
#include "tools/atomic_results.hpp"
#include "tools/levels.hpp"

namespace tagwire::tools {
namespace {

template <class Level, class Word>
class AddPort {
  public:
    using Connection = typename Level::Connection;

    AddPort(Connection& link, const Job& job)
        : word_(job), sender_(link, without_data(job), 0), inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        return sender_.template add<Word>(sequence, inbox_);
    }

    bool arrived(std::uint64_t sequence) { return word_.has_arrived(inbox_, sequence); }
    void prepare_next(std::uint64_t) {}
    void drain() { sender_.drain(); }
    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    AddedWord<Word> word_;
    typename Level::Sender sender_;
    typename Level::Inbox inbox_;
};

template <class Level, class Word, bool kSwaps>
class FetchPort {
  public:
    using Connection = typename Level::Connection;

    FetchPort(Connection& link, const Job& job)
        : word_(job), sender_(link, without_data(job), 0), inbox_(link, job.memory, sizeof(Word)) {}

    ucs_status_t try_send(std::uint64_t sequence) {
        word_.expect(sequence);
        if constexpr (kSwaps)
            return sender_.cswap(sequence, inbox_, word_.expected(), word_.next(), word_.result());
        else
            return sender_.fetch_and_add(sequence, inbox_, word_.result());
    }

    void drain() {
        sender_.drain();
        word_.check();
    }

    Outcome outcome() const { return word_.outcome().with(sender_.errors()); }

  private:
    FetchedWord<Word> word_;  // before the sender, whose destructor waits for what would write here
    typename Level::Sender sender_;
    typename Level::Inbox inbox_;
};

template <class Level>
using AddPort32 = AddPort<Level, std::uint32_t>;
template <class Level>
using AddPort64 = AddPort<Level, std::uint64_t>;
template <class Level>
using FetchAddPort32 = FetchPort<Level, std::uint32_t, false>;
template <class Level>
using FetchAddPort64 = FetchPort<Level, std::uint64_t, false>;
template <class Level>
using SwapPort32 = FetchPort<Level, std::uint32_t, true>;
template <class Level>
using SwapPort64 = FetchPort<Level, std::uint64_t, true>;

template <template <class> class Add, template <class> class FetchAdd, template <class> class Swap,
          class AnyLink>
std::unique_ptr<Test> make_for_word(AnyLink& link, const Job& job) {
    switch (job.test) {
        case TestId::kAddLat:
            return make_of_one_kind<PingPong, Add>(link, job);
        case TestId::kFaddLat:
            return make_of_one_kind<Fetch, FetchAdd>(link, job);
        default:
            return make_of_one_kind<Fetch, Swap>(link, job);
    }
}

}  // namespace

template <class AnyLink>
std::unique_ptr<Test> make_atomic_test(AnyLink& link, const Job& job) {
    return job.size == sizeof(std::uint32_t)
               ? make_for_word<AddPort32, FetchAddPort32, SwapPort32>(link, job)
               : make_for_word<AddPort64, FetchAddPort64, SwapPort64>(link, job);
}

template std::unique_ptr<Test> make_atomic_test(Link& link, const Job& job);
template std::unique_ptr<Test> make_atomic_test(MsgLink& link, const Job& job);

}  // namespace tagwire::tools
