// SPDX-License-Identifier: BSD-3-Clause
// The interface of dynamic connections: its target, what arrives there, and the parts that send.
//
//   endpoint --sends--> channel of a DCI --> target of a peer --> shared receive queue
//
//   ChannelLender   the channel that an endpoint has, and its turns        dc_lender.hpp
//   DciPool         DCIs and channels, made as needed (in the lender)      dc_pool.hpp
//   SharedChannels  requests that are posted again (in the lender)         dc_shared.hpp
//   DcFlow          questions and answers about messages handled           dc_flow.hpp
//   DcEndpoints     endpoints, paths, endpoints back                       dc_endpoints.hpp
//
// Threads: owner thread of the worker.
#pragma once

#include <span>
#include <string>

#include "uct/ib/dc/dc_endpoints.hpp"
#include "uct/ib/dc/dc_flow.hpp"
#include "uct/ib/dc/dc_lender.hpp"
#include "uct/ib/dc/dc_options.hpp"
#include "uct/ib/message_iface.hpp"

namespace tagwire::dc {

class DcIface : public ib::MessageIface {
  public:
    static ucs_status_t open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const void* values, uct_iface_h* iface_p);

    // ---- UCT operations (make_ops)
    void close();
    unsigned progress();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

    // ---- for its parts and endpoints
    [[nodiscard]] ChannelLender& lender() { return lender_; }
    [[nodiscard]] DcFlow& dc_flow() { return flow_; }
    [[nodiscard]] DcEndpoints& endpoints() { return endpoints_; }
    [[nodiscard]] const ReturnAddress& return_address() const { return return_address_; }
    /// Receive buffers for the messages that a peer may send without an answer, and for its
    /// questions.
    [[nodiscard]] unsigned buffers_per_peer() const {
        return static_cast<unsigned>(limits.options.credits) + 8;
    }
    bool agrees(const DcAddress& peer, std::string* reason_p) const;
    bool settled(ib::MessageEp& ep) override;

  private:
    DcIface(ib::IbMd& md, uct::Worker& worker, const DcOptions& options);
    ~DcIface() override;
    ucs_status_t init(const uct_iface_params_t& params);
    [[nodiscard]] const char* matching_obstacle() const;
    ucs_status_t make_own_target(const DcVerbs& dc);

    // ---- dc_receive.cc
    /// False: deliver() looks closer, and nothing was done.
    bool deliver_common(const ib::Completion& completion);
    void deliver(const ib::Completion& completion);
    void deliver_untagged(std::byte* message, std::size_t bytes);
    void drop(std::byte* message, const char* what);
    void deliver_tagged(std::byte* message, std::size_t bytes, const ib::Completion& completion);
    [[nodiscard]] ib::MessageEp* peer_of(std::uint32_t) const override { return nullptr; }
    ib::MessageEp* way_back(std::span<const std::byte> given) override;

    // ---- Hooks of the base
    void end_arrivals(ib::MessageEp&) override {}
    void look(std::uint64_t) override { lender_.look(); }
    void take_event(const ib::AsyncEvent& event) override;
    [[nodiscard]] bool looks_soon() const override { return lender_.looks_soon(); }
    [[nodiscard]] bool waits_for(const ib::MessageEp& ep) const override {
        return static_cast<const DcEp&>(ep).has_asked;
    }

    const ib::RetryOptions retries_;
    DcEndpoints endpoints_{*this};
    DcFlow flow_{*this};
    ChannelLender lender_;
    std::uint64_t key_ = 0;
    ib::OwnedQp target_{nullptr, nullptr};
    ReturnAddress return_address_{};
};

inline DcIface& DcEp::owner() const {
    return static_cast<DcIface&>(MessageEp::owner());
}

}  // namespace tagwire::dc
