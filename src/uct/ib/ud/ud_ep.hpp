// SPDX-License-Identifier: BSD-3-Clause
// An endpoint of ud: a connection that this side opened, and the operations that wait for it.
//
//   state    connecting -> open -> failing -> failed
//            destroy(): -> deleted at the end of progress
//
// Threads: owner thread of the worker.
// Invariants
//  (1) Messages that were accepted are in the sender's window until they are acknowledged.
//  (2) A waiter ends when all that was given before it is acknowledged (flush), or its probe is
//      answered (check), or the endpoint fails.
//  (3) Once failure_ is set nothing is accepted; all waiters end with it, then it is reported once.
#pragma once

#include <optional>

#include "uct/base_iface.hpp"
#include "uct/ib/send_pool.hpp"
#include "uct/ib/ud/ud_node.hpp"
#include "uct/ib/ud/ud_peers.hpp"
#include "uct/ib/ud/ud_waiters.hpp"
#include "uct/pending.hpp"

namespace tagwire::ud {

class UdIface;

class UdEp : public uct::BaseEp, public BasicOutbound<UdPeer> {
  public:
    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy();

    ucs_status_t am_short(std::uint8_t am_id, std::uint64_t header, const void* payload,
                          unsigned length);
    ucs_status_t am_short_iov(std::uint8_t am_id, const uct_iov_t* iov, std::size_t iovcnt);
    ssize_t am_bcopy(std::uint8_t am_id, uct_pack_callback_t pack, void* arg, unsigned flags);

    ucs_status_t pending_add(uct_pending_req_t* request, unsigned flags);
    void pending_purge(uct_pending_purge_callback_t callback, void* arg);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);

  private:
    friend class UdIface;
    static constexpr std::size_t kPartsMax = 32;  // a message of 4096 bytes in packets of 256

    UdEp(UdIface& owner, const SenderParams& params, std::uint64_t now);
    ~UdEp();

    [[nodiscard]] UdIface& owner() const;
    /// UCS_OK, UCS_ERR_NO_RESOURCE or the failure.
    ucs_status_t room();
    [[gnu::noinline, gnu::cold]] ucs_status_t no_room();
    void send(ib::SendOp* op, std::uint8_t am_id, std::size_t bytes);
    void push(ib::SendOp* op, std::uint8_t am_id, std::size_t bytes, std::uint8_t flags);
    /// Takes one for each packet that a message may need; false: there are not as many.
    bool take_parts(ib::SendOp** parts);
    bool has_parts();
    void send_parts(ib::SendOp** parts, std::uint8_t am_id, std::size_t bytes);
    ucs_status_t flush_cancel(uct_completion_t* comp);
    ucs_status_t wait(uct_completion_t* comp, std::uint32_t mark, Waits kind);
    [[nodiscard]] bool has_ended(const Waiter& waiter) const;

    Waiter* waiters_ = nullptr;  // oldest first
    ucs_status_t failure_ = UCS_OK;
    bool is_settled_ = false;  // after a failure: all has ended
    bool is_destroyed_ = false;
    bool is_advanced_ = false;    // in the interface's list
    bool is_failing_ = false;     // in the interface's list
    std::uint32_t packets_ = 1;   // of the longest message
    std::size_t part_bytes_ = 0;  // of a message in a packet
    std::size_t index_ = 0;       // in the interface's list of all
    uct::PendingGroup group_;
};

}  // namespace tagwire::ud
