// SPDX-License-Identifier: BSD-3-Clause
// A memory domain, queue pairs and memory from the verbs base alone: what tests put at the other
// end of a transport or a queue. No GoogleTest, so that fuzz targets use it too: what fails throws.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "uct/ib/ib_md.hpp"

namespace tagwire::test {

/// Throws std::runtime_error naming `what` unless `good`.
void require(bool good, const char* what);

/// The memory domain of vhca0.
class VhcaMd {
  public:
    explicit VhcaMd(bool fork = false);
    ib::IbMd& operator*() const { return static_cast<ib::IbMd&>(*md_); }
    ib::IbMd* operator->() const { return &**this; }

  private:
    std::unique_ptr<uct::Md> md_;
};

/// Whom a queue pair is connected to, and how.
struct Peer {
    std::uint32_t qp_num;   // of the same device
    std::uint32_t psn = 0;  // of its first packet
    std::uint8_t timeout = 14;
};

/// A reliable queue pair in the first state: of `attr` the queues and how many may be posted.
ib::OwnedQp make_qp(const ib::IbMd& md, ibv_qp_init_attr attr);
/// Through all states to RTS.
void connect(const ib::IbMd& md, ibv_qp& qp, const Peer& peer);

/// Registered memory of a test.
class Memory {
  public:
    Memory(const ib::IbMd& md, std::size_t bytes);
    [[nodiscard]] std::byte* at(std::size_t offset) { return bytes_.data() + offset; }
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t bytes);
    [[nodiscard]] std::uint32_t lkey() const { return mr_->lkey; }
    [[nodiscard]] std::uint32_t rkey() const { return mr_->rkey; }
    /// Bytes that tell messages apart.
    void fill(std::size_t offset, std::size_t bytes, unsigned seed);
    [[nodiscard]] bool has(std::size_t offset, std::size_t bytes, unsigned seed) const;

  private:
    std::vector<std::byte> bytes_;
    ib::OwnedMr mr_;
};

std::byte pattern(std::size_t index, unsigned seed);

}  // namespace tagwire::test
