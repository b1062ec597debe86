// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_ucx.hpp"

#include <regex.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <vector>

#include "cli/failure.hpp"
#include "tools/program.hpp"

namespace tagwire::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kUcxVersionTimeoutMs = 10000;
constexpr const char* kPerftest = "ucx_perftest";

std::vector<std::string> places_in(const std::string& list) {
    std::vector<std::string> places(1);
    for (const char letter : list) {
        if (letter == ':' || letter == ',')
            places.emplace_back();
        else
            places.back() += letter;
    }
    std::erase(places, "");
    return places;
}

std::string program_at(const std::string& place) {
    std::error_code error;
    const fs::path path(place);
    const fs::path program = fs::is_directory(path, error) ? path / "bin" / kPerftest : path;
    if (!fs::is_regular_file(program, error) || access(program.c_str(), X_OK) != 0) {
        throw Failure(
            text("TAGWIRE_BENCH_UCX names '%s', but %s is no program; it lists, with colons or "
                 "commas, ucx_perftest binaries or installation prefixes (with bin/ucx_perftest)",
                 place.c_str(), program.c_str()));
    }
    return program.string();
}

/// Where the prefix of a program has libraries of UCX; empty for the system's.
std::string libraries_of(const std::string& program) {
    std::error_code error;
    const fs::path prefix = fs::canonical(program, error).parent_path().parent_path();
    std::string found;
    for (const char* name : {"lib", "lib64"})
        if (prefix != "/usr" && fs::exists(prefix / name / "libucp.so.0", error))
            found += (found.empty() ? "" : ":") + (prefix / name).string();
    return found;
}

std::string printed_by(const Ucx& ucx, std::vector<std::string> command) {
    const std::vector<std::string> settings{"env", "LD_LIBRARY_PATH=" + ucx.libraries,
                                            "UCX_LOG_LEVEL=info", "UCX_TLS=posix,self"};
    command.insert(command.begin(), settings.begin(), settings.end());
    if (ucx.libraries.empty())
        command.erase(command.begin() + 1);
    try {
        const ProgramResult result = run_program(command, kUcxVersionTimeoutMs);
        return result.out + result.error;
    } catch (const Failure&) {  // the version is all that is missing then
        return "";
    }
}

/// The library that the program loads says it; an older one by ucx_info alone.
std::string ucx_version_of(const Ucx& ucx) {
    std::string loaded = parse_ucx_version(
        printed_by(ucx, {ucx.program, "-l", "-f", "-t", "tag_lat", "-n", "1", "-w", "0"}));
    if (!loaded.empty())
        return loaded;
    const fs::path info = fs::path(ucx.program).replace_filename("ucx_info");
    return parse_ucx_version(printed_by(ucx, {info.string(), "-v"}));
}

/// The first match of a POSIX extended regular expression, and then its groups, of which one that
/// has no part in it is empty; nothing where there is no match.
std::vector<std::string> find_first(const std::string& in, const char* expression) {
    std::array<regmatch_t, 5> found{};
    regex_t compiled;
    if (regcomp(&compiled, expression, REG_EXTENDED) != 0)
        throw Failure(text("no regular expression: %s", expression));
    std::vector<std::string> groups;
    if (regexec(&compiled, in.c_str(), found.size(), found.data(), 0) == 0) {
        for (std::size_t i = 0; i <= compiled.re_nsub; ++i) {
            const bool is_there = found[i].rm_so >= 0;
            groups.emplace_back(in, static_cast<std::size_t>(is_there ? found[i].rm_so : 0),
                                static_cast<std::size_t>(found[i].rm_eo - found[i].rm_so));
        }
    }
    regfree(&compiled);
    return groups;
}

std::vector<int> numbers_of(const std::string& version) {
    const auto found = find_first(version, "^([0-9]{1,6})[.]([0-9]{1,6})([.]([0-9]{1,6}))?");
    if (found.empty())
        return {};
    return {std::stoi(found[1]), std::stoi(found[2]), found[4].empty() ? 0 : std::stoi(found[4])};
}

}  // namespace

std::string parse_ucx_version(const std::string& printed) {
    const auto version = find_first(printed, "[Vv]ersion:?[[:space:]]+([0-9]{1,6}[.][0-9.]*[0-9])");
    if (version.empty())
        return "";
    const auto revision = find_first(printed, "revision ([0-9a-f]+)");
    const bool is_release =
        revision.empty() || revision[1].find_first_not_of('0') == std::string::npos;
    return version[1] + (is_release ? "" : "-" + revision[1]);
}

bool is_newer_ucx(const std::string& version, const std::string& than) {
    return numbers_of(version) > numbers_of(than);
}

Ucx newest_ucx(const std::string& list) {
    std::vector<Ucx> all;
    if (has_program(kPerftest))
        all.emplace_back();
    for (const std::string& place : places_in(list)) {
        const std::string program = program_at(place);
        all.push_back({program, libraries_of(program), ""});
    }
    if (all.empty())
        throw Failure(text("%s is not installed (apt-get install ucx-utils)", kPerftest));
    std::size_t newest = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].version = ucx_version_of(all[i]);
        if (!is_newer_ucx(all[newest].version, all[i].version))
            newest = i;
    }
    return all[newest];
}

}  // namespace tagwire::tools
