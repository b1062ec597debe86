// SPDX-License-Identifier: BSD-3-Clause
// A connection between a local interface and one of a peer: a socket for descriptors and wake-ups,
// a ring in each direction that is used, the peer's arena and bell, and all outstanding
// operations.
//
// Threads: the owner thread of the interface only.
//
//            connect, hello                 peer's hello
//   kConnecting ---------> kGreeted (may send) ---------> kReady (knows arena, bell, copy path)
//        accepted: kStranger ----------- hello, ours sent --------^
//   any --- dead, hung up, violated ---> kFailed: every operation completes with `failure`, then
//                                        each endpoint's error handler runs once, then everything
//                                        is refused
//
// Invariants
//  (1) Endpoints to one peer interface share the link. It goes when no endpoint uses it and the
//      peer is gone, or when its interface closes.
//  (2) Rings are made on first send; `tx_made` says so. The ring's segment stays mapped until the
//      link goes, that of the peer's ring until the last descriptor in it was released, too.
//  (3) Messages that were published before the peer died are delivered before the failure is
//      reported.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "ucs/sys/process.hpp"
#include "ucs/sys/process_proof.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "uct/desc_region.hpp"
#include "uct/sm/arena.hpp"
#include "uct/sm/buffer_pool.hpp"
#include "uct/sm/fences.hpp"
#include "uct/sm/loan.hpp"
#include "uct/sm/ring.hpp"
#include "uct/sm/transfer.hpp"
#include "uct/sm/wire.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::sm {

class SmIface;
class SmEp;

using TxRing = RingSender<std::atomic, HostFences>;
using RxRing = RingReceiver<std::atomic, HostFences>;

/// A process that we talk to: one pidfd for all links to it, or for one link where its pid cannot
/// be seen, for then nothing tells whether two links lead to the same process.
struct PeerProcess : ucs::FromReserve {
    std::uint32_t id = 0;
    pid_t pid = 0;        // 0: in a pid namespace that cannot be seen from here
    ucs::UniqueFd pidfd;  // none: death shows as hang-up only
    const char* source = "hang-up";
    unsigned link_count = 0;
};

/// The peer's ring segment and the pool of its interface as we have them mapped. Deletes itself
/// when the link is gone and no descriptor is held.
struct RxSegment : ucs::FromReserve {
    struct Region : uct::DescRegionHeader {
        RxSegment* segment;
    };

    static ucs_status_t attach(int ring_fd, int pool_fd, const RingGeometry& geometry,
                               RxSegment** segment_p);
    void abandon();  // by the link

    /// The geometry has this buffer. One of the pool is read-only.
    [[nodiscard]] std::byte* buffer(std::uint32_t seg) const {
        if ((seg & kReserveBit) != 0) [[unlikely]]
            return mapping.base() + geometry.reserve_offset() +
                   std::size_t{seg & ~kReserveBit} * geometry.seg_bytes;
        return pool.base() + std::size_t{seg} * kBlockBytes;
    }
    /// Whether a callback may keep this buffer: not if it is of the sender's reserve, nor if many
    /// are kept.
    [[nodiscard]] bool may_keep(std::uint32_t seg) const {
        return held < kHeldMax && (seg & kReserveBit) == 0;
    }
    [[nodiscard]] RndvWord& rndv(std::uint32_t index) const {
        return reinterpret_cast<RndvWord*>(mapping.base() + geometry.rndv_offset())[index];
    }
    [[nodiscard]] bool has(const std::byte* address) const {
        return std::less_equal<>{}(mapping.base(), address) &&
               std::less<>{}(address, mapping.base() + mapping.bytes());
    }
    [[nodiscard]] RingHead& head() const { return *reinterpret_cast<RingHead*>(mapping.base()); }

    static constexpr std::uint32_t kHeldMax = 32;

    ucs::Mapping mapping;
    ucs::Mapping pool;
    RingGeometry geometry;
    BufferReturns returns;
    std::uint32_t held = 0;
    bool abandoned = false;
};

enum class LinkState : std::uint8_t { kConnecting, kStranger, kGreeted, kReady, kFailed };

/// Replies that wait for room in the ring, and reads that wait to be served, from which on nothing
/// is taken that asks for another one: requests stay in the ring until the peer has read. So no
/// number of requests is a violation. A peer has at most kOpCountMax operations under way and
/// kRndvCount rendezvous, but it may have cancelled others whose requests it had sent.
constexpr std::size_t kControlsPause = 2 * kOpCountMax;
constexpr std::size_t kServesPause = kOpCountMax + kRndvCount;

/// A sender that finds the front ring full within fewer than kFrontStayMin messages after its
/// return sends a stream. From then on it sends at least kBackStayMin messages through the back
/// ring before it returns, twice as many each time that this happens again, at most kBackStayMax.
constexpr std::uint32_t kFrontStayMin = 1024;
constexpr std::uint32_t kBackStayMin = 1024;
constexpr std::uint32_t kBackStayMax = 16384;

/// The way data gets from memory that is in no arena.
enum class CopyPath : std::uint8_t { kUnknown, kSelf, kProcessVm, kMessages };

struct alignas(kNoFalseSharing) Link : ucs::FromReserve {
    Link(SmIface& owner, std::uint32_t number) : iface(owner), index(number) {}

    SmIface& iface;
    // In SmConnections::links_; its low bits are the bell's bit for the peer's ring.
    std::uint32_t index;
    LinkState state = LinkState::kConnecting;
    CopyPath copy_path = CopyPath::kUnknown;
    bool is_outgoing = false;
    bool is_hot = false;      // our progress polls the peer's ring
    bool is_by_bell = false;  // its sender rings for each message (kByBell)
    bool in_work_list = false;
    bool tx_made = false;
    bool tx_is_back = false;   // tx is the back ring
    bool is_buried = false;    // its failure was reported
    bool peer_fences = true;   // the peer's sends pay for the wake-up barrier
    bool violated = false;     // the peer broke the format: its ring is not looked at any more
    bool has_left = false;     // no endpoint of ours any more; the peer was told
    bool peer_left = false;    // no endpoint of the peer's any more
    bool owes_hello = false;   // our hello found no room: nothing else may be sent before it
    bool owes_leave = false;   // as has_left, but the peer has yet to be told
    bool retries = false;      // in SmConnections::retrying_
    bool fence_waits = false;  // ep_fence() found operations under way
    ucs_status_t failure = UCS_OK;
    std::uint32_t recent = 0;        // messages since the cooling round `recent_round`
    std::uint32_t recent_round = 0;  // only while cold

    // Sending.
    TxRing tx;
    TxRing other_tx;               // all of it is read, or about to be
    std::uint64_t changed_at = 0;  // position of tx at which it became the one in use
    LentBuffers* segs = nullptr;   // once the ring is made

    // Receiving.
    RxRing rx;
    RxRing other_rx;
    RxSegment* rx_segment = nullptr;
    void* message_context = nullptr;  // of the multi-fragment unexpected message that is coming in
    PostedEntry* message_entry = nullptr;  // or the receive that it goes to
    std::uint64_t message_left = 0;        // bytes of that message that have not come
    std::uint64_t message_total = 0;
    IovCursor message_cursor;

    // Under way.
    ucs::List<Op, &Op::link> ops;       // oldest first: what flush waits for
    ucs::List<Op, &Op::link> receives;  // rendezvous that come in
    std::unique_ptr<RndvOp[]> rndv_ops;
    ucs::ReserveVector<std::uint32_t> rndv_free;
    std::uint32_t rndv_count = 0;
    std::uint32_t helping = 0;
    std::uint32_t blocking_ops = 0;  // operations that a fence must wait for
    std::uint32_t stepping = 0;      // operations whose needs_steps is set
    ucs::ReserveDeque<Serve> serves;
    ucs::ReserveDeque<GetHelp> get_helps;
    ucs::ReserveDeque<QueuedControl> controls;

    // The peer.
    ucs::UniqueFd socket;
    ucs::UnixAddress address;  // kConnecting: where to try again
    std::uint64_t peer_cookie = 0;
    std::uint64_t peer_name = 0;  // of its interface
    ucs::PeerCredentials peer{};
    PeerProcess* process = nullptr;
    ucs::ProcessProof proof;  // tells its memory from that of a program that it has executed
    std::shared_ptr<ArenaMapping> arena;
    Writer<> writer;                            // ours there
    std::uint32_t peer_writer = kSharedWriter;  // the peer's in our arena
    Loan loan;                                  // of what the peer may read by itself
    std::uint64_t read_call = 0;   // the call of progress in which lent memory was read last
    std::uint64_t read_bytes = 0;  // bytes read in that call
    ucs::Mapping bell_page;
    std::uint64_t seen_calls = 0;  // of the peer's, when has_moved() looked last
    std::uint32_t bell_bit = 0;
    std::uint8_t numa_node = 0xff;
    ucs::ReserveString copy_reason;  // why copy_path is what it is

    ucs::Mapping tx_segment;
    RingGeometry tx_geometry;
    std::uint32_t back_stay = 0;  // messages in the back ring before the next return
    ucs::ReserveVector<SmEp*> eps;

    [[nodiscard]] RndvWord& tx_rndv(std::uint32_t i) const {
        return reinterpret_cast<RndvWord*>(tx_segment.base() + tx_geometry.rndv_offset())[i];
    }

    /// Room for `count` messages in our ring, which is made if need be. UCS_ERR_NO_RESOURCE, or the
    /// failure.
    ucs_status_t claim(std::uint64_t count);

    /// The rings of our segment, which is mapped.
    void begin_tx(std::uint64_t start, HostFences fences);
    void begin_rx(std::uint64_t start, HostFences fences);

    /// The message in the first slot that was claimed; wakes the receiver when it sleeps.
    void publish(Control control) {
        tx.publish(control);
        after_publish();
    }
    /// As publish(), of the slot `next` of tx, in a form that a caller can return with. UCS_OK.
    ucs_status_t publish_short(Slot<std::atomic>& next, Control control) {
        tx.publish(next, control);
        if (tx.must_ring()) [[unlikely]]
            return ring();
        return UCS_OK;
    }
    /// After publishing: wakes the receiver when it sleeps.
    void after_publish() {
        if (tx.must_ring()) [[unlikely]]
            ring();
    }
    ucs_status_t ring();  // UCS_OK
    /// Further messages go to the other ring.
    void change_tx();
    /// The peer's next messages are in the other ring. False: it has none.
    bool change_rx();

    /// Sends a small message now or, when the ring is full, as soon as it is not.
    template <class Body>
    void send_control(Kind kind, const Body& body) {
        static_assert(sizeof(Body) <= kBodyBytes);
        send_control_bytes(Control::make(kind, 0, sizeof(Body)), &body, sizeof body);
    }
    void send_control_bytes(Control control, const void* body, std::size_t bytes);

    /// Nothing is sent any more.
    void retire_buffers();
    /// Nothing is written by this connection any more. `is_ours`: this is no forked child, which
    /// would speak for its parent.
    void end_writing(bool is_ours);

    /// For a debugger.
    void close_ring() const {
        reinterpret_cast<RingHead*>(tx_segment.base())
            ->producer.closed.store(1, std::memory_order_relaxed);
    }
    /// As far as is known: a peer whose process cannot be watched is.
    [[nodiscard]] bool is_alive() const {
        return process == nullptr || !process->pidfd || ucs::pidfd_is_alive(process->pidfd.get());
    }

    [[nodiscard]] const Bell<>& bell() const {
        return *reinterpret_cast<const Bell<>*>(bell_page.base());
    }
    /// The peer's bell is known, and it may send or answer.
    [[nodiscard]] bool is_in_sight() const {
        return state == LinkState::kReady && failure == UCS_OK && bell_page && !peer_left;
    }
    /// The link waits for the peer's hello, which the peer's progress sends.
    [[nodiscard]] bool awaits_hello() const {
        return (state == LinkState::kConnecting || state == LinkState::kGreeted) &&
               failure == UCS_OK && !peer_left;
    }
    /// The peer has called progress since the last time; it is_in_sight().
    bool has_moved() {
        // SYNC call_count: relaxed, pairs with HotRings::count_call().
        const std::uint64_t calls = bell().calls.load(std::memory_order_relaxed);
        return std::exchange(seen_calls, calls) != calls;
    }

    /// The peer waited on that processor when it waited last; is_in_sight().
    [[nodiscard]] bool waits_on(std::uint32_t cpu) const {
        // SYNC call_count: relaxed, pairs with HotRings::tell_wait().
        return (bell().waited_on.load(std::memory_order_relaxed) & ~kIsAway) == cpu + 1;
    }
    /// The peer had that processor between these times, and had not given it away; is_in_sight().
    [[nodiscard]] bool had_processor(std::uint32_t cpu, std::uint64_t begin,
                                     std::uint64_t end) const {
        // SYNC call_count: relaxed, pairs with HotRings::tell_wait().
        const std::uint64_t at = bell().waited_ns.load(std::memory_order_relaxed);
        return bell().waited_on.load(std::memory_order_relaxed) == cpu + 1 && begin <= at &&
               at <= end;
    }

    /// `count` words of our segment are free, for rendezvous that we send and gets that the peer
    /// helps with.
    [[nodiscard]] bool has_words(std::size_t count);
    /// One of them, of a new generation; has_words() was true.
    RndvOp& take_word();
    void give_word(RndvOp& op);

    void set_steps(Op& op, bool needs) {
        stepping += (needs ? 1U : 0U) - (op.needs_steps ? 1U : 0U);
        op.needs_steps = needs;
    }
    /// Requests of the peer stay in the ring. Those of a peer that has failed are taken, without
    /// effect.
    [[nodiscard]] bool is_paused() const {
        return failure == UCS_OK &&
               (controls.size() >= kControlsPause || serves.size() >= kServesPause);
    }
    [[nodiscard]] bool has_work() const {
        return !controls.empty() || !serves.empty() || !get_helps.empty() || helping != 0 ||
               stepping != 0;
    }
};

}  // namespace tagwire::sm
