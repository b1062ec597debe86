// SPDX-License-Identifier: BSD-3-Clause
// `tagwire report`.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "command.hpp"
#include "common/skip.hpp"
#include "tools/program.hpp"

namespace tagwire::test {
namespace {

namespace fs = std::filesystem;

constexpr int kTimeoutMs = 60000;

/// Where programs are looked for.
class SearchPath {
  public:
    explicit SearchPath(const std::string& path) : before_(std::getenv("PATH")) {
        setenv("PATH", path.c_str(), 1);
    }
    ~SearchPath() { setenv("PATH", before_.c_str(), 1); }
    SearchPath(const SearchPath&) = delete;
    SearchPath& operator=(const SearchPath&) = delete;

  private:
    const std::string before_;
};

class Report : public testing::Test {
  protected:
    void SetUp() override {
        if (!tools::has_program("gnuplot"))
            TW_SKIP("gnuplot is not installed");
    }
    ~Report() override { fs::remove_all(folder_); }

    std::string file() const { return (folder_ / "page.html").string(); }
    std::string page() const {
        std::ifstream in(file());
        return {std::istreambuf_iterator<char>(in), {}};
    }

  private:
    static std::string new_folder() {
        char name[] = "/tmp/test-report-XXXXXX";
        return mkdtemp(name);
    }

    const fs::path folder_ = new_folder();
};

std::size_t count_of(const std::string& text, const std::string& words) {
    std::size_t count = 0;
    for (std::size_t at = text.find(words); at != std::string::npos;
         at = text.find(words, at + words.size())) {
        ++count;
    }
    return count;
}

bool is_busy(const std::string& told) {
    return told.find(": left out, the machine is too busy") != std::string::npos;
}

/// Faults that an independent XML parser finds in a page: each section has two pictures with a
/// name, a wide one and a narrow one, and a table with a number in each column; the data are JSON.
/// On a machine too busy for all measurements, which `told` says then, sections may be empty.
std::string fault_of(const std::string& file, const std::string& told) {
    constexpr const char* kCheck = R"(
import json, re, sys, xml.etree.ElementTree as tree
for section in tree.parse(sys.argv[1]).getroot().iter('section'):
    if sys.argv[2] == 'busy' and section.find("p[@class='note']") is not None:
        continue  # nothing was measured, and it says so
    pictures = [e for e in section.iter('{http://www.w3.org/2000/svg}svg') if e.get('aria-label')]
    assert len(pictures) == 2, section.get('id') + ': one picture for each width'
    rows = [[c.text or '' for c in row] for row in section.find('.//table').iter('tr')]
    assert len(rows) > 2 and len({len(row) for row in rows}) == 1, section.get('id') + ': rows'
    for column in list(zip(*rows[1:])):
        assert any(re.match(r'[0-9]', cell) for cell in column), section.get('id') + ': no number'
data = json.loads([e for e in tree.parse(sys.argv[1]).iter('script')][0].text)
assert [plot['id'] for plot in data['plots']][:2] == ['latency', 'bandwidth'], 'data'
)";
    return tools::run_program({"python3", "-c", kCheck, file, is_busy(told) ? "busy" : ""},
                              kTimeoutMs)
        .error;
}

TEST_F(Report, quick_page_has_a_plot_and_a_table_in_every_section_and_loads_nothing) {
    const Finished finished = tagwire({"report", file(), "--quick"});
    ASSERT_EQ(finished.status, 0) << finished.out << finished.error;
    const std::string html = page();
    for (const char* id :
         {"latency", "bandwidth", "bandwidthrelative", "rate", "depth", "threads", "latencytcp",
          "bandwidthtcp", "ratetcp", "selectionsm", "choicesm", "selectiontcp", "choicetcp"})
        EXPECT_EQ(count_of(html, std::string("<section id=\"") + id + "\">"), 1U) << id;
    EXPECT_EQ(fault_of(file(), finished.out), "");
    EXPECT_EQ(count_of(html, "<table class=\"summary\">"), 1U);
    EXPECT_EQ(html.find('`'), std::string::npos);
    for (const char* loads : {"src=", "href=\"http", "href='http", "url(http", "@import",
                              "<script src", "<script>", "<link", "<img", "<iframe"}) {
        EXPECT_EQ(count_of(html, loads), 0U) << loads;
    }
    EXPECT_NE(html.find("report " + file() + " --quick"), std::string::npos);
    EXPECT_NE(html.find("tagwire perf tag_lat --level uct --tl sm"), std::string::npos);
}

TEST_F(Report, measurement_of_ours_that_fails_is_named_in_the_page_and_is_status_1) {
    const Setting setting("TAGWIRE_RNDV_THRESHOLD", "rubbish");
    const Finished finished = tagwire({"report", file(), "--quick"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(page().find("Latency, sm, messaging layer: "), std::string::npos) << finished.out;
}

TEST_F(Report, demo_ends_with_it_and_has_other_libraries_beside_ours) {
    const Finished finished = Command("TAGWIRE_TEST_DEMO", {file()}).wait();
    EXPECT_EQ(finished.status, 0) << finished.out << finished.error;
    EXPECT_EQ(fault_of(file(), finished.out), "");
    const std::size_t told = finished.out.find("report: " + file() + "\ndemo: PASS, ");
    ASSERT_NE(told, std::string::npos) << finished.out;
    EXPECT_EQ(count_of(finished.out.substr(told), "\n"), 2U) << finished.out;
    EXPECT_NE(finished.out.find(" results validated\n", told), std::string::npos) << finished.out;
    for (const char* row : {"sm/memory", "rc/", "dc/", "ud/"})
        EXPECT_NE(finished.out.find(row), std::string::npos) << row << "\n" << finished.out;
    if (is_busy(finished.out))
        return;
    if (!tools::has_program("ucx_perftest") || !tools::has_program("fi_pingpong"))
        TW_SKIP("ucx_perftest or fi_pingpong is not installed");
    const std::string html = page();
    // In the summary and in the tables of latency, bandwidth twice, and rate; latency, clients.
    EXPECT_EQ(count_of(html, "<th>UCX, posix+cma</th>"), 5U) << finished.out;
    EXPECT_EQ(count_of(html, "<th>libfabric, shm</th>"), 3U) << finished.out;
    EXPECT_EQ(count_of(html, "<th>UCX, tcp</th>"), 4U) << finished.out;
    EXPECT_EQ(count_of(html, "<th>libfabric, tcp</th>"), 2U) << finished.out;
    EXPECT_EQ(count_of(html, "<section id=\"clients\">"), 1U) << finished.out;
}

TEST_F(Report, file_that_cannot_be_written_is_found_before_measuring) {
    const Finished finished = tagwire({"report", "/proc/nowhere/page.html"});
    EXPECT_EQ(finished.status, 1);
    EXPECT_EQ(finished.out, "");
    EXPECT_NE(finished.error.find("/proc/nowhere/page.html"), std::string::npos);
}

TEST_F(Report, that_is_interrupted_leaves_no_file) {
    Command report("TAGWIRE_TEST_COMMAND", {"report", file()});
    EXPECT_NE(report.read_line(), "") << "it says what it measures";
    report.send(SIGINT);
    EXPECT_EQ(report.wait().status, 128 + SIGINT);
    EXPECT_TRUE(fs::is_empty(fs::path(file()).parent_path()));
}

TEST_F(Report, without_gnuplot_says_what_to_install) {
    const SearchPath path("/nowhere");
    const Finished finished = tagwire({"report", file()});
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("gnuplot-nox"), std::string::npos) << finished.error;
    EXPECT_FALSE(fs::exists(file()));
}

TEST(ReportCommand, wrong_usage_is_status_2) {
    const std::string never = "/tmp/test-never.html";
    EXPECT_EQ(tagwire({"report"}).status, 2);
    EXPECT_EQ(tagwire({"report", never, "--slow"}).status, 2);
    for (const char* list : {"pigeon", "ucx,pigeon", "", "ucx,,libfabric"}) {
        const Finished finished = tagwire({"report", never, "--compare", list});
        EXPECT_EQ(finished.status, 2) << list;
        EXPECT_NE(finished.error.find("ucx, libfabric"), std::string::npos) << finished.error;
    }
    EXPECT_FALSE(fs::exists(never));
}

}  // namespace
}  // namespace tagwire::test
