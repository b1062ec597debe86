// SPDX-License-Identifier: BSD-3-Clause
// The endpoints of dc: their memory, the address handles that endpoints to one port share, and the
// endpoints back to peers that need a reply.
//
// Threads: owner of the interface.
// Invariants
//  (1) A path exists while endpoints use it.
//  (2) The cost of all peers that only send to this interface is bounded: kWaysBackMax idle
//      endpoints.
#pragma once

#include <cstring>
#include <functional>
#include <string_view>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/describe.hpp"
#include "uct/ib/dc/dc_ep.hpp"

namespace tagwire::dc {

/// Addresses as keys: they are bytes.
template <class Address>
struct AddressHash {
    std::size_t operator()(const Address& address) const {
        return std::hash<std::string_view>{}(
            {reinterpret_cast<const char*>(&address), sizeof address});
    }
};
template <class Address>
struct AddressEqual {
    bool operator()(const Address& one, const Address& other) const {
        return std::memcmp(&one, &other, sizeof one) == 0;
    }
};
template <class Address, class Value>
using ByAddress = ucs::ReserveHashMap<Address, Value, AddressHash<Address>, AddressEqual<Address>>;

class DcEndpoints {
  public:
    explicit DcEndpoints(DcIface& owner) : owner_(owner) {}
    ucs_status_t init();

    /// Null: the endpoint cannot be made.
    DcEp* make(const ib::PortAddress& port, std::uint64_t key, std::uint32_t number,
               ucs_status_t* status_p);
    void destroy(DcEp& ep);

    /// The endpoint that answers go through; null: the address leads nowhere.
    DcEp* way_back_to(const ReturnAddress& address);
    /// An endpoint back has failed.
    void forget_way_back(const DcEp& ep);

    void describe(const uct::DescribeSink& sink) const;

  private:
    static constexpr std::size_t kWaysBackMax = 64;
    struct WayBack {
        DcEp* ep;
        std::uint64_t used;  // the newest use of all has the largest number
    };

    Path* path_to(const ib::PortAddress& port);
    void forget_idle_ways();

    DcIface& owner_;
    ucs::ObjectPool<DcEp> pool_;
    ByAddress<ib::PortAddress, Path> paths_;
    ByAddress<ReturnAddress, WayBack> ways_back_;
    std::uint64_t ways_used_ = 0;
};

}  // namespace tagwire::dc
