// SPDX-License-Identifier: BSD-3-Clause
// Each kind of work goes on beside a stream of any other kind over the same endpoint. Bounds are
// rounds of progress.
#include <string>
#include <vector>

#include "protocols/turns.hpp"

namespace tagwire::test {
namespace {

/// Rounds of the stream alone.
constexpr int kWarmRounds = 30;

std::vector<Work> streams() {
    std::vector<Work> all;
    for (std::size_t i = 0; i < kStreams; ++i)
        all.push_back(static_cast<Work>(i));
    return all;
}

class MsgTurnsBeside : public TurnsTest, public testing::WithParamInterface<Work> {
  protected:
    /// Everything goes on beside a stream of `work`.
    void run_beside(Work work) {
        handle_messages();
        for (std::size_t i = 0; i < kWorks; ++i) {
            const auto other = static_cast<Work>(i);
            SCOPED_TRACE(testing::Message() << name_of(other) << " beside " << name_of(work));
            Stream stream;
            const auto fill = [&] { refill(work, stream); };
            for (int round = 0; round < kWarmRounds; ++round) {
                fill();
                progress_all();
            }
            Stream one;
            expect_end_beside(other, one, fill);
            run_until([&] { return stream.ended == stream.begun && one.ended == one.begun; });
            EXPECT_EQ(stream.failure, TW_OK);
            EXPECT_EQ(one.failure, TW_OK);
        }
    }
};

TEST_P(MsgTurnsBeside, all_other_work_goes_on) {
    run_beside(GetParam());
}

INSTANTIATE_TEST_SUITE_P(MsgTurns, MsgTurnsBeside, testing::ValuesIn(streams()),
                         [](const auto& work) { return std::string(name_of(work.param)); });

}  // namespace
}  // namespace tagwire::test
