// SPDX-License-Identifier: BSD-3-Clause
// Jobs that a PMIx launcher started: Open MPI's mpirun, with ranks from rank.c.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "common/skip.hpp"
#include "job.hpp"

namespace tagwire::test {
namespace {

bool is_installed(const std::string& program) {
    std::istringstream path(std::getenv("PATH") == nullptr ? "" : std::getenv("PATH"));
    for (std::string directory; std::getline(path, directory, ':');)
        if (::access(directory.append("/").append(program).c_str(), X_OK) == 0)
            return true;
    return false;
}

std::string text_of(const std::string& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

#define TW_NEEDS_MPIRUN()                                             \
    do {                                                              \
        if (!TAGWIRE_TEST_HAS_PMIX)                                   \
            TW_SKIP("built without PMIx's header (libpmix-dev)");     \
        if (!is_installed("mpirun"))                                  \
            TW_SKIP("mpirun is not installed (package openmpi-bin)"); \
    } while (false)

class BootstrapPmix : public ::testing::Test {
  protected:
    static constexpr const char* kAllRanks = "0 1 2";
    static constexpr int kJobMs = 120'000;  // longer than a rank lives, see rank.c
    static constexpr int kLeaveMs = 5'000;

    /// Exit status of `command`; what it printed is in output_. A launcher may hang, which is said
    /// there, too: it has kJobMs, and kLeaveMs from when all its ranks have ended well.
    int run(const std::vector<std::string>& command) {
        const std::string log = directory_.path() + "/output";
        Process process([&] { become(command, log); });
        const bool has_ended = ends_in_time(process);
        if (!has_ended)
            process.kill_group_now();
        output_ = text_of(log) + text_of(directory_.path() + "/words");
        if (has_ended)
            return process.join();
        const std::string verdict = "the test killed " + command.front() +
                                    ", which hung; ranks that were well: " + ranks_well() + "\n";
        std::fputs(verdict.c_str(), stderr);
        output_ += verdict;
        return 128 + SIGKILL;
    }

    void become(const std::vector<std::string>& command, const std::string& log) const {
        ::setpgid(0, 0);
        ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
        const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::dup2(fd, STDOUT_FILENO);
        ::dup2(fd, STDERR_FILENO);
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        ::setenv("TMPDIR", directory_.path().c_str(), 1);  // the launcher leaves some there
        ::setenv("OMPI_MCA_plm_rsh_agent", "true", 1);     // nothing is started elsewhere
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);     // libpmix keeps memory
        std::vector<char*> argv;
        for (const std::string& word : command)
            argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        ::execvp(argv[0], argv.data());
        ::_exit(127);
    }

    bool ends_in_time(const Process& process) const {
        constexpr int kLookMs = 20;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kJobMs);
        while (std::chrono::steady_clock::now() < end) {
            if (process.ends_within(kLookMs))
                return true;
            if (ranks_well() == kAllRanks)
                return process.ends_within(kLeaveMs);
        }
        return false;
    }

    int run_job(const std::string& scenario) {
        return run({"mpirun", "--oversubscribe", "-np", "3", rank_, scenario, directory_.path()});
    }

    /// Ranks that found all as it should be, which each of them notes when its job is closed. It
    /// tells what the launcher's status cannot: when ranks gave a fence up, Open MPI 4.1's mpirun
    /// can crash as it ends (in PMIx_server_finalize), or hang (in PMIx_server_deregister_client:
    /// the PMIx thread that it waits for is waiting for a mutex that nobody releases).
    std::string ranks_well() const {
        std::string ranks;
        for (const char* rank : {"0", "1", "2"}) {
            if (std::ifstream(directory_.path() + "/well." + rank).good())
                ranks.append(ranks.empty() ? "" : " ").append(rank);
        }
        return ranks;
    }

    int count(const std::string& part) const {
        int found = 0;
        for (std::size_t at = 0; (at = output_.find(part, at)) != std::string::npos; ++at)
            ++found;
        return found;
    }

    ScratchDirectory directory_;
    std::string rank_ = std::getenv("TAGWIRE_TEST_RANK");
    std::string output_;
};

TEST_F(BootstrapPmix, ranks_of_a_launcher_find_each_other) {
    TW_NEEDS_MPIRUN();
    EXPECT_EQ(0, run_job("gather")) << output_;
    for (const char* rank : {"pmix 0 of 3", "pmix 1 of 3", "pmix 2 of 3"})
        EXPECT_EQ(1, count(rank + std::string(" is well"))) << output_;
}

TEST_F(BootstrapPmix, different_lengths_are_refused_on_all_ranks) {
    TW_NEEDS_MPIRUN();
    EXPECT_EQ(0, run_job("lengths")) << output_;
}

TEST_F(BootstrapPmix, a_rank_that_does_not_call_is_named_to_all) {
    TW_NEEDS_MPIRUN();
    run_job("absent");
    EXPECT_EQ(kAllRanks, ranks_well()) << output_;
}

TEST_F(BootstrapPmix, a_rank_that_leaves_is_named_to_all) {
    TW_NEEDS_MPIRUN();
    run_job("leave");
    EXPECT_EQ(kAllRanks, ranks_well()) << output_;
}

TEST_F(BootstrapPmix, without_a_launcher_it_is_a_job_of_one_process) {
    ::unsetenv("PMIX_RANK");
    EXPECT_EQ(0, run({rank_, "gather", directory_.path()})) << output_;
    EXPECT_EQ(1, count("single 0 of 1 is well")) << output_;
}

TEST_F(BootstrapPmix, a_launcher_that_is_no_more_leaves_a_job_of_one_process) {
    TW_NEEDS_MPIRUN();
    ::setenv("PMIX_RANK", "0", 1);
    ::setenv("PMIX_NAMESPACE", "gone", 1);
    EXPECT_EQ(0, run({rank_, "gather", directory_.path()})) << output_;
    EXPECT_EQ(1, count("single 0 of 1 is well")) << output_;
    ::unsetenv("PMIX_RANK");
    ::unsetenv("PMIX_NAMESPACE");
}

TEST_F(BootstrapPmix, who_insists_on_it_is_told_that_no_launcher_answers) {
    TW_NEEDS_MPIRUN();
    Process process([] {
        tw_bootstrap_params_t params{};
        params.struct_bytes = sizeof params;
        params.method = TW_BOOTSTRAP_PMIX;
        tw_bootstrap_h job = nullptr;
        expect_failure(TW_ERR_UNREACHABLE, tw_bootstrap_create(&params, &job),
                       "no PMIx launcher answers");
    });
    EXPECT_EQ(0, process.join());
}

}  // namespace
}  // namespace tagwire::test
