// SPDX-License-Identifier: BSD-3-Clause
// A window for messages of a program: so many may go before the peer has told that it wants more. A
// peer whose budget is used up says Pause, which this side reads in progress: a program that sends
// and does not progress, or whose lane carries much the other way, reads it late.
//
//     sent ---------------------------------------------------------> more wait in the SendQueue
//     |                                |                              |
//     | heard: all before it came      | half of kWindowBytes: Probe  | kWindowBytes: closed
//
// 1. Probed comes behind a Pause that the peer says because of what was sent before the Probe. So
//    of all that the peer gets after it has said Pause, the last was sent while the window was
//    open. It ends a connection on which more comes (MatchTable).
// 2. All counts that the peer may have to keep: messages but urgent ones, and notices of puts
//    from when the put begins. Each counts as at least the bytes in the MatchTable of the peer.
#pragma once

#include <cstdint>

#include "protocols/port/lane_port.hpp"
#include "protocols/wire/limits.hpp"

namespace tagwire::proto {

class SendWindow {
  public:
    explicit SendWindow(const LanePort& lane) : lane_(lane) {}
    SendWindow(const SendWindow&) = delete;
    SendWindow& operator=(const SendWindow&) = delete;

    /// One more message may begin.
    bool is_open() const { return sent_ - heard_ + owed_ <= kWindowBytes; }
    /// A message with so many bytes of data, header and keys has begun.
    void add_message(std::uint64_t bytes) {
        sent_ += kMessageBytes + bytes;
        if (sent_ >= look_at_) [[unlikely]]
            look();
    }
    /// A put begins whose notice follows its data.
    void owe_notice();
    /// A notice that was owed has gone.
    void notice_has_gone();
    /// A notice that was owed is not sent any more.
    void notice_is_off();
    /// False: nothing was asked.
    bool on_probed();
    /// Another connection.
    void begin_anew();

  private:
    void look();

    static constexpr std::uint64_t kProbeBytes = kWindowBytes / 2;

    const LanePort& lane_;
    std::uint64_t sent_ = 0;               // all of this connection
    std::uint64_t look_at_ = kProbeBytes;  // with so much there is something to do
    std::uint64_t heard_ = 0;              // what a Probed was for
    std::uint64_t probed_ = 0;             // what the Probe was for whose Probed is to come
    std::uint64_t owed_ = 0;               // notices that have not gone
    bool is_probing_ = false;
};

}  // namespace tagwire::proto
