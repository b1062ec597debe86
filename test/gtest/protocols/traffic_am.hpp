// SPDX-License-Identifier: BSD-3-Clause
// Active messages among the workers of a Traffic: each is handled once, in the order of its sender,
// with the header and the data that were sent. Handlers use, keep, receive or drop them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "protocols/fixture.hpp"

namespace tagwire::test {

class Traffic;
struct TrafficNode;
struct TrafficOp;

class TrafficAm {
  public:
    explicit TrafficAm(Traffic& traffic) : traffic_(traffic) {}

    /// The latest worker gets its handler.
    void open();
    void send(TrafficNode& node);
    /// Receives or releases one that was kept. False: there is none.
    bool use_kept(TrafficNode& node);
    void end_send(TrafficOp& op, const tw_completion_t& done);
    void end_receive(TrafficOp& op, const tw_completion_t& done);
    void give_up(const TrafficOp& op);
    void excuse(unsigned a, unsigned b);
    /// All that had to come was handled, and nothing is kept.
    bool is_quiet() const;

  private:
    static constexpr unsigned kId = 4711;

    struct Record {
        std::size_t length = 0, header_length = 0;
        bool is_urgent = false;
        bool is_excused = false;
        bool is_handled = false;
    };
    struct Kept {
        tw_message_h message;
        const std::byte* data;  // nullptr: with the sender
        unsigned from;
        std::size_t record;
    };
    struct Inbox {
        std::deque<std::vector<Record>> from;  // by sender
        // ... of a lower number none may come any more, of those that are urgent or not
        std::deque<std::array<std::size_t, 2>> next;
        std::vector<Kept> kept;
    };

    std::vector<Record>& sent(unsigned from, unsigned to);
    static void on_message(void* arg, tw_am_t* am);
    void take(TrafficNode& node, tw_am_t& am);
    bool receive(TrafficNode& node, const Kept& kept);
    static Bytes header(unsigned from, std::size_t number, std::size_t length);

    Traffic& traffic_;
    std::deque<Inbox> inboxes_;
};

}  // namespace tagwire::test
