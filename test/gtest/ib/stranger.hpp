// SPDX-License-Identifier: BSD-3-Clause
// A hostile program: two plain queue pairs that pretend to be an endpoint of rc and send arbitrary
// messages. Hostile tests and the fuzz target attack an interface with it.
//
// Owner thread only. The interface of the attacked endpoint must be progressed too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "entity.hpp"
#include "ib/verbs_parts.hpp"
#include "uct/ib/completion_queue.hpp"

namespace tagwire::test {

class Stranger {
  public:
    static constexpr std::size_t kMessageBytesMax = 2048;

    /// The way a message travels.
    struct Way {
        std::optional<std::uint32_t> imm = {};
        ibv_wr_opcode opcode = IBV_WR_SEND;  // with an immediate where there is one
        std::uint64_t remote_addr = 0;
        std::uint32_t rkey = 0;
        bool to_other = false;  // to the queue pair for ends of rendezvous only, where there is one
    };

    explicit Stranger(const ib::IbMd& md);
    ~Stranger();

    /// Connects with `ep` of `victim`, which may have `credits` messages under way.
    void connect(const Entity& victim, uct_ep_h ep, std::uint16_t credits);

    /// Where the next message's bytes go, kMessageBytesMax at most. Not to be asked while full.
    [[nodiscard]] std::byte* place() { return memory_.at(sent_ % kPlaces * kMessageBytesMax); }
    /// Sends the first bytes of place().
    void send(std::size_t bytes, const Way& way);
    /// Polls once.
    void progress();

    /// As much is under way as there are places.
    [[nodiscard]] bool is_full() const { return sent_ - completed_ == kPlaces; }
    /// All that was sent was received or failed.
    [[nodiscard]] bool is_idle() const { return sent_ == completed_; }
    /// The victim matches by device, so it has a queue pair for ends of rendezvous.
    [[nodiscard]] bool has_two() const { return has_two_; }
    /// Memory that the victim may read.
    [[nodiscard]] std::uint64_t memory_address() {
        return reinterpret_cast<std::uintptr_t>(memory_.at(0));
    }
    [[nodiscard]] std::uint32_t rkey() const { return memory_.rkey(); }

  private:
    static constexpr unsigned kPlaces = 16;
    static constexpr unsigned kReceives = 8;

    void connect(unsigned which, std::uint32_t peer, std::uint32_t psn);
    void post_receive(unsigned which);

    const ib::IbMd& md_;
    Memory memory_;  // places to send from; after them what comes
    ib::CompletionQueue cq_;
    ib::OwnedQp qps_[2] = {{nullptr, nullptr}, {nullptr, nullptr}};
    unsigned sent_ = 0, completed_ = 0;
    bool has_two_ = false;
};

}  // namespace tagwire::test
