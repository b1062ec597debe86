// SPDX-License-Identifier: BSD-3-Clause
// Chooses the CPUs that the two processes run on.
#pragma once

#include <sched.h>

#include <vector>

namespace tagwire::tools {

/// The CPUs that this process may use, ascending.
std::vector<int> allowed_cpus();

/// Moves the calling thread to one CPU. Returns 0 or an errno.
int try_pin_to(int cpu);

/// The same. Throws Failure when the kernel refuses.
void pin_to(int cpu);

/// Whatever the calling thread is pinned to meanwhile, in the end it has its CPUs back.
class KeptCpus {
  public:
    KeptCpus();
    ~KeptCpus();
    KeptCpus(const KeptCpus&) = delete;
    KeptCpus& operator=(const KeptCpus&) = delete;

  private:
    cpu_set_t cpus_;
};

/// The pair {driver, peer}: `wanted` if given (two CPUs, or one for both; throws UsageError when
/// one is not allowed), else the first two allowed ones, or the only one twice.
std::vector<int> choose_cpus(const std::vector<int>& wanted);

/// Those wanted, else all that are allowed. Throws UsageError.
std::vector<int> cpus_in_turn(const std::vector<int>& wanted);

}  // namespace tagwire::tools
