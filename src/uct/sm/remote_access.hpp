// SPDX-License-Identifier: BSD-3-Clause
// Access to the peer's memory that takes more than loads and stores: the steps of this side's own
// gets and puts, and the peer's requests by message (reads, writes, atomics).
//
//   kCopyGet, kCopyPut   this side moves the data by process_vm_*, piece by piece; when that is not
//                        permitted any more it becomes
//   kPull, kPush         the owner of the memory sends the data, or writes what it is sent
//   kAtomic              the owner executes
//
// Every number in a request is checked against the registrations. A wrong request gets an error as
// its reply; a malformed one ends the connection.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "uct/sm/link.hpp"
#include "uct/sm/transfer.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::sm {

class RemoteAccess {
  public:
    explicit RemoteAccess(SmIface& owner) : iface_(owner) {}
    RemoteAccess(const RemoteAccess&) = delete;
    RemoteAccess& operator=(const RemoteAccess&) = delete;
    ~RemoteAccess();

    // ---- Our operations
    /// The first step of a transfer, within the call that starts it: UCS_OK when that was all.
    ucs_status_t step_first(Op& op);
    /// True: something moved.
    bool step(Op& op);
    /// The operation is over, perhaps within step_first().
    void finish_step(Op& op, ucs_status_t status);
    /// The peer's memory was within reach before and is not any more (it may have become
    /// undumpable).
    void use_messages_instead(Op& op);
    void deliver_pull_data(Link& link, const PullDataBody& data);
    void deliver_push_ack(Link& link, const PushAckBody& ack);
    void deliver_atomic_reply(Link& link, const AtomicReplyBody& reply);

    // ---- Requests of the peer
    void deliver_pull(Link& link, const PullBody& pull);
    void deliver_push(Link& link, const PushBody& push);
    void deliver_atomic(Link& link, const AtomicBody& atomic);
    /// Sends the peer the next piece of what it asked for. True: something moved.
    bool step_serve(Link& link);

  private:
    bool step_push(Op& op);
    static ucs_status_t write_piece(const Op& op, std::span<const iovec> from, std::size_t bytes);
    static ucs_status_t read_piece(const Op& op, std::span<const iovec> to, std::size_t bytes);
    const Writer<>& own_writer();
    static void unpack_piece(Op& op, const std::byte* from, std::size_t bytes);

    SmIface& iface_;
    Writer<> own_writer_;
    std::uint32_t own_index_ = kSharedWriter;
    ucs_status_t first_status_ = UCS_OK;  // of step_first()
};

}  // namespace tagwire::sm
