// SPDX-License-Identifier: BSD-3-Clause
// The interface of dynamic connections: its target, the channels of initiators that all endpoints
// share, and the flow control between endpoints and targets.
//
//   endpoint --sends--> channel of a DCI --> target of a peer --> shared receive queue
//   endpoint --"so many sent: how far are you?" (ask)-->
//            <--"so far" (grant), when all before it is handled-- through an endpoint back, made
//                                                                 from the address in the question
//
// An endpoint that waits for a grant holds no channel: its requests are acknowledged by the peer's
// device, which needs receive buffers only, and those come back by the peer's progress alone. So
// answers always find a channel.
//
// Threads: owner thread of the worker.
// Invariants
//  (1) An owned channel is idle, or owned by one endpoint from its first request until the
//      acknowledgement of its last: no other endpoint's requests are lost when a target fails.
//  (2) While an endpoint waits for a channel its owner asks for a completion at the end of its
//      turn.
//  (3) The cost of all peers that only send to this interface is bounded: kWaysBackMax idle
//      endpoints, kAnswersMax answers.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ucs/memory/mpool.hpp"
#include "ucs/memory/reserve.hpp"
#include "uct/ib/dc/dc_ep.hpp"
#include "uct/ib/dc/dc_options.hpp"
#include "uct/ib/dc/dc_pool.hpp"
#include "uct/ib/message_iface.hpp"

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

class DcIface : public ib::MessageIface {
  public:
    static ucs_status_t open(ib::IbMd& md, uct::Worker& worker, const uct_iface_params_t& params,
                             const void* values, uct_iface_h* iface_p);

    // ---- UCT operations (make_ops)
    void close();
    ucs_status_t query(uct_iface_attr_t* attr);
    ucs_status_t get_address(uct_iface_addr_t* addr);

    // ---- for tagwire's own queries
    bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                   std::string* reason) override;
    void describe(const uct::DescribeSink& sink) const override;
    void describe_ep(uct_ep_h ep, const uct::DescribeSink& sink) const override;

  private:
    friend class DcEp;
    static constexpr std::size_t kWaysBackMax = 64;
    static constexpr std::size_t kAnswersMax = 1U << 16;
    static constexpr std::uint32_t kNoMore = UINT32_MAX / 2;  // places kept: more than there are

    /// An endpoint that failed while others may have requests where it has some.
    struct Closing {
        std::uint32_t ep_id;
        std::uint64_t deadline;  // ns
    };
    struct WayBack {
        DcEp* ep;
        std::uint64_t used;  // the newest use of all has the largest number
    };
    struct Answer {
        ReturnAddress to;
        Progress progress;
    };

    DcIface(ib::IbMd& md, uct::Worker& worker, const DcOptions& options);
    ~DcIface() override;
    ucs_status_t init(const uct_iface_params_t& params);
    [[nodiscard]] const char* matching_obstacle() const;
    void choose_streams();
    ucs_status_t make_own_target();
    bool agrees(const DcAddress& peer, std::string* reason_p) const;
    [[nodiscard]] std::uint32_t half_window() const {
        return std::max(1U, static_cast<std::uint32_t>(options_.credits) / 2);
    }
    /// Receive buffers for the messages that a peer may send without an answer, and for its
    /// questions.
    [[nodiscard]] unsigned buffers_per_peer() const {
        return static_cast<unsigned>(options_.credits) + 8;
    }

    // ---- Endpoints
    /// Null: the endpoint cannot be made.
    DcEp* new_ep(const ib::PortAddress& port, std::uint64_t key, std::uint32_t number,
                 ucs_status_t* status_p);
    void delete_ep(DcEp& ep);
    Path* path_to(const ib::PortAddress& port);
    /// The endpoint that answers go through; null: the address leads nowhere.
    DcEp* way_back_to(const ReturnAddress& address);
    void forget_idle_ways();

    // ---- dc_pool.cc
    [[nodiscard]] bool is_shared() const { return policy_ >= Policy::kRand; }
    ucs_status_t new_dci(Dci** dci_p);
    Channel* new_channel(Dci& dci);
    Channel* add_to_pool(Dci& dci);
    void hand_on(Channel& channel);
    Channel* grow_pool();
    Channel* take_channel(const DcEp& ep);
    Channel* take_answer_channel();
    void begin_turn(Channel& channel, DcEp& ep);
    void give_back(Channel& channel);
    DcEp* next_waiting();
    bool own_channel(DcEp& ep);
    bool share_channel(DcEp& ep);
    void restart(Channel& channel);
    /// Somebody waits: whoever had his turn gets no more room until his requests are done.
    void end_turns();
    static int post_call(ib::SendQueue& queue, ib::MessageEp& ep, ibv_send_wr* first,
                         ibv_send_wr** bad_p);
    bool make_room(ib::MessageEp& ep, unsigned requests, unsigned messages) override;
    void gave_up(ib::MessageEp& ep) override;
    void drained(ib::SendQueue& queue) override;
    [[nodiscard]] bool is_alone(const DcEp& ep) const;
    void end_copied(ib::MessageEp& ep) override;
    [[nodiscard]] bool uses_memory(const ib::MessageEp& ep) const override;
    void give_up(ib::MessageEp& ep) override;
    bool settled(ib::MessageEp& ep) override;
    void stop(ib::MessageEp& ep) override;
    void look(std::uint64_t now) override;
    void start_anew(Dci& dci);

    /// Places came back to channels of a DCI with streams: whoever waited for them goes on.
    void use_places(const Dci& dci);
    /// A channel without an owner must have so many.
    [[nodiscard]] std::uint32_t places_of_a_turn() const {
        return static_cast<std::uint32_t>(options_.tx_depth) / 2;
    }
    void special_completed(ib::SendQueue& queue, const ib::Completion& completion) override;

    // ---- dc_shared.cc
    void shared_completed(Channel& channel, const ib::Completion& completion);
    void acknowledge(Channel& channel, std::uint32_t sn);
    void break_off(Channel& channel, const ib::Completion& completion);
    void post_again(Channel& channel);
    bool post_one_again(Channel& channel, std::uint32_t sn);
    [[nodiscard]] bool has_requests(const ib::MessageEp& ep) const override {
        return static_cast<const DcEp&>(ep).under_way_ != 0;
    }
    [[nodiscard]] ib::MessageEp* poster_of(const ib::SendQueue& queue) const override;

    // ---- dc_flow.cc
    bool ask(DcEp& ep);
    void take_question(const std::byte* content);
    void take_grant(const std::byte* content);
    bool send_answer(const Answer& answer);
    void send_owed() override;
    [[nodiscard]] bool owes() const override;
    bool sends_again(ib::MessageEp& ep) override;
    void keep(ib::MessageEp* ep, std::byte* message) override;
    void released(std::uint64_t ep_id) override;
    void tell_released(ib::MessageEp&) override {}  // who wants to know asks
    void take_event(const ib::AsyncEvent& event) override;

    // ---- dc_receive.cc
    void receive(const ib::Completion* completions, unsigned count) override;
    void deliver(const ib::Completion& completion);
    void deliver_untagged(std::byte* message, std::size_t bytes);
    void deliver_tagged(std::byte* message, std::size_t bytes, const ib::Completion& completion);
    [[nodiscard]] ib::MessageEp* peer_of(std::uint32_t) const override { return nullptr; }
    ib::MessageEp* way_back(std::span<const std::byte> answer_to) override;

    void end_arrivals(ib::MessageEp&) override {}
    [[nodiscard]] bool looks_soon() const override { return !closing_.empty(); }
    [[nodiscard]] bool waits_for(const ib::MessageEp& ep) const override {
        return static_cast<const DcEp&>(ep).has_asked_;
    }

    const ib::RetryOptions retries_;
    const DciOptions dci_options_;
    const Policy policy_;
    const DcVerbs* dc_ = nullptr;
    InitiatorParams initiator_params_{};
    unsigned streams_ = 1;  // of each DCI
    std::uint64_t key_ = 0;
    ib::OwnedQp target_{nullptr, nullptr};
    ReturnAddress return_address_{};
    ib::SendQueue no_queue_;  // of endpoints without a channel: no room
    ucs::ReserveVector<std::unique_ptr<Dci>> dcis_;
    ucs::ReserveVector<std::unique_ptr<Channel>> channels_;
    ucs::ReserveVector<Channel*> pool_;  // those that endpoints get
    std::size_t dcis_max_;  // in it; fewer than the option says when the device had no more
    Channel* answer_channel_ = nullptr;             // of endpoints back, when all others are taken
    ucs::List<Channel, &Channel::idle_link> idle_;  // owned ones; the one used last is the last
    ucs::ReserveDeque<std::uint32_t> waiting_;      // ids of endpoints without a channel, in order
    bool is_contended_ = false;                     // somebody waited since the last look
    std::uint32_t usual_signal_every_ = 1;
    ucs::ObjectPool<DcEp> ep_pool_;
    ByAddress<ib::PortAddress, Path> paths_;
    ByAddress<ReturnAddress, WayBack> ways_back_;
    std::uint64_t ways_used_ = 0;
    ucs::ReserveVector<Answer> answers_;
    ucs::ReserveVector<Closing> closing_;
    std::uint64_t close_ns_ = 0;  // that their requests may take to end by themselves
};

inline DcIface& DcEp::owner() const {
    return static_cast<DcIface&>(MessageEp::owner());
}

}  // namespace tagwire::dc
