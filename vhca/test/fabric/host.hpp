// SPDX-License-Identifier: BSD-3-Clause
// A device of this process with the objects that a test needs: memory, a CQ, one RC queue pair.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vhca/core/objects.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::test {

/// Address information for a peer.
struct Address {
    std::uint64_t base = 0;
    std::uint32_t qpn = 0, rkey = 0;
    std::uint32_t node = 0;  // LID, or IPv4 address over UDP
    std::uint32_t spare = 0;
};

/// For this process's own use, now: no two processes get the same. On the loopback interface.
std::string loopback_address(unsigned number = 1);
/// Over UDP, at `address`.
vhca::EngineConfig udp_config(const std::string& address);
/// Where the node is, for Engine::route_of() and modify().
ibv_ah_attr path_to(const vhca::Engine& engine, std::uint32_t node);

/** Posts and polls as a face does. */
class Host {
  public:
    /// ok() tells whether all could be made.
    explicit Host(std::size_t memory_bytes, const vhca::EngineConfig& config = default_config());
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    /// Shared memory; with TAGWIRE_TEST_FABRIC=udp UDP, each process at an address of its own.
    static vhca::EngineConfig default_config();

    [[nodiscard]] bool ok() const { return qp_ != nullptr; }
    [[nodiscard]] Address address() const;
    /// `timeout` and `retries` as in ibv_modify_qp(3); both sides begin with `psn`.
    bool connect(const Address& peer, std::uint8_t timeout = 12, std::uint8_t retries = 7,
                 std::uint32_t psn = 0);

    int post_recv(std::size_t offset, std::uint32_t bytes);
    int post_send(std::size_t offset, std::uint32_t bytes, unsigned flags = IBV_SEND_SIGNALED);
    /// Any request. Atomics add 1, or change 1 to 0; immediate data is 0x01020304.
    int post_rdma(ibv_wr_opcode opcode, std::size_t offset, std::uint32_t bytes, const Address& to,
                  std::size_t to_offset);
    /// One try; yields now and then when there is nothing.
    bool poll(vhca::Completion* completion_p);
    /// Polls until there is a completion.
    ibv_wc wait();

    std::byte* memory(std::size_t offset = 0) { return memory_.data() + offset; }
    vhca::Engine& engine() { return *engine_; }
    vhca::Cq& cq() { return *cq_; }
    vhca::Qp& qp() { return *qp_; }

  private:
    ibv_sge sge(std::size_t offset, std::uint32_t bytes);

    std::vector<std::byte> memory_;
    vhca::Engine* engine_ = nullptr;
    vhca::Pd* pd_ = nullptr;
    vhca::Mr* mr_ = nullptr;
    vhca::Cq* cq_ = nullptr;
    vhca::Qp* qp_ = nullptr;
    unsigned empty_polls_ = 0;
};

/// Gives own address to the process at the other end of `socket` and takes its.
bool exchange(int socket, const Address& own, Address* peer_p);
/// Waits until the other end has come here, too.
bool meet(int socket);

}  // namespace tagwire::test
