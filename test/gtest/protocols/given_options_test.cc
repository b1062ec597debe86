// SPDX-License-Identifier: BSD-3-Clause
// Options that the program gives to its context: which value holds, and which are refused.
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {
namespace {

using testing::HasSubstr;

class MsgGivenOptions : public ::testing::Test {
  protected:
    /// The log of a context that is refused; empty: it was not.
    static std::string refusal(const std::vector<tw_option_t>& options,
                               const char* transports = "sm") {
        std::string log;
        tw_context_params_t params{};
        params.transports = transports;
        params.options = options.data();
        params.option_count = options.size();
        params.log_arg = &log;
        params.log = [](void* to, tw_log_level_t, const char*, int, const char* text) {
            *static_cast<std::string*>(to) += std::string(text) + "\n";
        };
        tw_context_h context = nullptr;
        const tw_status_t status = tw_context_create(&params, &context);
        EXPECT_EQ(status, log.empty() ? TW_OK : TW_ERR_INVALID_PARAM) << log;
        tw_context_destroy(context);
        return log;
    }
    struct Opened {
        explicit Opened(const std::vector<tw_option_t>& options, const char* transports = "sm",
                        tw_progress_mode_t progress = TW_PROGRESS_DEFAULT) {
            tw_context_params_t params{};
            params.transports = transports;
            params.options = options.data();
            params.option_count = options.size();
            tw_context_h made = nullptr;
            EXPECT_EQ(tw_context_create(&params, &made), TW_OK);
            context.reset(made);
            tw_worker_params_t how{};
            how.progress = progress;
            node.emplace(made, how);
        }
        std::string fact(const std::string& key) const {
            const std::string all = node->description();
            const std::size_t begin = all.find(key + ": ");
            return begin == std::string::npos
                       ? ""
                       : all.substr(begin, all.find('\n', begin) - begin).substr(key.size() + 2);
        }
        tw_worker_attr_t attr() const {
            tw_worker_attr_t all{};
            EXPECT_EQ(tw_worker_query(node->worker(), &all), TW_OK);
            return all;
        }
        std::unique_ptr<tw_context, ContextDeleter> context;
        std::optional<Node> node;
    };
};

TEST_F(MsgGivenOptions, an_override_wins_over_the_environment) {
    const Settings settings({{"TAGWIRE_INJECT_BYTES", "8k"}});
    EXPECT_EQ(Opened({}).attr().inject_bytes_max, 8192U);
    EXPECT_EQ(Opened({{"INJECT_BYTES", "2k", TW_OPTION_OVERRIDE}}).attr().inject_bytes_max, 2048U);
    const Opened opened({{"TAGWIRE_INJECT_BYTES", "2k", TW_OPTION_OVERRIDE}});
    EXPECT_EQ(opened.attr().inject_bytes_max, 2048U);
    EXPECT_EQ(opened.fact("options"), "INJECT_BYTES=2k");
}

TEST_F(MsgGivenOptions, a_default_loses_to_the_environment_and_wins_over_the_library) {
    const std::vector<tw_option_t> given{{"INJECT_BYTES", "2k", TW_OPTION_DEFAULT}};
    EXPECT_EQ(Opened(given).attr().inject_bytes_max, 2048U);
    const Settings settings({{"TAGWIRE_INJECT_BYTES", "8k"}});
    const Opened opened(given);
    EXPECT_EQ(opened.attr().inject_bytes_max, 8192U);
    EXPECT_EQ(opened.fact("options"), "INJECT_BYTES=2k (environment wins)");
}

TEST_F(MsgGivenOptions, transports_and_workers_have_them_too) {
    // An interface has the first, a memory domain the second.
    EXPECT_THAT(Opened({{"SM_DIR", "/tmp", TW_OPTION_OVERRIDE}}).fact("iface_0_socket"),
                HasSubstr("/tmp/"));
    EXPECT_THAT(Opened({}).fact("iface_0_socket"), testing::Not(HasSubstr("/tmp/")));
    const Opened small({{"SM_ARENA_BYTES", "1m", TW_OPTION_DEFAULT}});
    void* address = nullptr;
    tw_mem_h mem = nullptr;
    EXPECT_EQ(tw_mem_alloc(small.context.get(), 4 << 20, nullptr, &address, &mem),
              TW_ERR_NO_MEMORY);
    EXPECT_EQ(Opened({{"PROGRESS", "spin", TW_OPTION_OVERRIDE}}).attr().progress, TW_PROGRESS_SPIN);
    EXPECT_EQ(Opened({{"PROGRESS", "spin", TW_OPTION_OVERRIDE}}, "sm", TW_PROGRESS_POLITE)
                  .attr()
                  .progress,
              TW_PROGRESS_POLITE);
    const Opened listed({{"TRANSPORTS", "sm", TW_OPTION_OVERRIDE}}, nullptr);
    EXPECT_EQ(listed.fact("transports"),
              "tw_context_params_t.options: TRANSPORTS=\"sm\" stands for sm:memory");
}

TEST_F(MsgGivenOptions, a_list_of_transports_says_what_it_stands_for) {
    EXPECT_EQ(Opened({}, " SM ").fact("transports"),
              "tw_context_params_t.transports=\" SM \" stands for sm:memory");
    const Settings settings({{"TAGWIRE_TRANSPORTS", "^tcp,rc,dc,ud"}});
    EXPECT_EQ(Opened({}, nullptr).fact("transports"),
              "TAGWIRE_TRANSPORTS=\"^tcp,rc,dc,ud\" stands for sm:memory");
}

TEST_F(MsgGivenOptions, unknown_names_are_refused_with_the_nearest_one) {
    EXPECT_THAT(refusal({{"INJECT_BYTE", "2k", TW_OPTION_OVERRIDE}}),
                HasSubstr("no option is called TAGWIRE_INJECT_BYTE; did you mean "
                          "TAGWIRE_INJECT_BYTES?"));
    EXPECT_THAT(refusal({{"", "2k", TW_OPTION_DEFAULT}}), HasSubstr("no option is called"));
}

TEST_F(MsgGivenOptions, values_are_refused_with_what_is_accepted_for_transports_not_in_use_too) {
    EXPECT_THAT(refusal({{"INJECT_BYTES", "much", TW_OPTION_OVERRIDE}}),
                HasSubstr("TAGWIRE_INJECT_BYTES=much (set by the program) is not accepted: "
                          "expected a size"));
    EXPECT_THAT(refusal({{"INJECT_BYTES", "2k", TW_OPTION_OVERRIDE},
                         {"TCP_QUEUE_BYTES", "much", TW_OPTION_DEFAULT}}),
                HasSubstr("options[1]: TAGWIRE_TCP_QUEUE_BYTES=much"));
    EXPECT_EQ(refusal({{"TCP_QUEUE_BYTES", "1m", TW_OPTION_DEFAULT}}), "");
}

TEST_F(MsgGivenOptions, options_of_the_process_are_refused_with_the_reason) {
    for (const char* name : {"LOG_LEVEL", "LOG_FILE", "BOOTSTRAP_JOB", "TCP_DEVICES", "IB_DEVICES",
                             "IB_VERBS_LIBRARY"}) {
        EXPECT_THAT(refusal({{name, "x", TW_OPTION_OVERRIDE}}),
                    HasSubstr(std::string("TAGWIRE_") + name +
                              " belongs to the process, and a "
                              "context cannot set it: "));
    }
}

TEST_F(MsgGivenOptions, lists_that_are_malformed_are_refused) {
    EXPECT_THAT(refusal({{nullptr, "2k", TW_OPTION_OVERRIDE}}), HasSubstr("name is NULL"));
    EXPECT_THAT(refusal({{"INJECT_BYTES", nullptr, TW_OPTION_OVERRIDE}}),
                HasSubstr("value is NULL"));
    tw_option_t odd{"INJECT_BYTES", "2k", TW_OPTION_OVERRIDE};
    constexpr int kNoRank = 7;
    std::memcpy(&odd.rank, &kNoRank, sizeof odd.rank);
    EXPECT_THAT(refusal({odd}), HasSubstr("rank 7"));
    EXPECT_THAT(refusal({{"INJECT_BYTES", "2k", TW_OPTION_OVERRIDE},
                         {"TAGWIRE_INJECT_BYTES", "4k", TW_OPTION_OVERRIDE}}),
                HasSubstr("given twice"));
    EXPECT_THAT(refusal({{"TRANSPORTS", "sm", TW_OPTION_OVERRIDE}}),
                HasSubstr("both name the transports"));
    tw_context_params_t params{};
    params.option_count = 1;
    tw_context_h context = nullptr;
    EXPECT_EQ(tw_context_create(&params, &context), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgGivenOptions,
       options_that_contradict_each_other_are_refused_as_those_of_the_environment) {
    EXPECT_THAT(refusal({{"RNDV_THRESHOLD", "1m", TW_OPTION_OVERRIDE},
                         {"UNEXPECTED_BYTES", "64k", TW_OPTION_OVERRIDE}}),
                HasSubstr("exceeds TAGWIRE_UNEXPECTED_BYTES"));
}

}  // namespace
}  // namespace tagwire::test
