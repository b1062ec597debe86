// SPDX-License-Identifier: BSD-3-Clause
// Two connected RC queue pairs of one process on the virtual HCA, from the verbs base alone: what
// makes completions for its tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "ib/verbs_parts.hpp"
#include "uct/ib/completion_queue.hpp"

namespace tagwire::test {

struct LoopOptions {
    bool has_tags = false;  // the target's receives are on a tag-matching SRQ
    bool has_channel = false;
};

/// `source` sends to `target`; each has a completion queue of its own.
class Loop {
  public:
    explicit Loop(const LoopOptions& options = {});
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    void post_receive(std::uint64_t wr_id);
    /// `bytes` from the beginning of the buffer.
    void send(std::uint64_t wr_id, std::uint32_t bytes);
    void post(ibv_send_wr* wr, std::uint32_t bytes);
    void post_tag(std::uint64_t wr_id, std::uint64_t tag);
    void fail_target();  // brings its queue pair into the error state

    /// The next completion; fails the test when none comes.
    static ib::Completion wait(ib::CompletionQueue& queue);
    /// The next `count`, in their order.
    static std::vector<ib::Completion> wait(ib::CompletionQueue& queue, std::size_t count);

    VhcaMd md;
    ib::OwnedChannel channel{nullptr, nullptr};
    ib::CompletionQueue source_cq;
    ib::CompletionQueue target_cq;
    ib::OwnedSrq srq{nullptr, nullptr};
    ib::OwnedQp source{nullptr, nullptr};
    ib::OwnedQp target{nullptr, nullptr};
    alignas(4096) std::array<std::byte, 8192> buffer{};
    uct_mem_h memory = nullptr;

  private:
    void make_srq();
    ibv_sge element(std::size_t offset, std::uint32_t bytes) const;
};

}  // namespace tagwire::test
