// SPDX-License-Identifier: BSD-3-Clause
// The operations of an interface that are under way, by number: its own, and those of its peers
// (rendezvous that it receives).
#pragma once

#include <memory>

#include "ucs/memory/reserve.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/transfer.hpp"

namespace tagwire::sm {

class OpTable {
  public:
    explicit OpTable(SmIface& owner) : iface_(owner) {}
    OpTable(const OpTable&) = delete;
    OpTable& operator=(const OpTable&) = delete;

    /// Null: as many as may be are under way. The caller puts it into the link's list.
    Op* create(Link& link, OpKind kind, SmEp* ep, uct_completion_t* comp);
    /// create() would give one for an operation of ours.
    [[nodiscard]] bool has_room() const { return own_ops_ < kOpCountMax; }
    /// Null: the operation of this number is gone, or another link's.
    Op* find(const Link& link, std::uint32_t id);
    /// Completes it, and the flushes that have become the oldest of its link.
    void finish(Op& op, ucs_status_t status);
    /// A kReceive is gone; runs no callback.
    void end_receive(Op& op);
    /// A flush of the operations that are under way. UCS_INPROGRESS, or UCS_ERR_NO_RESOURCE.
    ucs_status_t start_flush(Link& link, SmEp* ep, uct_completion_t* comp);
    /// Ends those of an endpoint; null: of all endpoints of the link.
    void cancel(Link& link, const SmEp* ep, ucs_status_t status);
    /// Calls `visit(op)` for each that is under way.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (const auto& op : table_)
            if (op->owner != nullptr)
                visit(*op);
    }

  private:
    void free(Op& op);

    SmIface& iface_;
    ucs::ReserveVector<Op*> free_;
    ucs::ReserveVector<std::unique_ptr<Op>> table_;
    std::uint32_t own_ops_ = 0;      // under way, of kOpCountMax
    std::uint32_t receive_ops_ = 0;  // under way, of kReceiveCountMax
};

}  // namespace tagwire::sm
