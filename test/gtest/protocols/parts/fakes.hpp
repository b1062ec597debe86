// SPDX-License-Identifier: BSD-3-Clause
// Fakes in place of the endpoint and worker of a part of the messaging layer that is tested alone:
// they write down what the part asks for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "protocols/port/lane_port.hpp"

namespace tagwire::test {

/// Messages that a part has sent, oldest first.
class Sent {
  public:
    void add(const proto::Control& message) { messages_.push_back(message); }
    bool empty() const { return messages_.empty(); }
    std::size_t size() const { return messages_.size(); }
    /// The number of those with that body.
    template <class Body>
    std::size_t count() const {
        return static_cast<std::size_t>(std::ranges::count_if(
            messages_,
            [](const proto::Control& message) { return message.operation() == Body::kOp; }));
    }
    void clear() { messages_.clear(); }

  private:
    std::vector<proto::Control> messages_;
};

struct FakeLane {
    FakeLane() = default;
    FakeLane(const FakeLane&) = delete;
    FakeLane& operator=(const FakeLane&) = delete;

    Sent sent, added;
    std::function<void()> on_update = [] {};

    const proto::LanePort port{this, kCalls};

  private:
    static FakeLane& of(void* owner) { return *static_cast<FakeLane*>(owner); }

    static constexpr proto::LaneCalls kCalls{
        .control = [](void* lane, const proto::Control& message) { of(lane).sent.add(message); },
        .add_control = [](void* lane,
                          const proto::Control& message) { of(lane).added.add(message); },
        .update_direct = [](void* lane) { of(lane).on_update(); },
    };
};

}  // namespace tagwire::test
