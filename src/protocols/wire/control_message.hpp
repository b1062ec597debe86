// SPDX-License-Identifier: BSD-3-Clause
// Control messages: operations of endpoints on each other, beside the messages of their programs.
//
//     +----------+--------------+-----------------+
//     | op (u32) | sender (u32) | body (16 bytes) |
//     +----------+--------------+-----------------+
//
// Each operation has a struct for its body; bytes behind the struct are 0. An id in a body names
// a request (id_table.hpp); rails are numbered as in the hello of their side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tagwire::proto {

enum class ControlOp : std::uint32_t {
    kAck = 1,
    kAts = 2,
    kCts = 3,
    kDataEnd = 4,
    kCancel = 5,
    kCanceled = 6,
    kFlush = 7,
    kFlushed = 8,
    kPauseEager = 9,
    kResumeEager = 10,
    kPause = 11,
    kResume = 12,
    kBye = 13,
    kBack = 14,
    kLeave = 15,
    kLeft = 16,
    kLane = 17,
    kReset = 18,
    kDown = 19,
    kAdvice = 20,
    kRmaReply = 21,
    kProbe = 22,
    kProbed = 23,
};

/// The send was matched or delivered, as it had asked.
struct Ack {
    static constexpr auto kOp = ControlOp::kAck;
    std::uint32_t send_id;
};

/// Acknowledgement to the sender: the receiver is done with the rendezvous.
struct Ats {
    static constexpr auto kOp = ControlOp::kAts;
    std::uint32_t send_id;
    std::int32_t status;  // ucs_status_t
};

/// Clear to send: the data of the rendezvous, in messages to the receive.
struct Cts {
    static constexpr auto kOp = ControlOp::kCts;
    std::uint32_t send_id;
    std::uint32_t receive_id;
    std::uint64_t bytes;
};

/// No data follows for the receive. UCS_OK: all of it was written.
struct DataEnd {
    static constexpr auto kOp = ControlOp::kDataEnd;
    std::uint32_t receive_id;
    std::int32_t status;  // ucs_status_t
};

/// Drop the sender's message unless it is matched.
struct Cancel {
    static constexpr auto kOp = ControlOp::kCancel;
    std::uint32_t send_id;  // of the sender
};

/// The message was dropped.
struct Canceled {
    static constexpr auto kOp = ControlOp::kCanceled;
    std::uint32_t send_id;
};

/// Answer with Flushed when everything before has been taken.
struct Flush {
    static constexpr auto kOp = ControlOp::kFlush;
    std::uint32_t flush_id;  // of the sender
    std::uint32_t is_close;  // 1: the sender closes its endpoint
};

struct Flushed {
    static constexpr auto kOp = ControlOp::kFlushed;
    std::uint32_t flush_id;
};

/// No eager messages any more: requests of rendezvous only.
struct PauseEager {
    static constexpr auto kOp = ControlOp::kPauseEager;
};

/// Eager messages again.
struct ResumeEager {
    static constexpr auto kOp = ControlOp::kResumeEager;
};

/// No messages any more.
struct Pause {
    static constexpr auto kOp = ControlOp::kPause;
};

/// Messages again.
struct Resume {
    static constexpr auto kOp = ControlOp::kResume;
};

/// The program has closed its endpoint.
struct Bye {
    static constexpr auto kOp = ControlOp::kBye;
};

/// The program has an endpoint again.
struct Back {
    static constexpr auto kOp = ControlOp::kBack;
};

/// Neither program has an endpoint: may the connection go?
struct Leave {
    static constexpr auto kOp = ControlOp::kLeave;
};

/// The answer to Leave.
struct Left {
    static constexpr auto kOp = ControlOp::kLeft;
    std::uint32_t is_gone;  // at the side of the sender; 0: it stays
};

/// Tagged messages go to this rail of the receiver from now on.
struct Lane {
    static constexpr auto kOp = ControlOp::kLane;
    std::uint32_t rail;
};

/// A connection of the sender has ended: nothing more of it counts.
struct Reset {
    static constexpr auto kOp = ControlOp::kReset;
    std::uint32_t reserved;
    std::uint32_t is_in_order;  // 1: its worker has gone in order; 0: it was closed by force
    std::uint32_t connection;   // Hello::number
};

/// Two rails carry no data to each other any more.
struct Down {
    static constexpr auto kOp = ControlOp::kDown;
    std::uint32_t rail;         // of the receiver
    std::uint32_t sender_rail;  // of the sender
};

/// Where the processors move the data: messages of the receiver of this are to go by rendezvous
/// from that length on (advisor.hpp).
struct Advice {
    static constexpr auto kOp = ControlOp::kAdvice;
    std::uint32_t rndv_from;  // 0: as before; then `trials` is not 0
    std::uint8_t regime;      // of the sender's times, from 1 on
    std::uint8_t regimes;     // that it knows
    std::uint8_t reason;      // for the present one: Advisor::Reason; kAdviceOfStream
    std::uint8_t trials;     // the next messages that go the other way, to be timed; kTrialsOfEager
    std::uint32_t eager_ps;  // time of a byte there, in picoseconds; for people; 0: not known
    std::uint32_t rndv_ps;
};
/// Added to Advice::reason: it is about messages of a stream, and not about those in turns.
inline constexpr std::uint8_t kAdviceOfStream = 0x80;
/// Added to Advice::trials: messages go eager instead of by rendezvous, and not the reverse.
inline constexpr std::uint8_t kTrialsOfEager = 0x80;

/// A one-sided operation of the receiver of this is over, at its owner's side.
struct RmaReply {
    static constexpr auto kOp = ControlOp::kRmaReply;
    std::uint32_t op_id;   // of the initiator; 0: it was over there
    std::int32_t status;   // ucs_status_t
    std::uint64_t before;  // of an atomic: the number that was there
};

/// Answer with Probed when everything before has been taken (send_window.hpp).
struct Probe {
    static constexpr auto kOp = ControlOp::kProbe;
};

struct Probed {
    static constexpr auto kOp = ControlOp::kProbed;
};

/// A control message as it is sent.
struct Control {
    std::uint32_t op;
    std::uint32_t sender;  // the number by which the receiver knows the sender
    std::byte body[16];

    ControlOp operation() const { return static_cast<ControlOp>(op); }
    /// Sent because the peer has asked for it, or has announced a rendezvous (limits.hpp).
    bool is_reply() const {
        switch (operation()) {
            case ControlOp::kAck:
            case ControlOp::kAts:
            case ControlOp::kCts:
            case ControlOp::kDataEnd:
            case ControlOp::kCanceled:
            case ControlOp::kFlushed:
            case ControlOp::kRmaReply:
            case ControlOp::kProbed:
                return true;
            default:
                return false;
        }
    }

    /// The body; `op` is Body::kOp.
    template <class Body>
    Body as() const {
        static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= sizeof body);
        Body copy{};
        if constexpr (!std::is_empty_v<Body>)
            std::memcpy(&copy, body, sizeof copy);
        return copy;
    }

    template <class Body>
    static Control of(const Body& body, std::uint32_t sender = 0) {
        static_assert(std::is_trivially_copyable_v<Body> && sizeof(Body) <= sizeof Control::body);
        Control control{static_cast<std::uint32_t>(Body::kOp), sender, {}};
        if constexpr (!std::is_empty_v<Body>)
            std::memcpy(control.body, &body, sizeof body);
        return control;
    }
};
static_assert(sizeof(Control) == 24);

/// False: it is no control message, or one of an unknown operation.
[[nodiscard]] bool decode(std::span<const std::byte> bytes, Control* message);

}  // namespace tagwire::proto
