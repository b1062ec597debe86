// SPDX-License-Identifier: BSD-3-Clause
// Learning from the times of long messages that come from one peer: an Advisor for each pattern,
// made by the first message that can be learnt from. Its news go to the sender as Advice.
//
// Where the messages of two peers come in turns, the one with the lower worker id leads: its own
// messages go by its own times (RndvSender::lead()).
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "protocols/cost/advisor.hpp"
#include "protocols/cost/timing.hpp"
#include "protocols/port/lane_port.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/rndv/rndv_sender.hpp"

namespace tagwire::proto {

struct LearningPorts {
    const WorkerPort& worker;
    const LanePort& port;
    const LaneState& lane;
    RndvSender& sender;  // of this side's own messages
    const bool may_lead;
};

class Learning {
  public:
    explicit Learning(const LearningPorts& ports) : to_(ports) {}
    Learning(const Learning&) = delete;
    Learning& operator=(const Learning&) = delete;

    /// Messages over the lane are learnt from.
    bool is_on() const { return to_.lane.is_learning(); }
    /// A message of `bytes` bytes, which is learnt from by length, is here now.
    void add(bool is_rndv, std::size_t bytes, const Timing& timing);
    /// Another connection: the peer has not heard what was learnt.
    void begin_anew() {
        for (auto& advisor : advisors_)
            advisor.reset();
    }

  private:
    Advisor& advisor_of(Pattern pattern);

    const LearningPorts to_;
    std::array<std::unique_ptr<Advisor>, kPatterns> advisors_;
};

}  // namespace tagwire::proto
