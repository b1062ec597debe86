// SPDX-License-Identifier: BSD-3-Clause
// Latency of an 8-byte tagged message with bare verbs: two pinned processes, no code of this
// library. It is the baseline of the rc transport's tag short.
//
// Usage: raw_tm_pingpong [--device NAME] [--gid INDEX] [--size BYTES] [--iters N] [--warmup N]
//                        [--cpu A,B]
//
// Without a card: `tagwire vhca run -- raw_tm_pingpong`. Prints half the round trip, taken over
// batches of 32. Per message and side: one inline eager send with its TMH, one ADD for the message
// after the next, its completion, the completion of the tagged receive. As in `tagwire perf
// tag_lat`, receives are two messages ahead and the next ADD follows the send.
#include <getopt.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "raw_tm_side.hpp"

namespace {

using namespace raw;

constexpr std::uint64_t kBatch = 32;

double now_ns() {
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

class PingPong {
  public:
    PingPong(Side* side, bool driver) : side_(side), driver_(driver) {
        for (std::uint64_t tag = 0; tag < kAhead; ++tag)
            side_->add(tag);
        side_->wait_added(kAhead);
    }

    /// Half the round trip over each batch.
    std::vector<double> run(std::uint64_t batches) {
        std::vector<double> times;
        times.reserve(batches);
        for (std::uint64_t batch = 0; batch < batches; ++batch) {
            const double start = now_ns();
            for (std::uint64_t i = 0; i < kBatch; ++i)
                round_trip(next_++);
            times.push_back((now_ns() - start) / (2 * kBatch));
        }
        return times;
    }

  private:
    void round_trip(std::uint64_t tag) {
        if (!driver_)
            side_->wait_received(tag + 1);
        side_->send(tag);
        side_->add(tag + kAhead);
        if (driver_)
            side_->wait_received(tag + 1);
    }

    Side* side_;
    bool driver_;
    std::uint64_t next_ = 0;
};

std::uint64_t batches_of(std::uint64_t round_trips) {
    return (round_trips + kBatch - 1) / kBatch;
}

void run_side(const Options& options, int fd, bool driver) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<unsigned>(options.cpus[driver ? 0 : 1]), &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        die("cpu %d: %s", options.cpus[driver ? 0 : 1], std::strerror(errno));
    const Socket socket(fd);
    Side side(options, socket);
    PingPong ping_pong(&side, driver);
    socket.barrier();
    ping_pong.run(batches_of(options.warmup));
    std::vector<double> times = ping_pong.run(batches_of(options.iterations));
    if (driver) {
        std::sort(times.begin(), times.end());
        std::printf("%zu bytes, %zu round trips, half of one: median %.1f ns, min %.1f, p99 %.1f\n",
                    options.size, times.size() * std::size_t{kBatch}, times[times.size() / 2],
                    times.front(), times[times.size() * 99 / 100]);
    }
}

std::uint64_t number_up_to(const char* option, const char* text, std::uint64_t max) {
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value > max)
        die("--%s takes a number from 0 to %llu", option, static_cast<unsigned long long>(max));
    return value;
}

Options parse(int argc, char** argv) {
    static constexpr option kLong[] = {{"device", required_argument, nullptr, 'd'},
                                       {"gid", required_argument, nullptr, 'g'},
                                       {"size", required_argument, nullptr, 's'},
                                       {"iters", required_argument, nullptr, 'n'},
                                       {"warmup", required_argument, nullptr, 'w'},
                                       {"cpu", required_argument, nullptr, 'c'},
                                       {nullptr, 0, nullptr, 0}};
    constexpr std::uint64_t kCountMax = std::uint64_t{1} << 32;
    Options options;
    for (int which = 0; (which = getopt_long(argc, argv, "", kLong, nullptr)) != -1;) {
        switch (which) {
            case 'd':
                options.device = optarg;
                break;
            case 'g':
                options.gid_index = static_cast<int>(number_up_to("gid", optarg, 255));
                break;
            case 's':
                options.size = number_up_to("size", optarg, 240);
                break;
            case 'n':
                options.iterations =
                    std::max<std::uint64_t>(number_up_to("iters", optarg, kCountMax), 1);
                break;
            case 'w':
                options.warmup = number_up_to("warmup", optarg, kCountMax);
                break;
            case 'c':
                if (std::sscanf(optarg, "%d,%d", options.cpus.data(), &options.cpus[1]) == 2 &&
                    std::min(options.cpus[0], options.cpus[1]) >= 0 &&
                    std::max(options.cpus[0], options.cpus[1]) < CPU_SETSIZE) {
                    break;
                }
                die("--cpu takes A,B");
            default:
                std::exit(2);
        }
    }
    if (optind != argc)
        die("what is %s?", argv[optind]);
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    int fds[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "socketpair");
    // Before any verbs: each process opens the device for itself.
    const pid_t child = fork();
    if (child < 0)
        die("fork: %s", std::strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        run_side(options, fds[1], false);
        return 0;
    }
    close(fds[1]);
    run_side(options, fds[0], true);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
