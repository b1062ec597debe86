// SPDX-License-Identifier: BSD-3-Clause
// The device: registry of its objects, entry for packets and time.
//
// A Device is a single-threaded state machine. Work comes in through the objects (Qp::post_send,
// ...), packets through receive(), time through progress(). It puts out packets to the Wire,
// completions in CQs and calls of the EventSink. It makes no system call, reads no clock and starts
// no thread, so a test can run many devices on a simulated clock from one seed.
//
// Conventions
//  - int results are 0 or the positive errno value that a provider gives for the same mistake.
//  - Enumerations and attribute structures are those of <infiniband/verbs.h>.
//  - Objects belong to the device; the `user` pointers belong to the face that created them.
//
// Invariants
//  (1) A number (QPN, key, SRQN) that was destroyed is not given out again before 2^12 others were
//      (QPNs: unless DeviceConfig::reuses_numbers).
//  (2) Bytes of a packet are read once and checked; memory is touched only after its key, bounds,
//      rights and protection domain were.
//  (3) Every posted request completes exactly once while its QP lives, unless the QP is reset.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "vhca/core/incident.hpp"
#include "vhca/core/wire.hpp"

namespace tagwire::vhca {

class Device;
class Cq;
class Srq;
class Qp;
struct Pd;
struct Mr;
struct Completion;
struct RecvWork;

/// Properties and limits of the device, and its strictness. Faces fill it from their options.
struct DeviceConfig {
    std::uint64_t guid = 0;  // host order
    std::uint16_t lid = 1;
    ibv_mtu active_mtu = IBV_MTU_4096;
    std::uint16_t gids = 8;  // of a port's table
    std::uint8_t ports = 1;  // only the first has a cable: the others carry nothing
    std::uint32_t qp_max = 262144;
    std::uint32_t qp_wr_max = 32768;
    std::uint32_t sge_max = 30;
    std::uint32_t inline_max = 256;  // largest inline size a QP may ask for
    std::uint32_t cqe_max = 4194303;
    std::uint32_t srq_wr_max = 32767;
    std::uint32_t srq_sge_max = 30;
    std::uint32_t message_bytes_max = 1U << 30;
    std::uint8_t rd_atom_max = 16;      // outstanding reads and atomics of one QP, either side
    std::uint32_t packets_ahead = 128;  // unacknowledged packets of one QP
    std::uint32_t ack_every = 16;       // packets; messages end with an acknowledgement anyway
    bool has_atomics = true;
    bool frees_when_completed = false;  // a send's place; cards wait until its completion is polled
    std::uint32_t tm_tags_max = 0;      // 0: no tag matching
    bool has_dc = false;
    bool has_dc_rendezvous = false;        // tag matching over DC reads the data of a rendezvous
    bool tells_dc_key_violation = false;   // a wrong access key: REM_ACCESS_ERR, else no answer
    std::uint32_t dc_contexts_max = 4096;  // initiators that a DCT serves at a time
    std::uint8_t dc_streams_log_max = 6, dc_errored_log_max = 6;  // of a DCI
    std::uint32_t tm_untagged_min = 0;  // real cards start with 33 untagged receives, not before
    bool has_tags_on_ethernet = false;  // libmlx5 makes no tag-matching SRQ there
    Time late_ns_max = 0;         // completions and events are late by about this; 0: they are not
    bool reuses_numbers = false;  // QPNs: the next queue pair has that of the last destroyed one
    std::uint32_t timer_stretch_max = 1;  // waits take up to so many times their time; 1: exact
    bool shuffles_reads = false;          // the data of a read are placed in any order
};

/// Events for the owner of the device; called from inside the call that caused them. Must not call
/// back into the device.
class EventSink {
  public:
    virtual ~EventSink() = default;
    /// An armed CQ has something to say. Comes once per arming.
    virtual void cq_event(Cq& cq) = 0;
    virtual void qp_event(ibv_event_type type, Qp& qp) = 0;
    virtual void srq_event(ibv_event_type type, Srq& srq) = 0;
    virtual void cq_error(Cq& cq) = 0;  // IBV_EVENT_CQ_ERR
    /// An event of no object: of a port, or of the whole device, whose number is then 0. Ignored
    /// unless the sink has a use for it.
    virtual void device_event(ibv_event_type /*type*/, unsigned /*port*/) {}
};

/// Counters that tests and `tagwire vhca info` read.
struct DeviceCounters {
    std::uint64_t packets_sent = 0, packets_received = 0;
    std::uint64_t payload_bytes_sent = 0, payload_bytes_received = 0;
    std::uint64_t retransmits = 0;  // go-back rounds
    std::uint64_t sequence_naks = 0, rnr_naks = 0, timeouts = 0;
    std::uint64_t duplicates = 0;    // packets that were seen before
    std::uint64_t malformed = 0;     // dropped: not a packet
    std::uint64_t misaddressed = 0;  // dropped: no such QP, wrong state, wrong sender or key
};

struct Pd {
    std::uint32_t users = 0;  // MRs, QPs, SRQs and AHs in it
    void* user = nullptr;
};

/// Bytes of an indirect region, which another region has.
struct MrPiece {
    std::uint64_t first = 0;  // byte of the indirect region
    std::uint64_t address = 0, bytes = 0;
    std::uint32_t key = 0;
};

/// A registered region. `rkey == lkey`; the low eight bits change with every registration.
struct Mr {
    Pd* pd = nullptr;
    std::uint64_t iova = 0;
    std::byte* base = nullptr;  // memory of iova
    std::uint64_t length = 0;
    bool is_indirect = false;  // its bytes are those of `pieces`, one behind the other
    std::vector<MrPiece> pieces;
    std::uint32_t key = 0;
    unsigned access = 0;          // ibv_access_flags
    bool is_invalidated = false;  // by a peer: opens nothing until it is registered anew
    void* user = nullptr;
};

/// Takes completions at the moment when they are made, in place of a program that polls.
class CompletionConsumer {
  public:
    /// The next completion of `cq`. Called from inside a step of the device: must not call back.
    /// False: there was no room, the queue overran.
    virtual bool take(Cq& cq, const Completion& completion) = 0;

  protected:
    ~CompletionConsumer() = default;
};

/// The receiver of datagrams for QP1, the port's general services.
class ManagementPort {
  public:
    /// Called from inside a step of the device: may send, must not call back otherwise.
    virtual void receive(Route from, std::span<const std::byte> datagram) = 0;
    /// In the same way: the process behind that node has ended.
    virtual void note_gone(Route node) = 0;

  protected:
    ~ManagementPort() = default;
};

/// Has receives that nobody posts to the device: it asks for them when a message looks for one.
class ReceiveSource {
  public:
    /// The next receive that the program posted; good until the next call. False: there is none
    /// yet. Called from inside a step of the device: must not call back.
    virtual bool next(RecvWork* work_p) = 0;

  protected:
    ~ReceiveSource() = default;
};

struct TagWork;

/// Has operations on the list of a tag-matching SRQ that nobody posts to the device: it asks for
/// them before it matches a message, so that what was posted before the message was sent counts.
class TagSource {
  public:
    /// The next operation that the program posted; good until done(). False: there is none yet.
    /// Called from inside a step of the device: must not call back.
    virtual bool next(TagWork* work_p) = 0;
    /// After each next(): `error` as Srq::post_ops() gives it, the handle is filled.
    virtual void done(const TagWork& work, int error) = 0;

  protected:
    ~TagSource() = default;
};

struct CqConfig {
    std::uint32_t cqe = 0;  // at least; the CQ says what it got
    void* user = nullptr;
    CompletionConsumer* consumer = nullptr;  // gets all of them: the CQ itself stays empty
};

/// Attributes of a tag-matching SRQ.
struct TagConfig {
    std::uint32_t tags_max = 0;   // receives in its list
    std::uint32_t ops_max = 0;    // operations on the list before one that is signaled was polled
    Cq* cq = nullptr;             // of all its completions; nullptr: an ordinary SRQ
    bool keeps_places = false;    // who posts operations keeps account of ops_max
    TagSource* source = nullptr;  // of operations beside Srq::post_ops()
};

struct SrqConfig {
    Pd* pd = nullptr;
    std::uint32_t wr_max = 0, sge_max = 0, limit = 0;
    TagConfig tm{};
    void* user = nullptr;
    ReceiveSource* source = nullptr;  // of its untagged receives, in place of Srq::post()
};

enum class DcKind : std::uint8_t { kNone, kInitiator, kTarget };

/// With IBV_QPT_DRIVER: a DCI or a DCT.
struct DcConfig {
    DcKind kind = DcKind::kNone;
    std::uint64_t key = 0;  // DCT: what initiators have to know
    // DCI: if has_streams, that many independent ones, and so many may fail before the DCI does.
    bool has_streams = false;
    std::uint8_t streams_log = 0, errored_log = 0;
};

/// Data of so many bytes at most go into the completion (Completion::data), not into the buffer.
struct DataInCqe {
    std::uint8_t received = 0;  // of messages that are one packet (RC, UC)
    std::uint8_t read = 0;      // of reads and atomics that are signaled
};
/// The most that a completion carries.
inline constexpr std::size_t kDataInCqeMax = 64;

struct QpConfig {
    ibv_qp_type type = IBV_QPT_RC;
    Pd* pd = nullptr;
    Cq* send_cq = nullptr;
    Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
    ibv_qp_cap cap{};  // wanted; Qp::cap() says what it got
    bool signals_all = false;
    DcConfig dc{};
    void* user = nullptr;
    ReceiveSource* source = nullptr;  // of its receives, in place of Qp::post_recv()
    /// The poster keeps account of the places in the send queue: those of the device are free when
    /// requests end, and the streams of a DCI have one each.
    bool keeps_places = false;
    /// With a tag-matching SRQ: the program sends, too, not the device alone.
    bool sends_beside_device = false;
    DataInCqe data_in_cqe{};
};

/// One send request; the faces translate theirs into this. Its pointers are read only in the call.
struct SendWork {
    std::uint64_t wr_id = 0;
    ibv_wr_opcode opcode = IBV_WR_SEND;
    unsigned flags = 0;     // ibv_send_flags; INLINE: data is copied now, keys are not looked at
    std::uint32_t imm = 0;  // network order, or the rkey to invalidate
    std::uint64_t remote_addr = 0;  // RDMA and atomics
    std::uint32_t rkey = 0;
    std::uint64_t compare_add = 0, swap = 0;
    Route route{};                  // UD, DC
    std::uint32_t remote_qpn = 0;   // UD, DC: the target's number
    std::uint32_t remote_qkey = 0;  // UD
    std::uint64_t dc_key = 0;       // DC
    std::uint16_t stream = 0;       // DC; those above the DCI's number share the lower ones
    bool is_nop = false;            // nothing is sent: it ends when all before it have ended
    ibv_wc_status refused = IBV_WC_SUCCESS;  // else it is none: fails with this in its turn
    std::span<const ibv_sge> sges{};
};

struct RecvWork {
    std::uint64_t wr_id = 0;
    std::span<const ibv_sge> sges{};
};

/// One operation of ibv_post_srq_ops(3). Tags are in host order; messages have them in network
/// order.
struct TagWork {
    std::uint64_t wr_id = 0;
    ibv_ops_wr_opcode opcode = IBV_WR_TAG_SYNC;
    unsigned flags = 0;                  // ibv_ops_flags
    std::uint32_t unexpected_count = 0;  // with IBV_OPS_TM_SYNC
    std::uint32_t handle = 0;            // ADD: set; DEL: which
    std::uint64_t recv_wr_id = 0, tag = 0, mask = 0;
    std::span<const ibv_sge> sges{};  // at most one
};

class Device {
  public:
    Device(const DeviceConfig& config, Wire& wire, EventSink& events, std::uint64_t seed);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // ---- Objects. ENOMEM beyond a limit, EINVAL for impossible attributes, EBUSY for destroying
    // what others use. Destroying a QP or CQ takes its completions away.
    int create_pd(void* user, Pd** pd_p);
    int destroy_pd(Pd& pd);
    /// `access` follows ibv_reg_mr(3): remote write and atomic need local write (EINVAL).
    int create_mr(Pd& pd, void* base, std::uint64_t length, std::uint64_t iova, unsigned access,
                  Mr** mr_p);
    /// ibv_rereg_mr(3). The key changes with the memory; as with mlx5 not with domain or rights,
    /// unless a peer invalidated it.
    int change_mr(Mr& mr, int flags, Pd* pd, void* base, std::uint64_t length, unsigned access);
    int destroy_mr(Mr& mr);
    /// A region of bytes that the keys of `pieces` open, in their order; `first` of each is set
    /// here. A key is looked at when bytes are accessed: it needs `pd`, and local rights alone.
    /// EINVAL: they are less than `length`.
    int create_indirect_mr(Pd& pd, std::uint64_t length, std::uint64_t iova, unsigned access,
                           std::vector<MrPiece> pieces, Mr** mr_p);
    /// The low eight bits of its key, where the program says them. Nobody knows the key yet.
    void choose_variant(Mr& mr, std::uint8_t variant);
    int create_cq(const CqConfig& config, Cq** cq_p);
    int destroy_cq(Cq& cq);
    int create_srq(const SrqConfig& config, Srq** srq_p);
    int destroy_srq(Srq& srq);
    int create_qp(const QpConfig& config, Qp** qp_p);
    int destroy_qp(Qp& qp);

    // ---- Packets and time
    /// One packet that came from `from`. Anything may be in it. `grh`: the kGrhBytes that a
    /// program sees before the data if it is a datagram; nullptr where the fabric has none.
    void receive(Route from, std::span<const std::byte> packet, Time now,
                 const std::byte* grh = nullptr);
    /// Sends what waits for the wire and runs what is due. Returns when it wants to be called again
    /// at the latest, kNever if it does not.
    Time progress(Time now);
    /// Nothing waits for the wire.
    [[nodiscard]] bool is_drained() const;

    /// nullptr: datagrams for QP1 are dropped, as at first.
    void set_management(ManagementPort* port);
    /// From the fabric, where it knows.
    void note_gone(Route node);
    /// From QP1 to that of `to`. Lost where the wire has no room.
    void send_management(Route to, std::span<const std::byte> datagram);

    // ---- Incidents
    /// Carries it out and tells the sink. A dead device is as a card that was reset or removed: no
    /// completion and no event comes any more, packets vanish, nothing is created or modified
    /// (EIO), and what was there can be destroyed. Completions that were there before can be
    /// polled. EIO: the device is dead.
    int happen(Incident incident, Time now);
    [[nodiscard]] bool is_dead() const;
    /// The first port has a cable, and the device is not dead.
    [[nodiscard]] bool is_link_up() const;

    [[nodiscard]] const DeviceConfig& config() const;
    [[nodiscard]] const DeviceCounters& counters() const;

    class Impl;  // shared by the parts of the core
    Impl& impl() { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace tagwire::vhca
