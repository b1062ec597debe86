// SPDX-License-Identifier: BSD-3-Clause
// One side of raw_tm_pingpong: a device, a tag-matching SRQ and the two queue pairs to the peer.
//
//     send queue of the one  ---->  queue pair of the tag-matching SRQ of the other, which has no
//     send queue of its own: the device would answer rendezvous with it
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace raw {

inline constexpr std::uint64_t kAhead = 2;  // receives beyond the one that is waited for

[[noreturn, gnu::format(printf, 1, 2)]] void die(const char* format, ...);
/// For calls that return errno, or -1 and set it.
void must(int error, const char* what);

struct Options {
    const char* device = nullptr;
    int gid_index = 0;
    std::size_t size = 8;
    std::uint64_t iterations = 100000;
    std::uint64_t warmup = 10000;
    std::array<int, 2> cpus{0, 1};
};

/// Connection data for the other side.
struct Place {
    std::uint32_t send_qpn;
    std::uint32_t tag_qpn;
    ibv_gid gid;
    std::uint16_t lid;
    bool is_ethernet;
};

/// To the other process. Silent while messages are measured.
class Socket {
  public:
    explicit Socket(int fd) : fd_(fd) {}

    Place swap(const Place& mine) const;
    void barrier() const;
    /// Ends this process when the other one has ended.
    void check() const;

  private:
    int fd_;
};

class Side {
  public:
    Side(const Options& options, const Socket& socket);
    ~Side();
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;

    void add(std::uint64_t tag);
    void send(std::uint64_t tag);
    /// Polls until so many ADDs were acknowledged, or tagged messages received, in all.
    void wait_added(std::uint64_t count);
    void wait_received(std::uint64_t count);

  private:
    void make_srq();
    void make_queue_pairs();
    void connect(ibv_qp* qp, std::uint32_t qpn, const Place& theirs) const;
    [[nodiscard]] Place place() const;
    void post_untagged();
    void poll();
    void take_completion();
    void reap_sends();

    const Options& options_;
    const Socket& socket_;
    std::vector<std::uint8_t> memory_;
    ibv_context* context_;
    ibv_port_attr port_{};
    ibv_pd* pd_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_cq_ex* tag_cq_ = nullptr;
    ibv_cq* send_cq_ = nullptr;
    ibv_srq* srq_ = nullptr;
    ibv_qp* tag_qp_ = nullptr;
    ibv_qp* send_qp_ = nullptr;
    std::uint64_t added_ = 0;
    std::uint64_t received_ = 0;
    unsigned sends_since_signal_ = 0;
    unsigned sends_outstanding_ = 0;
};

}  // namespace raw
