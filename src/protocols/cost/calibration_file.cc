// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes the file of measured costs.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "protocols/cost/calibration.hpp"
#include "tagwire_version.h"
#include "ucs/config/environment.hpp"
#include "ucs/log/log.hpp"

namespace tagwire::proto {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::size_t kFileBytesMax = 1 << 20;
/// Copies are apart from protocols, since versions without them refuse an unknown protocol and pass
/// over an unknown key.
constexpr const char* kCopiesKey = "copies";
constexpr std::string_view kCopyPrefix = "copy_";
constexpr const char* kAdvice = "run `tagwire tune`";

/// The machine for which the figures are valid.
struct Machine {
    std::string cpu;
    std::string kernel;

    bool operator==(const Machine&) const = default;
};

Machine this_machine() {
    Machine machine{"unknown", "unknown"};
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) {
            machine.cpu = line.substr(colon + 2);
            break;
        }
    }
    utsname names{};
    if (uname(&names) == 0)
        machine.kernel = fmt::format("{} {}", names.release, names.machine);
    return machine;
}

/// The content of a file. Exactly one of `samples` and `problem` counts.
struct Content {
    bool is_missing = false;
    bool is_foreign = false;  // of another machine
    bool is_hidden = false;   // from this user
    std::string problem;      // empty: it can be used
    std::vector<CostSample> samples;
};

Content bad(std::string problem) {
    Content content;
    content.problem = std::move(problem);
    return content;
}

std::string text_in(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// [[bytes, ns], ...]. False: it is something else.
bool take_knots(const json& list, CostSample sample, Content* content) {
    if (!list.is_array())
        return false;
    for (const json& knot : list) {
        if (!knot.is_array() || knot.size() != 2 || !knot[0].is_number_unsigned() ||
            !knot[1].is_number())
            return false;
        sample.bytes = knot[0].get<std::size_t>();
        sample.ns = knot[1].get<double>();
        content->problem = problem_of(sample);
        if (!content->problem.empty())
            return true;
        content->samples.push_back(sample);
    }
    return true;
}

/// Copies of a kind that there was until 2026-11-30: what a file says of them is passed over.
bool is_retired(std::string_view what) {
    constexpr std::array<std::string_view, 4> kRetired = {"copy_in_rep", "copy_out_rep",
                                                          "copy_in_demote", "copy_out_demote"};
    return std::ranges::find(kRetired, what) != kRetired.end();
}

/// Lists of knots by name. `prefix` is part of the name of each sample, and not of the list.
void take_lists(const json& lists, CostSample sample, std::string_view prefix, Content* content) {
    for (const auto& [name, list] : lists.items()) {
        sample.what = fmt::format("{}{}", prefix, name);
        if (is_retired(sample.what))
            continue;
        if (!take_knots(list, sample, content))
            content->problem = fmt::format("\"{}\" is not a list of [bytes, ns]", name);
        if (!content->problem.empty())
            return;
    }
}

void take_device(const json& device, Content* content) {
    const auto costs = device.find("costs");
    const auto copies = device.find(kCopiesKey);
    if (costs == device.end() || !costs->is_object()) {
        content->problem = "a device has no \"costs\"";
        return;
    }
    const CostSample sample{text_in(device, "transport"), text_in(device, "device"), {}, 0, 0};
    take_lists(*costs, sample, "", content);
    if (!content->problem.empty() || copies == device.end())
        return;
    if (copies->is_object())
        take_lists(*copies, sample, kCopyPrefix, content);
    else
        content->problem = "the \"copies\" of a device are not an object";
}

Content parse_content(const std::string& text) {
    const json document = json::parse(text, nullptr, false);
    if (document.is_discarded() || !document.is_object())
        return bad("it is not a JSON object");
    const auto schema = document.find("schema");
    if (schema == document.end() || *schema != kSchema)
        return bad(fmt::format("its \"schema\" is not {}", kSchema));
    const auto machine = document.find("machine");
    const auto devices = document.find("devices");
    if (machine == document.end() || !machine->is_object() || devices == document.end() ||
        !devices->is_array())
        return bad("it lacks \"machine\" or \"devices\"");
    const Machine measured{text_in(*machine, "cpu"), text_in(*machine, "kernel")};
    if (const Machine here = this_machine(); measured != here) {
        Content content = bad(fmt::format(
            "it was measured on another machine ({}, kernel {}); this one is ({}, kernel {})",
            measured.cpu, measured.kernel, here.cpu, here.kernel));
        content.is_foreign = true;
        return content;
    }
    Content content;
    for (const json& device : *devices) {
        if (!device.is_object())
            return bad("\"devices\" has an element that is not an object");
        take_device(device, &content);
        if (!content.problem.empty())
            return bad(content.problem);
    }
    return content;
}

Content read(const std::string& path) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    if (error) {
        Content content = bad(error.message());
        content.is_missing =
            error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
        content.is_hidden = error == std::errc::permission_denied;
        return content;
    }
    if (bytes > kFileBytesMax)
        return bad(fmt::format("it has more than {} bytes", kFileBytesMax));
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file.bad() && file.is_open())
        return parse_content(text);
    Content content = bad(std::strerror(errno));
    content.is_hidden = errno == EACCES || errno == EPERM;
    return content;
}

/// One device's object in `devices`, which is made when it is not there.
ordered_json& device_in(ordered_json* devices, const CostSample& sample) {
    for (ordered_json& device : *devices)
        if (device["transport"] == sample.transport && device["device"] == sample.device)
            return device;
    devices->push_back({{"transport", sample.transport},
                        {"device", sample.device},
                        {"costs", ordered_json::object()}});
    return devices->back();
}

/// The list of [bytes, ns] that has such samples.
ordered_json& list_in(ordered_json* devices, const CostSample& sample) {
    ordered_json& device = device_in(devices, sample);
    return sample.what.starts_with(kCopyPrefix)
               ? device[kCopiesKey][sample.what.substr(kCopyPrefix.size())]
               : device["costs"][sample.what];
}

std::string document_of(std::span<const CostSample> samples) {
    const Machine machine = this_machine();
    ordered_json devices = ordered_json::array();
    for (const CostSample& sample : samples)
        list_in(&devices, sample).push_back(ordered_json::array({sample.bytes, sample.ns}));
    const ordered_json document{{"schema", kSchema},
                                {"tagwire", TAGWIRE_VERSION_STRING},
                                {"machine", {{"cpu", machine.cpu}, {"kernel", machine.kernel}}},
                                {"devices", devices}};
    return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// 0 or errno.
int write_file(const std::string& path, const std::string& text) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen(path.c_str(), "wxe"), [](std::FILE* open) { return std::fclose(open); });
    if (file == nullptr)
        return errno;
    if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
        std::fflush(file.get()) != 0 || fsync(fileno(file.get())) != 0)
        return errno;
    return 0;
}

}  // namespace

std::string Calibration::default_path() {
    const char* config = ucs::environment_get("XDG_CONFIG_HOME");
    if (config != nullptr && config[0] == '/')
        return fmt::format("{}/tagwire/calibration.json", config);
    const char* home = ucs::environment_get("HOME");
    return home != nullptr && home[0] == '/'
               ? fmt::format("{}/.config/tagwire/calibration.json", home)
               : "";
}

ucs_status_t Calibration::load(std::string_view setting) {
    path_.clear();
    samples_.clear();
    if (setting == "none")
        return UCS_OK;
    const bool is_named = setting != "auto";
    const std::string path = is_named ? std::string(setting) : default_path();
    if (path.empty())
        return UCS_OK;
    Content content = read(path);
    if (content.problem.empty()) {
        path_ = path;
        samples_ = std::move(content.samples);
        return UCS_OK;
    }
    if (is_named) {
        TW_LOG_ERROR("TAGWIRE_CALIBRATION=%s: %s; %s, or set TAGWIRE_CALIBRATION=none",
                     path.c_str(), content.problem.c_str(), kAdvice);
        return UCS_ERR_INVALID_PARAM;
    }
    static std::atomic<bool> has_told_foreign{false};
    if (content.is_foreign) {
        if (!has_told_foreign.exchange(true))
            TW_LOG_WARN("%s is not used: %s; %s", path.c_str(), content.problem.c_str(), kAdvice);
    } else if (content.is_hidden) {
        // HOME is that of another user (sudo, containers), who has put no file there for this one.
        TW_LOG_DEBUG("%s is not used: %s", path.c_str(), content.problem.c_str());
    } else if (!content.is_missing) {
        TW_LOG_ERROR("%s is not used: %s; %s, or remove it", path.c_str(), content.problem.c_str(),
                     kAdvice);
    }
    return UCS_OK;
}

ucs_status_t Calibration::store(const std::string& path, std::span<const CostSample> samples) {
    std::vector<CostSample> all(samples.begin(), samples.end());
    Content old = read(path);
    for (CostSample& sample : old.samples) {
        const bool is_replaced = std::ranges::any_of(samples, [&](const CostSample& ours) {
            return ours.transport == sample.transport && ours.device == sample.device;
        });
        if (!is_replaced)
            all.push_back(std::move(sample));
    }
    std::error_code error;
    const std::filesystem::path directory = std::filesystem::path(path).parent_path();
    if (!directory.empty())
        std::filesystem::create_directories(directory, error);
    const std::string fresh = fmt::format("{}.{}", path, getpid());
    int failure = error ? error.value() : write_file(fresh, document_of(all));
    if (failure == 0 && std::rename(fresh.c_str(), path.c_str()) != 0)
        failure = errno;
    if (failure == 0)
        return UCS_OK;
    if (!error)
        std::remove(fresh.c_str());
    TW_LOG_ERROR("%s cannot be written: %s", path.c_str(), std::strerror(failure));
    return UCS_ERR_IO_ERROR;
}

}  // namespace tagwire::proto
