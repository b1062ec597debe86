// SPDX-License-Identifier: BSD-3-Clause
// The operations of rc and dc endpoints: active messages, tagged messages, and operations that
// wait (pending requests, flush). One-sided ones come from the base.
//
// Threads: owner thread of the worker.
#pragma once

#include "uct/ib/rma_ep.hpp"

namespace tagwire::ib {

class MessageOps : public RmaEp {
  public:
    // ---- UCT operations (make_ops)
    ucs_status_t am_short(std::uint8_t am_id, std::uint64_t header, const void* payload,
                          unsigned length);
    ucs_status_t am_short_iov(std::uint8_t am_id, const uct_iov_t* iov, std::size_t iovcnt);
    ssize_t am_bcopy(std::uint8_t am_id, uct_pack_callback_t pack, void* arg, unsigned flags);
    ucs_status_t am_zcopy(std::uint8_t am_id, const void* header, unsigned header_length,
                          const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                          uct_completion_t* comp);

    ucs_status_t tag_eager_short(uct_tag_t tag, const void* data, std::size_t length);
    ssize_t tag_eager_bcopy(uct_tag_t tag, std::uint64_t imm, uct_pack_callback_t pack, void* arg,
                            unsigned flags);
    ucs_status_t tag_eager_zcopy(uct_tag_t tag, std::uint64_t imm, const uct_iov_t* iov,
                                 std::size_t iovcnt, unsigned flags, uct_completion_t* comp);
    ucs_status_ptr_t tag_rndv_zcopy(uct_tag_t tag, const void* header, unsigned header_length,
                                    const uct_iov_t* iov, std::size_t iovcnt, unsigned flags,
                                    uct_completion_t* comp);
    ucs_status_t tag_rndv_cancel(void* handle);
    ucs_status_t tag_rndv_request(uct_tag_t tag, const void* header, unsigned header_length,
                                  unsigned flags);

    ucs_status_t pending_add(uct_pending_req_t* request, unsigned flags);
    void pending_purge(uct_pending_purge_callback_t callback, void* arg);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t fence(unsigned flags);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);

  protected:
    using RmaEp::RmaEp;
    ~MessageOps() = default;

  private:
    /// Puts the head before `bytes` at message + kPrefixBytes: the bytes on the wire.
    std::uint32_t frame_am(std::byte* message, std::uint8_t am_id, std::size_t bytes);
    /// `request` becomes a bare active message; `first` is the first byte of its data, which is
    /// the peer's NO_TAG from now on.
    void make_bare(ibv_send_wr& request, std::uint8_t am_id, std::byte& first);
    ucs_status_t send_eager_parts(uct_tag_t tag, std::uint64_t imm, const Gather& gather,
                                  uct_completion_t* comp);
    ucs_status_t flush_cancel(uct_completion_t* comp);
};

}  // namespace tagwire::ib
