// SPDX-License-Identifier: BSD-3-Clause
// The file of measured costs, what a context makes of it, and explanations.
#include <gtest/gtest.h>
#include <tagwire.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace tagwire::test {
namespace {

namespace fs = std::filesystem;

class Calibration : public ::testing::Test {
  protected:
    Calibration() {
        char name[] = "/tmp/tagwire-calibration-XXXXXX";
        folder_ = mkdtemp(name);
        setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    }
    ~Calibration() override {
        for (const char* name : {"XDG_CONFIG_HOME", "TAGWIRE_CALIBRATION", "TAGWIRE_RNDV_THRESHOLD",
                                 "TAGWIRE_UNEXPECTED_BYTES"})
            unsetenv(name);
        fs::remove_all(folder_);
    }

    fs::path default_file() const { return folder_ / "tagwire" / "calibration.json"; }

    void write(const std::string& text) const {
        fs::create_directories(default_file().parent_path());
        std::ofstream(default_file()) << text;
    }

    static std::string text_of(const fs::path& file) {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    /// Creates context and worker, and explains a message over sm.
    static tw_status_t explain(std::size_t length, tw_explanation_t* out) {
        tw_context_params_t params{.transports = "sm", .tag_sender_mask = 0};
        tw_context_h context = nullptr;
        tw_worker_h worker = nullptr;
        tw_status_t status = tw_context_create(&params, &context);
        if (status != TW_OK)
            return status;
        status = tw_worker_create(context, nullptr, &worker);
        if (status == TW_OK)
            status = tw_worker_explain(worker, "sm", length, TW_BUFFER_MAPPED, out);
        tw_worker_destroy(worker);
        tw_context_destroy(context);
        return status;
    }

    /// Reading is so cheap that everything beyond a buffer of the transport is read.
    static std::vector<tw_cost_sample_t> cheap_reads() {
        return {
            {"sm", "memory", "short", 8, 50},          {"sm", "memory", "bcopy", 1024, 200},
            {"sm", "memory", "parts", 16384, 9000},    {"sm", "memory", "parts", 65536, 40000},
            {"sm", "memory", "rndv_get", 1024, 1500},  {"sm", "memory", "rndv_get", 65536, 2000},
            {"sm", "memory", "registration", 4096, 70}};
    }

    fs::path folder_;
};

TEST_F(Calibration, is_looked_for_below_the_users_configuration) {
    char path[256];
    std::size_t length = sizeof path;
    ASSERT_EQ(tw_calibration_path(path, &length), TW_OK);
    EXPECT_EQ(fs::path(path), default_file());
    length = 3;
    EXPECT_EQ(tw_calibration_path(path, &length), TW_ERR_BUFFER_TOO_SMALL);
    EXPECT_EQ(length, default_file().string().size() + 1);
}

TEST_F(Calibration, replaces_the_attributes_of_a_device) {
    tw_explanation_t before;
    ASSERT_EQ(explain(20000, &before), TW_OK);
    EXPECT_STREQ(before.source, "");
    EXPECT_STREQ(before.protocols[before.chosen].name, "parts");
    EXPECT_EQ(before.protocols[before.chosen].is_measured, 0);

    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    tw_explanation_t after;
    ASSERT_EQ(explain(20000, &after), TW_OK);
    EXPECT_STREQ(after.source, default_file().c_str());
    EXPECT_STREQ(after.protocols[after.chosen].name, "rndv_get");
    EXPECT_EQ(after.protocols[after.chosen].is_measured, 1);
    EXPECT_LT(after.rndv_from, before.rndv_from);
    EXPECT_STREQ(after.knob, "TAGWIRE_CALIBRATION=auto");
}

TEST_F(Calibration, leaves_no_other_file_and_keeps_other_devices) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    const tw_cost_sample_t other{"rc", "mlx5_0:1", "parts", 65536, 12345};
    ASSERT_EQ(tw_calibration_store(nullptr, &other, 1), TW_OK);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "rndv_get");
    EXPECT_NE(text_of(default_file()).find("12345"), std::string::npos);
    const fs::directory_iterator files(default_file().parent_path());
    EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(Calibration, of_another_machine_is_not_used) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    std::string text = text_of(default_file());
    const std::size_t at = text.find("\"kernel\": \"");
    ASSERT_NE(at, std::string::npos);
    text.insert(at + 11, "9");
    write(text);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, "");
    setenv("TAGWIRE_CALIBRATION", default_file().c_str(), 1);
    EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
}

TEST_F(Calibration, that_is_damaged_is_ignored_unless_it_was_named) {
    const auto samples = cheap_reads();
    ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    const std::string good = text_of(default_file());
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    const std::vector<std::string> damaged{
        "",
        "[]",
        "{",
        std::string(2 << 20, ' '),
        good.substr(0, good.size() / 2),
        with("\"schema\": 1", "\"schema\": 2"),
        with("\"machine\"", "\"mashine\""),
        with("\"devices\"", "\"device\""),
        with("\"costs\"", "\"cost\""),
        with("\"parts\"", "\"pieces\""),
        with("9000", "-9000"),
        with("9000", "1e300"),
        with("9000", "\"9000\""),
        with("16384", "-16384"),
    };
    for (const std::string& text : damaged) {
        SCOPED_TRACE(text.substr(0, 300));
        write(text);
        tw_explanation_t explanation;
        unsetenv("TAGWIRE_CALIBRATION");
        ASSERT_EQ(explain(20000, &explanation), TW_OK);
        EXPECT_STREQ(explanation.source, "");
        setenv("TAGWIRE_CALIBRATION", default_file().c_str(), 1);
        EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
    }
}

TEST_F(Calibration, can_be_another_file_or_none) {
    const auto samples = cheap_reads();
    const fs::path other = folder_ / "other.json";
    ASSERT_EQ(tw_calibration_store(other.c_str(), samples.data(), samples.size()), TW_OK);
    EXPECT_FALSE(fs::exists(default_file()));
    setenv("TAGWIRE_CALIBRATION", other.c_str(), 1);
    tw_explanation_t explanation;
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, other.c_str());
    setenv("TAGWIRE_CALIBRATION", (folder_ / "missing.json").c_str(), 1);
    EXPECT_EQ(explain(20000, &explanation), TW_ERR_INVALID_PARAM);
    setenv("TAGWIRE_CALIBRATION", "none", 1);
    write("damaged");
    ASSERT_EQ(explain(20000, &explanation), TW_OK);
    EXPECT_STREQ(explanation.source, "");
}

TEST_F(Calibration, takes_no_sample_that_cannot_be) {
    for (const tw_cost_sample_t& sample : {tw_cost_sample_t{"sm", "memory", "pigeons", 8, 50},
                                           tw_cost_sample_t{"sm", "memory", "short", 8, -1},
                                           tw_cost_sample_t{"", "memory", "short", 8, 50},
                                           tw_cost_sample_t{"sm", nullptr, "short", 8, 50}})
        EXPECT_EQ(tw_calibration_store(nullptr, &sample, 1), TW_ERR_INVALID_PARAM);
    const tw_cost_sample_t good{"sm", "memory", "short", 8, 50};
    EXPECT_EQ(tw_calibration_store("/proc/nowhere/file", &good, 1), TW_ERR_IO_ERROR);
    EXPECT_FALSE(fs::exists(default_file()));
}

TEST_F(Calibration, an_override_decides_and_is_named) {
    tw_explanation_t explanation;
    setenv("TAGWIRE_RNDV_THRESHOLD", "200", 1);
    ASSERT_EQ(explain(200, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "rndv_get");
    EXPECT_STREQ(explanation.knob, "TAGWIRE_RNDV_THRESHOLD=200");
    setenv("TAGWIRE_RNDV_THRESHOLD", "32m", 1);
    ASSERT_EQ(explain(31 << 20, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "parts");
}

TEST_F(Calibration, an_override_beyond_what_a_receiver_keeps_is_refused) {
    tw_explanation_t explanation;
    setenv("TAGWIRE_UNEXPECTED_BYTES", "1m", 1);
    setenv("TAGWIRE_RNDV_THRESHOLD", "2m", 1);
    EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
    setenv("TAGWIRE_RNDV_THRESHOLD", "1m", 1);
    EXPECT_EQ(explain(64, &explanation), TW_OK);
}

/// A worker that talks to itself.
class Explained : public Calibration {
  protected:
    void open() {
        const tw_context_params_t params{.transports = "sm", .tag_sender_mask = 0};
        ASSERT_EQ(tw_context_create(&params, &context_), TW_OK);
        ASSERT_EQ(tw_worker_create(context_, nullptr, &worker_), TW_OK);
        char address[TW_ADDRESS_BYTES_MAX];
        std::size_t length = sizeof address;
        ASSERT_EQ(tw_worker_address(worker_, address, &length), TW_OK);
        const tw_ep_params_t ep{.address = address, .address_length = length, .user_data = nullptr};
        ASSERT_EQ(tw_ep_create(worker_, &ep, &ep_), TW_OK);
    }
    ~Explained() override {
        tw_worker_destroy(worker_);
        tw_context_destroy(context_);
    }

    /// Sends such a message, and returns how often the counter moved.
    std::uint64_t sent(std::size_t length, const char* counter) {
        const std::uint64_t before = value_of(counter);
        std::vector<char> out(length), in(length);
        tw_request_h requests[2] = {};
        tw_tag_recv(worker_, in.data(), length, 1, 0, nullptr, &requests[0]);
        tw_tag_send(ep_, out.data(), length, 1, nullptr, &requests[1]);
        for (tw_request_h request : requests) {
            while (request != nullptr && tw_request_test(request, nullptr) == TW_INPROGRESS)
                tw_worker_progress(worker_);
            tw_request_free(request);
        }
        return value_of(counter) - before;
    }

    std::uint64_t value_of(const std::string& name) {
        tw_counter_t counters[64];
        unsigned count = 64;
        EXPECT_EQ(tw_worker_counters(worker_, counters, &count), TW_OK);
        for (unsigned i = 0; i < count; ++i)
            if (name == counters[i].name)
                return counters[i].value;
        ADD_FAILURE() << "no counter " << name;
        return 0;
    }

    tw_context_h context_ = nullptr;
    tw_worker_h worker_ = nullptr;
    tw_ep_h ep_ = nullptr;
};

TEST_F(Explained, messages_go_as_explained) {
    ASSERT_NO_FATAL_FAILURE(open());
    tw_explanation_t explanation;
    EXPECT_EQ(tw_ep_explain(ep_, 8, TW_BUFFER_PLAIN, &explanation), TW_ERR_NOT_CONNECTED);
    sent(8, "tx_short");
    ASSERT_EQ(tw_ep_explain(ep_, 8, TW_BUFFER_PLAIN, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "short");
    const std::size_t from = explanation.rndv_from;
    ASSERT_LT(from, std::size_t{64} << 20);
    EXPECT_EQ(sent(8, "tx_short"), 1U);
    EXPECT_EQ(sent(4096, "tx_eager"), 1U);
    EXPECT_GT(sent(from - 1, "tx_parts"), 1U);
    EXPECT_EQ(sent(from, "rndv_get"), 1U);
    ASSERT_EQ(tw_ep_explain(ep_, from, TW_BUFFER_PLAIN, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "rndv_get");
    ASSERT_EQ(tw_ep_explain(ep_, from - 1, TW_BUFFER_PLAIN, &explanation), TW_OK);
    EXPECT_STREQ(explanation.protocols[explanation.chosen].name, "parts");
}

TEST_F(Explained, an_override_of_nothing_spares_short_messages_only) {
    setenv("TAGWIRE_RNDV_THRESHOLD", "0", 1);
    ASSERT_NO_FATAL_FAILURE(open());
    sent(0, "tx_short");  // connects
    EXPECT_EQ(sent(1, "tx_short"), 1U);
    EXPECT_EQ(sent(200, "tx_rndv"), 1U);
}

TEST_F(Explained, an_override_raises_the_threshold_too) {
    setenv("TAGWIRE_RNDV_THRESHOLD", "8m", 1);
    ASSERT_NO_FATAL_FAILURE(open());
    EXPECT_EQ(sent((8 << 20) - 1, "tx_rndv"), 0U);
    EXPECT_EQ(sent(8 << 20, "tx_rndv"), 1U);
}

TEST_F(Explained, a_long_eager_message_may_be_matched_before_all_of_it_has_gone) {
    setenv("TAGWIRE_RNDV_THRESHOLD", "16m", 1);
    ASSERT_NO_FATAL_FAILURE(open());
    sent(0, "tx_short");  // connects
    constexpr unsigned kStepsMax = 1000000;
    std::vector<char> out(8 << 20, 'x'), in(8 << 20);
    tw_request_h requests[2] = {};
    tw_op_t op{};
    op.flags = TW_OP_MATCH_COMPLETE;
    ASSERT_EQ(tw_tag_recv(worker_, in.data(), in.size(), 1, 0, nullptr, &requests[0]),
              TW_INPROGRESS);
    ASSERT_EQ(tw_tag_send(ep_, out.data(), out.size(), 1, &op, &requests[1]), TW_INPROGRESS);
    for (tw_request_h request : requests) {
        tw_status_t status = TW_INPROGRESS;
        for (unsigned i = 0; i < kStepsMax && status == TW_INPROGRESS; ++i) {
            tw_worker_progress(worker_);
            status = tw_request_test(request, nullptr);
        }
        EXPECT_EQ(status, TW_OK);
        tw_request_free(request);
    }
    EXPECT_EQ(in, out);
}

TEST_F(Explained, arguments_that_cannot_be_are_refused) {
    ASSERT_NO_FATAL_FAILURE(open());
    tw_explanation_t explanation;
    EXPECT_EQ(tw_worker_explain(worker_, "rc", 8, TW_BUFFER_PLAIN, &explanation), TW_ERR_NO_ELEM);
    EXPECT_EQ(tw_worker_explain(worker_, "sm:other", 8, TW_BUFFER_PLAIN, &explanation),
              TW_ERR_NO_ELEM);
    EXPECT_EQ(tw_worker_explain(worker_, "sm:memory", 8, TW_BUFFER_PLAIN, &explanation), TW_OK);
    EXPECT_EQ(tw_worker_explain(worker_, nullptr, 8, TW_BUFFER_PLAIN, &explanation),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_worker_explain(worker_, "sm", 8, static_cast<tw_buffer_kind_t>(3), &explanation),
              TW_ERR_INVALID_PARAM);
    EXPECT_EQ(tw_ep_explain(ep_, 8, TW_BUFFER_PLAIN, nullptr), TW_ERR_INVALID_PARAM);
}

}  // namespace
}  // namespace tagwire::test
