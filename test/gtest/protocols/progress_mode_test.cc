// SPDX-License-Identifier: BSD-3-Clause
// Whether progress of a worker gives the processor away: by its parameters, by TAGWIRE_PROGRESS,
// and as the program is told. Only the public API.
#include <bit>
#include <tagwire_msg.hpp>
#include <utility>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

class MsgProgressMode : public MsgTest {
  protected:
    /// With this parameter where TAGWIRE_PROGRESS has this value.
    std::unique_ptr<Node> made(tw_progress_mode_t mode, const char* option) {
        const Settings settings{{"TAGWIRE_PROGRESS", option}};
        return std::make_unique<Node>(context_.get(), msg::WorkerParams().with_progress(mode));
    }
    static tw_progress_mode_t mode_of(const Node& node) {
        tw_worker_attr_t attr{};
        EXPECT_EQ(tw_worker_query(node.worker(), &attr), TW_OK);
        return attr.progress;
    }
    static bool tells(const Node& node, const char* fact) {
        return node.description().find(fact) != std::string::npos;
    }
};

TEST_F(MsgProgressMode, a_worker_is_as_the_option_says_unless_its_parameters_say_otherwise) {
    const struct {
        tw_progress_mode_t wanted;
        const char* option;
        tw_progress_mode_t expected;
    } cases[] = {
        {TW_PROGRESS_DEFAULT, "polite", TW_PROGRESS_POLITE},
        {TW_PROGRESS_DEFAULT, "spin", TW_PROGRESS_SPIN},
        {TW_PROGRESS_POLITE, "spin", TW_PROGRESS_POLITE},
        {TW_PROGRESS_SPIN, "polite", TW_PROGRESS_SPIN},
    };
    for (const auto& one : cases)
        EXPECT_EQ(mode_of(*made(one.wanted, one.option)), one.expected) << one.option;
}

TEST_F(MsgProgressMode, a_description_tells_the_mode_and_the_limits_of_a_polite_worker) {
    const auto polite = made(TW_PROGRESS_POLITE, "spin");
    EXPECT_TRUE(tells(*polite, "progress_mode: polite\n")) << polite->description();
    EXPECT_TRUE(tells(*polite, "progress_turn_limit_us: ")) << polite->description();
    EXPECT_TRUE(tells(*polite, "sees_peers_run: ")) << polite->description();
    const auto spinning = made(TW_PROGRESS_SPIN, "polite");
    EXPECT_TRUE(tells(*spinning, "progress_mode: spin\n")) << spinning->description();
    EXPECT_FALSE(tells(*spinning, "progress_turn_limit_us: ")) << spinning->description();
}

TEST_F(MsgProgressMode, an_unknown_mode_is_refused_and_named) {
    const std::pair<int, const char*> cases[] = {
        {TW_PROGRESS_SPIN + 1, "progress 3 is not a tw_progress_mode_t"},
        {-1, "progress -1 is not a tw_progress_mode_t"}};
    for (const auto& [mode, expected] : cases) {
        tw_worker_params_t params{};
        params.progress = std::bit_cast<tw_progress_mode_t>(mode);
        tw_worker_h worker = nullptr;
        testing::internal::CaptureStderr();
        const tw_status_t status = tw_worker_create(context_.get(), &params, &worker);
        const std::string log = testing::internal::GetCapturedStderr();
        EXPECT_EQ(status, TW_ERR_INVALID_PARAM);
        EXPECT_EQ(worker, nullptr);
        EXPECT_NE(log.find(expected), std::string::npos) << log;
    }
}

TEST_F(MsgProgressMode, an_unknown_thread_mode_is_refused) {
    for (const int mode : {-1, TW_THREAD_MULTI + 1}) {
        tw_worker_params_t params{};
        params.thread_mode = std::bit_cast<tw_thread_mode_t>(mode);
        tw_worker_h worker = nullptr;
        EXPECT_EQ(tw_worker_create(context_.get(), &params, &worker), TW_ERR_INVALID_PARAM) << mode;
        tw_worker_destroy(worker);
    }
}

TEST_F(MsgProgressMode, a_wrong_option_is_refused_and_named) {
    const Settings settings{{"TAGWIRE_PROGRESS", "gentle"}};
    tw_worker_h worker = nullptr;
    testing::internal::CaptureStderr();
    const tw_status_t status = tw_worker_create(context_.get(), nullptr, &worker);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(status, TW_ERR_INVALID_PARAM);
    EXPECT_NE(log.find("TAGWIRE_PROGRESS=gentle"), std::string::npos) << log;
    tw_worker_destroy(worker);
}

TEST_F(MsgProgressMode, a_wrong_option_of_the_log_fails_no_worker) {
    const Settings settings{{"TAGWIRE_LOG_LEVEL", "loud"}};
    tw_worker_h worker = nullptr;
    EXPECT_EQ(tw_worker_create(context_.get(), nullptr, &worker), TW_OK);
    tw_worker_destroy(worker);
}

}  // namespace
}  // namespace tagwire::test
