// SPDX-License-Identifier: BSD-3-Clause
// Operations that outlive the call that started them, by number. All belong to one connection and
// die with it, completed exactly once. Owner thread only.
//
//   kFlush      done when it is the oldest, and all that was queued before it is in the kernel
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

class OpTable {
  public:
    /// Operations of one connection that are under way; receives of rendezvous are not counted.
    static constexpr std::uint32_t kPerConnectionMax = 512;
    static constexpr std::uint32_t kCountMax = 1U << 18;

    explicit OpTable(TcpIface& owner) : iface_(owner) {}
    OpTable(const OpTable&) = delete;
    OpTable& operator=(const OpTable&) = delete;

    /// Null: as many as may be are under way.
    Op* create(Connection& connection, OpKind kind, TcpEp* ep, uct_completion_t* comp);
    [[nodiscard]] bool has_room(const Connection& connection) const;
    /// Null: the operation of this number is gone, or another connection's.
    Op* find(const Connection& connection, std::uint64_t id);
    /// The same of a number that is ours alone.
    Op* find(std::uint64_t id);
    /// Completes it. In progress, or where the program expects callbacks.
    void finish(Op& op, ucs_status_t status);
    /// Ends those of an endpoint; null: of all.
    void cancel(Connection& connection, const TcpEp* ep, ucs_status_t status);
    /// Flushes at the head of the list that are done.
    void settle_flushes(Connection& connection);

  private:
    void release(Op& op);

    TcpIface& iface_;
    ucs::ReserveVector<std::unique_ptr<Op>> table_;
    ucs::ReserveVector<Op*> free_;
    std::uint32_t serial_ = 0;
};

}  // namespace tagwire::tcp
