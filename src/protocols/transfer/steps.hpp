// SPDX-License-Identifier: BSD-3-Clause
// The steps that sending may take in one call: a fast receiver cannot keep the sender inside it. A
// step is a message, a part of one or a piece of a transfer.
#pragma once

#include <algorithm>

namespace tagwire::proto {

class Steps {
  public:
    static constexpr unsigned kMax = 64;

    /// A call begins to send.
    void begin() { left_ = kMax; }
    bool has_left() const { return left_ > 0; }
    /// False: there is none left.
    bool try_take() {
        if (left_ == 0)
            return false;
        --left_;
        return true;
    }
    /// As many as there are.
    void take(unsigned steps) { left_ -= std::min(left_, steps); }

  private:
    unsigned left_ = 0;
};

}  // namespace tagwire::proto
