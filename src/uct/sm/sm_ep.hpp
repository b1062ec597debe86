// SPDX-License-Identifier: BSD-3-Clause
// The shared-memory endpoint: the sending side. Many endpoints to one peer interface share a link
// (link.hpp).
//
// Threads: the owner thread of the worker only.
// Every send follows one order: check the arguments, see that there is room (make_room), write the
// slot, publish, wake the receiver if it sleeps. A call that is refused has changed nothing.
#pragma once

#include "uct/base_iface.hpp"
#include "uct/pending.hpp"
#include "uct/sm/link.hpp"
#include "uct/sm/sm_md.hpp"

namespace tagwire::sm {

class alignas(kCacheLine) SmEp : public uct::BaseEp {
  public:
    SmEp(SmIface& owner, Link& to);

    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy();

    ucs_status_t am_short(std::uint8_t id, std::uint64_t header, const void* payload,
                          unsigned length);
    ucs_status_t am_short_iov(std::uint8_t id, const uct_iov_t* iov, std::size_t iovcnt);
    ssize_t am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned flags);
    ucs_status_t am_zcopy(std::uint8_t id, const void* header, unsigned header_length,
                          const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                          uct_completion_t* comp);

    ucs_status_t put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                           uct_rkey_t rkey);
    ssize_t put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                      uct_rkey_t rkey);
    ucs_status_t put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_short(void* buffer, unsigned length, std::uint64_t remote_addr,
                           uct_rkey_t rkey);
    ucs_status_t get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                           std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);

    ucs_status_t atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                                uct_completion_t* comp);
    ucs_status_t atomic_cswap32(std::uint32_t compare, std::uint32_t swap,
                                std::uint64_t remote_addr, uct_rkey_t rkey, std::uint32_t* result,
                                uct_completion_t* comp);
    ucs_status_t atomic32_post(unsigned opcode, std::uint32_t value, std::uint64_t remote_addr,
                               uct_rkey_t rkey);
    ucs_status_t atomic64_post(unsigned opcode, std::uint64_t value, std::uint64_t remote_addr,
                               uct_rkey_t rkey);
    ucs_status_t atomic32_fetch(unsigned opcode, std::uint32_t value, std::uint32_t* result,
                                std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);

    ucs_status_t tag_eager_short(uct_tag_t tag, const void* data, std::size_t length);
    ssize_t tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack, void* arg,
                            unsigned flags);
    ucs_status_t tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                 std::size_t iovcnt, unsigned flags, uct_completion_t* comp);
    ucs_status_ptr_t tag_rndv_zcopy(uct_tag_t tag, const void* header, unsigned header_length,
                                    const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                                    uct_completion_t* comp);
    ucs_status_t tag_rndv_cancel(void* op);
    ucs_status_t tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                  unsigned flags);

    ucs_status_t pending_add(uct_pending_req_t* request, unsigned flags);
    void pending_purge(uct_pending_purge_callback_t callback, void* arg);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);

    /// A function of MovePieces.
    static ucs_status_t move_pieces(uct_ep_h ep, const uct::Pieces& pieces, std::size_t* begun_p);

    [[nodiscard]] Link& link() const { return *link_p_; }
    bool failure_reported = false;

  private:
    struct Target;

    /// Room for `slots` messages and `segs` buffers, or UCS_ERR_NO_RESOURCE, or why the endpoint
    /// failed.
    ucs_status_t make_room(std::uint64_t slots, std::uint64_t segs);
    ucs_status_t room(std::uint64_t segs) {
        if (link().tx.has_room() && (segs == 0 || link().segs->has(segs))) [[likely]]
            return UCS_OK;
        return make_room(1, segs);
    }
    [[gnu::noinline]] ucs_status_t am_short_iov_slow(std::uint8_t id, const uct_iov_t* iov,
                                                     std::size_t iovcnt);
    [[gnu::noinline]] ucs_status_t am_short_slow(std::uint8_t id, std::uint64_t header,
                                                 const void* payload, unsigned length);
    [[gnu::noinline]] ucs_status_t tag_eager_short_slow(uct_tag_t tag, const void* data,
                                                        std::size_t length);
    /// The remote memory of an operation; the log says what is wrong with its arguments.
    ucs_status_t resolve(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                         Target* target_p);
    /// As resolve(), of which the log says nothing.
    ucs_status_t find_target(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                             Target* target_p);
    [[gnu::cold]] void say_why(uct_rkey_t rkey, std::uint64_t remote_addr,
                               std::size_t length) const;
    ucs_status_t zcopy(OpKind kind, const uct_iov_t* iov, std::size_t iovcnt,
                       std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t start_transfer(OpKind kind, const uct_iov_t* iov, std::size_t iovcnt,
                                std::size_t bytes, std::uint64_t remote_addr, const Target& target,
                                uct_completion_t* comp);
    ucs_status_t copy_direct(const uct::Pieces& pieces, std::size_t* begun_p);
    ucs_status_t copy_in_process(const uct::Pieces& pieces, std::size_t* begun_p);
    template <class T>
    ucs_status_t atomic(unsigned opcode, T value, T compare, std::uint64_t remote_addr,
                        uct_rkey_t rkey, T* result, uct_completion_t* comp);

    Link* link_p_;  // the interface's cancelled link after flush(CANCEL)
    uct::PendingGroup group_;
};

}  // namespace tagwire::sm
