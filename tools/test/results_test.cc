// SPDX-License-Identifier: BSD-3-Clause
// Files that have the results of `tagwire perf`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "cli/json_file.hpp"
#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ResultFiles, values_without_a_number_and_foreign_bytes_are_written) {
    const std::string path = testing::TempDir() + "results.json";
    Result result;
    result.test = "tag_lat";
    result.device = "caf\xe9\r";
    result.measured.messages_per_s = std::numeric_limits<double>::infinity();
    write_json(path, {result});
    EXPECT_NE(content_of(path).find("\"messages_per_s\": null"), std::string::npos);
    const std::string line = csv_line(result);
    EXPECT_NE(line.find("\"caf\xe9\r\""), std::string::npos) << line;
    EXPECT_EQ(line.find("null"), std::string::npos) << line;
    std::filesystem::remove(path);
}

TEST(ResultFiles, rates_of_threads_are_a_list_and_the_ratio_of_its_ends) {
    Result result;
    EXPECT_EQ(result.measured.fairness(), std::nullopt);
    result.measured.thread_messages_per_s = {4e6};
    EXPECT_EQ(result.measured.fairness(), std::nullopt);
    result.measured.thread_messages_per_s = {4e6, 2e6, 3e6};
    EXPECT_EQ(result.measured.fairness(), 0.5);
    const std::string line = csv_line(result);
    EXPECT_NE(line.find(",4000000.0 2000000.0 3000000.0,0.5,"), std::string::npos) << line;
    EXPECT_NE(csv_head().find(",thread_messages_per_s,fairness,"), std::string::npos);
}

TEST(ResultFiles, file_is_replaced_and_nothing_stays_beside_it) {
    const std::filesystem::path folder = testing::TempDir() + "result_files";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    const std::string path = folder / "page";
    check_writable(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    for (const char* content : {"first", "second"}) {
        write_text_file(path, content);
        EXPECT_EQ(content_of(path), content);
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    }
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tagwire::tools
