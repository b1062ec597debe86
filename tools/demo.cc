// SPDX-License-Identifier: BSD-3-Clause
// `tagwire-demo [OUT.html]`: two processes exchange messages over every transport of this machine,
// on its first device: tagged ones, or active messages where a transport has no tags. Each row is
// one kind of message: first every byte of a run is checked, then latency and stream are timed,
// beside the floors of this machine. With OUT.html it writes the page of `tagwire report --quick`
// there, with the other libraries that are installed. Ends with `demo: PASS, N results validated`
// and status 0, or `demo: FAIL, why` and status 1.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>

#include "cli/failure.hpp"
#include "tools/child.hpp"
#include "tools/limits.hpp"
#include "tools/pinning.hpp"
#include "tools/report.hpp"
#include "tools/resources.hpp"
#include "tools/session.hpp"
#include "tools/sizes.hpp"

namespace {

using namespace tagwire::tools;

struct Kind {
    const char* name;
    TestId latency, stream;
    Op op;
    std::uint64_t size;
};

constexpr Kind kTagged[] = {
    {"eager short", TestId::kTagLat, TestId::kTagRate, Op::kShort, 8},
    {"eager bcopy", TestId::kTagLat, TestId::kTagRate, Op::kBcopy, 1 << 10},
    {"eager zcopy", TestId::kTagLat, TestId::kTagRate, Op::kZcopy, 4 << 10},
    {"rendezvous", TestId::kTagLat, TestId::kTagRate, Op::kRndv, 64 << 10},
    {"rendezvous", TestId::kTagLat, TestId::kTagRate, Op::kRndv, 1 << 20},
};

constexpr Kind kActive[] = {
    {"AM short", TestId::kAmLat, TestId::kAmBw, Op::kShort, 8},
    {"AM bcopy", TestId::kAmLat, TestId::kAmBw, Op::kBcopy, 1 << 10},
    {"AM zcopy", TestId::kAmLat, TestId::kAmBw, Op::kZcopy, 4 << 10},
};

constexpr std::uint64_t kValidatedBytes = 32 << 20;

std::uint64_t count_for(std::uint64_t bytes, std::uint64_t size, std::uint64_t max) {
    return std::clamp<std::uint64_t>(bytes / size, 64, max);
}

Job job_for(TestId test, const Kind& kind, std::uint64_t iterations, bool validate) {
    Job job;
    job.test = test;
    job.op = kind.op;
    job.size = kind.size;
    job.window = test == kind.latency ? 1 : 64;
    job.iterations = iterations;
    job.warmup = validate ? 0 : iterations / 10;
    job.validate = validate;
    return job;
}

class Demo {
  public:
    explicit Demo(const std::vector<int>& cpus)
        : driver_(start_peer_process(), cpus),
          wait_(cpus[0] == cpus[1] ? Wait::kYield : Wait::kSpin) {}

    /// Rows of one transport and device.
    void run(const Resource& resource) {
        Setup setup;
        setup.transport = resource.transport;
        setup.device = resource.device;
        setup.wait = wait_;
        driver_.open(setup);
        if (add_rows(resource, kTagged) == 0)
            add_rows(resource, kActive);
    }

    void print() const { table_.print(); }
    std::uint64_t validated() const { return validated_; }

  private:
    /// Those that the interface can do; returns how many.
    std::size_t add_rows(const Resource& resource, std::span<const Kind> kinds) {
        std::size_t rows = 0;
        for (Kind kind : kinds) {
            if (const auto range = size_range(kind.latency, kind.op, driver_.link().attr())) {
                kind.size = std::clamp(kind.size, range->min, range->max);
                add_row(resource, kind);
                ++rows;
            }
        }
        return rows;
    }

    /// One result: all messages of a run arrived once, in order, with the right bytes.
    std::uint64_t validate(TestId test, const Kind& kind) {
        const Job job = job_for(test, kind, count_for(kValidatedBytes, kind.size, 20000), true);
        const Measurement measured = driver_.run(job);
        const std::uint64_t messages = job.iterations * (test == kind.latency ? 2 : 1);
        if (measured.errors > 0 || measured.validated != messages) {
            throw Failure(
                text("%s of %s: %llu of %llu messages were right", kind.name,
                     size_name(kind.size).c_str(),
                     static_cast<unsigned long long>(measured.validated - measured.errors),
                     static_cast<unsigned long long>(messages)));
        }
        ++validated_;
        return messages;
    }

    void add_row(const Resource& resource, const Kind& kind) {
        const std::uint64_t checked = validate(kind.latency, kind) + validate(kind.stream, kind);
        const Measurement latency = driver_.run(job_for(
            kind.latency, kind, count_for(std::uint64_t{256} << 20, kind.size, 50000), false));
        const Measurement stream = driver_.run(job_for(
            kind.stream, kind, count_for(std::uint64_t{1} << 30, kind.size, 1000000), false));
        Job copy = job_for(TestId::kMemcpy, kind,
                           count_for(std::uint64_t{1} << 30, kind.size, 10000), false);
        const Measurement memcpy_floor = driver_.run_memcpy(copy);
        const double cacheline = latency.floor_ns ? *latency.floor_ns : cacheline_floor(kind);
        table_.add({resource.transport + "/" + resource.device, kind.name, size_name(kind.size),
                    time_text(latency.latency_ns->p50), time_text(cacheline),
                    rate_text(stream.messages_per_s), bandwidth_text(stream.bytes_per_s),
                    bandwidth_text(memcpy_floor.bytes_per_s), std::to_string(checked)});
    }

    /// For transports whose tests do not measure it along.
    double cacheline_floor(const Kind& kind) {
        const auto variants =
            driver_.run_cacheline(job_for(TestId::kCacheline, kind, 4 * kBlockRoundTrips, false));
        return variants.front().measurement.latency_ns->p50;
    }

    Driver driver_;
    Wait wait_;
    Table table_{{"transport", "kind", "size", "latency p50", "cacheline floor", "rate",
                  "bandwidth", "memcpy floor", "messages checked"}};
    std::uint64_t validated_ = 0;
};

#ifdef TAGWIRE_TOOLS_HAS_VHCA
constexpr bool kHasVhca = true;
#else
constexpr bool kHasVhca = false;
#endif

/// Shows the rows; how many results were validated.
std::uint64_t run_rows() {
    const KeptCpus kept;
    const std::vector<int> cpus = choose_cpus({});
    if (cpus[0] == cpus[1]) {
        std::fprintf(
            stderr,
            "tagwire-demo: warning: only one cpu is allowed: both processes take turns on it\n");
    }
    Demo demo(cpus);
    std::set<std::string> transports;
    for (const Resource& resource : all_resources())
        if (transports.insert(resource.transport).second)
            demo.run(resource);
    demo.print();
    if (demo.validated() == 0)
        throw Failure("this machine has no transport with messages");
    if (kHasVhca && !transports.contains("rc")) {
        throw Failure(
            "no transport over RDMA devices, though the virtual HCA was built: see `tagwire info`");
    }
    return demo.validated();
}

/// By the command beside this program.
void write_report(const char* file) {
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command = (self.parent_path() / "tagwire").string();
    std::printf("\n");
    std::fflush(stdout);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
        die_with(parent);
        execl(command.c_str(), "tagwire", "report", file, "--quick", "--compare", "ucx,libfabric",
              static_cast<char*>(nullptr));
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        throw Failure(text("tagwire report failed: see the words above, and %s", file));
}

}  // namespace

int main(int argc, char** argv) {
    if (const std::optional<int> status = run_if_peer_process(argc, argv))
        return *status;
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        const bool is_asked = argc == 2 && std::string_view(argv[1]) == "--help";
        std::fprintf(is_asked ? stdout : stderr, "Usage: tagwire-demo [OUT.html]\n");
        return is_asked ? 0 : 2;
    }
    try {
        const std::uint64_t validated = run_rows();
        if (argc == 2)
            write_report(argv[1]);
        std::printf("demo: PASS, %llu results validated\n",
                    static_cast<unsigned long long>(validated));
        return 0;
    } catch (const std::exception& error) {
        std::printf("demo: FAIL %s\n", error.what());
        return 1;
    }
}
