// SPDX-License-Identifier: BSD-3-Clause
// A device of this process with what a test needs around it: memory, a queue, one RC queue pair.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vhca/core/objects.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::test {

/// What a peer needs to know.
struct Address {
    std::uint64_t base = 0;
    std::uint32_t qpn = 0, rkey = 0;
    std::uint32_t lid = 0;
    std::uint32_t spare = 0;
};

/** Posts and polls as a face does. */
class Host {
  public:
    /// ok() tells whether all could be made.
    explicit Host(std::size_t memory_bytes, const vhca::EngineConfig& config = default_config());
    ~Host();
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    static vhca::EngineConfig default_config();

    [[nodiscard]] bool ok() const { return qp_ != nullptr; }
    [[nodiscard]] Address address() const;
    /// `timeout` and `retries` as in ibv_modify_qp(3).
    bool connect(const Address& peer, std::uint8_t timeout = 12, std::uint8_t retries = 7);

    int post_recv(std::size_t offset, std::uint32_t bytes);
    int post_send(std::size_t offset, std::uint32_t bytes, unsigned flags = IBV_SEND_SIGNALED);
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
