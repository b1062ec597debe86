// SPDX-License-Identifier: BSD-3-Clause
// Memory that a kernel refuses to register: by what it is mapped for, and by its amount. The limit
// holds in a test whatever the user may do, because the environment has TAGWIRE_VHCA_MEMLOCK=all.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class Mapped {
  public:
    explicit Mapped(int protection, std::size_t bytes = kMiB)
        : bytes_(bytes),
          memory_(static_cast<char*>(mmap(nullptr, bytes, protection,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
    ~Mapped() { munmap(memory_, bytes_); }
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    [[nodiscard]] char* at(std::size_t offset) const { return memory_ + offset; }

  private:
    std::size_t bytes_;
    char* memory_;
};

class VhcaPinning : public testing::Test {
  protected:
    VhcaPinning() {
        ibv_device** list = ibv_get_device_list(nullptr);
        context_ = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        pd_ = ibv_alloc_pd(context_);
    }
    ~VhcaPinning() override {
        EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
        EXPECT_EQ(ibv_close_device(context_), 0);
    }
    /// 0, and it is registered no more; or the errno value.
    [[nodiscard]] int error_of(void* base, std::size_t bytes, unsigned access) const {
        ibv_mr* mr = ibv_reg_mr(pd_, base, bytes, access);
        const int error = mr == nullptr ? errno : 0;
        if (mr != nullptr) {
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
        }
        return error;
    }

    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
};

void limit_to(rlim_t bytes) {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

TEST_F(VhcaPinning, read_only_memory_takes_no_right_to_change_it) {
    const Mapped memory(PROT_READ);
    for (const unsigned access : {unsigned{IBV_ACCESS_LOCAL_WRITE}, unsigned{IBV_ACCESS_MW_BIND},
                                  IBV_ACCESS_LOCAL_WRITE | unsigned{IBV_ACCESS_REMOTE_WRITE}}) {
        EXPECT_EQ(error_of(memory.at(0), kMiB, access), EFAULT) << access;
    }
    EXPECT_EQ(error_of(memory.at(0), kMiB, unsigned{IBV_ACCESS_REMOTE_READ}), 0);
    EXPECT_EQ(error_of(memory.at(0), kMiB, 0), 0);
}

TEST_F(VhcaPinning, memory_without_access_takes_no_right_at_all) {
    const Mapped memory(PROT_NONE);
    EXPECT_EQ(error_of(memory.at(0), kMiB, unsigned{IBV_ACCESS_LOCAL_WRITE}), EFAULT);
    EXPECT_EQ(error_of(memory.at(0), kMiB, 0), EFAULT);
}

TEST_F(VhcaPinning, every_page_of_the_region_counts) {
    const Mapped memory(PROT_READ | PROT_WRITE);
    constexpr unsigned kWrite = IBV_ACCESS_LOCAL_WRITE;
    ASSERT_EQ(mprotect(memory.at(kMiB / 2), 4096, PROT_READ), 0);
    EXPECT_EQ(error_of(memory.at(0), kMiB, kWrite), EFAULT);
    EXPECT_EQ(error_of(memory.at(0), kMiB / 2, kWrite), 0);
    EXPECT_EQ(error_of(memory.at(0), kMiB / 2 + 1, kWrite), EFAULT);
    EXPECT_EQ(error_of(memory.at(kMiB / 2 + 4095), 1, kWrite), EFAULT);
    EXPECT_EQ(error_of(memory.at(kMiB / 2 + 4096), 1, kWrite), 0);
    ASSERT_EQ(munmap(memory.at(kMiB / 2), 4096), 0);
    EXPECT_EQ(error_of(memory.at(0), kMiB, 0), EFAULT);
    EXPECT_EQ(error_of(memory.at(kMiB / 2), 1, 0), EFAULT);
}

TEST_F(VhcaPinning, new_right_to_change_is_looked_at_as_a_new_region) {
    const Mapped memory(PROT_READ), other(PROT_READ);
    ibv_mr* mr = ibv_reg_mr(pd_, memory.at(0), kMiB, 0);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
        IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other.at(0), kMiB, 0), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(VhcaPinning, more_than_the_limit_is_no_memory) {
    const Mapped memory(PROT_READ | PROT_WRITE, 4 * kMiB);
    limit_to(2 * kMiB);
    constexpr unsigned kWrite = IBV_ACCESS_LOCAL_WRITE;
    EXPECT_EQ(error_of(memory.at(0), 2 * kMiB + 1, kWrite), ENOMEM);
    EXPECT_EQ(error_of(memory.at(0), 2 * kMiB, kWrite), 0);
    EXPECT_EQ(error_of(memory.at(1), 2 * kMiB, kWrite), ENOMEM);  // a page more
    ibv_mr* first = ibv_reg_mr(pd_, memory.at(0), kMiB, kWrite);
    ASSERT_NE(first, nullptr);
    ibv_mr* again = ibv_reg_mr(pd_, memory.at(0), kMiB, kWrite);  // counts once more
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(error_of(memory.at(kMiB), 1, kWrite), ENOMEM);
    EXPECT_EQ(ibv_dereg_mr(again), 0);
    EXPECT_EQ(error_of(memory.at(kMiB), kMiB, kWrite), 0);
    EXPECT_EQ(ibv_dereg_mr(first), 0);
}

TEST_F(VhcaPinning, refused_region_counts_for_nothing) {
    const Mapped none(PROT_NONE), memory(PROT_READ | PROT_WRITE);
    limit_to(kMiB);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(error_of(none.at(0), kMiB, 0), EFAULT);
    EXPECT_EQ(error_of(memory.at(0), kMiB, unsigned{IBV_ACCESS_REMOTE_WRITE}), EINVAL);
    EXPECT_EQ(error_of(memory.at(0), kMiB, 0), 0);
}

TEST_F(VhcaPinning, child_of_a_fork_has_a_count_of_its_own) {
    const Mapped memory(PROT_READ | PROT_WRITE);
    limit_to(kMiB);
    ibv_mr* mr = ibv_reg_mr(pd_, memory.at(0), kMiB, 0);
    ASSERT_NE(mr, nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ibv_device** list = ibv_get_device_list(nullptr);
        ibv_context* context = ibv_open_device(list[0]);
        ibv_pd* pd = ibv_alloc_pd(context);
        const bool is_first = ibv_reg_mr(pd, memory.at(0), kMiB, 0) != nullptr;
        static_cast<void>(ibv_dereg_mr(mr));  // the parent's: gives nothing back here
        const bool is_second = ibv_reg_mr(pd, memory.at(0), kMiB, 0) == nullptr;
        _exit(is_first && is_second ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace tagwire::test
