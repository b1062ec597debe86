// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report_run.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "tools/explain.hpp"
#include "tools/pinning.hpp"
#include "tools/report_facts.hpp"
#include "tools/report_measure.hpp"
#include "tools/report_own.hpp"
#include "tools/report_page.hpp"
#include "tools/report_peers.hpp"
#include "tools/stats.hpp"

namespace tagwire::tools {
namespace {

struct Amounts {
    std::vector<Batch> sweep;   // latency and bandwidth
    std::vector<Batch> tcp;     // the same; fi_pingpong takes a second more for each size
    std::vector<Batch> rate;    // small messages
    std::vector<Batch> choice;  // where eager and rendezvous meet
    std::vector<Batch> clients;
    std::vector<Batch> netpipe;  // from one size to another
    std::vector<const char*> depths;
    const char* depth_iterations;
    std::vector<const char*> threads;
    const char* thread_iterations;
    Pace pace;
    int timeout_ms;  // of one program
};

// One lost time slice must not be most of a run: the shortest take milliseconds.
const Amounts kQuick{{{"8,64,512,4k", "1000"}, {"32k,256k", "400"}, {"1m", "100"}},
                     {{"8,4k", "1000"}, {"64k", "400"}, {"1m", "100"}},
                     {{"8,64,256,1k", "20000"}},
                     {{"1k,4k", "1000"}, {"16k,64k,256k", "200"}, {"1m", "50"}},
                     {{"8,4k", "20000"}, {"64k", "2000"}},
                     {{"8,64k", "200"}},
                     {"1", "100", "1000", "10000"},
                     "1000",
                     {"1", "2"},
                     "20000",
                     {3, 4, 28},
                     10000};
const Amounts kFull{
    {{"8,16,32,64,128,256,512,1k,2k,4k", "20000"},
     {"8k,16k,32k,64k,128k,256k,512k", "1000"},
     {"1m,2m,4m", "200"}},
    {{"8,16,32,64,128,256,512,1k,2k,4k", "10000"},
     {"8k,16k,32k,64k,128k,256k,512k", "1000"},
     {"1m,2m,4m", "200"}},
    {{"8,16,32,64,128,256,512,1k", "200000"}},
    {{"256,512,1k,2k,4k,8k", "10000"}, {"16k,32k,64k,128k,256k", "1000"}, {"512k,1m,2m,4m", "200"}},
    {{"8,64,256,1k,4k", "20000"}, {"16k,64k,256k", "1000"}, {"1m,4m", "200"}},
    {{"8,16k", "10000"}, {"32k,4m", "200"}},
    {"1", "10", "100", "1000", "10000", "100000"},
    "10000",
    {"1", "2", "4"},
    "200000",
    {7, 180, 285},
    30000};

/// The levels of `tagwire perf`, and their names on the page.
struct LevelName {
    const char* option;
    const char* name;
    Line line;
};
constexpr LevelName kReportLevels[] = {{"msg", "messaging layer", Line::kSolid},
                                       {"uct", "transport", Line::kDashed}};
constexpr double kSmallMessage = 8;

constexpr const char* kEager = "TAGWIRE_RNDV_THRESHOLD=16m";  // longer than any size here
constexpr const char* kRendezvous = "TAGWIRE_RNDV_THRESHOLD=0";
// Behind those of the transports.
constexpr int kUcxColour = 5, kLibfabricColour = 6, kOpenMpiColour = 7;

PlotAxis size_axis() {
    return {"message size (bytes)", PlotUnit::kBytes};
}
PlotAxis latency_axis() {
    return {"half of the round trip", PlotUnit::kNanoseconds};
}

class Report {
  public:
    Report(const ReportArguments& arguments, const Peers& wanted, const std::string& program)
        : arguments_(arguments),
          amounts_(arguments.quick ? kQuick : kFull),
          lanes_(lanes()),
          tcp_(std::ranges::find_if(lanes_, &Lane::is_tcp), lanes_.end()),
          near_(lanes_.data(), lanes_.size() - tcp_.size()),
          cpus_(choose_cpus({})),
          cores_(allowed_cpus().size()),
          own_(program, amounts_.timeout_ms, &log_),
          peers_(cpus_, amounts_.timeout_ms, &log_),
          meter_(amounts_.pace, [this] { return own_.floor_ns(); }) {
        find_peers(wanted);
    }

    Page measure();
    bool is_whole() const { return !meter_.has_failure_of_ours(); }

  private:
    void find_peers(const Peers& wanted);
    /// Both levels of each transport, those of other libraries behind shared memory and tcp.
    std::vector<Source> sources(std::span<const Lane> of, const char* test, Figure figure,
                                const std::vector<Batch>& batches);
    void add_peers(bool is_tcp, const char* test, Figure figure, const std::vector<Batch>& batches,
                   std::vector<Source>* sources);
    void add(Plot plot, std::string meaning, const std::vector<Source>& sources);
    void add_floor();
    void add_relative();
    void summarize_page();
    void add_tcp();
    void add_depth();
    void add_threads();
    void add_clients();
    void add_selection(const Lane& lane);
    void add_choice(const Lane& lane);
    Facts facts() const;

    const ReportArguments& arguments_;
    const Amounts& amounts_;
    const std::vector<Lane> lanes_;
    const std::span<const Lane> tcp_;   // of these: one, or none
    const std::span<const Lane> near_;  // the others
    const std::vector<int> cpus_;
    const std::size_t cores_;  // that may be used
    std::set<std::string> log_;
    OwnRuns own_;
    PeerRuns peers_;
    Meter meter_;
    std::string ucx_, libfabric_, openmpi_;  // versions; empty: not here
    Page page_;
};

void Report::find_peers(const Peers& wanted) {
    try {
        ucx_ = wanted.ucx ? peers_.find_ucx() : "";
    } catch (const Failure& error) {
        meter_.note(std::string("UCX is not compared: ") + error.what());
    }
    try {
        libfabric_ = wanted.libfabric ? peers_.libfabric_version() : "";
    } catch (const Failure& error) {
        meter_.note(std::string("libfabric is not compared: ") + error.what());
    }
    try {
        openmpi_ = wanted.openmpi ? peers_.openmpi_version() : "";
    } catch (const Failure& error) {
        meter_.note(std::string("Open MPI is not compared: ") + error.what());
    }
}

void Report::add_peers(bool is_tcp, const char* test, Figure figure,
                       const std::vector<Batch>& batches, std::vector<Source>* sources) {
    if (!ucx_.empty()) {
        const std::string theirs = figure == Figure::kLatency ? "tag_lat" : "tag_bw";
        const char* const lane = is_tcp ? kUcxTcp : kUcxShared;
        sources->push_back({is_tcp ? "UCX, tcp" : "UCX, posix+cma", Line::kDotted, kUcxColour,
                            false,
                            [=, this] { return peers_.ucx(lane, theirs, figure, batches); }});
    }
    if (!libfabric_.empty() && std::string(test) == "tag_lat") {
        const char* const provider = is_tcp ? "tcp;ofi_rxm" : "shm";
        sources->push_back({is_tcp ? "libfabric, tcp" : "libfabric, shm", Line::kDotted,
                            kLibfabricColour, false,
                            [=, this] { return peers_.libfabric(provider, batches); }});
    }
}

std::vector<Source> Report::sources(std::span<const Lane> of, const char* test, Figure figure,
                                    const std::vector<Batch>& batches) {
    std::vector<Source> sources;
    int colour = 0;
    for (const Lane& lane : of) {
        for (const LevelName& level : kReportLevels) {
            const std::vector<std::string> arguments{test, "--level", level.option, "--tl",
                                                     lane.tl()};
            const bool has_band = level.line == Line::kSolid;
            sources.push_back(
                {lane.name() + ", " + level.name, level.line, colour, true, [=, this]() -> Reading {
                     Reading reading = own_.by_size(arguments, figure, batches);
                     return has_band ? reading : Reading(reading.middle);
                 }});
            if ((lane.transport == "sm" || lane.is_tcp()) && sources.size() == 1)
                add_peers(lane.is_tcp(), test, figure, batches, &sources);  // right behind it
        }
        ++colour;
    }
    return sources;
}

void Report::add(Plot plot, std::string meaning, const std::vector<Source>& sources) {
    plot.curves = meter_.curves(plot.title, sources);
    page_.sections.push_back({std::move(meaning), std::move(plot), {}});
}

/// The floor that was measured around what the last section shows.
void Report::add_floor() {
    Plot& plot = page_.sections.back().plot;
    Points line;
    for (const Curve& curve : plot.curves)
        for (const auto& point : curve.points)
            line.emplace_back(point.first, 0);
    if (line.empty() || meter_.floors().empty())
        return;
    const auto [first, last] = std::ranges::minmax_element(line);
    const double floor_ns = median(meter_.floors());
    plot.curves.push_back({"floor (a cache line)",
                           {{first->first, floor_ns}, {last->first, floor_ns}},
                           Line::kLimit});
}

/// The last section again, each curve as a share of the best at its place.
void Report::add_relative() {
    Plot plot = page_.sections.back().plot;
    std::map<double, double> best;
    for (const Curve& curve : plot.curves)
        for (const auto& [x, value] : curve.points)
            best[x] = std::max(best[x], value);
    for (Curve& curve : plot.curves)
        for (auto& [x, value] : curve.points)
            value = best[x] > 0 ? value * 100 / best[x] : 0;
    plot.id += "relative";
    plot.title += ", relative to the best";
    plot.y = {"share of the highest at this size", PlotUnit::kPercent};
    page_.sections.push_back(
        {"The same figures as a share of the highest of each size, which shows "
         "differences that a logarithmic axis hides.",
         std::move(plot),
         {}});
}

/// Three numbers for each curve of the first plots.
void Report::summarize_page() {
    const auto plot_named = [this](const char* id) {
        const auto at = std::ranges::find_if(
            page_.sections, [id](const PageSection& one) { return one.plot.id == id; });
        return at->plot;
    };
    const auto points_of = [](const Plot& plot, const std::string& name) {
        const auto at = std::ranges::find(plot.curves, name, &Curve::name);
        return at == plot.curves.end() ? Points() : at->points;
    };
    const auto at_8_bytes = [](const Points& points) -> std::optional<double> {
        const auto at = std::ranges::find(points, kSmallMessage, &Points::value_type::first);
        return at == points.end() ? std::nullopt : std::optional(at->second);
    };
    const auto add_rows = [&](const Plot& latency, const Plot& bandwidth, const Plot& rate) {
        for (const Curve& curve : latency.curves) {
            if (curve.line == Line::kLimit)
                continue;
            SummaryRow row{curve.name, at_8_bytes(curve.points), std::nullopt,
                           at_8_bytes(points_of(rate, curve.name))};
            for (const auto& [x, value] : points_of(bandwidth, curve.name))
                row.bytes_per_s = std::max(row.bytes_per_s.value_or(0), value);
            if (row.latency_ns || row.bytes_per_s || row.messages_per_s)
                page_.summary.push_back(row);
        }
    };
    add_rows(plot_named("latency"), plot_named("bandwidth"), plot_named("rate"));
    if (!tcp_.empty())
        add_rows(plot_named("latencytcp"), plot_named("bandwidthtcp"), plot_named("ratetcp"));
}

void Report::add_tcp() {
    if (tcp_.empty())
        return;
    add({"latencytcp", "Latency over TCP", size_axis(), latency_axis(), {}},
        "The same ping-pong over the loopback interface, where the kernel's sockets take most of "
        "the time; UCX and libfabric (tcp;ofi_rxm) have the same sockets. Lower is better.",
        sources(tcp_, "tag_lat", Figure::kLatency, amounts_.tcp));
    add({"bandwidthtcp",
         "Bandwidth over TCP",
         size_axis(),
         {"payload per second", PlotUnit::kBytesPerSecond},
         {}},
        "The same stream over the loopback interface. Higher is better.",
        sources(tcp_, "tag_bw", Figure::kBytes, amounts_.tcp));
    add({"ratetcp",
         "Message rate over TCP",
         size_axis(),
         {"messages per second", PlotUnit::kPerSecond},
         {}},
        "The same stream of small messages over the loopback interface: one system call takes many "
        "of them. Higher is better.",
        sources(tcp_, "tag_rate", Figure::kMessages, amounts_.rate));
    add_selection(tcp_.front());
    add_choice(tcp_.front());
}

void Report::add_depth() {
    std::vector<Source> sources;
    int colour = 0;
    for (const Lane& lane : near_) {
        std::vector<std::string> arguments{"match", "--level", "msg", "--tl", lane.tl()};
        for (const bool is_expected : {true, false}) {
            if (!is_expected)
                arguments.emplace_back("--unexpected");
            sources.push_back({lane.name() + (is_expected ? ", expected" : ", unexpected"),
                               is_expected ? Line::kSolid : Line::kDashed, colour, true, [=, this] {
                                   return own_.by_depth(arguments, amounts_.depths,
                                                        amounts_.depth_iterations);
                               }});
        }
        ++colour;
    }
    add({"depth",
         "Depth: a message among many",
         {"other receives posted, or messages waiting", PlotUnit::kCount},
         {"half of the round trip, 8 bytes", PlotUnit::kNanoseconds},
         {}},
        "Ping-pong of tagged messages (match, messaging layer) whose tag is drawn at random among "
        "as many posted receives (expected), or among as many messages that wait without a "
        "receive (unexpected: one peek and one receive for each). Lower is better; a flat line "
        "means that the cost does not depend on their number.",
        sources);
}

void Report::add_threads() {
    const auto source = [&](const char* name, Line line, const char* share) {
        // Threads beyond the cores yield; all points are measured alike.
        const std::vector<std::string> arguments{"tag_rate", "--level", "msg",    "--tl", "sm",
                                                 "--share",  share,     "--wait", "yield"};
        return Source{name, line, 0, true, [=, this] {
                          return own_.by_threads(arguments, amounts_.threads,
                                                 amounts_.thread_iterations);
                      }};
    };
    std::string meaning =
        "A stream of tagged messages of 8 bytes from each thread of one process to itself "
        "(tag_rate, messaging layer, shared memory), the rates of all threads together: each with "
        "a worker of its own, or all over one worker (`--share`). Higher is better.";
    if (const std::size_t most = std::stoul(amounts_.threads.back()); most > cores_)
        meaning +=
            text(" There are %zu cores here: beyond that number threads take turns.", cores_);
    add({"threads",
         "Threads",
         {"threads", PlotUnit::kThreads},
         {"messages per second", PlotUnit::kPerSecond},
         {}},
        meaning,
        {source("a worker each", Line::kSolid, "context"),
         source("one worker", Line::kDashed, "worker")});
}

void Report::add_selection(const Lane& lane) {
    try {
        for (const ExplainedRail& rail : explain_curves(lane.tl())) {
            Plot plot = plot_of(rail, "selection" + lane.transport);
            plot.title = "Selection over " + plot.title;
            page_.sections.push_back(
                {"The cost of a message by each protocol of the messaging layer, as its cost model "
                 "says or `tagwire tune` has measured it, and the choice (the pale band). `tagwire "
                 "explain` says why, term by term. Rendezvous begins at the vertical line.",
                 std::move(plot),
                 {8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304}});
        }
    } catch (const std::exception& error) {
        meter_.note("Selection over " + lane.name() + ": " + error.what());
    }
}

void Report::add_choice(const Lane& lane) {
    const auto source = [&](const char* name, Line line, const char* setting) {
        const std::vector<std::string> arguments{"tag_lat", "--level", "msg", "--tl", lane.tl()};
        return Source{
            name, line, -1, true, [=, this] {
                return own_.by_size(arguments, Figure::kLatency, amounts_.choice, setting).middle;
            }};
    };
    const std::vector<Source> sources{source("what is chosen", Line::kSolid, ""),
                                      source("eager forced", Line::kDashed, kEager),
                                      source("rendezvous forced", Line::kDotted, kRendezvous)};
    add({"choice" + lane.transport,
         "Choice over " + lane.name() + ", measured",
         size_axis(),
         latency_axis(),
         {}},
        "Latency with either way of sending forced by TAGWIRE_RNDV_THRESHOLD, beside what the "
        "library chooses by the costs above: that line should be near the lower of the others.",
        sources);
}

void Report::add_clients() {
    if (libfabric_.empty() && openmpi_.empty())
        return;
    const bool has_provider = !folder_of_provider().empty();
    if (!has_provider) {
        meter_.note(
            "Programs of libfabric do not run over tagwire here: there is no "
            "libtagwire-fi.so beside the library (package libtagwire-fi), or the build has "
            "sanitizers, which those programs lack");
    }
    std::vector<Source> sources;
    const auto add_libfabric = [&](const char* provider, Line line, bool is_ours) {
        sources.push_back({std::string("libfabric, ") + provider, line, kLibfabricColour, is_ours,
                           [=, this] { return peers_.libfabric(provider, amounts_.clients); }});
    };
    const auto add_openmpi = [&](const char* name, Line line, bool is_ours,
                                 const std::vector<std::string>& layer) {
        sources.push_back({std::string("Open MPI, ") + name, line, kOpenMpiColour, is_ours,
                           [=, this] { return peers_.openmpi(layer, amounts_.netpipe); }});
    };
    if (!libfabric_.empty()) {
        if (has_provider)
            add_libfabric("tagwire", Line::kSolid, true);
        add_libfabric("shm", Line::kDotted, false);
    }
    if (!openmpi_.empty()) {
        if (has_provider) {
            add_openmpi("tagwire", Line::kSolid, true,
                        {"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca",
                         "mtl_ofi_provider_include", "tagwire"});
        }
        add_openmpi("vader", Line::kDotted, false,
                    {"--mca", "pml", "ob1", "--mca", "btl", "self,vader"});
        add_openmpi("UCX", Line::kDashed, false,
                    {"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
                     "pml_ucx_devices", "any"});
    }
    add({"clients", "Programs over tagwire: latency", size_axis(), latency_axis(), {}},
        "Half of the round trip as programs that know nothing of tagwire tell it: libfabric's "
        "fi_pingpong with tags over tagwire's provider and over libfabric's own for shared memory; "
        "NetPIPE over Open MPI, whose messages tagwire's provider carries, or Open MPI's own "
        "transport for shared memory (vader), or UCX. Lower is better.",
        sources);
}

Facts Report::facts() const {
    std::string names;
    for (const Lane& lane : lanes_) {
        names += (names.empty() ? "" : ", ") + lane.name();
        names += lane.is_virtual() ? " (virtual HCA, no card)" : "";
    }
    Facts facts = facts_of_machine(cpus_);
    facts.emplace_back("Command", arguments_.command);
    facts.emplace_back("Transports", names);
    if (!ucx_.empty())
        facts.emplace_back("UCX", ucx_ + ", ucx_perftest, tag_lat and tag_bw of UCP");
    if (!libfabric_.empty())
        facts.emplace_back("libfabric", libfabric_ + ", fi_pingpong, which has latency only");
    if (!openmpi_.empty())
        facts.emplace_back("Open MPI", openmpi_ + ", NetPIPE");
    if (!meter_.floors().empty()) {
        const auto [low, high] = std::ranges::minmax(meter_.floors());
        facts.emplace_back(
            "Floor", text("%.0f to %.0f ns: a cache line from one core to the other", low, high));
    }
    facts.emplace_back("Figures",
                       text("Medians of up to %d rounds; in each round the lines of a plot are "
                            "measured one after the other.",
                            amounts_.pace.rounds));
    return facts;
}

Page Report::measure() {
    page_.title = "tagwire: what messages cost on this machine";
    if (const std::string warning = load_warning(); !warning.empty())
        meter_.note(warning);
    add({"latency", "Latency", size_axis(), latency_axis(), {}},
        "Half of the round trip of a tagged ping-pong between two processes (tag_lat), median over "
        "batches of 32. Each transport is measured through the messaging layer (solid lines, whose "
        "pale bands reach up to the 99th percentile) and by itself (dashed). Lower is better.",
        sources(near_, "tag_lat", Figure::kLatency, amounts_.sweep));
    add_floor();
    add({"bandwidth",
         "Bandwidth",
         size_axis(),
         {"payload per second", PlotUnit::kBytesPerSecond},
         {}},
        "A stream of tagged messages in one direction with 64 under way (tag_bw), from the first "
        "post until the last is known to be received. Higher is better.",
        sources(near_, "tag_bw", Figure::kBytes, amounts_.sweep));
    add_relative();
    add({"rate", "Message rate", size_axis(), {"messages per second", PlotUnit::kPerSecond}, {}},
        "A stream of small tagged messages, each with a tag and a receive of its own (tag_rate; "
        "UCX: tag_bw). Higher is better.",
        sources(near_, "tag_rate", Figure::kMessages, amounts_.rate));
    add_depth();
    add_threads();
    add_clients();
    for (const Lane& lane : near_) {
        add_selection(lane);
        add_choice(lane);
    }
    add_tcp();
    summarize_page();
    page_.facts = facts();
    page_.subtitle = page_.facts[1].second + ". " + page_.facts[0].second;
    page_.notes = meter_.notes();
    page_.commands = {log_.begin(), log_.end()};
    return page_;
}

}  // namespace

bool run_report(const ReportArguments& arguments, const std::string& program) {
    const Peers peers = arguments.compare ? parse_compare(*arguments.compare) : Peers{};
    check_has_gnuplot();
    check_writable(arguments.file);
    Report report(arguments, peers, program);
    write_text_file(arguments.file, html_of(report.measure()));
    std::printf("report: %s\n", arguments.file.c_str());
    return report.is_whole();
}

}  // namespace tagwire::tools
