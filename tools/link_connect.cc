// SPDX-License-Identifier: BSD-3-Clause
// Endpoints of a Link: addresses over the channel, some at a time, and what the endpoints took from
// the allocator.
#include <algorithm>

#include <uct/api/tagwire_uct.h>

#include "cli/failure.hpp"
#include "tools/allocated.hpp"
#include "tools/link.hpp"

namespace tagwire::tools {
namespace {

constexpr std::size_t kAddressMax = 4096;
// Both sides send before they receive: so few that one message fits into the buffers between them.
constexpr std::size_t kAddressesPerMessage = 256;

/// Room for an address. It is there even where a transport has no such address, since no call takes
/// null.
class Address {
  public:
    explicit Address(std::size_t bytes) : bytes_(bytes), place_(std::max<std::size_t>(bytes, 1)) {}
    explicit Address(Bytes bytes) : bytes_(bytes.size()), place_(std::move(bytes)) {
        place_.resize(std::max<std::size_t>(bytes_, 1));
    }

    template <class Opaque>
    Opaque* as() {
        return reinterpret_cast<Opaque*>(place_.data());
    }
    std::size_t bytes() const { return bytes_; }
    void write(Encoder* message) const { message->blob(place_.data(), bytes_); }

  private:
    std::size_t bytes_;
    Bytes place_;
};

void check_reachable(uct_iface_h iface, const Resource& resource, Address* device,
                     Address* address) {
    char reason[256] = "";
    if (tagwire_uct_iface_is_reachable_reason(iface, device->as<uct_device_addr_t>(),
                                              address->as<uct_iface_addr_t>(), reason,
                                              sizeof reason) == 0) {
        throw Failure(text("the peer cannot be reached over %s/%s: %s", resource.transport.c_str(),
                           resource.device.c_str(), reason));
    }
}

}  // namespace

void Link::connect() {
    if (setup_.peers > setup_.open_peers())
        keep_freed_memory();
    for (std::size_t first = 0; first < setup_.peers; first += kAddressesPerMessage) {
        const std::size_t count = std::min(kAddressesPerMessage, setup_.peers - first);
        channel_->send(MessageType::kAddress, addresses(first, count));
        connect_endpoints(first, count, channel_->expect(MessageType::kAddress));
    }
    if (connects_to_interface()) {
        destroy_spare_endpoints();
        return;
    }
    // A message that comes before the other side has connected its endpoint would be lost.
    channel_->send(MessageType::kReady);
    channel_->expect(MessageType::kReady);
}

std::optional<std::uint64_t> Link::allocated_per_peer() const {
    if (allocated_ <= 0)
        return std::nullopt;
    const auto bytes = static_cast<std::uint64_t>(allocated_);
    return (bytes + setup_.peers - 1) / setup_.peers;
}

void Link::create_endpoints() {
    const std::int64_t before = allocated_bytes();
    for (std::size_t i = 0; i < setup_.peers; ++i) {
        uct_ep_params_t params{};
        params.field_mask = UCT_EP_PARAM_FIELD_IFACE;
        params.iface = interface(i);
        uct_ep_h ep = nullptr;
        const ucs_status_t status = uct_ep_create(&params, &ep);
        if (status != UCS_OK)
            check(status, text("endpoint %zu of %zu", i + 1, setup_.peers).c_str());
        objects_.endpoints.push_back(ep);
    }
    allocated_ += allocated_bytes() - before;
}

Encoder Link::addresses(std::size_t first, std::size_t count) {
    Encoder message;
    message.number(count);
    for (std::size_t i = first; i < first + count; ++i) {
        if (side_ == Side::kDriver || !connects_to_interface() || !is_spare(i)) {
            write_addresses(i, interface(i), &message);
            continue;
        }
        open_interface(i);
        write_addresses(i, objects_.interfaces.back(), &message);
        uct_iface_close(objects_.interfaces.back());
        objects_.interfaces.pop_back();
    }
    return message;
}

void Link::write_addresses(std::size_t index, uct_iface_h iface, Encoder* message) const {
    Address device(attr_.device_addr_len);
    Address address(attr_.iface_addr_len);
    Address ep_address(connects_to_interface() ? 0 : attr_.ep_addr_len);
    check(uct_iface_get_device_address(iface, device.as<uct_device_addr_t>()),
          "uct_iface_get_device_address");
    check(uct_iface_get_address(iface, address.as<uct_iface_addr_t>()), "uct_iface_get_address");
    if (!connects_to_interface()) {
        check(uct_ep_get_address(endpoint(index), ep_address.as<uct_ep_addr_t>()),
              "uct_ep_get_address");
    }
    for (const Address* one : {&device, &address, &ep_address})
        one->write(message);
}

void Link::connect_endpoints(std::size_t first, std::size_t count, Decoder addresses) {
    if (addresses.number() != count)
        throw Failure("the peer sent another number of addresses than agreed");
    const std::int64_t before = allocated_bytes();
    for (std::size_t i = first; i < first + count; ++i)
        connect_endpoint(i, &addresses);
    allocated_ += allocated_bytes() - before;
    addresses.end();
}

void Link::connect_endpoint(std::size_t index, Decoder* addresses) {
    Address device(addresses->blob(kAddressMax));
    Address address(addresses->blob(kAddressMax));
    Address ep_address(addresses->blob(kAddressMax));
    if (device.bytes() != attr_.device_addr_len || address.bytes() != attr_.iface_addr_len ||
        ep_address.bytes() != (connects_to_interface() ? 0 : attr_.ep_addr_len)) {
        throw Failure("the peer sent an address of another transport");
    }
    if (!connects_to_interface()) {
        check_reachable(interface(index), resource_, &device, &address);
        check(uct_ep_connect_to_ep(endpoint(index), device.as<uct_device_addr_t>(),
                                   ep_address.as<uct_ep_addr_t>()),
              "uct_ep_connect_to_ep");
        return;
    }
    if (side_ == Side::kPeer && is_spare(index))
        return;  // nothing goes back to where nothing comes from
    check_reachable(interface(index), resource_, &device, &address);
    uct_ep_params_t params{};
    params.field_mask =
        UCT_EP_PARAM_FIELD_IFACE | UCT_EP_PARAM_FIELD_DEV_ADDR | UCT_EP_PARAM_FIELD_IFACE_ADDR;
    params.iface = interface(index);
    params.dev_addr = device.as<uct_device_addr_t>();
    params.iface_addr = address.as<uct_iface_addr_t>();
    uct_ep_h ep = nullptr;
    const ucs_status_t status = uct_ep_create(&params, &ep);
    if (status != UCS_OK && is_spare(index)) {
        throw UsageError(
            text("--peers takes at most %llu over %s: it refuses an endpoint to an "
                 "interface that is closed again (%s)",
                 static_cast<unsigned long long>(setup_.open_peers()), resource_.transport.c_str(),
                 ucs_status_string(status)));
    }
    check(status, "uct_ep_create");
    objects_.endpoints.push_back(ep);
}

/// Nobody answers there any more: they must not be there when somebody asks.
void Link::destroy_spare_endpoints() {
    while (objects_.endpoints.size() > setup_.open_peers()) {
        uct_ep_destroy(objects_.endpoints.back());
        objects_.endpoints.pop_back();
    }
}

}  // namespace tagwire::tools
