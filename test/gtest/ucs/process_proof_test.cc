// SPDX-License-Identifier: BSD-3-Clause
// Memory of a process is told from that of another one at the same address.
#include "ucs/sys/process_proof.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace tagwire::ucs {
namespace {

/// A child that does something, says so, and waits for its end.
class ProofChild {
  public:
    template <class Function>
    explicit ProofChild(Function function) {
        int ends[2];
        EXPECT_EQ(0, ::pipe2(ends, O_CLOEXEC));
        pid_ = ::fork();
        if (pid_ == 0) {
            function(ends[1]);
            ::pause();
            ::_exit(0);
        }
        ::close(ends[1]);
        EXPECT_LE(0, ::read(ends[0], &told_, sizeof told_));
        ::close(ends[0]);
    }
    ~ProofChild() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ProofChild(const ProofChild&) = delete;
    ProofChild& operator=(const ProofChild&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] const ProcessProof& told() const { return told_; }

  private:
    pid_t pid_ = -1;
    ProcessProof told_;
};

class ProcessProofTest : public ::testing::Test {
  protected:
    void SetUp() override {
        OwnProof own;
        ASSERT_EQ(UCS_OK, own.open());
        if (read(::getpid(), own.get()) == UCS_ERR_REJECTED)
            GTEST_SKIP() << "process_vm_readv is not permitted";
    }
    ucs_status_t read(pid_t pid, const ProcessProof& proof) {
        const iovec pieces[] = {{got_.data(), 3}, {got_.data() + 3, got_.size() - 3}};
        return process_read_proved(pid, proof, pieces, 2,
                                   reinterpret_cast<std::uintptr_t>(there_.data()), there_.size());
    }
    static inline std::array<char, 64> there_{};  // at this address in each child, too
    std::array<char, 64> got_{};
};

TEST_F(ProcessProofTest, data_is_taken_from_the_process_with_the_word) {
    const ProofChild child([](int fd) {
        auto* own = new OwnProof;
        static_cast<void>(own->open());
        there_.fill('A');
        const ProcessProof proof = own->get();
        static_cast<void>(::write(fd, &proof, sizeof proof));
    });
    EXPECT_EQ(UCS_OK, read(child.pid(), child.told()));
    EXPECT_EQ('A', got_.front());
    EXPECT_EQ('A', got_.back());
    ProcessProof other = child.told();
    ++other.value;
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, read(child.pid(), other));
}

// As with a pid that was given to a child: its memory is a copy, but for the word.
TEST_F(ProcessProofTest, a_forked_child_does_not_have_the_word) {
    OwnProof own;
    ASSERT_EQ(UCS_OK, own.open());
    EXPECT_EQ(UCS_OK, read(::getpid(), own.get()));
    const ProofChild child([](int fd) { static_cast<void>(::write(fd, "x", 1)); });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, read(child.pid(), own.get()));
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, process_prove(child.pid(), own.get()));
}

TEST_F(ProcessProofTest, another_program_of_the_process_does_not_have_the_word) {
    OwnProof own;
    ASSERT_EQ(UCS_OK, own.open());
    const ProofChild child([](int) {  // the pipe closes with the program
        ::execl("/bin/sleep", "sleep", "100", nullptr);
    });
    EXPECT_EQ(UCS_ERR_CONNECTION_RESET, read(child.pid(), own.get()));
}

TEST_F(ProcessProofTest, memory_that_is_not_mapped_is_told_from_a_lost_process) {
    OwnProof own;
    ASSERT_EQ(UCS_OK, own.open());
    void* hole = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, hole);
    const iovec piece{got_.data(), 8};
    EXPECT_EQ(UCS_ERR_INVALID_ADDR, process_read_proved(::getpid(), own.get(), &piece, 1,
                                                        reinterpret_cast<std::uintptr_t>(hole), 8));
    ::munmap(hole, 4096);
}

}  // namespace
}  // namespace tagwire::ucs
