// SPDX-License-Identifier: BSD-3-Clause
// Operations that outlive the call that started them, by number. All belong to one connection and
// die with it, completed exactly once. Owner thread only.
//
//   kFlush      done when it is the oldest, and all that was queued before it is in the kernel
//   kFlushSent  done when all that was queued before it is in the kernel
//   kRndvSend   done when the kernel has all of the data that the receiver asked for
//   others      done by the peer's Done, or by the last GetData
#pragma once

#include <uct/api/uct.h>

#include <cstdint>
#include <memory>

#include "ucs/memory/reserve.hpp"
#include "uct/completion.hpp"
#include "uct/iov.hpp"
#include "uct/tcp/registrations.hpp"

namespace tagwire::tcp {

class Connection;
class TcpEp;
class TcpIface;
struct Posted;

enum class OpKind : std::uint8_t {
    kFlush,
    kFlushSent,
    kFlushRemote,
    kPut,
    kGetZcopy,
    kGetBcopy,
    kRndvSend,
    kReceive,  // a rendezvous that fills a posted receive
};

struct Op : ucs::FromReserve {
    std::uint64_t id = 0;  // serial | index; never 0
    OpKind kind{};
    Op* next = nullptr;
    Op* prev = nullptr;
    Connection* connection = nullptr;  // null: free
    TcpEp* ep = nullptr;
    uct_completion_t* completion = nullptr;
    std::uint64_t mark = 0;    // flushes
    std::uint64_t left = 0;    // bytes to come
    std::uint64_t length = 0;  // of the whole message
    uct::IovCursor cursor;     // where they go
    uct::IovCopy iov;
    std::byte* staging = nullptr;  // kGetBcopy
    uct_unpack_callback_t unpack = nullptr;
    void* unpack_arg = nullptr;
    Registration* own = nullptr;  // kRndvSend: registered for it alone
    Posted* posted = nullptr;     // kReceive
    std::uint64_t tag = 0;
};

/// The peer hears nothing of it.
constexpr bool is_local_flush(OpKind kind) {
    return kind == OpKind::kFlush || kind == OpKind::kFlushSent;
}

/// Intrusive list in order of start.
class OpList {
  public:
    [[nodiscard]] bool empty() const { return head_ == nullptr; }
    [[nodiscard]] Op* front() const { return head_; }
    void push_back(Op& op);
    void erase(Op& op);

  private:
    Op* head_ = nullptr;
    Op* tail_ = nullptr;
};

/// Requests of one side of a connection that the other side has not replied to: its operations
/// that are under way, and those that were cancelled behind their request. Receives of rendezvous
/// are not counted, as their sender counts them. This side sends no more; limits.hpp derives from
/// it what the peer may ask for.
constexpr std::uint32_t kRequestsMax = 512;

class OpTable {
  public:
    static constexpr std::uint32_t kCountMax = 1U << 18;

    explicit OpTable(TcpIface& owner) : iface_(owner) {}
    OpTable(const OpTable&) = delete;
    OpTable& operator=(const OpTable&) = delete;

    /// Null: as many as may be are under way.
    Op* create(Connection& connection, OpKind kind, TcpEp* ep, uct_completion_t* comp);
    [[nodiscard]] bool has_room(const Connection& connection) const;
    /// Completes one whose request the peer may not have replied to. It counts until the peer has
    /// replied to a recall, which comes behind all replies to what was sent before.
    void abandon(Op& op, ucs_status_t status);
    /// The peer has replied to the recall.
    void end_recall(Connection& connection);
    /// Null: the operation of this number is gone, or another connection's.
    Op* find(const Connection& connection, std::uint64_t id);
    /// As find() above, of a number that is ours alone.
    Op* find(std::uint64_t id);
    /// The number of an operation among all of the interface; never 0.
    static std::uint32_t serial_of(std::uint64_t id) {
        return static_cast<std::uint32_t>(id >> 32);
    }
    /// Completes it. In progress, or where the program expects callbacks.
    void finish(Op& op, ucs_status_t status);
    /// A kReceive is gone; runs no callback.
    void end_receive(Op& op);
    /// Ends those of an endpoint; null: of all.
    void cancel(Connection& connection, const TcpEp* ep, ucs_status_t status);
    /// Flushes that are done: those at the head of the list, and kFlushSent.
    void settle_flushes(Connection& connection);

  private:
    void release(Op& op);
    void settle(Op& flush);
    void settle_sent(Connection& connection);
    void recall(Connection& connection);

    TcpIface& iface_;
    ucs::ReserveVector<std::unique_ptr<Op>> table_;
    ucs::ReserveVector<Op*> free_;
    std::size_t sent_flushes_ = 0;  // kFlushSent that are under way
    std::uint32_t serial_ = 0;
};

}  // namespace tagwire::tcp
