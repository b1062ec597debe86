// SPDX-License-Identifier: BSD-3-Clause
// The receiving half of connections: one system call takes many frames into a buffer that all
// connections share, and the rest of a long frame goes from the kernel to its place.
//
//   between frames           read into the shared buffer, deliver there
//   frame cut in its head    the few bytes are kept (kHead)
//   cut in a message         the rest goes to a descriptor (kMessage)
//   cut in data of a place   the rest goes to that place: a put, a get, a matched receive (kPlace)
//
// Owner thread only. Invariants
//  (1) A connection between frames holds no memory here.
//  (2) Frames begin at multiples of kFrameUnit in the shared buffer, so messages are aligned.
//  (3) A turn of progress delivers kTurn of work at most (work_of()). Frames behind that which were
//      read stay in the shared buffer for the next turn, and nothing is read before they are
//      delivered.
//  (4) Behind the rest of a long frame only a head's worth is read, so that the next long frame
//      goes to its place, too.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ucs/memory/mpool.hpp"
#include "uct/desc_pool.hpp"
#include "uct/iface_params.hpp"
#include "uct/iov.hpp"
#include "uct/tcp/connection.hpp"
#include "uct/tcp/frames.hpp"

namespace tagwire::tcp {

struct Posted;

/// A frame as it is delivered.
struct Message {
    FrameHead head{};
    const std::byte* body = nullptr;
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // of data
    bool is_desc = false;   // the callback may keep the data

    template <class Body>
    [[nodiscard]] Body as() const {
        Body copy;
        std::memcpy(&copy, body, sizeof copy);
        return copy;
    }
};

/// A frame that came in part.
struct Incoming {
    enum class Mode : std::uint8_t { kHead, kMessage, kPlace };
    Mode mode = Mode::kHead;
    FrameHead head{};
    alignas(8) std::byte body[sizeof(FrameHead) + kBodyBytesMax];  // kHead: head and all
    std::size_t have = 0;
    // kMessage
    std::byte* data = nullptr;
    bool is_desc = false;
    std::size_t bytes = 0;
    // kPlace
    uct::IovCopy iov;
    uct::IovCursor cursor;
    std::uint64_t place_left = 0;
    std::uint64_t waste_left = 0;  // what has no place, and the padding
    Posted* posted = nullptr;      // an eager message's
    PutBody put{};                 // the address goes on
    std::uint64_t op = 0;          // a get's
    ucs_status_t status = UCS_OK;

    /// The rest has no place. UCS_OK: nobody waits for it.
    void waste(ucs_status_t why) {
        waste_left += std::exchange(place_left, 0);
        status = why;
    }
};

class StreamReader {
  public:
    explicit StreamReader(TcpIface& owner) : iface_(owner) {}
    StreamReader(const StreamReader&) = delete;
    StreamReader& operator=(const StreamReader&) = delete;
    ~StreamReader();

    ucs_status_t open(const uct::IfaceParams& params);
    /// A turn of progress begins: delivers what the one before has left; how many frames.
    unsigned begin_turn();
    /// This turn may read. False: it has delivered as much as it may.
    [[nodiscard]] bool may_read() const { return work_left_ > 0 && !has_rest(); }
    /// Frames were read that have not been delivered.
    [[nodiscard]] bool has_rest() const { return rest_.of != nullptr; }
    /// Reads once and delivers, if it may; how many frames. A connection that is over fails.
    unsigned read(Connection& connection);
    /// Frees what came in part; a receive that waits for the rest ends with the failure.
    void drop(Connection& connection);
    /// The receive is the program's again: the rest of its message has no place.
    static void let_go(Connection& connection, const Posted& posted);

  private:
    static constexpr std::size_t kSharedBytes = 64 * 1024;
    static constexpr unsigned kCalls = 8;
    static constexpr unsigned kTurn = 64 * kCalls;
    static constexpr std::size_t kBehindLong = 2 * (sizeof(FrameHead) + kBodyBytesMax);
    static constexpr std::size_t kLongBytes = 32 * 1024;

    /// Bytes of the shared buffer, from the beginning of a frame on.
    struct Rest {
        Connection* of = nullptr;
        std::byte* from = nullptr;
        std::size_t bytes = 0;
    };

    /// The part of a turn that a frame takes: a put calls nobody, and the peer sends more of them
    /// than of anything that this side has to answer.
    static constexpr unsigned work_of(Kind kind) { return kind == Kind::kPut ? 1 : kCalls; }

    struct Plan;
    ssize_t receive(Connection& connection, Plan* plan);
    unsigned take(Connection& connection, std::size_t got, const Plan& plan);
    unsigned parse(Connection& connection, std::byte* from, std::size_t bytes);
    bool begin_part(Connection& connection, const Message& part, std::size_t whole);
    bool begin_place(Connection& connection, Incoming& in, const Message& part, std::size_t whole);
    void place(Connection& connection, Incoming& in, const std::byte* from, std::size_t bytes);
    void finish_place(Connection& connection, Incoming& in);
    void finish_message(Connection& connection, Incoming& in);
    bool deliver(Connection& connection, const Message& message);
    Incoming* create(Connection& connection);
    void destroy(Incoming& in);

    TcpIface& iface_;
    ucs::ObjectPool<Incoming> incoming_;
    uct::DescPool* descs_ = nullptr;  // abandons itself
    std::unique_ptr<std::byte[]> shared_;
    Rest rest_;
    unsigned work_left_ = kTurn;  // of this turn
};

}  // namespace tagwire::tcp
