// SPDX-License-Identifier: BSD-3-Clause
// Contexts with a file of measured costs of their own.
#pragma once

#include <gtest/gtest.h>
#include <tagwire.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace tagwire::test {

namespace fs = std::filesystem;

class Calibration : public ::testing::Test {
  protected:
    Calibration() {
        char name[] = "/tmp/test-calibration-XXXXXX";
        folder_ = mkdtemp(name);
        setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    }
    ~Calibration() override {
        for (const char* name : {"XDG_CONFIG_HOME", "TAGWIRE_CALIBRATION", "TAGWIRE_RNDV_THRESHOLD",
                                 "TAGWIRE_UNEXPECTED_BYTES", "TAGWIRE_COPY_IN", "TAGWIRE_COPY_OUT"})
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

}  // namespace tagwire::test
