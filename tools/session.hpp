// SPDX-License-Identifier: BSD-3-Clause
// A driver and a peer that run jobs together.
//
//     driver                               peer
//       <------------ kHello ------------->       versions, CPUs, the mapping that both share
//     once:
//       ------------- kSetup ------------->       links: each side sends its kAddress
//     for each job:
//       -------------- kJob -------------->
//       ------------- kRegion ------------>       memory that the job moves (put and get: of both)
//       <------------ kReady ------------->
//       ... the measurement, without control messages ...
//       ------------- kFinish ------------>
//       <------------- kDone --------------       the peer's outcome
//     at the end:
//       -------------- kBye -------------->
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tools/channel.hpp"
#include "tools/floor.hpp"
#include "tools/job.hpp"
#include "tools/link.hpp"
#include "tools/loops.hpp"
#include "tools/measure.hpp"
#include "tools/msg_link.hpp"

namespace tagwire::tools {

/// Limits each text in the greeting.
inline constexpr std::size_t kHelloTextMax = 256;

/// The state of either side: the floor's mapping, links and the tests of the running job.
struct Session {
    Side side;
    std::unique_ptr<Channel> channel;
    std::unique_ptr<SharedMapping> mapping;
    std::unique_ptr<CachelineFloor> floor;            // null without a mapping
    std::vector<std::unique_ptr<Link>> links;         // at level uct
    std::vector<std::unique_ptr<MsgLink>> msg_links;  // at level msg
    std::vector<std::unique_ptr<Test>> tests;
    std::vector<int> cpus;  // of the threads of streams; empty: where the process is

    void open_links(const Setup& setup);
    bool is_connected() const { return !links.empty() || !msg_links.empty(); }
    void make_tests(const Job& job);
    /// Makes progress on all links until the channel has something.
    void serve_until_readable();
    Outcome outcome() const;
};

class Driver {
  public:
    /// Greets the peer. `cpus`: {driver, peer}; pins this process.
    Driver(std::unique_ptr<Channel> channel, const std::vector<int>& cpus);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    /// Connects over a transport; a second call replaces the first one's links.
    void open(const Setup& setup);

    /// Any test with a transport. Ping-pongs over shared memory alternate with the floor.
    Measurement run(Job job, const OnProgress& on_progress = nullptr);
    /// Without the floor.
    Measurement run_alone(Job job);
    std::vector<VariantMeasurement> run_cacheline(const Job& job,
                                                  const OnProgress& on_progress = nullptr);
    Measurement run_memcpy(const Job& job);

    const Link& link() const { return *session_.links.front(); }
    const MsgLink& msg_link() const { return *session_.msg_links.front(); }

  private:
    bool is_over_shared_memory() const;
    Measurement run_as_is(const Job& job, const OnProgress& on_progress);
    void start_job(const Job& job);
    Outcome finish_job();

    Session session_;
};

/// Serves one driver until it says goodbye; what goes wrong is told to the driver and thrown.
/// `own_cpu`: where to run when the driver is on another host, -1 for the first allowed one.
void serve_driver(std::unique_ptr<Channel> channel, int own_cpu);

/// Starts this program again as a peer, which ends with this process.
std::unique_ptr<Channel> start_peer_process();

/// For main(): when start_peer_process() started this process, serves and returns the exit status.
std::optional<int> run_if_peer_process(int argc, char** argv);

}  // namespace tagwire::tools
