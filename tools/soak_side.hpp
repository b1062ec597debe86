// SPDX-License-Identifier: BSD-3-Clause
// One side of a soak; one thread. Everything that goes wrong is a Failure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/msg_link.hpp"
#include "tools/random.hpp"
#include "tools/soak.hpp"
#include "tools/soak_rma.hpp"

namespace tagwire::tools {

class SoakSide {
  public:
    SoakSide(Side side, const Setup& setup, Channel* channel, std::uint64_t seed);
    ~SoakSide();
    SoakSide(const SoakSide&) = delete;
    SoakSide& operator=(const SoakSide&) = delete;

    /// Rounds until `deadline_ns` (of the driver; the peer runs as long as it).
    void run(std::uint64_t deadline_ns);
    /// Both sides' counts.
    SoakCounts finish_as_driver();
    void finish_as_peer();

  private:
    struct Send;
    struct Receive;

    void run_round();
    void draw_one();
    std::size_t advance_all();
    bool try_send(Send& send);
    bool has_ended(Send& send);
    void check_send(const Send& send, tw_status_t status) const;
    void advance(Receive& receive);
    tw_status_t post(Receive& receive, const tw_op_t& op);
    void try_post(Receive& receive);
    void try_probe(Receive& receive);
    void check(Receive& receive);
    [[noreturn]] void fail(const Receive& receive, const std::string& why) const;
    void cancel_one();
    tw_status_t end_of(tw_status_t status, tw_request_h request);
    bool another_round(bool wanted);
    void serve_until_readable();

    MsgLink link_;
    Channel* channel_;
    Random outgoing_, incoming_, own_;
    std::size_t inject_max_;
    std::uint64_t sequence_ = 0;
    std::uint64_t round_ = 0;
    std::vector<std::unique_ptr<Send>> sends_;  // of the round
    std::vector<std::unique_ptr<Receive>> receives_;
    SoakCounts counts_;
    std::unique_ptr<SoakRma> rma_;  // once the link is connected
};

}  // namespace tagwire::tools
