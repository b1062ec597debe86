// SPDX-License-Identifier: BSD-3-Clause
// Both ends of reliable connections of one device in this process, made of real verbs objects
// without a transport. Tests of the receive queue and of the tag list send and receive with them.
#pragma once

#include <endian.h>
#include <gtest/gtest.h>
#include <infiniband/tm_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ib/verbs_parts.hpp"
#include "uct/ib/completion_queue.hpp"

namespace tagwire::test {

/// Calls of progress before a test gives up.
inline constexpr int kStepsMax = 2'000'000;

/// Sends to the queue pair of a receiver's SRQ, and gets FINs.
class Sender {
  public:
    static constexpr std::size_t kMessageBytesMax = 16384;

    /// `srq` is that of the receiver, `cq` where its completions go.
    Sender(const ib::IbMd& md, ibv_srq* srq, ibv_cq* cq, std::uint8_t timeout = 14);
    ~Sender();

    struct Tagged {
        ibv_tmh_op opcode = IBV_TMH_EAGER;
        std::uint64_t tag = 0;
        std::uint32_t app_ctx = 0;
        std::optional<std::uint32_t> imm = std::nullopt;
    };
    /// The messages of all these calls arrive in order; the bytes are copied.
    void send(std::span<const std::byte> message, std::optional<std::uint32_t> imm = {});
    void send_no_tag(std::size_t bytes, unsigned seed);
    void send_eager(const Tagged& header, std::size_t bytes, unsigned seed);
    /// The data lies in `source` from 0 on.
    void send_rendezvous(const Tagged& header, Memory& source, std::size_t bytes,
                         std::uint32_t rkey);

    /// Polls once.
    void progress();
    /// Answers nothing any more.
    void die();
    /// As much is under way as there are places.
    [[nodiscard]] bool is_full() const { return sent_ - completed_ == kSendsMax; }
    /// All that was sent was received or failed.
    [[nodiscard]] bool is_idle() const { return sent_ == completed_; }
    [[nodiscard]] bool has_failed() const { return has_failed_; }
    [[nodiscard]] unsigned fins() const { return fins_; }
    /// The receiver's end of the connection.
    [[nodiscard]] ibv_qp& far_qp() { return *far_qp_; }
    void destroy_far_qp() { far_qp_.reset(); }

  private:
    static constexpr unsigned kSendsMax = 64;

    void post_fin_receive();
    /// A place for the next message.
    std::byte* claim();
    void post(std::size_t bytes, std::optional<std::uint32_t> imm);

    const ib::IbMd& md_;
    ib::CompletionQueue cq_;
    ib::OwnedQp qp_{nullptr, nullptr};
    ib::OwnedQp far_qp_{nullptr, nullptr};
    std::unique_ptr<Memory> places_;
    std::unique_ptr<Memory> fin_;
    std::uint64_t sent_ = 0, completed_ = 0;
    unsigned fins_ = 0;
    bool has_failed_ = false;
};

}  // namespace tagwire::test
