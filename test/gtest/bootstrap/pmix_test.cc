// SPDX-License-Identifier: BSD-3-Clause
// Jobs that a PMIx launcher started: Open MPI's mpirun, with ranks from rank.c.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
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

#define TW_NEEDS_MPIRUN()                                             \
    do {                                                              \
        if (!TAGWIRE_TEST_HAS_PMIX)                                   \
            TW_SKIP("built without PMIx's header (libpmix-dev)");     \
        if (!is_installed("mpirun"))                                  \
            TW_SKIP("mpirun is not installed (package openmpi-bin)"); \
    } while (false)

class BootstrapPmix : public ::testing::Test {
  protected:
    /// Exit status of `command`; what it printed is in output_.
    int run(const std::vector<std::string>& command) {
        const std::string log = directory_.path() + "/output";
        Process process([&] {
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
        });
        const int status = process.join();
        std::ostringstream text;
        text << std::ifstream(log).rdbuf();
        output_ = text.str();
        return status;
    }

    int run_job(const std::string& scenario) {
        return run({"mpirun", "--oversubscribe", "-np", "3", rank_, scenario, directory_.path()});
    }

    /// Ranks that found all as it should be. It tells what the launcher's status cannot: Open MPI
    /// 4.1's mpirun can crash as it ends (in PMIx_server_finalize) when ranks gave a fence up.
    int ranks_well() const {
        int found = 0;
        for (int rank = 0; rank < 3; ++rank)
            found += std::ifstream(directory_.path() + "/well." + std::to_string(rank)).good();
        return found;
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
    EXPECT_EQ(3, ranks_well()) << output_;
}

TEST_F(BootstrapPmix, a_rank_that_leaves_is_named_to_all) {
    TW_NEEDS_MPIRUN();
    run_job("leave");
    EXPECT_EQ(3, ranks_well()) << output_;
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
