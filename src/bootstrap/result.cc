// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/result.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>

#include "ucs/time/clock.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr std::size_t kRunsToldMax = 16;

std::string format_text(const char* format, va_list arguments) {
    char text[1024];
    std::vsnprintf(text, sizeof text, format, arguments);
    return text;
}

std::string join(const std::vector<std::string>& parts) {
    std::string text = parts.front();
    for (std::size_t i = 1; i < parts.size(); ++i)
        text += (i + 1 == parts.size() ? " and " : ", ") + parts[i];
    return text;
}

}  // namespace

Result failed(ucs_status_t status, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    Result result{status, format_text(format, arguments)};
    va_end(arguments);
    return result;
}

Result failed_errno(ucs_status_t status, int error, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    Result result{status, format_text(format, arguments)};
    va_end(arguments);
    result.why += std::string(": ") + std::strerror(error);
    return result;
}

Deadline::Deadline(std::uint64_t timeout_ns)
    : begin_ns_(ucs::clock_now_ns()), timeout_ns_(timeout_ns) {}

int Deadline::left_ms() const {
    const std::uint64_t passed_ns = ucs::clock_now_ns() - begin_ns_;
    if (passed_ns >= timeout_ns_)
        return 0;
    const std::uint64_t left_ms = (timeout_ns_ - passed_ns) / kNsPerMs + 1;
    return static_cast<int>(std::min<std::uint64_t>(left_ms, std::numeric_limits<int>::max()));
}

Deadline Deadline::with_grace() const {
    Deadline later = *this;
    later.timeout_ns_ += timeout_ns_ / 4;
    return later;
}

std::string Deadline::limit_text() const {
    char text[32];
    std::snprintf(text, sizeof text, "%g s", static_cast<double>(timeout_ns_) / 1e9);
    return text;
}

bool RankSet::is_empty() const {
    return std::find(has_.begin(), has_.end(), true) == has_.end();
}

std::string RankSet::text() const {
    std::vector<std::string> runs;
    std::size_t ranks = 0;
    std::size_t untold = 0;
    for (std::size_t first = 0; first < has_.size(); ++first) {
        if (!has_[first])
            continue;
        std::size_t last = first;
        while (last + 1 < has_.size() && has_[last + 1])
            ++last;
        const std::size_t count = last - first + 1;
        ranks += count;
        if (runs.size() == kRunsToldMax) {
            untold += count;
        } else {
            const char* between = count == 2 ? ", " : "-";
            runs.push_back(std::to_string(first) +
                           (count == 1 ? "" : between + std::to_string(last)));
        }
        first = last;
    }
    if (untold != 0)
        runs.push_back(std::to_string(untold) + " others");
    return (ranks == 1 ? "rank " : "ranks ") + join(runs);
}

}  // namespace tagwire::bootstrap
