// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/log/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/core_options.hpp"
#include "ucs/log/listeners.hpp"

namespace tagwire::ucs {
namespace {

constexpr std::size_t kMessageBytesMax = 2048;

spdlog::level::level_enum spdlog_level(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kDebug:
            return spdlog::level::debug;
        case LogLevel::kTrace:
            return spdlog::level::trace;
        case LogLevel::kOff:
            break;
    }
    return spdlog::level::off;
}

std::string line_pattern() {
    char host[64] = "";
    gethostname(host, sizeof(host) - 1);
    std::string pattern = "[tagwire] %l ";
    for (const char* c = host; *c != '\0'; ++c)
        pattern += *c == '%' ? "%%" : std::string(1, *c);
    return pattern + ":%P %s:%#: %v";
}

// The file is tried by open first: spdlog reports by an exception, which must not leave this
// library.
spdlog::sink_ptr make_sink(const char* path, std::vector<std::string>* problems_p) {
    if (*path != '\0') {
        std::FILE* file = std::fopen(path, "ae");
        if (file != nullptr) {
            std::fclose(file);
            return std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
        }
        problems_p->push_back(std::string("TAGWIRE_LOG_FILE=") + path +
                              " cannot be opened: " + std::strerror(errno));
    }
    return std::make_shared<spdlog::sinks::stderr_sink_mt>();
}

void write_line(spdlog::logger& logger, LogLevel level, spdlog::source_loc where,
                std::string_view text) {
    logger.log(where, spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

// Reads the options and opens the sink. It must not log itself: problems are collected and written
// at the end.
spdlog::logger* open_logger() {
    CoreOptions options{};
    std::vector<std::string> problems;
    config_resolve(core_option_table(), &options, {}, &problems);
    auto logger =
        std::make_unique<spdlog::logger>("tagwire", make_sink(options.log_file.text, &problems));
    logger->set_pattern(line_pattern());
    logger->set_level(spdlog::level::trace);  // log_threshold decides
    logger->flush_on(spdlog::level::trace);
    for (const std::string& problem : problems)
        write_line(*logger, LogLevel::kError, {__FILE__, __LINE__, ""}, problem);
    int unset = static_cast<int>(LogLevel::kTrace) + 1;
    detail::log_threshold.compare_exchange_strong(unset, options.log_level,
                                                  std::memory_order_relaxed);
    return logger.release();
}

// Never destroyed: other objects' destructors may still log at exit. Null: there is no memory for
// it now; a later line tries again.
spdlog::logger* logger() {
    try {
        static spdlog::logger* const instance = open_logger();
        return instance;
    } catch (const std::exception&) {
        return nullptr;
    }
}

}  // namespace

namespace detail {
constinit std::atomic<int> log_threshold{static_cast<int>(LogLevel::kTrace) + 1};
}  // namespace detail

void log_check_options() {
    static const bool is_right = [] {
        CoreOptions options{};
        std::vector<std::string> problems;
        config_resolve(core_option_table(), &options, {}, &problems);
        if (!problems.empty())
            logger();  // writes them when it opens
        return problems.empty();
    }();
    static_cast<void>(is_right);
}

void log_set_level(LogLevel level) {
    detail::log_threshold.store(static_cast<int>(level), std::memory_order_relaxed);
}

void log_write(LogLevel level, const char* file, int line, const char* format, ...) {
    spdlog::logger* const out = logger();
    if (out == nullptr || !log_enabled(level))
        return;  // it was this call that learnt the level
    char text[kMessageBytesMax];
    va_list args;
    va_start(args, format);
    const int length = std::vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0)
        return;
    const std::size_t used = std::min(static_cast<std::size_t>(length), sizeof(text) - 1);
    if (!log_hear(level, file, line, {text, used}))
        write_line(*out, level, {file, line, ""}, {text, used});
}

void detail::log_write_line(LogLevel level, const char* file, int line, std::string_view text) {
    if (spdlog::logger* const out = logger(); out != nullptr)
        write_line(*out, level, {file, line, ""}, text);
}

}  // namespace tagwire::ucs
