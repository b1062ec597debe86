// SPDX-License-Identifier: BSD-3-Clause
// The endpoint of tcp: the sending side. Many endpoints to one peer interface share a connection.
//
// Threads: the owner thread of the worker only.
// Every send follows one order: check the arguments, see that there is room, encode the frame in
// the connection's queue, let the interface write it. A call that is refused has changed nothing.
#pragma once

#include "uct/base_iface.hpp"
#include "uct/pending.hpp"
#include "uct/tcp/connection.hpp"
#include "uct/tcp/tcp_md.hpp"

namespace tagwire::tcp {

class TcpEp : public uct::BaseEp {
  public:
    TcpEp(TcpIface& owner, Connection& to);

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
    ucs_status_t get_bcopy(uct_unpack_callback_t unpack, void* arg, std::size_t length,
                           std::uint64_t remote_addr, uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote_addr,
                           uct_rkey_t rkey, uct_completion_t* comp);

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

    [[nodiscard]] Connection& connection() const { return *connection_; }
    TcpEp* next = nullptr;  // of the connection
    TcpEp* prev = nullptr;
    bool is_failure_reported = false;

  private:
    /// Memory in the queue for a frame with up to `data` bytes of data. UCS_ERR_NO_RESOURCE, or why
    /// the endpoint failed.
    template <class Body>
    ucs_status_t room(std::size_t data, std::byte** to_p);
    ucs_status_t has_room(std::size_t bytes);
    [[nodiscard]] bool may_send(std::size_t bytes) const;
    template <class Body>
    void send(std::byte* to, Kind kind, std::uint8_t value, const Body& body, std::size_t data);
    template <class Body>
    ssize_t send_packed(Kind kind, std::uint8_t value, const Body& body, uct_pack_callback_t pack,
                        void* arg);
    ucs_status_t resolve(uct_rkey_t rkey, std::uint64_t remote_addr, std::size_t length,
                         const PackedRkey** key_p) const;
    ucs_status_t start_get(Op& op, const PackedRkey& key, std::uint64_t remote_addr);
    void attach(Connection& to);
    ucs_status_t flush_sent(uct_completion_t* comp);

    Connection* connection_;  // the cancelled one after flush(CANCEL)
    uct::PendingGroup group_;
};

}  // namespace tagwire::tcp
