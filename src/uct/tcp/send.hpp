// SPDX-License-Identifier: BSD-3-Clause
// The parts of a send that endpoints' operations share (tcp_ep_datapath.cc, tcp_rma.cc).
#pragma once

#include "ucs/log/log.hpp"
#include "uct/tcp/frames.hpp"
#include "uct/tcp/tcp_ep.hpp"
#include "uct/tcp/tcp_iface.hpp"

namespace tagwire::tcp {

[[gnu::noinline, gnu::cold]] inline ucs_status_t refuse(const char* what, std::size_t value,
                                                        std::size_t limit) {
    TW_LOG_ERROR("%s: %zu exceeds the limit of %zu", what, value, limit);
    return UCS_ERR_INVALID_PARAM;
}

inline bool TcpEp::may_send(std::size_t bytes) const {
    return !group_.blocks_sends() && !connection_->fence_waits &&
           connection_->tx.copied_bytes() + bytes <= connection_->iface.options().queue_bytes;
}

inline ucs_status_t TcpEp::has_room(std::size_t bytes) {
    if (connection_->failure == UCS_OK && may_send(bytes)) [[likely]]
        return UCS_OK;
    if (connection_->failure != UCS_OK)
        return connection_->failure;
    connection_->iface.count(TcpCounter::kNoResource);
    return UCS_ERR_NO_RESOURCE;
}

template <class Body>
inline ucs_status_t TcpEp::room(std::size_t data, std::byte** to_p) {
    const std::size_t bytes = frame_bytes<Body>(data);
    const ucs_status_t status = has_room(bytes);
    if (status != UCS_OK) [[unlikely]]
        return status;
    *to_p = connection_->tx.reserve(connection_->iface.pools, bytes);
    return *to_p != nullptr ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

template <class Body>
inline void TcpEp::send(std::byte* to, Kind kind, std::uint8_t value, const Body& body,
                        std::size_t data) {
    connection_->tx.commit(put_frame(to, kind, value, body, data));
    TcpIface& owner = connection_->iface;
    owner.sender.after_send(*connection_, data >= owner.options().seg_bytes);
}

}  // namespace tagwire::tcp
