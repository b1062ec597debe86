// SPDX-License-Identifier: BSD-3-Clause
// Fixture of tests that use the virtual HCA through <infiniband/verbs.h>, linked with the drop-in
// libibverbs.so.1. Both ends are in this process, each with a context of its own.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tagwire::test {

inline constexpr std::uint32_t kQkey = 0x11111111;
inline constexpr unsigned kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

inline constexpr unsigned kUcRights = IBV_ACCESS_REMOTE_WRITE;

/// Where the port of `context` is: a LID, or a GID where it needs one.
ibv_ah_attr path_to(ibv_context* context);

/// Options of a side.
struct SideOptions {
    ibv_qp_type type = IBV_QPT_RC;
    bool has_srq = false;
    bool has_channel = false;
    std::uint64_t send_ops = 0;  // not 0: ibv_create_qp_ex
    std::uint64_t wc_flags = 0;  // not 0: ibv_create_cq_ex
    std::uint32_t inline_bytes = 64;
    std::size_t device = 0;  // in the list
};

/// Timeout and retries of a side that waits for its peer; ibv_modify_qp(3).
struct Patience {
    std::uint8_t timeout = 14, retry_cnt = 7, rnr_retry = 7;
};

/// One end: a context, a domain, one CQ for both queues, a QP and a registered buffer.
class Side {
  public:
    explicit Side(const SideOptions& options);
    ~Side();
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    /// Through all states to RTS.
    void connect(const Side& other);
    /// RC and UC: to a queue pair that may be in another process.
    void connect(const ibv_ah_attr& path, std::uint32_t qpn, const Patience& patience = {});
    int modify_to_init();

    int post_recv(std::uint64_t wr_id, std::size_t offset, std::uint32_t bytes) const;
    /// `wr` without its gather list: `bytes` from `offset` of the buffer.
    int post_send(ibv_send_wr wr, std::size_t offset, std::uint32_t bytes) const;
    /// The next completion; fails the test when none comes.
    [[nodiscard]] ibv_wc wait() const;
    /// The other side as target of RDMA at `offset`.
    ibv_send_wr remote(ibv_wr_opcode opcode, const Side& other, std::size_t offset) const;

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_comp_channel* channel = nullptr;
    ibv_cq_ex* cq_ex = nullptr;
    ibv_cq* cq = nullptr;
    ibv_srq* srq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_mr* mr = nullptr;
    ibv_ah* ah = nullptr;
    alignas(4096) std::array<unsigned char, 65536> buffer{};

  private:
    void make_cq(const SideOptions& options);
    void make_qp(const SideOptions& options);

    ibv_qp_type type_;
};

/// Two connected sides.
struct Pair {
    explicit Pair(const SideOptions& options = {}) : a(options), b(options) {
        a.connect(b);
        b.connect(a);
    }
    Side a, b;
};

/// The most polls before a wait gives up.
inline constexpr int kPollsMax = 20'000'000;

}  // namespace tagwire::test
