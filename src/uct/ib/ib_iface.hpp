// SPDX-License-Identifier: BSD-3-Clause
// Base of the interfaces of all verbs transports: the port, the file descriptors that wake a
// sleeper, asynchronous events, the device address.
//
// Threads: owner of the worker.
//
// The event fd is an epoll set over the completion channel, the device's async fd and a timer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/fd.hpp"
#include "uct/base_iface.hpp"
#include "uct/ib/address.hpp"
#include "uct/ib/async_events.hpp"
#include "uct/ib/completion_queue.hpp"
#include "uct/ib/ib_md.hpp"

namespace tagwire::ib {

/// Peers of a virtual HCA are threads that need a processor, of this process or of others: they
/// count as standing.
class VirtualHcaWatch : public uct::PeerWatch {
  public:
    [[nodiscard]] bool sees_peers() const override { return false; }
    Peers look_at_peers(const uct::Whereabouts&) override { return Peers::kStand; }
    Peers look_at_peer(uct_ep_h, const uct::Whereabouts&) override { return Peers::kStand; }
};

class IbIface : public uct::BaseIface {
  public:
    // ---- Operations that transports inherit (make_ops finds them)
    ucs_status_t event_fd_get(int* fd_p);
    ucs_status_t get_device_address(uct_device_addr_t* addr);

    [[nodiscard]] IbMd& ib_md() const { return md_; }
    [[nodiscard]] const VerbsTable& verbs() const { return md_.verbs(); }
    [[nodiscard]] const Port& port() const { return port_; }
    uct::PeerWatch* peer_watch() override { return has_virtual_hca_ ? &virtual_hca_ : nullptr; }
    /// The longest packet that the link carries, whatever TAGWIRE_IB_MTU says.
    [[nodiscard]] std::uint32_t link_mtu_bytes() const { return link_mtu_bytes_; }

  protected:
    IbIface(IbMd& md, uct::Worker& worker, const uct_iface_ops_t& table, ucs_callback_t progress);
    ~IbIface() override;

    /// Checks the parameters, finds the port of params.mode.device.dev_name ("vhca0:1"), opens
    /// channel and descriptors. UCS_ERR_NO_DEVICE, UCS_ERR_UNREACHABLE (port down),
    /// UCS_ERR_EXCEEDS_LIMIT (descriptors); logged.
    ucs_status_t open_port(const uct_iface_params_t& params);

    /// The peer's port may be reached from ours; `reason` may be null.
    bool port_reachable(const uct_device_addr_t* addr, std::string* reason) const;

    /// Takes what made the event fd readable. True when a completion event was among it.
    bool drain_descriptors();
    /// The event fd becomes readable after that time; 0: no more.
    void wake_after(std::uint64_t ns);
    ucs::ReserveVector<AsyncEvent> take_async_events();
    [[nodiscard]] ibv_comp_channel* channel() const { return channel_.get(); }
    [[nodiscard]] Mailbox& mailbox() { return mailbox_; }

    /// Fills what all verbs transports have in common.
    void query_base(uct_iface_attr_t* attr) const;
    void describe_base(const uct::DescribeSink& sink) const;

  private:
    ucs_status_t open_descriptors();
    void watch(int fd);
    void find_gid_again();

    IbMd& md_;
    const bool has_virtual_hca_;
    VirtualHcaWatch virtual_hca_;
    std::uint32_t link_mtu_bytes_ = 0;
    Port port_;
    OwnedChannel channel_{nullptr, nullptr};
    Mailbox mailbox_;
    bool has_mailbox_ = false;
    ucs::UniqueFd epoll_;
    ucs::UniqueFd timer_;
};

}  // namespace tagwire::ib
