// SPDX-License-Identifier: BSD-3-Clause
// Files of the emulated kernel, asked in odd ways. Starts with the driver face preloaded.
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/test/driver/devx_program.hpp"

namespace tagwire::vhca::driver::test {
namespace {

class VhcaFiles : public DevxProgram {
  protected:
    static void* nowhere() {
        static std::uintptr_t at = 0x1000;  // below what may be mapped
        return reinterpret_cast<void*>(at);
    }
    int write_pieces(const iovec* pieces, int count) {
        return ::writev(context->cmd_fd, pieces, count) < 0 ? errno : 0;
    }
};

TEST_F(VhcaFiles, a_command_may_come_in_pieces) {
    ib_uverbs_query_device_resp response{};
    ib_uverbs_query_device request{};
    request.response = reinterpret_cast<std::uint64_t>(&response);
    ib_uverbs_cmd_hdr header{.command = IB_USER_VERBS_CMD_QUERY_DEVICE,
                             .in_words = (sizeof header + sizeof request) / 4,
                             .out_words = sizeof response / 4};
    const iovec pieces[] = {{&header, sizeof header}, {nullptr, 0}, {&request, sizeof request}};
    EXPECT_EQ(write_pieces(pieces, 3), 0);
    EXPECT_EQ(response.phys_port_cnt, 1);
}

TEST_F(VhcaFiles, pieces_that_cannot_be_read_are_refused) {
    ib_uverbs_cmd_hdr header{};
    const iovec bad[] = {{&header, sizeof header}, {nowhere(), 16}};
    EXPECT_EQ(write_pieces(bad, 2), EFAULT);
    EXPECT_EQ(write_pieces(static_cast<const iovec*>(nowhere()), 1), EFAULT);
    const iovec endless[] = {{&header, sizeof header}, {&header, SIZE_MAX}};
    EXPECT_EQ(write_pieces(endless, 2), EINVAL);
    EXPECT_EQ(write_pieces(bad, -1), EINVAL);
    EXPECT_EQ(write_pieces(bad, 0), 0);
}

TEST_F(VhcaFiles, folders_beside_those_of_rdma_are_the_real_ones) {
    struct stat here {
    }, there{};
    ASSERT_EQ(::stat("/sys/class", &there), 0);
    ASSERT_EQ(::stat("/sys/class/infiniband/..", &here), 0);
    EXPECT_EQ(here.st_ino, there.st_ino);
    ASSERT_EQ(::stat("/dev/null", &there), 0);
    ASSERT_EQ(::stat("/dev/infiniband/../null", &here), 0);
    EXPECT_EQ(here.st_rdev, there.st_rdev);
    ASSERT_EQ(::stat("/sys/class/infiniband/../../../dev/null", &here), 0);
    EXPECT_EQ(here.st_rdev, there.st_rdev);
}

TEST_F(VhcaFiles, a_node_is_one_by_whatever_way_it_is_named) {
    for (const char* path : {"/dev/infiniband/uverbs0", "/dev/infiniband/../infiniband/uverbs0",
                             "/dev//infiniband/./uverbs0", "/dev/char/231:192"}) {
        const int fd = ::open(path, O_RDWR | O_CLOEXEC);
        ASSERT_GE(fd, 0) << path;
        struct stat facts {};
        ASSERT_EQ(::fstat(fd, &facts), 0);
        EXPECT_TRUE(S_ISCHR(facts.st_mode)) << path;
        EXPECT_EQ(::close(fd), 0);
    }
    EXPECT_EQ(::open("/dev/infiniband/uverbs00", O_RDWR | O_CLOEXEC), -1);
    EXPECT_EQ(::open("/dev/infiniband/uverbs4294967296", O_RDWR | O_CLOEXEC), -1);
}

}  // namespace
}  // namespace tagwire::vhca::driver::test
