// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ face of tagwire_bootstrap.h. Header only, C++20; like that header it includes nothing of
// ucs/ or uct/.
//
//     tagwire::Bootstrap job;
//     std::vector<std::vector<std::byte>> addresses = job.exchange(my_address);
//     job.barrier();
//
// Failures throw tagwire::BootstrapError. Threads, limits and every status: at the C function of
// the same name.
#ifndef TAGWIRE_BOOTSTRAP_HPP
#define TAGWIRE_BOOTSTRAP_HPP

#if __cplusplus < 202002L
#error "tagwire_bootstrap.hpp needs C++20: compile with -std=c++20 or later"
#else

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "tagwire_bootstrap.h"

namespace tagwire {
inline namespace v1 {

/// what() is the sentence of tw_bootstrap_last_error().
class BootstrapError : public std::runtime_error {
  public:
    explicit BootstrapError(tw_status_t status)
        : std::runtime_error(tw_bootstrap_last_error()), status_(status) {}

    [[nodiscard]] tw_status_t status() const { return status_; }

  private:
    tw_status_t status_;
};

/// Membership of a job. Move-only; leaves the job on destruction.
class Bootstrap {
  public:
    /// All defaults: the launcher, the environment, or a job of this process alone.
    Bootstrap() { check(tw_bootstrap_create(nullptr, &job_)); }
    explicit Bootstrap(const tw_bootstrap_params_t& params) {
        check(tw_bootstrap_create(&params, &job_));
    }
    Bootstrap(Bootstrap&& other) noexcept : job_(std::exchange(other.job_, nullptr)) {}
    Bootstrap& operator=(Bootstrap&& other) noexcept {
        std::swap(job_, other.job_);
        return *this;
    }
    ~Bootstrap() { tw_bootstrap_destroy(job_); }

    [[nodiscard]] tw_bootstrap_h get() const { return job_; }
    [[nodiscard]] std::uint32_t rank() const { return tw_bootstrap_rank(job_); }
    [[nodiscard]] std::uint32_t size() const { return tw_bootstrap_size(job_); }
    [[nodiscard]] const char* method_name() const { return tw_bootstrap_method_name(job_); }

    void barrier() { check(tw_bootstrap_barrier(job_)); }

    /// One value of each rank, in their order.
    template <class T>
    requires std::is_trivially_copyable_v<T>
    [[nodiscard]] std::vector<T> allgather(const T& mine) {
        std::vector<T> all(size());
        check(tw_bootstrap_allgather(job_, &mine, sizeof mine, all.data()));
        return all;
    }

    /// The bytes of each rank, in their order. Lengths may differ, and may be 0; two calls.
    [[nodiscard]] std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine) {
        const std::vector<std::uint64_t> lengths = allgather(std::uint64_t{mine.size()});
        const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
        std::vector<std::byte> padded(longest);
        std::copy(mine.begin(), mine.end(), padded.begin());
        std::vector<std::byte> all(longest * lengths.size());
        check(tw_bootstrap_allgather(job_, padded.data(), longest, all.data()));
        std::vector<std::vector<std::byte>> each;
        each.reserve(lengths.size());
        for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
            const auto part = std::span(all).subspan(rank * longest, lengths[rank]);
            each.emplace_back(part.begin(), part.end());
        }
        return each;
    }

  private:
    static void check(tw_status_t status) {
        if (status != TW_OK)
            throw BootstrapError(status);
    }

    tw_bootstrap_h job_ = nullptr;
};

}  // namespace v1
}  // namespace tagwire

#endif  // C++20

#endif
