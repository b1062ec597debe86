// SPDX-License-Identifier: BSD-3-Clause
// Replays a corpus through a fuzz target where libFuzzer is not linked: --target=NAME, then files
// or directories.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "targets.hpp"

namespace {

void replay(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
    std::printf("%s: %zu bytes\n", file.c_str(), bytes.size());
    std::fflush(stdout);  // the last name printed is the one that crashed
    tagwire::fuzz::run_target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
    tagwire::fuzz::choose_target(argc, argv);
    std::size_t files = 0;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]).starts_with("--"))
            continue;
        if (!std::filesystem::is_directory(argv[i])) {
            replay(argv[i]);
            ++files;
            continue;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
            if (entry.is_regular_file()) {
                replay(entry.path());
                ++files;
            }
        }
    }
    std::printf("%zu inputs replayed\n", files);
    return files > 0 ? 0 : 1;
}
