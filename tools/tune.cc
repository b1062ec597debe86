// SPDX-License-Identifier: BSD-3-Clause
#include "tools/tune.hpp"

#include <tagwire.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/perf.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"
#include "tools/session.hpp"
#include "tools/sizes.hpp"
#include "tools/stats.hpp"
#include "tools/tune_check.hpp"
#include "tools/tune_transports.hpp"

namespace tagwire::tools {
namespace {

/// Sets an option of the library for the measurements; both processes see it.
void set(const char* name, const char* value) {
    setenv(name, value, 1);
}

std::vector<std::string> names_in(std::string_view list, char separator) {
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(separator, begin), list.size());
        if (end > begin)
            names.emplace_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return names;
}

/// A way to make messages go by certain protocols, and the sizes at which that is measured.
struct Forcing {
    const char* threshold;  // TAGWIRE_RNDV_THRESHOLD
    const char* scheme;     // TAGWIRE_RNDV_SCHEME
    const char* protocol;   // that the transport must have for it
    std::vector<std::uint64_t> sizes;
};

const std::vector<Forcing>& forcings() {
    // Dense where buffers of transports end (8 KiB by default), and where caches do.
    static const std::vector<std::uint64_t> kEager{8,      64,     128,     512,     2048,   8192,
                                                   9216,   12288,  16384,   32768,   65536,  131072,
                                                   262144, 524288, 1 << 20, 2 << 20, 4 << 20};
    static const std::vector<std::uint64_t> kRndv{512,    4096,   16384,   32768,   65536,  131072,
                                                  262144, 524288, 1 << 20, 2 << 20, 4 << 20};
    static const std::vector<Forcing> list{
        {"16m", "auto", "parts", kEager},
        {"0", "get", "rndv_get", kRndv},
        {"0", "put", "rndv_put", kRndv},
        {"0", "copy", "rndv_copy", kRndv},
    };
    return list;
}

/// One of the two copies of a message through shared memory, and the option that says how it is
/// made.
struct CopySide {
    const char* name;
    const char* option;
    /// A kind may leave the data in no cache of the receiver, which pays when it reads them: so the
    /// receiver of a copy-out reads them.
    bool validates;
};

constexpr CopySide kCopySides[] = {{"copy_in", "TAGWIRE_COPY_IN", false},
                                   {"copy_out", "TAGWIRE_COPY_OUT", true}};
constexpr std::uint64_t kCopySizes[] = {2048, 4096, 16384, 65536};

constexpr std::uint64_t kRegistrationSizes[] = {4096, 65536, 1 << 20};
constexpr unsigned kRegistrations = 64;

/// Which measurement: of a protocol (or registration) at a size.
using Point = std::pair<std::string, std::uint64_t>;
using Points = std::map<Point, std::vector<double>>;

struct Tuned {
    std::string transport;
    std::string device;
    std::set<std::string> protocols;  // that the transport has
    std::string copy_kinds;           // that it may use, separated by blanks
    Points points;
    std::vector<FloorPair> floors;
};

constexpr std::uint64_t kIterationsMin = 64;
constexpr double kPointNs = 1e8;  // for which a busy machine gets fewer iterations

std::uint64_t iterations_of(std::uint64_t size) {
    return std::clamp<std::uint64_t>((std::uint64_t{48} << 20) / size, kIterationsMin, 4096);
}

double floor_of(Driver& driver) {
    Job job;
    job.test = TestId::kCacheline;
    job.size = sizeof(std::uint64_t);
    job.iterations = 2048;
    job.warmup = 256;
    return driver.run_cacheline(job).front().measurement.latency_ns->p50;
}

Measurement run(Driver& driver, Job job, std::uint64_t iterations) {
    job.iterations = iterations;
    job.warmup = iterations / 8;
    return driver.run_alone(job);
}

/// As many iterations as the size deserves, fewer where each takes long.
Measurement run_for_a_while(Driver& driver, const Job& job) {
    const std::uint64_t start = now_ns();
    const Measurement few = run(driver, job, kIterationsMin);
    const double each_ns = static_cast<double>(now_ns() - start) / double{kIterationsMin};
    const auto affordable = static_cast<std::uint64_t>(kPointNs / each_ns);
    const std::uint64_t iterations = std::min(iterations_of(job.size), affordable);
    return iterations <= kIterationsMin ? few : run(driver, job, iterations);
}

/// The protocol that carries such messages over this connection.
std::string protocol_of(const MsgLink& link, std::uint64_t size) {
    const tw_explanation_t explanation = link.explain(size, TW_BUFFER_MAPPED);
    return explanation.protocols[explanation.chosen].name;
}

Setup setup_of(const std::string& transport, const std::vector<int>& cpus) {
    Setup setup;
    setup.level = Level::kMsg;
    setup.transport = transport;
    setup.wait = cpus.front() == cpus.back() ? Wait::kYield : Wait::kSpin;
    return setup;
}

void measure_registration(const MsgLink& link, Points* points) {
    for (const std::uint64_t size : kRegistrationSizes) {
        const Pages pages(size);
        std::vector<double> times;
        for (unsigned i = 0; i < kRegistrations; ++i) {
            const std::uint64_t start = now_ns();
            tw_mem_h handle = nullptr;
            const tw_status_t status =
                tw_mem_map(link.context(), pages.data(), size, nullptr, &handle);
            if (status != TW_OK)
                throw Failure(text("tw_mem_map: %s", tw_status_string(status)));
            tw_mem_unmap(link.context(), handle);
            times.push_back(static_cast<double>(now_ns() - start));
        }
        (*points)[{"registration", size}].push_back(median(std::move(times)));
    }
}

/// With a scheme that a transport lacks no worker is made, so this is asked first.
void note_protocols(const MsgLink& link, Tuned* tuned) {
    tw_explanation_t explanation{};
    if (tw_ep_explain(link.endpoint(), 1 << 20, TW_BUFFER_MAPPED, &explanation) != TW_OK)
        return;
    for (unsigned i = 0; i < explanation.protocol_count; ++i)
        if (explanation.protocols[i].obstacle == nullptr)
            tuned->protocols.insert(explanation.protocols[i].name);
    tuned->copy_kinds = explanation.copy_kinds;
}

double latency_of(Driver& driver, const Job& job, const std::string& what,
                  const std::string& transport) {
    const Measurement measured = run_for_a_while(driver, job);
    if (measured.errors > 0 || !measured.latency_ns) {
        throw Failure(text("%s of %s over %s: messages were wrong", what.c_str(),
                           size_name(job.size).c_str(), transport.c_str()));
    }
    return measured.latency_ns->p50;
}

/// One round of one forcing, between two new processes. False: the time was up.
bool measure(const std::string& transport, const Forcing& forcing, const std::vector<int>& cpus,
             std::uint64_t deadline_ns, Tuned* tuned) {
    set("TAGWIRE_RNDV_THRESHOLD", forcing.threshold);
    set("TAGWIRE_RNDV_SCHEME", forcing.scheme);
    // The time of several rails together is computed from the time of each alone.
    set("TAGWIRE_RNDV_RAILS", "1");
    Driver driver(start_peer_process(), cpus);
    driver.open(setup_of(transport, cpus));
    const MsgLink& link = driver.msg_link();
    tuned->transport = link.transport();
    tuned->device = link.device();
    const double floor_before = floor_of(driver);
    for (const std::uint64_t size : forcing.sizes) {
        if (now_ns() > deadline_ns)
            return false;
        Job job;
        job.test = TestId::kTagLat;
        job.op = Op::kAuto;
        job.memory = MemoryKind::kMapped;
        job.size = size;
        const std::string protocol = protocol_of(link, size);
        tuned->points[{protocol, size}].push_back(latency_of(driver, job, protocol, transport));
    }
    tuned->floors.push_back({floor_before, floor_of(driver)});
    measure_registration(link, &tuned->points);
    note_protocols(link, tuned);
    return true;
}

/// Eager messages whose copies on one side are of that kind, on the other libc's, between two new
/// processes. False: the time was up.
bool measure_copies(const std::string& transport, const CopySide& side, const std::string& kind,
                    const std::vector<int>& cpus, std::uint64_t deadline_ns, Tuned* tuned) {
    set("TAGWIRE_RNDV_THRESHOLD", "16m");
    set("TAGWIRE_RNDV_SCHEME", "auto");
    set(side.option, kind.c_str());
    Driver driver(start_peer_process(), cpus);
    driver.open(setup_of(transport, cpus));
    set(side.option, "libc");
    const std::string what = text("%s_%s", side.name, kind.c_str());
    const double floor_before = floor_of(driver);
    for (const std::uint64_t size : kCopySizes) {
        if (now_ns() > deadline_ns)
            return false;
        Job job;
        job.test = TestId::kTagLat;
        job.op = Op::kAuto;
        job.size = size;
        job.validate = side.validates;
        tuned->points[{what, size}].push_back(latency_of(driver, job, what, transport));
    }
    tuned->floors.push_back({floor_before, floor_of(driver)});
    return true;
}

/// One round of all kinds of copies. False: the time was up; a kind that was not measured at every
/// size is not chosen.
bool measure_all_copies(const std::string& transport, const std::vector<int>& cpus,
                        std::uint64_t deadline_ns, Tuned* tuned) {
    for (const CopySide& side : kCopySides)
        for (const std::string& kind : names_in(tuned->copy_kinds, ' '))
            if (!measure_copies(transport, side, kind, cpus, deadline_ns, tuned))
                return false;
    return true;
}

/// Rounds go through all forcings and kinds of copies, so that a disturbance meets them alike. The
/// first one must have every forcing.
Tuned tune(const std::string& transport, const TuneArguments& arguments,
           const std::vector<int>& cpus) {
    Tuned tuned;
    const std::uint64_t deadline_ns = now_ns() + arguments.seconds * 1'000'000'000;
    for (unsigned round = 0; round < arguments.rounds; ++round) {
        std::printf("%s: round %u of %u\n", transport.c_str(), round + 1, arguments.rounds);
        std::fflush(stdout);
        bool is_in_time = true;
        for (const Forcing& forcing : forcings()) {
            const bool is_first = tuned.points.empty();
            if (is_first || tuned.protocols.contains(forcing.protocol))
                is_in_time = is_in_time && measure(transport, forcing, cpus, deadline_ns, &tuned);
        }
        const bool has_costs = is_in_time;
        is_in_time = is_in_time && measure_all_copies(transport, cpus, deadline_ns, &tuned);
        if (is_in_time)
            continue;
        if (round == 0 && !has_costs) {
            throw Failure(
                text("%s: the machine is too busy to measure each protocol once in "
                     "%llu s (--seconds)",
                     transport.c_str(), static_cast<unsigned long long>(arguments.seconds)));
        }
        std::printf("%s: %llu s are over (--seconds)\n", transport.c_str(),
                    static_cast<unsigned long long>(arguments.seconds));
        break;
    }
    return tuned;
}

/// Garbage would make every later choice of protocols worse than the model does.
void refuse_doubtful(const std::vector<Tuned>& all, bool force) {
    bool is_doubtful = false;
    for (const Tuned& tuned : all) {
        Costs costs;
        for (const auto& [point, times] : tuned.points)
            costs[point] = median(times);
        for (const std::string& doubt : doubts_of(costs, tuned.floors)) {
            std::fprintf(stderr, "tagwire: warning: %s: %s\n", tuned.transport.c_str(),
                         doubt.c_str());
            is_doubtful = true;
        }
    }
    if (is_doubtful && !force) {
        throw Failure(
            "the machine was too busy for these figures, which are not stored; measure again when "
            "it is idle, or store them by --force");
    }
}

void print(const Tuned& tuned) {
    std::printf("%s:%s\n", tuned.transport.c_str(), tuned.device.c_str());
    for (const auto& [point, times] : tuned.points) {
        std::printf("  %-20s %6s %10s\n", point.first.c_str(), size_name(point.second).c_str(),
                    time_text(median(times)).c_str());
    }
}

void store(const std::string& file, const std::vector<Tuned>& all) {
    std::vector<tw_cost_sample_t> samples;
    for (const Tuned& tuned : all) {
        for (const auto& [point, times] : tuned.points) {
            samples.push_back({tuned.transport.c_str(), tuned.device.c_str(), point.first.c_str(),
                               point.second, median(times)});
        }
    }
    const tw_status_t status = tw_calibration_store(file.c_str(), samples.data(), samples.size());
    if (status != TW_OK)
        throw Failure(text("%s cannot be written: %s", file.c_str(), tw_status_string(status)));
    std::printf("stored in %s\n", file.c_str());
}

std::string default_file() {
    char path[4096];
    std::size_t length = sizeof path;
    const tw_status_t status = tw_calibration_path(path, &length);
    if (status == TW_ERR_NO_ELEM) {
        throw UsageError(
            "--output: neither XDG_CONFIG_HOME nor HOME says where to store; name a "
            "file");
    }
    if (status != TW_OK)
        throw Failure(text("tw_calibration_path: %s", tw_status_string(status)));
    return path;
}

}  // namespace

void run_tune(const TuneArguments& arguments) {
    const std::vector<std::string> transports = tuned_transports(
        arguments.transports ? *arguments.transports : transports_set().value_or("sm"));
    if (transports.empty())
        throw UsageError("--tl: name at least one transport");
    const std::string file = arguments.output.empty() ? default_file() : arguments.output;
    std::error_code ignored;  // the next line says why nothing can be written there
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
    check_writable(file);
    const std::vector<int> cpus =
        choose_cpus(arguments.cpu ? parse_cpus(*arguments.cpu) : std::vector<int>());
    if (cpus.front() == cpus.back()) {
        std::fprintf(stderr,
                     "tagwire: warning: both sides share one cpu, and what is measured holds for "
                     "that alone\n");
    }
    set("TAGWIRE_CALIBRATION", "none");
    set("TAGWIRE_UNEXPECTED_BYTES", "128m");
    for (const CopySide& side : kCopySides)
        set(side.option, "libc");
    std::vector<Tuned> all;
    for (const std::string& transport : transports) {
        all.push_back(tune(transport, arguments, cpus));
        print(all.back());
    }
    refuse_doubtful(all, arguments.force);
    store(file, all);
}

}  // namespace tagwire::tools
