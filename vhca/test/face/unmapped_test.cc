// SPDX-License-Identifier: BSD-3-Clause
// Memory that is unmapped while it is registered: an error of the device, not the end of the
// process.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "vhca/test/face/fixture.hpp"

namespace tagwire::test {
namespace {

constexpr std::uint32_t kBytes = 8192;

/// Registered with side b's or a's domain, and gone since. Its place is kept: what is mapped there
/// next, by the allocator or a thread, would be read and written.
class Region {
  public:
    explicit Region(const Side& side)
        : memory_(
              mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
          mr_(ibv_reg_mr(side.pd, memory_, kBytes, int{kAllRights})) {
        EXPECT_NE(mr_, nullptr);
        EXPECT_EQ(mmap(memory_, kBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0),
                  memory_);
    }
    ~Region() {
        EXPECT_EQ(ibv_dereg_mr(mr_), 0);
        EXPECT_EQ(munmap(memory_, kBytes), 0);
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    [[nodiscard]] ibv_sge sge() const {
        return {reinterpret_cast<std::uintptr_t>(memory_), 64, mr_->lkey};
    }
    [[nodiscard]] ibv_send_wr remote(ibv_wr_opcode opcode) const {
        ibv_send_wr wr{};
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma.remote_addr = sge().addr;
        wr.wr.rdma.rkey = mr_->rkey;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr.wr.atomic.remote_addr = sge().addr;
            wr.wr.atomic.rkey = mr_->rkey;
        }
        return wr;
    }

  private:
    void* memory_;
    ibv_mr* mr_;
};

void expect_access_error(const Side& side) {
    pollfd asynchronous{side.context->async_fd, POLLIN, 0};
    ASSERT_EQ(poll(&asynchronous, 1, 20'000), 1) << "no event";
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(side.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    ibv_ack_async_event(&event);
}

TEST(VhcaUnmapped, peers_access_fails_like_one_with_a_bad_key) {
    for (const ibv_wr_opcode opcode :
         {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
        Pair pair;
        const Region gone(pair.b);
        ASSERT_EQ(pair.a.post_send(gone.remote(opcode), 0, 8), 0);
        EXPECT_EQ(pair.a.wait().status, IBV_WC_REM_ACCESS_ERR) << opcode;
        expect_access_error(pair.b);
    }
}

TEST(VhcaUnmapped, send_and_receive_fail_with_a_protection_error) {
    Pair pair;
    const Region gone_here(pair.a), gone_there(pair.b);
    ibv_sge sge = gone_there.sge();
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(pair.b.qp, &receive, &bad_receive), 0);
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ASSERT_EQ(pair.a.post_send(send, 0, 8), 0);
    EXPECT_EQ(pair.b.wait().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(pair.a.wait().status, IBV_WC_REM_OP_ERR);

    Pair other;
    const Region gone(other.a);
    sge = gone.sge();
    send.sg_list = &sge;
    send.num_sge = 1;
    ibv_send_wr* bad_send = nullptr;
    ASSERT_EQ(ibv_post_send(other.a.qp, &send, &bad_send), 0);
    EXPECT_EQ(other.a.wait().status, IBV_WC_LOC_PROT_ERR);
}

// In a process of its own, where no device was opened before.
TEST(VhcaUnmappedDeathTest, faults_of_the_program_go_to_the_handler_that_it_has) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto fault_with_a_device = [] {
        const Pair pair;
        kill(getpid(), SIGSEGV);
    };
    EXPECT_EXIT(
        {
            signal(SIGSEGV, [](int) { _exit(42); });
            fault_with_a_device();
        },
        testing::ExitedWithCode(42), "");
#if defined(__SANITIZE_ADDRESS__)
    EXPECT_EXIT(fault_with_a_device(), testing::ExitedWithCode(1), "AddressSanitizer");
#else
    EXPECT_EXIT(fault_with_a_device(), testing::KilledBySignal(SIGSEGV), "");
#endif
}

}  // namespace
}  // namespace tagwire::test
