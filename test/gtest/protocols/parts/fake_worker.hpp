// SPDX-License-Identifier: BSD-3-Clause
// A transport, a rail and a worker that are fakes, for parts that send and receive.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "common/nomem.hpp"
#include "protocols/cost/calibration.hpp"
#include "protocols/cost/options.hpp"
#include "protocols/match/match_peer.hpp"
#include "protocols/parts/fakes.hpp"
#include "protocols/port/worker_port.hpp"
#include "protocols/request/attention.hpp"
#include "protocols/request/lane_state.hpp"
#include "protocols/request/rail.hpp"
#include "protocols/request/reg_leases.hpp"
#include "protocols/request/request.hpp"
#include "protocols/request/request_table.hpp"
#include "protocols/wire/wire.hpp"

namespace tagwire::test {

/// An endpoint of a transport that writes down each message.
struct FakeUct : uct_iface_t {
    struct Message {
        proto::AmId id;
        std::vector<std::byte> bytes;
    };

    FakeUct() : uct_iface_t{} {
        ops.ep_am_bcopy = [](uct_ep_h ep, std::uint8_t id, uct_pack_callback_t pack, void* arg,
                             unsigned) {
            FakeUct& self = of(ep);
            if (const ucs_status_t status = self.take_room(); status != UCS_OK)
                return static_cast<ssize_t>(status);
            const nomem::Spared spared;
            std::vector<std::byte> bytes(kBufferBytes);
            bytes.resize(pack(bytes.data(), arg));
            EXPECT_LE(bytes.size(), kBufferBytes);
            self.sent.push_back({static_cast<proto::AmId>(id), bytes});
            return static_cast<ssize_t>(bytes.size());
        };
        ops.iface_tag_recv_zcopy = [](uct_iface_h iface, uct_tag_t tag, uct_tag_t mask,
                                      const uct_iov_t* iov, std::size_t, uct_tag_context_t* ctx) {
            const nomem::Spared spared;
            auto& self = *static_cast<FakeUct*>(iface);
            if (self.give_status == UCS_OK)
                self.given.push_back({tag, mask, *iov, ctx});
            return self.give_status;
        };
        ops.iface_tag_recv_cancel = [](uct_iface_h iface, uct_tag_context_t* ctx, int is_forced) {
            const nomem::Spared spared;
            auto& self = *static_cast<FakeUct*>(iface);
            self.taken_back.push_back({ctx, is_forced != 0});
            return self.cancel_status;
        };
        ops.ep_fence = [](uct_ep_h, unsigned) { return UCS_OK; };
        add_waiting();
        add_moving();
        add_tagged();
    }
    FakeUct(const FakeUct&) = delete;
    FakeUct& operator=(const FakeUct&) = delete;

    uct_ep_h ep() { return &ep_; }

    static constexpr std::size_t kBufferBytes = 1024;
    ucs_status_t room = UCS_OK;       // of each message
    std::size_t room_for = SIZE_MAX;  // messages
    std::vector<Message> sent;

    /// The first that waits for room hears that there is some. True: nobody waits, or that one does
    /// so no more.
    bool tell_room() {
        if (waiting.empty())
            return true;
        uct_pending_req_t* const first = waiting.front();
        const bool is_over = first->func(first) == UCS_OK;
        if (is_over)
            std::erase(waiting, first);
        return is_over;
    }
    std::vector<uct_pending_req_t*> waiting;
    ucs_status_t wait_status = UCS_OK;  // UCS_ERR_BUSY: there is room
    unsigned purges = 0;
    std::vector<uct_completion_t*> flushes;  // that have not ended
    ucs_status_t flush_status = UCS_OK;
    unsigned flush_flags = 0;  // of the last

    /// Reads and writes of the peer's memory.
    struct Piece {
        bool is_put;
        uct_iov_t iov;
        std::uint64_t remote;
        uct_completion_t* done;
    };
    std::vector<Piece> pieces;
    ucs_status_t piece_status = UCS_INPROGRESS;
    std::size_t pieces_max = SIZE_MAX;  // there is room for no more
    /// The piece has ended.
    void end_piece(std::size_t i, ucs_status_t status = UCS_OK) {
        uct_completion_t* const done = pieces[i].done;
        if (status != UCS_OK)
            uct_completion_update_status(done, status);
        if (--done->count == 0)
            done->func(done);
    }

    /// Messages with tags that a device matches, and places of others among them.
    struct Tagged {
        uct_tag_t tag;
        std::uint64_t imm;
        std::vector<std::byte> bytes;
        bool is_place;
    };
    std::vector<Tagged> tagged;

    /// Receives that its device matches.
    struct Given {
        uct_tag_t tag, mask;
        uct_iov_t target;
        uct_tag_context_t* receive;
    };
    std::vector<Given> given;
    struct TakenBack {
        uct_tag_context_t* receive;
        bool is_forced;
    };
    std::vector<TakenBack> taken_back;
    ucs_status_t give_status = UCS_OK, cancel_status = UCS_OK;

  private:
    static FakeUct& of(uct_ep_h ep) { return *static_cast<FakeUct*>(ep->iface); }

    ucs_status_t take_room() {
        if (room != UCS_OK)
            return room;
        if (room_for == 0)
            return UCS_ERR_NO_RESOURCE;
        --room_for;
        return UCS_OK;
    }
    ucs_status_t move(const Piece& piece) {
        const nomem::Spared spared;
        if (pieces.size() >= pieces_max)
            return UCS_ERR_NO_RESOURCE;
        if (piece_status >= 0)
            pieces.push_back(piece);
        return piece_status;
    }

    void add_waiting() {
        ops.ep_am_short = [](uct_ep_h ep, std::uint8_t id, std::uint64_t head, const void* rest,
                             unsigned bytes) {
            FakeUct& self = of(ep);
            if (const ucs_status_t status = self.take_room(); status != UCS_OK)
                return status;
            const nomem::Spared spared;
            std::vector<std::byte> message(sizeof head + bytes);
            std::memcpy(message.data(), &head, sizeof head);
            std::memcpy(message.data() + sizeof head, rest, bytes);
            self.sent.push_back({static_cast<proto::AmId>(id), message});
            return UCS_OK;
        };
        ops.ep_pending_add = [](uct_ep_h ep, uct_pending_req_t* request, unsigned) {
            const nomem::Spared spared;
            FakeUct& self = of(ep);
            if (self.wait_status == UCS_OK)
                self.waiting.push_back(request);
            return self.wait_status;
        };
        ops.ep_pending_purge = [](uct_ep_h ep, uct_pending_purge_callback_t, void*) {
            ++of(ep).purges;
            of(ep).waiting.clear();
        };
        ops.ep_flush = [](uct_ep_h ep, unsigned flags, uct_completion_t* done) {
            const nomem::Spared spared;
            FakeUct& self = of(ep);
            self.flush_flags = flags;
            if (self.flush_status == UCS_INPROGRESS)
                self.flushes.push_back(done);
            return self.flush_status;
        };
    }
    void add_moving() {
        ops.ep_put_zcopy = [](uct_ep_h ep, const uct_iov_t* iov, std::size_t, std::uint64_t remote,
                              uct_rkey_t, uct_completion_t* done) {
            return of(ep).move({true, *iov, remote, done});
        };
        ops.ep_get_zcopy = [](uct_ep_h ep, const uct_iov_t* iov, std::size_t, std::uint64_t remote,
                              uct_rkey_t, uct_completion_t* done) {
            return of(ep).move({false, *iov, remote, done});
        };
    }
    void add_tagged() {
        ops.ep_tag_eager_bcopy = [](uct_ep_h ep, uct_tag_t tag, std::uint64_t imm,
                                    uct_pack_callback_t pack, void* arg, unsigned) {
            FakeUct& self = of(ep);
            if (const ucs_status_t status = self.take_room(); status != UCS_OK)
                return static_cast<ssize_t>(status);
            const nomem::Spared spared;
            std::vector<std::byte> bytes(kBufferBytes);
            bytes.resize(pack(bytes.data(), arg));
            self.tagged.push_back({tag, imm, bytes, false});
            return static_cast<ssize_t>(bytes.size());
        };
        ops.ep_tag_rndv_request = [](uct_ep_h ep, uct_tag_t tag, const void* header, unsigned bytes,
                                     unsigned) {
            FakeUct& self = of(ep);
            if (const ucs_status_t status = self.take_room(); status != UCS_OK)
                return status;
            const auto* const at = static_cast<const std::byte*>(header);
            const nomem::Spared spared;
            self.tagged.push_back({tag, 0, {at, at + bytes}, true});
            return UCS_OK;
        };
    }

    uct_ep_t ep_{this};
};

/// The surroundings of a rail.
struct RailSurroundings {
    proto::Domain own_domain{};
    const proto::Resource own_resource{};
    const proto::Calibration no_calibration{};
    ucs::Repeats own_refusals{};
};

/// A rail that is not open, and what a test says of it.
class FakeRail : public RailSurroundings, public proto::Rail {
  public:
    explicit FakeRail(const proto::Options& options)
        : Rail({own_domain, options, no_calibration, own_refusals}, 0, own_resource) {
        bcopy_max = FakeUct::kBufferBytes;
        costs_.eager_max = std::size_t{1} << 20;
    }
    ~FakeRail() { iface_ = nullptr; }  // which nobody has opened
    FakeRail(const FakeRail&) = delete;
    FakeRail& operator=(const FakeRail&) = delete;

    void set_iface(uct_iface_h iface) { iface_ = iface; }
    void set_rndv_from(std::size_t bytes) { selection_ = proto::Selection(costs_, bytes); }
    void set_matches_tags() { matches_tags_ = true; }
    void set_learning() { is_learning_ = true; }
    uct_iface_attr_t& attributes() { return attr_; }
    /// As open() does.
    void set_flags(std::uint64_t flags) {
        attr_.cap.flags = flags;
        costs_.can_get = can_get();
        costs_.can_put = can_put();
    }
};

/// As requests name the peer: nobody looks into it, and its lane knows it.
inline proto::Endpoint* as_endpoint(FakeMatchPeer& peer) {
    return reinterpret_cast<proto::Endpoint*>(&peer.fake);
}

/// In place of a worker, with real requests.
class FakeWorker {
  public:
    explicit FakeWorker(std::size_t requests_max = 1000) : options(options_with(requests_max)) {
        EXPECT_EQ(requests.open(options), UCS_OK);
    }
    FakeWorker(const FakeWorker&) = delete;
    FakeWorker& operator=(const FakeWorker&) = delete;
    ~FakeWorker() { requests.clear(); }

    /// A request of the program, `buffer` bytes of which go or come.
    proto::Request& make(proto::RequestKind kind, std::vector<std::byte>& buffer,
                         const tw_op_t& op = {}) {
        proto::Request* const request = requests.make(kind, &op, nullptr);
        EXPECT_NE(request, nullptr);
        request->buffer.base = buffer.data();
        request->buffer.length = buffer.size();
        return *request;
    }

    struct End {
        proto::Request* request;
        ucs_status_t status;
        bool operator==(const End&) const = default;
    };
    std::vector<End> ends, drained;
    std::function<void(proto::Request&)> on_end_rma = [](auto&) {};
    std::vector<proto::Request*> outstanding;
    std::uint64_t arrivals = 0;
    std::uint64_t count(proto::WorkerCounter counter) const { return counters.value(counter); }

    proto::Options options;
    proto::WorkerCounters counters;
    proto::Attention attention{false};
    proto::RequestTable requests{
        {.attention = attention,
         .worker = nullptr,
         .is_multi = false,
         .owner = this,
         .transmitted = nullptr,
         .end_rma = [](void* worker, proto::Request& request) { of(worker).on_end_rma(request); },
         .count_extra =
             [](void* worker) { of(worker).counters.add(proto::WorkerCounter::kOpsKept, 1); },
         .add_notice = nullptr,
         .remove_notice = nullptr,
         .leave = nullptr,
         .enter_again = nullptr,
         .drop_kept = nullptr}};
    const proto::WorkerPort port{this, kCalls, counters, options, requests, attention, false};

  private:
    static proto::Options options_with(std::size_t requests_max) {
        proto::Options options{};
        options.rndv_threshold = UINT64_MAX;
        options.requests_max = requests_max;
        options.inject_bytes = 256;
        return options;
    }
    static FakeWorker& of(void* owner) { return *static_cast<FakeWorker*>(owner); }

    static const proto::WorkerCalls kCalls;
};

inline constexpr proto::WorkerCalls FakeWorker::kCalls{
    .set_outstanding =
        [](void* worker, proto::Request& request, proto::MatchPeer& peer) {
            request.ep = as_endpoint(static_cast<FakeMatchPeer&>(peer));
            request.is_outstanding = true;
            const nomem::Spared spared;
            of(worker).outstanding.push_back(&request);
        },
    .finish =
        [](void* worker, proto::Request& request, ucs_status_t status) {
            request.is_outstanding = false;
            of(worker).requests.release_id(request);
            if (request.rma != nullptr)
                of(worker).on_end_rma(request);
            request.done.status = static_cast<tw_status_t>(status);
            request.has_ended |= request.in_call;
            const nomem::Spared spared;
            of(worker).ends.push_back({&request, status});
        },
    .cache_region = [](void*, const proto::Request&, std::size_t,
                       proto::RegUse) -> proto::RegLease* { return nullptr; },
    .arrivals = [](const void* worker) { return static_cast<const FakeWorker*>(worker)->arrivals; },
    .drained =
        [](void* worker, proto::Request& request, ucs_status_t status) {
            const nomem::Spared spared;
            of(worker).drained.push_back({&request, status});
        },
};

}  // namespace tagwire::test
