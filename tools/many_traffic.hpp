// SPDX-License-Identifier: BSD-3-Clause
// The traffic of one rank in many_to_one and all_to_all.
//
// 1. A sender has at most `window` sends under way to each receiver, and sends to them in turn.
// 2. A receiver has `window` receives posted for each sender. They name no source: each takes the
//    next message of any sender.
// 3. A message that is checked has its number as its immediate, since messages of several senders,
//    and those that go by rendezvous, complete in any order.
// 4. A receiver that has all messages of a sender says so by a message, which ends the sender's
//    time.
#pragma once

#include <vector>

#include "tools/many_rank.hpp"
#include "tools/msg_link.hpp"

namespace tagwire::tools {

/// The results of a run that a rank sends to the others.
struct ManyShare {
    std::uint64_t sent = 0;
    double sending_ns = 0;  // from the start until the last receiver has all; 0: sends nothing
    double all_ns = 0;      // ... and until everything for this rank is here
    std::uint64_t validated = 0;
    std::uint64_t errors = 0;
};

class ManyTraffic {
  public:
    ManyTraffic(ManyRank& rank, const Job& job);
    /// Takes back what was posted; no callback comes later.
    ~ManyTraffic();
    ManyTraffic(const ManyTraffic&) = delete;
    ManyTraffic& operator=(const ManyTraffic&) = delete;

    /// `count` messages from each sender to each of its receivers. All ranks call it together.
    ManyShare run(std::uint64_t count);

  private:
    /// Messages to one receiver.
    struct Target {
        std::size_t rank;
        std::vector<msg::Request> slots;
        std::uint8_t* data;
        std::uint64_t next = 0;
        msg::Request ack;
        bool is_acked = false;
    };
    struct Slot {
        ManyTraffic* self;
        std::uint8_t* data;
        tw_request_h request = nullptr;  // of a receive that is posted
    };

    bool is_sender(std::size_t rank) const;
    bool is_receiver(std::size_t rank) const;
    void start(std::uint64_t count);
    bool send_some(Target& target);
    bool try_send(Target& target);
    static void check_send(const Target& target, tw_status_t status);
    bool is_acked(Target& target);
    void post(Slot& slot);
    void post_waiting();
    void count(Slot& slot, const tw_completion_t& done);
    void send_acks();
    void drain();
    static void on_received(const tw_completion_t* done);

    ManyRank& rank_;
    const Job job_;
    std::size_t stride_;
    std::size_t window_;
    std::size_t senders_ = 0;  // that send to this rank
    Pages send_pages_;
    Pages receive_pages_;
    std::vector<Target> targets_;
    std::vector<Slot> slots_;
    std::vector<Slot*> waiting_;           // whose receive was refused for lack of requests
    std::vector<std::uint64_t> received_;  // of each rank, of this run
    std::vector<std::size_t> to_ack_;
    std::uint64_t end_ = 0;
    std::uint64_t base_ = 0;  // of this run's first message
    std::uint64_t left_to_post_ = 0;
    std::uint64_t left_ = 0;
    std::uint64_t validated_ = 0;
    std::uint64_t errors_ = 0;
    bool is_closing_ = false;
};

}  // namespace tagwire::tools
