// SPDX-License-Identifier: BSD-3-Clause
//
// Completion queues and counters of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_COMPLETION_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_COMPLETION_HPP

#include <protocols/api/cxx_msg_base.hpp>
#include <protocols/api/cxx_msg_context.hpp>

namespace tagwire {
inline namespace v1 {
namespace msg {

/// Takes the ends of operations of any workers of a context; for Op::completion_queue(). Any
/// thread.
class CompletionQueue {
  public:
    /// `capacity`: a power of two; 0: the default.
    explicit CompletionQueue(const Context& context, std::size_t capacity = 0) {
        tw_cq_params_t params{};
        params.capacity = capacity;
        tw_cq_h cq = nullptr;
        check(tw_cq_create(context.get(), &params, &cq), "tw_cq_create");
        cq_.reset(cq);
    }

    [[nodiscard]] tw_cq_h get() const { return cq_.get(); }
    /// Fills `completions` from its beginning; returns how many were written.
    unsigned poll(std::span<tw_completion_t> completions) const {
        return tw_cq_poll(get(), completions.data(), static_cast<unsigned>(completions.size()));
    }
    /// As poll(), and sleeps while there is none. Does not progress.
    Status wait(std::span<tw_completion_t> completions, unsigned& count,
                std::uint64_t timeout_ns = UINT64_MAX) const {
        return {tw_cq_wait(get(), completions.data(), static_cast<unsigned>(completions.size()),
                           timeout_ns, &count),
                "tw_cq_wait"};
    }
    /// Ends all waits, for good.
    Status signal() const { return {tw_cq_signal(get()), "tw_cq_signal"}; }

  private:
    detail::Owner<tw_cq_h, tw_cq_destroy> cq_;
};

/// Counts operations that have ended, for Op::count(), and puts that arrive, for Memory. Any
/// thread.
class Counter {
  public:
    struct Counts {
        std::uint64_t successes;
        std::uint64_t failures;
    };

    Counter() {
        tw_counter_h counter = nullptr;
        check(tw_counter_create(&counter), "tw_counter_create");
        counter_.reset(counter);
    }

    [[nodiscard]] tw_counter_h get() const { return counter_.get(); }
    [[nodiscard]] Counts read() const {
        Counts counts{};
        tw_counter_read(get(), &counts.successes, &counts.failures);
        return counts;
    }
    Status add(std::uint64_t successes, std::uint64_t failures = 0) const {
        return {tw_counter_add(get(), successes, failures), "tw_counter_add"};
    }
    /// Sleeps until so many are counted. Does not progress.
    Status wait(std::uint64_t number, std::uint64_t timeout_ns = UINT64_MAX) const {
        return {tw_counter_wait(get(), number, timeout_ns), "tw_counter_wait"};
    }

  private:
    detail::Owner<tw_counter_h, tw_counter_destroy> counter_;
};

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
