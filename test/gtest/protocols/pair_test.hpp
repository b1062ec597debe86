// SPDX-License-Identifier: BSD-3-Clause
// Two workers that know each other, and messages of every length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "protocols/fixture.hpp"

namespace tagwire::test {

inline constexpr std::size_t kShort = 20, kEager = 5000, kParts = 20000, kRndv = 300000;
inline constexpr std::size_t kKinds[] = {kShort, kEager, kParts, kRndv};

class PairTest : public MsgTest {
  protected:
    /// Both know each other, so that sends begin at once.
    void connect() {
        send(node(0), node(1), {}, 1);
        send(node(1), node(0), {}, 1);
        Bytes nothing;
        receive(node(0), &nothing, 1);
        receive(node(1), &nothing, 1);
    }
    tw_completion_t receive(Node& at, Bytes* data, std::uint64_t tag) {
        int mark = 0;
        const tw_op_t how = op(&mark);
        EXPECT_EQ(tw_tag_recv(at.worker(), data->data(), data->size(), tag, 0, &how, nullptr),
                  TW_INPROGRESS);
        return end_of(at, &mark);
    }
    bool has_ended(const Node& at, const void* context) const {
        return std::ranges::any_of(
            at.done, [&](const tw_completion_t& done) { return done.context == context; });
    }
};

}  // namespace tagwire::test
