// SPDX-License-Identifier: BSD-3-Clause
// Rails over a transport without a wire: its endpoints write down what they were asked for, and
// answer what the test has set. For tests of parts that connect lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocols/cost/calibration.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/request/context.hpp"
#include "protocols/request/rail.hpp"
#include "ucs/log/repeats.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/base_iface.hpp"
#include "uct/base_md.hpp"
#include "uct/worker.hpp"

namespace tagwire::test {

class WirelessIface;

/// An endpoint.
struct WirelessEp : uct::BaseEp {
    using BaseEp::BaseEp;

    static ucs_status_t create(const uct_ep_params_t* params, uct_ep_h* ep_p);
    void destroy();
    ssize_t am_bcopy(std::uint8_t id, uct_pack_callback_t pack, void* arg, unsigned flags);
    ucs_status_t get_address(uct_ep_addr_t* address);
    ucs_status_t connect_to_ep(const uct_device_addr_t* device, const uct_ep_addr_t* address);
    ucs_status_t check(unsigned flags, uct_completion_t* comp);
    ucs_status_t flush(unsigned flags, uct_completion_t* comp);
    ucs_status_t put_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t get_zcopy(const uct_iov_t* iov, std::size_t iovcnt, std::uint64_t remote,
                           uct_rkey_t rkey, uct_completion_t* comp);
    ucs_status_t pending_add(uct_pending_req_t* request, unsigned flags);
    void pending_purge(uct_pending_purge_callback_t cb, void* arg);

    WirelessIface& owner() const;

    std::uint8_t number = 0;     // which get_address() tells
    std::uint8_t leads_to = 0;   // the last byte of the address that it was made with
    std::uint8_t connected = 0;  // the number that connect_to_ep() was told; 0: not at all
};

/// The kind of an interface, and how its endpoints answer.
struct WirelessSettings {
    const char* transport = "tcp";
    std::uint8_t address = 1;  // of the device and the interface
    bool connects_to_iface = true;
    bool goes_through_kernel = false;
    bool is_auxiliary = false;
    double latency = 1e-6;
    std::set<std::uint8_t> unreachable{};  // addresses
    std::set<std::uint8_t> off_route{};
    ucs_status_t create = UCS_OK;
    ucs_status_t address_status = UCS_OK;
    ucs_status_t connect = UCS_OK;
    ucs_status_t flush = UCS_OK;
    ucs_status_t send = UCS_OK;
    bool lends = false;
    ucs_status_t read = UCS_OK;  // of what the peer lends
    bool moves = false;          // it reads and writes the peer's memory
    double bandwidth = 1e9;
    ucs_status_t move = UCS_INPROGRESS;
};

class WirelessIface : public uct::BaseIface, uct::Lending {
  public:
    struct Message {
        WirelessEp* by;
        std::vector<std::byte> bytes;
        std::uint8_t id = 0;
    };
    /// Reads fill the buffer with it.
    static constexpr std::byte kRead{0x5a};

    /// A read or write of the peer's memory that has begun.
    struct Piece {
        WirelessEp* by;
        bool is_put;
        uct_iov_t iov;
        std::uint64_t remote;
        uct_completion_t* done;
    };

    WirelessIface(uct::Md& md, uct::Worker& worker, WirelessSettings& how);

    unsigned progress() { return 0; }
    void close() { delete this; }
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_device_address(uct_device_addr_t* address);
    ucs_status_t get_address(uct_iface_addr_t* address);
    bool reachable(const uct_device_addr_t* device, const uct_iface_addr_t* iface,
                   std::string* reason) override;
    bool is_on_route(const uct_device_addr_t* device) override;
    void describe(const uct::DescribeSink&) const override {}
    void describe_ep(uct_ep_h, const uct::DescribeSink&) const override {}

    ucs_status_t lend(uct_ep_h, const void*, std::size_t, tagwire_uct_loan_t*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t read(uct_ep_h ep, const uct_iov_t* iov, std::size_t iovcnt,
                      const tagwire_uct_loan_t& loan, uct_completion_t* comp) override;
    void set_handler(tagwire_uct_lent_cb_t, void*) override {}

    WirelessSettings& settings;
    std::set<WirelessEp*> eps;
    std::deque<Message> sent;
    std::vector<tagwire_uct_loan_t> reads;
    std::vector<uct_completion_t*> flushes;  // that have not ended
    std::deque<Piece> pieces;
    std::vector<uct_pending_req_t*> waiting;  // for room
    unsigned purges = 0;
    std::uint8_t made = 0;
};

/// The rails of a worker, each over a domain of its own.
class WirelessRails {
  public:
    WirelessRails();
    ~WirelessRails();
    WirelessRails(const WirelessRails&) = delete;
    WirelessRails& operator=(const WirelessRails&) = delete;

    /// The interface of one more rail.
    WirelessIface& add(const WirelessSettings& settings);
    WirelessIface& iface(std::size_t rail) const {
        return *static_cast<WirelessIface*>(rails[rail]->iface());
    }
    proto::Domain& domain(std::size_t rail) { return domains_[rail]; }
    /// Endpoints that were made and not destroyed.
    std::size_t eps() const;

    proto::Options options{};
    ucs::ReserveVector<std::unique_ptr<proto::Rail>> rails;

  private:
    proto::Calibration calibration_;
    ucs::Repeats refusals_;
    ucs_async_context_t* async_ = nullptr;
    uct_worker_h worker_ = nullptr;
    std::deque<WirelessSettings> settings_;
    std::deque<proto::Domain> domains_;
    std::deque<proto::Resource> resources_;
};

}  // namespace tagwire::test
