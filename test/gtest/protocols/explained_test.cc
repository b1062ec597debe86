// SPDX-License-Identifier: BSD-3-Clause
// Kinds of copies as they were measured, and explanations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tagwire.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "calibration.hpp"

namespace tagwire::test {
namespace {

// ---- Kinds of copies

/// Messages of 2 KiB to 64 KiB by copies `libc` ("copy_in_libc", "copy_out_libc") and `kind`,
/// which take `share` of the time of the former from `from` bytes on, and as long below.
std::vector<tw_cost_sample_t> copy_samples(const char* libc, const char* kind, std::size_t from,
                                           double share) {
    std::vector<tw_cost_sample_t> samples{{"sm", "memory", "short", 8, 50}};
    for (const std::size_t bytes : {2048U, 4096U, 16384U, 65536U}) {
        const double ns = static_cast<double>(bytes) / 10;
        samples.push_back({"sm", "memory", libc, bytes, ns});
        samples.push_back({"sm", "memory", kind, bytes, bytes < from ? ns : ns * share});
    }
    return samples;
}

class CalibratedCopies : public Calibration {
  protected:
    CalibratedCopies() {
        tw_explanation_t explanation;
        EXPECT_EQ(explain(64, &explanation), TW_OK);
        kinds_ = explanation.copy_kinds;
    }

    bool has(const std::string& kind) const {
        return (" " + kinds_ + " ").find(" " + kind + " ") != std::string::npos;
    }

    static void store(const std::vector<tw_cost_sample_t>& samples) {
        ASSERT_EQ(tw_calibration_store(nullptr, samples.data(), samples.size()), TW_OK);
    }

    static std::string copy_in(std::size_t length) {
        tw_explanation_t explanation;
        return explain(length, &explanation) == TW_OK ? explanation.copy_in : "failed";
    }

    static std::string copy_out(std::size_t length) {
        tw_explanation_t explanation;
        return explain(length, &explanation) == TW_OK ? explanation.copy_out : "failed";
    }

    /// The plain copies of this processor.
    std::string plain() const {
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_is("amd") != 0 && has("vector"))
            return "vector";
#endif
        return "libc";
    }

    std::string kinds_;
};

TEST_F(CalibratedCopies, are_plain_until_something_was_measured) {
    EXPECT_TRUE(has("libc")) << kinds_;
    EXPECT_EQ(copy_in(1 << 20), plain());
    EXPECT_EQ(copy_out(1 << 20), plain());
    EXPECT_EQ(copy_out(2048), plain());
    EXPECT_EQ(copy_out(2047), "libc");
    store(cheap_reads());
    EXPECT_EQ(copy_in(1 << 20), plain());
}

TEST_F(CalibratedCopies, are_libcs_where_vectors_were_measured_to_be_no_faster) {
    store(copy_samples("copy_out_libc", "copy_out_vector", 0, 0.97));
    EXPECT_EQ(copy_out(1 << 20), "libc");
    EXPECT_EQ(copy_in(1 << 20), plain());
    if (!has("vector"))
        GTEST_SKIP() << "this processor has only " << kinds_;
    store(copy_samples("copy_out_libc", "copy_out_vector", 16384, 0.5));
    EXPECT_EQ(copy_out(16383), "libc");
    EXPECT_EQ(copy_out(16384), "vector");
}

TEST_F(CalibratedCopies, change_where_another_kind_is_faster_to_the_end) {
    if (!has("nontemporal"))
        GTEST_SKIP() << "this processor has only " << kinds_;
    store(copy_samples("copy_in_libc", "copy_in_nontemporal", 4096, 0.9));
    EXPECT_EQ(copy_in(4095), "libc");
    EXPECT_EQ(copy_in(4096), "nontemporal");
    EXPECT_EQ(copy_in(1 << 20), "nontemporal");
    EXPECT_EQ(copy_out(1 << 20), plain());
    store(copy_samples("copy_out_libc", "copy_out_nontemporal", 0, 0.9));
    EXPECT_EQ(copy_in(1 << 20), plain());  // what is stored of a device replaces all of it
    EXPECT_EQ(copy_out(2048), plain() == "libc" ? "nontemporal" : plain());
    EXPECT_EQ(copy_out(2047), "libc");
}

TEST_F(CalibratedCopies, stay_plain_where_another_kind_is_hardly_faster) {
    store(copy_samples("copy_in_libc", "copy_in_nontemporal", 0, 0.96));
    EXPECT_EQ(copy_in(1 << 20), plain());
    auto samples = copy_samples("copy_in_libc", "copy_in_nontemporal", 0, 0.5);
    samples.back().ns = samples[samples.size() - 2].ns;  // of the longest message
    store(samples);
    EXPECT_EQ(copy_in(4096), plain());
}

TEST_F(CalibratedCopies, that_the_processor_lacks_are_not_used) {
    store(copy_samples("copy_in_libc", "copy_in_nontemporal", 0, 0.5));
    EXPECT_EQ(copy_in(1 << 20), has("nontemporal") ? "nontemporal" : plain());
}

TEST_F(CalibratedCopies, are_beside_the_costs_and_checked_like_them) {
    store(copy_samples("copy_in_libc", "copy_in_nontemporal", 4096, 0.9));
    const std::string good = text_of(default_file());
    ASSERT_NE(good.find("\"copies\""), std::string::npos) << good;
    ASSERT_NE(good.find("\"in_nontemporal\""), std::string::npos) << good;
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        const std::size_t at = text.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return text.replace(at, from.size(), to);
    };
    for (const char* retired : {"in_rep", "in_demote"}) {
        write(with("\"in_nontemporal\": [",
                   std::string("\"") + retired + "\": [[4096, 1]], \"in_nontemporal\": ["));
        unsetenv("TAGWIRE_CALIBRATION");
        EXPECT_EQ(copy_in(1 << 20), "nontemporal") << "a file of before " << retired << " went";
    }
    for (const std::string& text :
         {with("in_nontemporal", "in_pigeons"), with("in_nontemporal", "nontemporal"),
          with("\"in_nontemporal\": [", "\"in_nontemporal\": 7, \"in_libc\": ["),
          with("\"copies\": {", "\"copies\": 7, \"others\": {"), with("204.8", "-204.8"),
          with("204.8", "null")}) {
        SCOPED_TRACE(text.substr(0, 700));
        write(text);
        unsetenv("TAGWIRE_CALIBRATION");
        EXPECT_EQ(copy_in(1 << 20), plain());
        tw_explanation_t explanation;
        setenv("TAGWIRE_CALIBRATION", default_file().c_str(), 1);
        EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
    }
    // A file of a version that did not measure copies.
    write(with("\"copies\": {", "\"others\": {"));
    EXPECT_EQ(copy_in(1 << 20), plain());
    tw_explanation_t explanation;
    ASSERT_EQ(explain(64, &explanation), TW_OK);
    EXPECT_EQ(explanation.source, default_file());
}

TEST_F(CalibratedCopies, are_overridden_by_a_setting) {
    store(copy_samples("copy_in_libc", "copy_in_nontemporal", 0, 0.5));
    setenv("TAGWIRE_COPY_IN", "libc", 1);
    EXPECT_EQ(copy_in(1 << 20), "libc");
    setenv("TAGWIRE_COPY_IN", "nontemporal", 1);
    setenv("TAGWIRE_COPY_OUT", "nontemporal", 1);
    if (has("nontemporal")) {
        EXPECT_EQ(copy_in(1023), "libc");
        EXPECT_EQ(copy_in(1024), "nontemporal");
        EXPECT_EQ(copy_out(1024), "nontemporal");
    } else {
        tw_explanation_t explanation;
        EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
    }
}

TEST_F(CalibratedCopies, of_no_known_kind_are_refused_by_name) {
    tw_explanation_t explanation;
    for (const char* option : {"TAGWIRE_COPY_IN", "TAGWIRE_COPY_OUT"}) {
        setenv(option, "pigeons", 1);
        ::testing::internal::CaptureStderr();
        EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
        const std::string log = ::testing::internal::GetCapturedStderr();
        EXPECT_NE(log.find("auto, libc, vector, nontemporal"), std::string::npos) << log;
        if (!has("nontemporal")) {
            setenv(option, "nontemporal", 1);
            ::testing::internal::CaptureStderr();
            EXPECT_EQ(explain(64, &explanation), TW_ERR_INVALID_PARAM);
            const std::string lacks = ::testing::internal::GetCapturedStderr();
            EXPECT_NE(lacks.find(std::string(option) + "=nontemporal"), std::string::npos) << lacks;
            EXPECT_NE(lacks.find(kinds_), std::string::npos) << lacks;
        }
        unsetenv(option);
    }
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
    void close() {
        tw_worker_destroy(std::exchange(worker_, nullptr));
        tw_context_destroy(std::exchange(context_, nullptr));
    }
    ~Explained() override { close(); }

    std::string explained_kinds() {
        tw_explanation_t explanation;
        EXPECT_EQ(tw_worker_explain(worker_, "sm", 64, TW_BUFFER_PLAIN, &explanation), TW_OK);
        return explanation.copy_kinds;
    }

    enum class Receive { kByRequest, kByCallback, kByPieces };

    /// Sends such a message from and to odd addresses, and says whether it arrived as it was and
    /// nothing beside it was written.
    bool arrives(std::size_t length, Receive how) {
        std::vector<unsigned char> out(length + 3), in(length + 130, 0xA5);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = static_cast<unsigned char>((i * 7 + i / 251) % 256);
        unsigned char* from = out.data() + 3;
        unsigned char* to = in.data() + 65;
        const std::size_t third = length / 3;
        const tw_iov_t sent_from[] = {
            {from, third}, {from + third, third}, {from + 2 * third, length - 2 * third}};
        const tw_iov_t sent_to[] = {{to, third + 1}, {to + third + 1, length - third - 1}};
        bool has_come = how != Receive::kByCallback;
        tw_op_t op{};
        op.context = &has_come;
        op.complete = [](const tw_completion_t* done) {
            *static_cast<bool*>(done->context) = done->status == TW_OK;
        };
        tw_request_h requests[2] = {};
        if (how == Receive::kByPieces) {
            tw_tag_recvv(worker_, sent_to, 2, 1, 0, nullptr, &requests[0]);
            tw_tag_sendv(ep_, sent_from, 3, 1, nullptr, &requests[1]);
        } else {
            const bool by_callback = how == Receive::kByCallback;
            tw_tag_recv(worker_, to, length, 1, 0, by_callback ? &op : nullptr,
                        by_callback ? nullptr : &requests[0]);
            tw_tag_send(ep_, from, length, 1, nullptr, &requests[1]);
        }
        for (tw_request_h request : requests) {
            while (request != nullptr && tw_request_test(request, nullptr) == TW_INPROGRESS)
                tw_worker_progress(worker_);
            tw_request_free(request);
        }
        constexpr unsigned kStepsMax = 1000000;
        for (unsigned i = 0; i < kStepsMax && !has_come; ++i)
            tw_worker_progress(worker_);
        return has_come && std::memcmp(to, from, length) == 0 && to[-1] == 0xA5 &&
               to[length] == 0xA5;
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
        tw_worker_counter_t counters[64];
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

TEST_F(Explained, messages_are_whole_by_each_kind_of_copies) {
    setenv("TAGWIRE_RNDV_THRESHOLD", "16m", 1);
    ASSERT_NO_FATAL_FAILURE(open());
    const std::string kinds = explained_kinds();
    close();
    for (const std::string kind : {"libc", "vector", "nontemporal"}) {
        if (kinds.find(kind) == std::string::npos)
            continue;
        SCOPED_TRACE(kind);
        setenv("TAGWIRE_COPY_IN", kind.c_str(), 1);
        setenv("TAGWIRE_COPY_OUT", kind.c_str(), 1);
        ASSERT_NO_FATAL_FAILURE(open());
        sent(0, "tx_short");  // connects
        tw_explanation_t explanation;
        ASSERT_EQ(tw_ep_explain(ep_, 5000, TW_BUFFER_PLAIN, &explanation), TW_OK);
        EXPECT_EQ(explanation.copy_in, kind);
        EXPECT_EQ(explanation.copy_out, kind);
        for (const std::size_t length :
             {1023U, 1024U, 1100U, 4096U, 8191U, 8250U, 20001U, 300000U}) {
            EXPECT_TRUE(arrives(length, Receive::kByRequest)) << length;
            EXPECT_TRUE(arrives(length, Receive::kByCallback)) << length << ", by a callback";
            EXPECT_TRUE(arrives(length, Receive::kByPieces)) << length << ", by pieces";
        }
        close();
    }
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
