// SPDX-License-Identifier: BSD-3-Clause
// Parts of a report: output of other programs, medians and noise, formatted values.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "cli/failure.hpp"
#include "cli/json_file.hpp"
#include "common/skip.hpp"
#include "tools/program.hpp"
#include "tools/report.hpp"
#include "tools/report_measure.hpp"
#include "tools/report_page.hpp"
#include "tools/report_peers.hpp"

namespace tagwire::tools {
namespace {

const std::string kUcxHead =
    "stdin,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_"
    "mr\n";
const std::string kUcx = kUcxHead +
                         "8,10000,0.185,0.198,0.198,38.45,38.45,5039111,5039111\n"
                         "1048576, 100,92.075,96.660,96.660,10345.58,10345.58,10346,10346\n";
const std::string kFiHead =
    "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n";

std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ResultFiles, values_without_a_number_and_foreign_bytes_are_written) {
    const std::string path = testing::TempDir() + "results.json";
    Result result;
    result.test = "tag_lat";
    result.device = "caf\xe9\r";
    result.measured.messages_per_s = std::numeric_limits<double>::infinity();
    write_json(path, {result});
    EXPECT_NE(content_of(path).find("\"messages_per_s\": null"), std::string::npos);
    const std::string line = csv_line(result);
    EXPECT_NE(line.find("\"caf\xe9\r\""), std::string::npos) << line;
    EXPECT_EQ(line.find("null"), std::string::npos) << line;
    std::filesystem::remove(path);
}

TEST(ResultFiles, rates_of_threads_are_a_list_and_the_ratio_of_its_ends) {
    Result result;
    EXPECT_EQ(result.measured.fairness(), std::nullopt);
    result.measured.thread_messages_per_s = {4e6};
    EXPECT_EQ(result.measured.fairness(), std::nullopt);
    result.measured.thread_messages_per_s = {4e6, 2e6, 3e6};
    EXPECT_EQ(result.measured.fairness(), 0.5);
    const std::string line = csv_line(result);
    EXPECT_NE(line.find(",4000000.0 2000000.0 3000000.0,0.5,"), std::string::npos) << line;
    EXPECT_NE(csv_head().find(",thread_messages_per_s,fairness,"), std::string::npos);
}

TEST(ResultFiles, file_is_replaced_and_nothing_stays_beside_it) {
    const std::filesystem::path folder = testing::TempDir() + "result_files";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    const std::string path = folder / "page";
    check_writable(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    for (const char* content : {"first", "second"}) {
        write_text_file(path, content);
        EXPECT_EQ(content_of(path), content);
        EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    }
    std::filesystem::remove_all(folder);
}

TEST(ReportPeers, ucx_perftest_is_read_by_size) {
    EXPECT_EQ(parse_ucx(kUcx, Figure::kLatency), (Points{{8, 185}, {1048576, 92075}}));
    EXPECT_EQ(parse_ucx(kUcx, Figure::kMessages), (Points{{8, 5039111}, {1048576, 10346}}));
    EXPECT_EQ(parse_ucx(kUcx, Figure::kBytes),
              (Points{{8, 8 * 5039111.0}, {1048576, 1048576 * 10346.0}}));
}

TEST(ReportPeers, ucx_perftest_may_say_other_things_between) {
    const std::string chatty = "[1.2] host UCX WARN unused, variable\n\n" + kUcx;
    EXPECT_EQ(parse_ucx(chatty, Figure::kLatency).size(), 2U);
}

TEST(ReportPeers, ucx_perftest_without_result_is_a_failure) {
    for (const std::string& bad :
         {std::string(), kUcxHead, std::string("8,1,2,3,4,5,6,7,8\n"), kUcxHead + "8,100,0.1\n",
          kUcxHead + "8,100,none,1,1,1,1,1,1\n", kUcxHead + "8,100,-1,1,1,1,1,1,1\n",
          kUcxHead + "8,100,inf,1,1,1,1,1,1\n", kUcxHead + "x,100,1,1,1,1,1,1,1\n",
          std::string(
              "a,iterations,99.0_percentile_lat,b,c,d,e,f,overall_mr\n8,1,1,1,1,1,1,1,1")}) {
        EXPECT_THROW(parse_ucx(bad, Figure::kLatency), Failure) << bad;
    }
}

TEST(ReportPeers, fi_pingpong_is_read_by_size) {
    const std::string printed = kFiHead +
                                "8       10k     =10k     156k        0.01s     21.39       0.37   "
                                "    2.67\n"
                                "64k     1k      =1k      125m        1.14s      0.01     568.43   "
                                "    0.00\n";
    EXPECT_EQ(parse_libfabric(printed), (Points{{8, 370}, {65536, 568430}}));
}

TEST(ReportPeers, fi_pingpong_without_result_is_a_failure) {
    for (const std::string& bad :
         {std::string(), kFiHead, kFiHead + "8 10k =10k 156k 0.01s 21.39 fast 2.67\n",
          kFiHead + "eight 10k =10k 156k 0.01s 21.39 0.37 2.67\n",
          std::string("8 10k =10k 156k 0.01s 21.39 0.37 2.67\n"),
          kFiHead + "8 10k =10k 156k 0.01s 21.39 0.00 2.67\n"}) {
        EXPECT_THROW(parse_libfabric(bad), Failure) << bad;
    }
}

TEST(ReportPeers, netpipe_tells_half_of_the_round_trip) {
    const std::string printed =
        "Using no perturbations\n"
        "\n"
        "0: node\n"
        "Now starting the main loop\n"
        "  0:       8 bytes  93958 times -->    202.50 Mbps in       0.30 "
        "usec\n"
        " 14:    1024 bytes  71841 times -->  15868.41 Mbps in       0.49 "
        "usec\n";
    EXPECT_EQ(parse_netpipe(printed), (Points{{8, 300}, {1024, 490}}));
    EXPECT_THROW(parse_netpipe("0: node\n"), Failure);
    EXPECT_THROW(parse_netpipe("0: 8 bytes 9 times --> 202.50 Mbps in fast usec\n"), Failure);
}

TEST(ReportPeers, names_are_checked) {
    EXPECT_TRUE(parse_compare("ucx").ucx);
    EXPECT_FALSE(parse_compare("ucx").libfabric);
    EXPECT_FALSE(parse_compare("ucx,libfabric").openmpi);
    EXPECT_TRUE(parse_compare("ucx,openmpi").openmpi);
    EXPECT_TRUE(parse_compare("libfabric,ucx").ucx);
    EXPECT_THROW(parse_compare("UCX"), UsageError);
    EXPECT_THROW(parse_compare(""), UsageError);
}

/// Where programs are looked for, and a folder for some.
class SearchPath {
  public:
    explicit SearchPath(const char* behind) {
        setenv("PATH", (folder_.string() + behind).c_str(), 1);
    }
    ~SearchPath() {
        setenv("PATH", before_.c_str(), 1);
        std::filesystem::remove_all(folder_);
    }
    SearchPath(const SearchPath&) = delete;
    SearchPath& operator=(const SearchPath&) = delete;

    void add(const char* name, const char* script) const {
        std::ofstream(folder_ / name) << "#!/bin/sh\n" << script << "\n";
        std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
    }

    const std::filesystem::path& folder() const { return folder_; }

  private:
    static std::string new_folder() {
        char name[] = "/tmp/test-report-XXXXXX";
        return mkdtemp(name);
    }

    const std::string before_ = std::getenv("PATH");
    const std::filesystem::path folder_ = new_folder();
};

/// The message of the failure that `call` throws.
template <class Call>
std::string failure_of(Call call) {
    try {
        call();
        return "no failure";
    } catch (const Failure& failure) {
        return failure.what();
    }
}

bool says(const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
}

constexpr int kPeerTimeoutMs = 20000;

TEST(ReportPeers, missing_programs_are_named_with_their_packages) {
    std::set<std::string> log;
    PeerRuns peers({0, 0}, kPeerTimeoutMs, &log);
    const SearchPath path("");
    const std::string ucx = failure_of([&] { peers.find_ucx(); });
    EXPECT_TRUE(says(ucx, "ucx-utils")) << ucx;
    const std::string libfabric = failure_of([&] { peers.libfabric_version(); });
    EXPECT_TRUE(says(libfabric, "libfabric-bin")) << libfabric;
}

TEST(ReportUcx, version_is_what_the_library_or_ucx_info_says) {
    EXPECT_EQ(parse_ucx_version("[1.2] [vm:1:0] ucp_context.c:2753 UCX  INFO  Version 1.23.0 "
                                "(loaded from /opt/ucx/lib/libucp.so.0, git branch master, "
                                "revision 9466d10)\n"),
              "1.23.0-9466d10");
    EXPECT_EQ(parse_ucx_version("UCX  INFO  Version 1.13.1 (loaded from /lib/libucp.so.0)\n"),
              "1.13.1");
    EXPECT_EQ(parse_ucx_version("# Library version: 1.16.0\n# Library path: /lib/libucs.so.0\n"
                                "# Git branch 'v1.16.x', revision e4bb802\n"),
              "1.16.0-e4bb802");
    EXPECT_EQ(parse_ucx_version("# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n"),
              "1.13.1");
    for (const char* none : {"", "Version\n", "Version 1\n", "usage: ucx_perftest\n"})
        EXPECT_EQ(parse_ucx_version(none), "") << none;
}

TEST(ReportUcx, numbers_say_which_is_newer) {
    EXPECT_TRUE(is_newer_ucx("1.13.1", "1.9.0"));
    EXPECT_TRUE(is_newer_ucx("1.23.0-9466d10", "1.22.1"));
    EXPECT_TRUE(is_newer_ucx("1.9", ""));
    EXPECT_FALSE(is_newer_ucx("1.13.1", "1.13.1-9466d10"));
    EXPECT_FALSE(is_newer_ucx("1.13", "1.13.0"));
    EXPECT_FALSE(is_newer_ucx("", ""));
}

/// Prints what a library of this version says when it is loaded.
std::string ucx_of(const char* version) {
    return std::string("echo \"UCX  INFO  Version ") + version +
           " (loaded from /lib/libucp.so.0)\" >&2";
}

TEST(ReportUcx, newest_of_the_path_and_the_list_is_taken) {
    const SearchPath path(":/usr/bin:/bin");
    std::filesystem::create_directories(path.folder() / "old/bin");
    path.add("ucx_perftest", ucx_of("1.13.1").c_str());
    path.add("old/bin/ucx_perftest", ucx_of("1.9.0").c_str());
    path.add("new_perftest", ucx_of("1.23.0").c_str());
    const std::string old = (path.folder() / "old").string();
    const std::string recent = (path.folder() / "new_perftest").string();
    EXPECT_EQ(newest_ucx("").program, "ucx_perftest");
    EXPECT_EQ(newest_ucx("").version, "1.13.1");
    EXPECT_EQ(newest_ucx(old).version, "1.13.1");
    for (const std::string& list : {old + ":" + recent, recent + "," + old, ":" + recent + ":"}) {
        EXPECT_EQ(newest_ucx(list).program, recent) << list;
        EXPECT_EQ(newest_ucx(list).version, "1.23.0") << list;
    }
}

TEST(ReportUcx, place_without_a_program_is_named_with_what_the_list_takes) {
    const SearchPath path(":/usr/bin:/bin");
    const std::string empty = path.folder().string();
    const std::string told = failure_of([&] { newest_ucx(empty); });
    EXPECT_TRUE(says(told, empty.c_str())) << told;
    EXPECT_TRUE(says(told, "bin/ucx_perftest is no program")) << told;
    EXPECT_TRUE(says(told, "installation prefixes")) << told;
    EXPECT_TRUE(says(failure_of([&] { newest_ucx("/no/ucx"); }), "'/no/ucx'"));
}

TEST(ReportPeers, server_that_ends_is_told_with_its_words) {
    std::set<std::string> log;
    const PeerRuns peers({0, 0}, kPeerTimeoutMs, &log);
    const SearchPath path(":/usr/bin:/bin");
    path.add("ucx_perftest", "echo cannot do that >&2; exit 3");
    path.add("fi_pingpong", "echo nor that >&2; exit 4");
    const std::string ucx = failure_of([&] {
        peers.ucx(kUcxShared, "tag_lat", Figure::kLatency, {{"8", "10"}});
    });
    EXPECT_TRUE(says(ucx, "ucx_perftest as server ended with status 3: cannot do that")) << ucx;
    const std::string libfabric = failure_of([&] { peers.libfabric("shm", {{"8", "10"}}); });
    EXPECT_TRUE(says(libfabric, "fi_pingpong as server ended with status 4: nor that"))
        << libfabric;
}

TEST(ReportPeers, server_that_ends_its_client_is_told_with_its_words) {
    std::set<std::string> log;
    const PeerRuns peers({0, 0}, kPeerTimeoutMs, &log);
    const SearchPath path(":/usr/bin:/bin");
    path.add("fi_pingpong", R"sh(exec python3 -c "
import socket, sys
if sys.argv[-1] == '127.0.0.1':
    with socket.create_connection(('127.0.0.1', int(sys.argv[-2]))) as control:
        sys.exit('a word' if control.recv(1) else 'no word')
socket.create_server(('127.0.0.1', int(sys.argv[-1]))).accept()
sys.exit('no such provider')" "$@")sh");
    const std::string told = failure_of([&] { peers.libfabric("shm", {{"8", "10"}}); });
    EXPECT_TRUE(says(told, "fi_pingpong ended with status 1: no word")) << told;
    EXPECT_TRUE(says(told, "fi_pingpong as server ended with status 1: no such provider")) << told;
}

TEST(ReportPeers, provider_that_is_offered_is_one_that_other_programs_load) {
    if (!has_program("fi_info"))
        TW_SKIP("fi_info is not installed (libfabric-bin)");
    const std::string folder = folder_of_provider();
    if (folder.empty())
        GTEST_SKIP() << "the build has sanitizers, or no provider";
    const ProgramResult result =
        run_program({"env", "FI_PROVIDER_PATH=" + folder, "fi_info", "-p", "tagwire"}, 20000);
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_TRUE(says(result.out, "provider: tagwire")) << result.out;
}

TEST(ReportPeers, server_of_a_client_that_fails_is_ended) {
    std::set<std::string> log;
    const PeerRuns peers({0, 0}, kPeerTimeoutMs, &log);
    const SearchPath path(":/usr/bin:/bin");
    path.add("fi_pingpong", R"sh(for last; do :; done
test "$last" = 127.0.0.1 && { echo no peer >&2; exit 5; }
exec python3 -c "
import socket, sys, time
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
time.sleep(1000)" "$last")sh");
    const std::string told = failure_of([&] { peers.libfabric("shm", {{"8", "10"}}); });
    EXPECT_TRUE(says(told, "fi_pingpong ended with status 5: no peer")) << told;
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD) << "a server was left";
}

/// Reads 1, 2, 3, ... and fails from `fails_at` on.
Source counting(std::string name, int* reads, int fails_at, bool is_ours) {
    return {std::move(name), Line::kSolid, -1, is_ours, [reads, fails_at] {
                if (++*reads >= fails_at)
                    throw Failure("out of order\n");
                return Points{{8, *reads}};
            }};
}

constexpr int kNever = 1000;

TEST(ReportMeter, takes_medians_of_rounds_in_which_all_are_read_in_turn) {
    int first = 0, second = 0;
    Meter meter({3, 60, 60}, [] { return 50.0; });
    const auto curves = meter.curves(
        "Test", {counting("a", &first, kNever, true), counting("b", &second, kNever, true)});
    ASSERT_EQ(curves.size(), 2U);
    EXPECT_EQ(curves[0].points, (Points{{8, 2}}));
    EXPECT_EQ(meter.floors().size(), 4U);
    EXPECT_TRUE(meter.notes().empty());
    EXPECT_FALSE(meter.has_failure_of_ours());
}

TEST(ReportMeter, what_fails_is_named_and_not_read_again) {
    int ours = 0, theirs = 0;
    Meter meter({3, 60, 60}, [] { return 50.0; });
    meter.curves("Test", {counting("theirs", &theirs, 2, false)});
    EXPECT_FALSE(meter.has_failure_of_ours());
    meter.curves("Test", {counting("ours", &ours, 1, true)});
    EXPECT_TRUE(meter.has_failure_of_ours());
    EXPECT_EQ(theirs, 2);
    EXPECT_EQ(ours, 1);
    EXPECT_EQ(meter.notes(),
              (std::vector<std::string>{"Test, theirs: out of order", "Test, ours: out of order"}));
}

TEST(ReportMeter, behind_its_time_each_is_read_once) {
    int reads = 0;
    Meter meter({100, 0, 60}, [] { return 50.0; });
    EXPECT_EQ(meter.curves("Test", {counting("a", &reads, kNever, true)})[0].points.size(), 1U);
    EXPECT_EQ(reads, 1);
}

TEST(ReportMeter, behind_the_limit_nothing_is_read) {
    int reads = 0;
    Meter meter({3, 0, 0}, [] { return 50.0; });
    EXPECT_TRUE(meter.curves("Test", {counting("a", &reads, kNever, true)})[0].points.empty());
    EXPECT_EQ(reads, 0);
    ASSERT_EQ(meter.notes().size(), 1U);
    EXPECT_NE(meter.notes()[0].find("left out"), std::string::npos) << meter.notes()[0];
}

TEST(ReportMeter, floor_that_moves_is_told) {
    int reads = 0;
    double floor = 50;
    Meter meter({2, 60, 60}, [&floor] { return floor *= 1.2; });
    meter.curves("Test", {counting("a", &reads, kNever, true)});
    ASSERT_EQ(meter.notes().size(), 1U);
    EXPECT_NE(meter.notes()[0].find("noisy: around 2 of 2 rounds"), std::string::npos)
        << meter.notes()[0];
}

TEST(ReportPage, values_have_three_digits_and_their_unit) {
    EXPECT_EQ(value_text(65536, PlotUnit::kBytes), "64k");
    EXPECT_EQ(value_text(100000, PlotUnit::kCount), "100000");
    EXPECT_EQ(value_text(293.4, PlotUnit::kNanoseconds), "293 ns");
    EXPECT_EQ(value_text(999.7, PlotUnit::kNanoseconds), "1.00 us");
    EXPECT_EQ(value_text(12.34e9, PlotUnit::kBytesPerSecond), "12.3 GB/s");
    EXPECT_EQ(value_text(5.678e6, PlotUnit::kPerSecond), "5.68 M/s");
}

TEST(ReportMeter, upper_edges_are_medians_too) {
    int reads = 0;
    Meter meter({3, 60, 60}, [] { return 50.0; });
    const Source source{"a", Line::kSolid, -1, true, [&reads]() -> Reading {
                            ++reads;
                            return {Points{{8, reads}}, Points{{8, 10 * reads}}};
                        }};
    EXPECT_EQ(meter.curves("Test", {source})[0].upper, (Points{{8, 20}}));
}

TEST(ReportPage, back_ticks_are_code) {
    EXPECT_EQ(marked_up("see `tagwire a<b` there"), "see <code>tagwire a&lt;b</code> there");
}

TEST(ReportPage, data_need_no_escape_in_html) {
    Page page;
    page.facts.emplace_back("Host", "a<b>&c");
    page.sections.push_back({"",
                             {"one",
                              "One",
                              {"x", PlotUnit::kBytes},
                              {"y", PlotUnit::kCount},
                              {{"</script>", {{8, 1.5}}}}},
                             {}});
    const std::string data = data_of(page);
    EXPECT_EQ(data.find_first_of("<>&"), std::string::npos) << data;
    EXPECT_NE(data.find("[[8.0,1.5]]"), std::string::npos) << data;
}

TEST(ReportPage, words_of_the_machine_are_no_html) {
    EXPECT_EQ(escaped("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
}

}  // namespace
}  // namespace tagwire::tools
