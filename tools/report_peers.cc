// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_peers.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <tagwire.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cli/environment.hpp"
#include "cli/failure.hpp"
#include "tools/program.hpp"
#include "tools/sizes.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

constexpr const char* kMpirun = "mpirun.openmpi";
constexpr const char* kNetpipe = "NPopenmpi";
constexpr int kListenTimeoutMs = 5000;
constexpr int kEndTimeoutMs = 5000;
constexpr int kSettleTimeoutMs = 2000;
constexpr int kVersionTimeoutMs = 10000;
constexpr unsigned kWaitUs = 2000;
constexpr std::uint64_t kNsPerMs = 1'000'000;

std::vector<std::string> words_of(const std::string& line, char separator) {
    std::vector<std::string> words;
    std::istringstream stream(line);
    for (std::string word; std::getline(stream, word, separator);)
        if (!word.empty() || separator != ' ')
            words.push_back(word);
    return words;
}

double number(const std::string& program, const std::string& word) {
    char* end = nullptr;
    const double value = std::strtod(word.c_str(), &end);
    if (word.empty() || *end != '\0' || !(value > 0) || !std::isfinite(value)) {
        throw Failure(
            text("%s printed '%s' where a number was expected", program.c_str(), word.c_str()));
    }
    return value;
}

/// A port that nobody has now.
int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    const bool bound = fd >= 0 && bind(fd, any, length) == 0 && getsockname(fd, any, &length) == 0;
    if (fd >= 0)
        close(fd);
    if (!bound)
        throw Failure("there is no free TCP port");
    return ntohs(address.sin_port);
}

/// Asked of the kernel: a connection that tries would use the server up.
bool is_listening(int port) {
    constexpr const char* kListen = " 0A ";
    const std::string at_port = text(":%04X ", static_cast<unsigned>(port));
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream lines(table);
        for (std::string line; std::getline(lines, line);)
            if (line.find(at_port) < line.find(kListen) && line.find(kListen) != std::string::npos)
                return true;
    }
    return false;
}

void wait_for(Program& server, const std::string& name, int port) {
    const std::uint64_t deadline = now_ns() + std::uint64_t{kListenTimeoutMs} * 1000000;
    while (!is_listening(port)) {
        if (!server.is_running()) {
            const ProgramResult ended = server.wait(kEndTimeoutMs);
            throw Failure(text("%s as server ended with status %d: %s", name.c_str(), ended.status,
                               ended.error.c_str()));
        }
        if (now_ns() > deadline) {
            throw Failure(text("%s as server did not listen within %d s", name.c_str(),
                               kListenTimeoutMs / 1000));
        }
        usleep(kWaitUs);
    }
}

/// The result of a server whose client has failed; status -1 when it still runs.
ProgramResult end_of(Program& server) {
    const std::uint64_t deadline = now_ns() + std::uint64_t{kSettleTimeoutMs} * 1000000;
    while (server.is_running()) {
        if (now_ns() > deadline)
            return {};
        usleep(kWaitUs);
    }
    return server.wait(kEndTimeoutMs);
}

/// The number behind `mark` in what `command` prints.
std::string version_of(const std::string& program, const std::string& package,
                       const std::vector<std::string>& command, const std::string& mark) {
    if (!has_program(program)) {
        throw Failure(
            text("%s is not installed (apt-get install %s)", program.c_str(), package.c_str()));
    }
    try {
        const std::string out = run_program(command, kVersionTimeoutMs).out;
        const std::size_t found = out.find(mark);
        if (found != std::string::npos) {
            const std::size_t begin = out.find_first_not_of(": ", found + mark.size());
            const std::size_t end = out.find_first_not_of("0123456789.", begin);
            if (begin != std::string::npos && end != begin)
                return out.substr(begin, end - begin);
        }
    } catch (const Failure&) {  // the version is all that is missing then
    }
    return "of unknown version";
}

}  // namespace

Peers parse_compare(const std::string& list) {
    Peers peers;
    for (const std::string& name : words_of(list + ",", ',')) {
        if (name == "ucx") {
            peers.ucx = true;
        } else if (name == "libfabric") {
            peers.libfabric = true;
        } else if (name == "openmpi") {
            peers.openmpi = true;
        } else {
            throw UsageError(
                text("--compare: there is no '%s'; it takes ucx, libfabric, openmpi, or several "
                     "(ucx,libfabric)",
                     name.c_str()));
        }
    }
    return peers;
}

Points parse_ucx(const std::string& printed, Figure figure) {
    const std::string program = "ucx_perftest";
    constexpr std::size_t kColumns = 9, kMedian = 2, kRate = 8;
    Points points;
    bool has_head = false;
    for (const std::string& line : words_of(printed, '\n')) {
        const std::vector<std::string> words = words_of(line, ',');
        if (words.size() != kColumns)
            continue;  // what a library has to say besides
        if (words[1] == "iterations") {
            has_head = words[kMedian] == "50.0_percentile_lat" && words[kRate] == "overall_mr";
            continue;
        }
        const double size = number(program, words[0]);
        const double rate = number(program, words[kRate]);
        points.emplace_back(size, figure == Figure::kLatency ? number(program, words[kMedian]) * 1e3
                                  : figure == Figure::kBytes ? rate * size
                                                             : rate);
    }
    if (!has_head || points.empty())
        throw Failure("ucx_perftest printed no result in the form that is known");
    return points;
}

Points parse_libfabric(const std::string& printed) {
    const std::string program = "fi_pingpong";
    constexpr std::size_t kColumns = 8, kTransfer = 6;
    Points points;
    bool has_head = false;
    for (const std::string& line : words_of(printed, '\n')) {
        const std::vector<std::string> words = words_of(line, ' ');
        if (words.size() != kColumns)
            continue;
        if (words[0] == "bytes") {
            has_head = words[kTransfer] == "usec/xfer";
            continue;
        }
        try {
            points.emplace_back(static_cast<double>(parse_size(words[0])),
                                number(program, words[kTransfer]) * 1e3);
        } catch (const UsageError& error) {
            throw Failure(program + " printed no size: " + error.what());
        }
    }
    if (!has_head || points.empty())
        throw Failure("fi_pingpong printed no result in the form that is known");
    return points;
}

Points parse_netpipe(const std::string& printed) {
    //   0:       8 bytes  12345 times -->    101.72 Mbps in       0.60 usec
    Points points;
    for (const std::string& line : words_of(printed, '\n')) {
        const std::vector<std::string> words = words_of(line, ' ');
        if (words.size() == 11 && words[2] == "bytes" && words[10] == "usec")
            points.emplace_back(number(kNetpipe, words[1]), number(kNetpipe, words[9]) * 1e3);
    }
    if (points.empty())
        throw Failure(text("%s printed no result in the form that is known", kNetpipe));
    return points;
}

std::string folder_of_provider() {
    namespace fs = std::filesystem;
    constexpr std::string_view kSanitizers = TAGWIRE_TOOLS_SANITIZERS;
    Dl_info library{};
    if (!kSanitizers.empty() ||
        dladdr(reinterpret_cast<const void*>(&tw_context_create), &library) == 0) {
        return "";
    }
    const fs::path folder = fs::path(library.dli_fname).parent_path() / "libfabric";
    std::error_code error;
    return fs::exists(folder / "libtagwire-fi.so", error) ? folder.string() : "";
}

std::string PeerRuns::output_of(const Pair& pair, int timeout_ms) const {
    const std::string& name = pair.name;
    Program server(pair.server, pair.input);  // ends with this object, whatever happens
    server.feed();
    wait_for(server, name, pair.port);
    const ProgramResult client = run_program(pair.client, timeout_ms, pair.input);
    if (client.status == 0)
        return client.out;
    std::string told =
        text("%s ended with status %d: %s", name.c_str(), client.status, client.error.c_str());
    if (const ProgramResult ended = end_of(server); ended.status > 0) {  // the cause, maybe
        told += text("\n%s as server ended with status %d: %s", name.c_str(), ended.status,
                     ended.error.c_str());
    }
    throw Failure(told);
}

Points PeerRuns::ucx(const char* lane, const std::string& test, Figure figure,
                     const std::vector<Batch>& batches) const {
    constexpr int kWarmup = 50;
    Pair pair{"ucx_perftest", {}, {}, free_port(), ""};
    for (const Batch& batch : batches) {
        for (const Size& size : parse_sizes(batch.sizes)) {
            const auto bytes = static_cast<unsigned long long>(size.bytes);
            pair.input += text("%llu -t %s -s %llu -n %s -w %d\n", bytes, test.c_str(), bytes,
                               batch.iterations, kWarmup);
        }
    }
    const std::string port = std::to_string(pair.port);
    const auto command = [&](int cpu, const std::vector<std::string>& host) {
        // Hooks into mmap() serve a cache that shared memory and tcp do not have, and newer UCX
        // takes half a second to install them.
        std::vector<std::string> words{"env", "UCX_LOG_LEVEL=error", "UCX_WARN_UNUSED_ENV_VARS=n",
                                       "UCX_MEM_MMAP_HOOK_MODE=none"};
        const std::vector<std::string> settings = words_of(lane, ' ');
        words.insert(words.end(), settings.begin(), settings.end());
        if (!ucx_.libraries.empty())
            words.push_back("LD_LIBRARY_PATH=" + ucx_.libraries);
        words.push_back(ucx_.program);
        words.insert(words.end(), host.begin(), host.end());
        words.insert(words.end(),
                     {"-f", "-v", "-p", port, "-c", std::to_string(cpu), "-b", "/dev/stdin"});
        return words;
    };
    pair.server = command(cpus_[1], {});
    pair.client = command(cpus_[0], {"127.0.0.1"});
    log_->insert(text("%s %s 127.0.0.1 -f -v -c %d -b LIST (of -t %s -s SIZE -n COUNT)", lane,
                      ucx_.program.c_str(), cpus_[0], test.c_str()));
    return parse_ucx(output_of(pair, timeout_ms_), figure);
}

Points PeerRuns::libfabric(const std::string& provider, const std::vector<Batch>& batches) const {
    const bool is_ours = provider == "tagwire";
    const std::string setting = is_ours ? "FI_TAGWIRE_TRANSPORTS=sm" : "FI_LOG_LEVEL=warn";
    Points points;
    for (const Batch& batch : batches) {
        const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(timeout_ms_) * kNsPerMs;
        const std::string test =
            text("fi_pingpong -p %s -e rdm -m tagged -I %s -S", provider.c_str(), batch.iterations);
        for (const Size& size : parse_sizes(batch.sizes)) {
            Pair pair{"fi_pingpong", {}, {}, free_port(), ""};
            const auto command = [&](int cpu, const char* port_option) {
                std::vector<std::string> words{"env", setting};
                if (is_ours)
                    words.push_back("FI_PROVIDER_PATH=" + folder_of_provider());
                words.insert(words.end(), {"taskset", "-c", std::to_string(cpu)});
                const std::vector<std::string> rest = words_of(test, ' ');
                words.insert(words.end(), rest.begin(), rest.end());
                words.insert(words.end(),
                             {std::to_string(size.bytes), port_option, std::to_string(pair.port)});
                return words;
            };
            pair.server = command(cpus_[1], "-B");
            pair.client = command(cpus_[0], "-P");
            pair.client.emplace_back("127.0.0.1");
            const std::uint64_t now = now_ns();
            if (now >= end)
                throw Failure(text("fi_pingpong did not end within %d s", timeout_ms_ / 1000));
            const auto left_ms = static_cast<int>((end - now) / kNsPerMs) + 1;
            const Points one = parse_libfabric(output_of(pair, left_ms));
            points.insert(points.end(), one.begin(), one.end());
        }
        std::string shown = test;
        if (const std::size_t at = shown.find(';'); at != std::string::npos)
            shown.insert(at, 1, '\\');
        log_->insert(text("taskset -c %d %s SIZE 127.0.0.1", cpus_[0], shown.c_str()));
    }
    return points;
}

std::string PeerRuns::netpipe(const std::vector<std::string>& layer, const Batch& batch) const {
    const std::vector<Size> sizes = parse_sizes(batch.sizes);
    std::vector<std::string> command{"env", "FI_TAGWIRE_TRANSPORTS=sm", "UCX_LOG_LEVEL=error"};
    if (const std::string folder = folder_of_provider(); !folder.empty())
        command.push_back("FI_PROVIDER_PATH=" + folder);
    if (geteuid() == 0) {
        command.insert(command.end(),
                       {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
    }
    command.insert(command.end(), {kMpirun, "--oversubscribe", "--bind-to", "none"});
    command.insert(command.end(), layer.begin(), layer.end());
    for (std::size_t rank = 0; rank < 2; ++rank) {
        if (rank > 0)
            command.emplace_back(":");
        command.insert(command.end(), {"-np", "1", "taskset", "-c", std::to_string(cpus_[rank]),
                                       kNetpipe, "-l", std::to_string(sizes.front().bytes), "-u",
                                       std::to_string(sizes.back().bytes), "-n", batch.iterations,
                                       "-p", "0", "-o", "/dev/null"});
    }
    const ProgramResult result = run_program(command, timeout_ms_);
    if (result.status != 0) {
        throw Failure(
            text("%s ended with status %d: %s", kMpirun, result.status, result.error.c_str()));
    }
    return result.out + result.error;
}

Points PeerRuns::openmpi(const std::vector<std::string>& layer,
                         const std::vector<Batch>& batches) const {
    std::string shown = kMpirun;
    for (const std::string& word : layer)
        shown += " " + word;
    log_->insert(shown + " -np 2 " + kNetpipe + " -l SIZE -u SIZE -n COUNT -p 0");
    Points points;
    for (const Batch& batch : batches) {
        const Points some = parse_netpipe(netpipe(layer, batch));
        points.insert(points.end(), some.begin(), some.end());
    }
    return points;
}

std::string PeerRuns::find_ucx() {
    ucx_ = newest_ucx(std::string(environment_value("TAGWIRE_BENCH_UCX")));
    return ucx_.version.empty() ? "of unknown version" : ucx_.version;
}

std::string PeerRuns::openmpi_version() const {
    if (!has_program(kNetpipe))
        throw Failure(text("%s is not installed (apt-get install netpipe-openmpi)", kNetpipe));
    return version_of(kMpirun, "openmpi-bin", {kMpirun, "--version"}, "(Open MPI)");
}

std::string PeerRuns::libfabric_version() const {
    return version_of("fi_pingpong", "libfabric-bin", {"fi_info", "--version"}, "libfabric:");
}

}  // namespace tagwire::tools
