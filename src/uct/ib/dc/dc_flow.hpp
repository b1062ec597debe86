// SPDX-License-Identifier: BSD-3-Clause
// The flow control of dc: senders ask a target how many messages it has handled, and it replies.
//
//   endpoint --"n sent" (ask)-->
//            <--"n handled" (grant), when it has handled them-- through an endpoint back, made from
//                                                               the address in the question
//
// Questions and answers may come from anybody; a lost one is repeated.
//
// Threads: owner of the interface.
// Invariants
//  (1) An endpoint asks when it has sent half of what it may, and waits when it has sent all.
//  (2) At most kAnswersMax answers wait for room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/dc/dc_ep.hpp"
#include "uct/ib/flow_control.hpp"

namespace tagwire::dc {

class DcFlow final : public ib::FlowControl {
  public:
    explicit DcFlow(DcIface& owner) : owner_(owner) {}

    /// Messages that an endpoint may send before it asks.
    [[nodiscard]] std::uint32_t half_window() const;
    bool ask(DcEp& ep);
    void take_question(const std::byte* content);
    void take_grant(const std::byte* content);

    void keep(ib::MessageEp* ep, std::byte* message) override;
    void released(std::uint64_t ep_id) override;
    void tell_released(ib::MessageEp&) override {}  // who wants to know asks
    void send_owed() override;
    [[nodiscard]] bool owes() const override;
    bool sends_again(ib::MessageEp& ep) override;

  private:
    static constexpr std::size_t kAnswersMax = 1U << 16;
    struct Answer {
        ReturnAddress to;
        Progress progress;
    };

    bool send_answer(const Answer& answer);

    DcIface& owner_;
    ucs::ReserveVector<Answer> answers_;
};

}  // namespace tagwire::dc
