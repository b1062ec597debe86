// SPDX-License-Identifier: BSD-3-Clause
// Base of all interfaces and endpoints: the objects that uct_iface_h and uct_ep_h point to.
//
// A transport derives `class XIface : public BaseIface` and `class XEp : public BaseEp`, gives both
// the member functions that ops.hpp lists, and passes make_ops<XIface, XEp>() and
// progress_callback<XIface> to the constructor below. Data-path members are not virtual: the
// operations table calls them directly. The virtual functions here are control path.
//
// Threads: the worker's owner thread.
// Invariants
//  (1) Every entry of the AM table has a callable function: an id without a handler has one that
//      warns and drops.
//  (2) Both tag callbacks are set or none; has_tag_callbacks() tells.
//  (3) The worker progresses the interface exactly while a progress flag is set; the destructor
//      removes it.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ucs/memory/reserve.hpp"
#include "ucs/stats/counters.hpp"
#include "uct/base_md.hpp"
#include "uct/describe.hpp"
#include "uct/iface_params.hpp"
#include "uct/lending.hpp"
#include "uct/peer_watch.hpp"
#include "uct/pieces.hpp"
#include "uct/worker.hpp"

namespace tagwire::uct {

struct BaseEp : uct_ep_t, ucs::FromReserve {
    explicit BaseEp(uct_iface_h owner) : uct_ep_t{owner} {}
};

class BaseIface : public uct_iface_t {
  public:
    virtual ~BaseIface();
    BaseIface(const BaseIface&) = delete;
    BaseIface& operator=(const BaseIface&) = delete;

    [[nodiscard]] Md& md() const { return md_; }
    [[nodiscard]] Worker& worker() const { return worker_; }
    [[nodiscard]] const IfaceParams& params() const { return params_; }
    [[nodiscard]] bool has_tag_callbacks() const { return params_.eager_cb != nullptr; }

    /// For the worker's callback queue: an indirect call straight to Iface::progress().
    template <class Iface>
    [[gnu::hot]] static unsigned progress_callback(void* arg) {
        return static_cast<Iface*>(static_cast<BaseIface*>(arg))->progress();
    }

    /// Many puts or gets in one call.
    ucs_status_t move_pieces(uct_ep_h ep, const Pieces& pieces, std::size_t* begun_p) const {
        return move_pieces_(ep, pieces, begun_p);
    }

    // ---- Operations that transports inherit (make_ops finds them)
    void progress_enable(unsigned flags);
    void progress_disable(unsigned flags);
    int is_reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr);

    // ---- Control path
    /// False when an address is null although the interface has such addresses.
    [[nodiscard]] bool addresses_given(const uct_device_addr_t* dev_addr,
                                       const uct_iface_addr_t* iface_addr);
    /// Both addresses are complete (device_addr_len and iface_addr_len bytes) but may come from
    /// anywhere. When the answer is no and `reason` is not null, it gets one sentence.
    virtual bool reachable(const uct_device_addr_t* dev_addr, const uct_iface_addr_t* iface_addr,
                           std::string* reason) = 0;
    /// The system's routes lead from here to that device, which is reachable.
    virtual bool is_on_route(const uct_device_addr_t*) { return true; }
    virtual ucs::CounterSet counters() const { return {}; }
    /// Null: its endpoints lend no memory.
    [[nodiscard]] Lending* lending() const { return lending_; }
    /// Null: it knows nothing of its peers.
    virtual PeerWatch* peer_watch() { return nullptr; }
    [[nodiscard]] bool sees_peers() {
        const PeerWatch* const watch = peer_watch();
        return watch != nullptr && watch->sees_peers();
    }
    /// The time that a message takes, as iface_query() tells it.
    [[nodiscard]] std::uint64_t latency_ns();
    /// A number that changes when something comes or ends.
    [[nodiscard]] std::uint64_t moved() {
        const PeerWatch* const watch = peer_watch();
        return moved_ + (watch != nullptr ? watch->moved() : 0);
    }

    BaseIface* next_in_worker = nullptr;
    [[nodiscard]] bool is_progressed() const { return progress_flags_ != 0; }
    virtual void describe(const DescribeSink& sink) const = 0;
    virtual void describe_ep(uct_ep_h ep, const DescribeSink& sink) const = 0;

    /// `id` has been checked; null puts the dropping handler back.
    void set_am_handler(std::uint8_t id, uct_am_callback_t callback, void* arg);
    /// As tagwire_uct_iface_set_am_head_handler().
    void set_am_head_handler(std::uint8_t id, tagwire_uct_am_head_callback_t callback, void* arg) {
        am_heads_[id] = {callback, arg};
    }

  protected:
    BaseIface(Md& md, Worker& worker, const uct_iface_ops_t& ops, ucs_callback_t progress);

    /// Checks and keeps the parameters: first thing in a transport's open. UCS_ERR_INVALID_PARAM,
    /// UCS_ERR_UNSUPPORTED (logged).
    ucs_status_t take_params(const uct_iface_params_t& params);

    // ---- Deliveries (data path)
    /// `id` < UCT_AM_ID_MAX: one that came from a peer is checked first. UCS_INPROGRESS: the user
    /// keeps the descriptor.
    ucs_status_t invoke_am(std::uint8_t id, void* data, std::size_t length, unsigned flags) {
        const AmHandler& handler = am_[id];
        return handler.callback(handler.arg, data, length, flags);
    }
    /// As invoke_am(), of a message whose first TAGWIRE_UCT_AM_HEAD_BYTES bytes are also at `head`.
    ucs_status_t invoke_am_with_head(std::uint8_t id, const void* head, void* data,
                                     std::size_t length, unsigned flags) {
        const AmHeadHandler& handler = am_heads_[id];
        if (handler.callback == nullptr)
            return invoke_am(id, data, length, flags);
        return handler.callback(handler.arg, head, data, length, flags);
    }
    ucs_status_t invoke_unexpected_eager(void* data, std::size_t length, unsigned flags,
                                         uct_tag_t tag, std::uint64_t imm, void** context) {
        return params_.eager_cb(params_.eager_arg, data, length, flags, tag, imm, context);
    }
    ucs_status_t invoke_unexpected_rndv(unsigned flags, uct_tag_t tag, const void* header,
                                        unsigned header_length, std::uint64_t remote_addr,
                                        std::size_t length, const void* rkey_buf) {
        return params_.rndv_cb(params_.rndv_arg, flags, tag, header, header_length, remote_addr,
                               length, rkey_buf);
    }
    /// Hands the failure of an endpoint to the user's handler, or logs it when there is none. The
    /// transport has ended every operation of `ep` before, and calls this once per endpoint.
    void report_failure(uct_ep_h ep, ucs_status_t status);

    /// Endpoints of the interface lend memory, by that part of it.
    void set_lending(Lending& lending) { lending_ = &lending; }
    /// Endpoints of the interface have a cheaper way than move_one_by_one().
    void set_move_pieces(MovePieces function) { move_pieces_ = function; }
    /// For moved(), of a transport that has no other number.
    void count_moved(unsigned count) { moved_ += count; }

  private:
    struct AmHandler {
        uct_am_callback_t callback;
        void* arg;
        std::uint8_t id;
        bool has_warned;
    };

    struct AmHeadHandler {
        tagwire_uct_am_head_callback_t callback;  // null: none
        void* arg;
    };

    static ucs_status_t drop_am(void* arg, void* data, std::size_t length, unsigned flags);

    std::array<AmHandler, UCT_AM_ID_MAX> am_;
    std::array<AmHeadHandler, UCT_AM_ID_MAX> am_heads_{};
    IfaceParams params_;
    Md& md_;
    Worker& worker_;
    Lending* lending_ = nullptr;
    MovePieces move_pieces_ = move_one_by_one;
    ucs_callback_t progress_;
    int progress_id_ = UCS_CALLBACKQ_ID_NULL;
    unsigned progress_flags_ = 0;
    std::uint64_t moved_ = 0;
};

inline BaseIface& iface_of(uct_iface_h handle) {
    return *static_cast<BaseIface*>(handle);
}

}  // namespace tagwire::uct
