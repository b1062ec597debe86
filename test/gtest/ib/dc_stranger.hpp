// SPDX-License-Identifier: BSD-3-Clause
// A hostile program: an initiator that sends arbitrary messages to a target, and a target of its
// own that answers may go to. Hostile tests and the fuzz target attack a dc interface with it.
//
// Owner thread only. The interface that it sends to must be progressed too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ib/stranger.hpp"
#include "uct/ib/dc/dc_address.hpp"
#include "uct/ib/dc/dc_verbs.hpp"

namespace tagwire::test {

class DcStranger {
  public:
    static constexpr std::size_t kMessageBytesMax = Stranger::kMessageBytesMax;

    explicit DcStranger(const ib::IbMd& md);
    ~DcStranger();

    /// From now on it sends to the target of `victim`.
    void aim(const Entity& victim);
    /// Where the next message's bytes go. Not to be asked while full.
    [[nodiscard]] std::byte* place() { return memory_.at(sent_ % kPlaces * kMessageBytesMax); }
    /// Sends the first bytes of place(), with the target's key or another one.
    void send(std::size_t bytes, const Stranger::Way& way, bool has_key = true);
    /// Polls once; an initiator that failed starts anew.
    void progress();

    [[nodiscard]] bool is_full() const { return sent_ - completed_ == kPlaces; }
    /// All that was sent was received or failed.
    [[nodiscard]] bool is_idle() const { return sent_ == completed_; }
    /// Times that its initiator failed.
    [[nodiscard]] unsigned failures() const { return failures_; }
    /// Where it takes answers.
    [[nodiscard]] const dc::ReturnAddress& address() const { return address_; }
    /// Memory that the victim may read.
    [[nodiscard]] std::uint64_t memory_address() {
        return reinterpret_cast<std::uintptr_t>(memory_.at(0));
    }
    [[nodiscard]] std::uint32_t rkey() const { return memory_.rkey(); }

  private:
    static constexpr unsigned kPlaces = 16;
    static constexpr unsigned kReceives = 64;

    void make_ends();
    void post_receive();

    const ib::IbMd& md_;
    Memory memory_;  // places to send from; after them what comes
    ib::Port port_;
    const dc::DcVerbs* dc_ = nullptr;
    ib::CompletionQueue cq_;
    ib::OwnedSrq srq_{nullptr, nullptr};
    ib::OwnedQp target_{nullptr, nullptr};
    ib::OwnedAh path_{nullptr, nullptr};
    dc::InitiatorParams params_{};
    dc::Initiator initiator_;
    dc::TargetAddress victim_{};
    dc::ReturnAddress address_{};
    unsigned sent_ = 0, completed_ = 0, failures_ = 0;
    bool is_broken_ = false;
};

}  // namespace tagwire::test
