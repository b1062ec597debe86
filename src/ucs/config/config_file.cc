// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/config_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <new>

#include "ucs/config/environment.hpp"
#include "ucs/sys/limits.hpp"

namespace tagwire::ucs {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr const char* kSystemFile = "/etc/tagwire.conf";

std::string_view trim(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\v\f";
    const std::size_t first = text.find_first_not_of(kBlanks);
    if (first == std::string_view::npos)
        return {};
    return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// A `#` inside a word belongs to it, so that a path may contain one.
std::string_view without_comment(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i)
        if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t'))
            return line.substr(0, i);
    return line;
}

bool is_name(std::string_view text) {
    constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos;
}

enum class Missing { kIgnored, kProblem };

void read_file(const std::string& path, Missing missing, std::vector<ConfigFile>* files_p,
               std::vector<std::string>* problems_p) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                               std::fclose);
    if (file == nullptr && errno == ENOMEM)
        throw std::bad_alloc();  // no fault of the file
    if (file == nullptr) {
        // EACCES: programs that change their user keep HOME, and may not look into it any more.
        const bool absent = errno == ENOENT || errno == ENOTDIR || errno == EACCES;
        if (!absent || missing == Missing::kProblem)
            problems_p->push_back(path + " cannot be read: " + error_text(errno));
        return;
    }
    std::string text(kFileBytesMax + 1, '\0');
    errno = 0;
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
    if (std::ferror(file.get()) != 0 || text.size() > kFileBytesMax) {
        problems_p->push_back(
            path + " cannot be read: " +
            (text.size() > kFileBytesMax ? "it is larger than 1 MiB" : error_text(errno)));
        return;
    }
    files_p->push_back({path, config_parse_lines(text, path, problems_p)});
}

std::string user_file() {
    const char* config_home = environment_get("XDG_CONFIG_HOME");
    if (config_home != nullptr && *config_home != '\0')
        return std::string(config_home) + "/tagwire.conf";
    const char* home = environment_get("HOME");
    return home != nullptr && *home != '\0' ? std::string(home) + "/.config/tagwire.conf" : "";
}

}  // namespace

std::vector<ConfigLine> config_parse_lines(std::string_view text, const std::string& path,
                                           std::vector<std::string>* problems_p) {
    std::vector<ConfigLine> lines;
    int number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = trim(without_comment(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.empty())
            continue;
        const std::size_t equals = line.find('=');
        std::string_view name = trim(line.substr(0, equals));
        if (name.starts_with(kVariablePrefix))
            name.remove_prefix(kVariablePrefix.size());
        if (equals == std::string_view::npos || !is_name(name)) {
            problems_p->push_back(
                path + ":" + std::to_string(number) +
                ": expected NAME = value, where NAME has capital letters, digits and _");
            continue;
        }
        lines.push_back({std::string(name), std::string(trim(line.substr(equals + 1))), number});
    }
    return lines;
}

std::vector<ConfigFile> config_files(const char* extra, std::vector<std::string>* problems_p) {
    std::vector<ConfigFile> files;
    const char* named = environment_get("TAGWIRE_CONFIG_FILE");
    if (named != nullptr && *named != '\0') {
        read_file(named, Missing::kProblem, &files, problems_p);
    } else {
        read_file(kSystemFile, Missing::kIgnored, &files, problems_p);
        if (const std::string path = user_file(); !path.empty())
            read_file(path, Missing::kIgnored, &files, problems_p);
    }
    if (extra != nullptr)
        read_file(extra, Missing::kIgnored, &files, problems_p);
    return files;
}

}  // namespace tagwire::ucs
