// SPDX-License-Identifier: BSD-3-Clause
// The interface of reliable connections: the owners of queue pairs, credits, endpoints that close.
//
// Threads: owner thread of the worker. Nothing runs in the background.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/message_iface.hpp"
#include "uct/ib/rc/rc_credits.hpp"
#include "uct/ib/rc/rc_ep.hpp"
#include "uct/ib/rc/rc_options.hpp"

namespace tagwire::rc {

class RcIface : public ib::MessageIface, private ib::QueueSource {
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

  private:
    friend class RcEp;
    static constexpr unsigned kControlPerPeer = 8;                // messages that take no credit
    static constexpr std::uint64_t kLastRequestNs = 100'000'000;  // not every device tells
    static constexpr std::uint8_t kSilentRounds = 30;             // of keepalive
    struct QpPage : ucs::FromReserve {
        std::array<RcEp*, 4096> eps{};
    };

    RcIface(ib::IbMd& md, uct::Worker& worker, const RcOptions& options);
    ~RcIface() override;
    ucs_status_t init(const uct_iface_params_t& params);
    [[nodiscard]] const char* matching_obstacle() const;
    ucs_status_t measure_inline();
    int probe_queue_pair(std::uint32_t inline_bytes, std::uint32_t* given_p);
    /// Receive buffers for the messages that a peer may send without new credit, and for control
    /// messages.
    [[nodiscard]] unsigned buffers_per_peer() const {
        return static_cast<unsigned>(limits.options.credits) + kControlPerPeer;
    }
    bool agrees(std::uint8_t flags, std::uint32_t seg_bytes, std::string* reason_p) const;

    // ---- Endpoints
    [[nodiscard]] RcEp* of_qp(std::uint32_t qp_num) const {
        const auto& page = by_qp_[(qp_num >> 12) & 0xfff];
        return page == nullptr ? nullptr : page->eps[qp_num & 0xfff];
    }
    void map_qp(std::uint32_t qp_num, RcEp* ep);
    void bury(RcEp& ep);
    void reap(std::uint64_t now);

    // ---- rc_receive.cc
    /// False: deliver() looks closer, and nothing was done.
    bool deliver_common(const ib::Completion& completion);
    void deliver(const ib::Completion& completion);
    void deliver_untagged(RcEp* ep, std::byte* message, std::size_t bytes);
    void deliver_bare_am(RcEp* ep, std::byte* message, const ib::Completion& completion);
    void deliver_tagged(RcEp* ep, std::byte* message, std::size_t bytes,
                        const ib::Completion& completion);
    void deliver_first_part(RcEp& ep, std::byte* message, std::size_t bytes, uct_tag_t tag,
                            std::uint64_t imm);
    void deliver_part(RcEp& ep, std::byte* message, std::size_t bytes, bool is_last);
    void take_part(RcEp& ep, std::byte* message, std::size_t bytes, unsigned flags);

    // ---- Hooks of the base
    [[nodiscard]] ib::MessageEp* peer_of(std::uint32_t qp_num) const override {
        return of_qp(qp_num);
    }
    bool settled(ib::MessageEp&) override { return true; }  // reap() waits for more
    void end_arrivals(ib::MessageEp& ep) override;
    void look(std::uint64_t now) override;
    void take_event(const ib::AsyncEvent& event) override;
    [[nodiscard]] bool waits_for(const ib::MessageEp& ep) const override;
    [[nodiscard]] bool may_ask(ib::MessageEp& ep) override;
    [[nodiscard]] bool looks_soon() const override { return !destroyed_.empty(); }

    // ---- Each endpoint has a send queue of its own (QueueSource)
    bool make_room(ib::MessageEp&, unsigned, unsigned) override { return false; }
    void drained(ib::WorkQueue&) override {}
    void stop(ib::MessageEp& ep) override;
    void give_up(ib::MessageEp& ep) override;

    const ib::RetryOptions retries_;
    RcCredits credits_{*this};
    struct Destroyed {
        RcEp* ep;
        std::uint64_t deadline;  // not to wait longer for the events of its queue pairs
        std::uint64_t mark;      // receive completions seen when they had come
        bool has_all;
    };
    ucs::ReserveVector<Destroyed> destroyed_;
    std::array<std::unique_ptr<QpPage>, 4096> by_qp_;
    RcEp* heard_last_ = nullptr;  // of the last active message; it has its queue pairs
};

inline RcIface& RcEp::owner() const {
    return static_cast<RcIface&>(MessageEp::owner());
}

}  // namespace tagwire::rc
