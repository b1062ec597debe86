// SPDX-License-Identifier: BSD-3-Clause
// Counter: successful operations, and failed ones.
#pragma once

#include <rdma/fi_eq.h>

#include <cstdint>
#include <vector>

#include "fabric.hpp"
#include "sleeper.hpp"

namespace tagwire::fi {

class Ep;

class Cntr : public fid_cntr {
  public:
    Cntr(Domain& parent, const fi_cntr_attr& attr, void* user_context);
    Cntr(const Cntr&) = delete;
    Cntr& operator=(const Cntr&) = delete;
    ~Cntr();

    static int open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr_p, void* user_context);

    // ---- For endpoints, with the domain's lock

    int add_endpoint(Ep& ep);
    void remove_endpoint(Ep& ep);
    /// A region that it counts for, one more or one less. An operation on it may come by any
    /// endpoint of the domain, so that the counter progresses all of them.
    int add_region();
    void remove_region();
    /// An endpoint of the domain was opened, or is closed, while there is such a region.
    int watch(const Ep& ep);
    void unwatch(const Ep& ep);
    bool is_bound() const { return !eps_.empty() || regions_ != 0; }
    void count_success() {
        ++successes_;
        sleeper_.wake();
    }
    void count_error() {
        ++errors_;
        sleeper_.wake();
    }

    // ---- The calls of fi_cntr(3)

    std::uint64_t read();
    std::uint64_t read_errors();
    void add(std::uint64_t successes, std::uint64_t errors);
    void set(std::uint64_t successes);
    void set_errors(std::uint64_t errors);
    int wait(std::uint64_t threshold, int timeout_ms);
    int try_wait();
    int get_wait(void* arg) const;

    Domain& domain;
    const fi_wait_obj wait_obj;

  private:
    void progress();
    /// One of the two numbers, behind progress.
    std::uint64_t look_at(const std::uint64_t& number);

    std::uint64_t successes_ = 0;
    std::uint64_t errors_ = 0;
    std::uint64_t seen_ = 0;  ///< Both together, at the last look.
    std::vector<Ep*> eps_;    // bound to it
    int regions_ = 0;
    Sleeper sleeper_;
};

}  // namespace tagwire::fi
