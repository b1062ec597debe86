// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations of an endpoint: put, get, and atomics as far as verbs has them.
//
// Threads: owner thread of the worker.
#pragma once

#include "uct/ib/message_ep.hpp"

namespace tagwire::ib {

class RmaEp : public MessageEp {
  public:
    // ---- UCT operations (make_ops)
    ucs_status_t put_short(const void* buffer, unsigned length, std::uint64_t remote_addr,
                           uct_rkey_t rkey);
    ssize_t put_bcopy(uct_pack_callback_t pack, void* arg, std::uint64_t remote_addr,
                      uct_rkey_t rkey);
    ucs_status_t put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                           std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t atomic_cswap64(std::uint64_t compare, std::uint64_t swap,
                                std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                                uct_completion_t* comp);
    ucs_status_t atomic64_post(unsigned opcode, std::uint64_t value, std::uint64_t remote_addr,
                               uct_rkey_t rkey);
    ucs_status_t atomic64_fetch(unsigned opcode, std::uint64_t value, std::uint64_t* result,
                                std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);

    /// A function of MovePieces: chains of requests, of which the last has a completion.
    static ucs_status_t move_pieces(uct_ep_h ep, const uct::Pieces& pieces, std::size_t* begun_p);

  protected:
    using MessageEp::MessageEp;
    ~RmaEp() = default;

  private:
    /// A request for memory of the peer.
    static ibv_send_wr remote(ibv_wr_opcode opcode, ibv_sge* sges, unsigned count,
                              std::uint64_t remote_addr, uct_rkey_t rkey) {
        ibv_send_wr request{};
        request.sg_list = sges;
        request.num_sge = static_cast<int>(count);
        request.opcode = opcode;
        request.wr.rdma.remote_addr = remote_addr;
        request.wr.rdma.rkey = static_cast<std::uint32_t>(rkey);
        return request;
    }
    ucs_status_t post_chain(const uct::Pieces& pieces, std::size_t* begun_p);
    ucs_status_t move_zcopy(const char* call, ibv_wr_opcode opcode, const uct_iov_t* iov,
                            std::size_t iovcnt, std::uint64_t remote_addr, uct_rkey_t rkey,
                            uct_completion_t* comp);
    ucs_status_t post_atomic(ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap,
                             std::uint64_t remote_addr, uct_rkey_t rkey, std::uint64_t* result,
                             uct_completion_t* comp);
};

}  // namespace tagwire::ib
