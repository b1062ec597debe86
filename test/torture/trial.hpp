// SPDX-License-Identifier: BSD-3-Clause
// One run of a torture: its settings, its random numbers, its verdict, and the watchdog that ends
// it when a phase takes too long.
//
// 1. Everything random comes from the seed, which the first and the last line print.
// 2. lose() records a loss and goes on; finish() prints one line and returns the exit status.
// 3. A phase that is longer than the patience ends the run with the name of the phase. The watchdog
//    is SIGALRM, so a run has no thread that it did not ask for.
// 4. Resources that the run must leave as it found them (descriptors, /dev/shm, /tmp, children) are
//    compared with a stock that is taken once the library has been used.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "random.hpp"

namespace tagwire::torture {

struct Settings {
    std::uint64_t seed = 0;
    unsigned rounds = 0;   ///< 0: the torture's own default
    unsigned seconds = 0;  ///< instead of rounds, unless 0
    unsigned patience_s = 120;
    std::string mode = "multi";
    unsigned threads = 4;
    unsigned workers = 2;
};

class Trial {
  public:
    Trial(std::string name, const Settings& settings);
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

    const Settings& settings() const { return settings_; }
    unsigned rounds(unsigned otherwise) const;
    Random& random() { return random_; }

    /// Names what is being done, and gives it `patience_s` from now.
    void phase(const std::string& text);
    /// Any thread.
    void lose(const std::string& text);
    /// Adds to what the last line says was tried.
    void count(const std::string& what, std::uint64_t number = 1) { counts_[what] += number; }
    bool is_lost() const { return losses_ > 0; }

    /// Takes stock: what is there now need not be explained at the end.
    void take_stock();
    /// Looks for what was left behind, prints the line, returns the exit status.
    int finish();

  private:
    std::string replay() const;
    void compare_stock();

    std::string name_;
    Settings settings_;
    Random random_;
    std::map<std::string, std::uint64_t> counts_;
    std::atomic<unsigned> losses_ = 0;
    std::size_t descriptors_ = 0;
    std::vector<std::string> shared_memory_;
    std::vector<std::string> temporary_;
    bool has_stock_ = false;
};

/// Names in a directory; none where it cannot be read.
std::vector<std::string> names_in(const std::string& directory);
std::size_t descriptors_of(int pid);  ///< 0: this process
std::size_t resident_bytes();
double seconds_now();

/// Limits what another thing than a phase may take.
class Deadline {
  public:
    explicit Deadline(double seconds) : end_(seconds_now() + seconds) {}
    bool has_passed() const { return seconds_now() > end_; }

  private:
    double end_;
};

}  // namespace tagwire::torture
