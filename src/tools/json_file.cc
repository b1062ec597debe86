// SPDX-License-Identifier: BSD-3-Clause
#include "tools/json_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/failure.hpp"

namespace tagwire::tools {

namespace {

[[noreturn]] void refuse(const std::string& file) {
    throw Failure(text("cannot write %s: %s", file.c_str(), std::strerror(errno)));
}

}  // namespace

void check_writable(const std::string& file) {
    if (file.empty() || file == "-") {
        return;
    }
    std::FILE* const out = std::fopen(file.c_str(), "a");
    if (out == nullptr) {
        refuse(file);
    }
    std::fclose(out);
}

void write_text_file(const std::string& file, const std::string& content) {
    const bool standard_output = file == "-";
    std::FILE* const out = standard_output ? stdout : std::fopen(file.c_str(), "w");
    if (out == nullptr) {
        refuse(file);
    }
    const bool written = std::fwrite(content.data(), 1, content.size(), out) == content.size();
    const bool closed = standard_output ? std::fflush(out) == 0 : std::fclose(out) == 0;
    if (!written || !closed) {
        refuse(file);
    }
}

}  // namespace tagwire::tools
