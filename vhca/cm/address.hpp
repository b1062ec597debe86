// SPDX-License-Identifier: BSD-3-Clause
// Addresses that connections are made by: IPv4, IPv6 and InfiniBand's own (AF_IB).
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tagwire::vhca::cm {

/// As librdmacm's <infiniband/ib.h> has it: an address of AF_IB. All but the first is big endian.
struct SockaddrIb {
    sa_family_t sib_family;
    std::uint16_t sib_pkey;
    std::uint32_t sib_flowinfo;
    ibv_gid sib_addr;
    std::uint64_t sib_sid;
    std::uint64_t sib_sid_mask;
    std::uint64_t sib_scope_id;
};
static_assert(sizeof(SockaddrIb) == 48);

/// Bytes of an address of this family; 0: one that we do not know.
[[nodiscard]] std::size_t address_bytes(unsigned family);

class Address {
  public:
    Address() = default;  // AF_UNSPEC
    /// From the first bytes of `from`, as many as its family has.
    explicit Address(const sockaddr_storage& from);
    static Address any(unsigned family);
    static Address of(const sockaddr_in& from);
    static Address of(const sockaddr_in6& from);
    static Address of(const SockaddrIb& from);

    [[nodiscard]] unsigned family() const { return storage_.ss_family; }
    [[nodiscard]] std::size_t bytes() const { return address_bytes(family()); }
    [[nodiscard]] const sockaddr_storage& storage() const { return storage_; }
    [[nodiscard]] sockaddr_in ip4() const { return as<sockaddr_in>(); }
    [[nodiscard]] sockaddr_in6 ip6() const { return as<sockaddr_in6>(); }
    [[nodiscard]] SockaddrIb ib() const { return as<SockaddrIb>(); }

    [[nodiscard]] bool is_zero() const;
    /// No address of one device: the zero address, or a loopback one.
    [[nodiscard]] bool is_any() const;
    [[nodiscard]] bool is_link_local() const;  // of IPv6
    /// Host order; of AF_IB the low bits of the service, as far as they are set.
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
    /// Ports apart.
    [[nodiscard]] bool is_same_host(const Address& other) const;

  private:
    template <typename T>
    [[nodiscard]] T as() const {
        T address{};
        std::memcpy(&address, &storage_, sizeof address);
        return address;
    }

    sockaddr_storage storage_{};
};

/// The GID of an IP address, as RoCE has it.
[[nodiscard]] ibv_gid gid_of(const Address& address);

}  // namespace tagwire::vhca::cm
