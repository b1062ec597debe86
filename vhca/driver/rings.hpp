// SPDX-License-Identifier: BSD-3-Clause
// Queues in the memory of a program: its requests go to the core, the core's completions come back.
// The doorbell record decides; doorbells are hints that something changed.
//
//   SendRing      [seen, SND record) -> copy -> Wqe -> Qp::enqueue_send(), ring()
//   TagRing       the same of a queue pair of a tag-matching SRQ: -> Srq::post_ops()
//   ReceiveRing   asked by the core: [taken, RCV record) -> RecvWork
//   ReceiveList   the same of an SRQ: a linked list, as many as the record says
//   CqRing        the core's completions -> entries; overrun by the CI record, events by ARM's
//
// Everything is called under the engine's lock. A ring whose memory is gone takes nothing any more,
// and is_gone() is true; the caller moves its object to the error state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "vhca/core/objects.hpp"
#include "vhca/driver/cqe.hpp"
#include "vhca/driver/event_pipe.hpp"
#include "vhca/driver/user_memory.hpp"
#include "vhca/driver/wqe.hpp"

namespace tagwire::vhca::driver {

/// A ring of the program's: `entries` is a power of two, of `entry_bytes` each.
struct RingMemory {
    std::uint64_t address = 0;
    std::uint32_t entries = 0;
    std::uint32_t entry_bytes = 0;
    [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{entries} * entry_bytes; }
};

// ---- Completions -------------------------------------------------------------------------------

class CqRing final : public CompletionConsumer {
  public:
    static constexpr std::uint32_t kNotArmed = ~std::uint32_t{0};  // our mark in the ARM record

    struct Config {
        RingMemory ring;           // entry_bytes: 64 or 128
        std::uint64_t record = 0;  // [0] consumer index, [1] arming
        std::uint32_t number = 0;
        bool ignores_overrun = false;
        PacketKind kind = PacketKind::kInfiniband;
        EventPipe* channel = nullptr;   // of its events, or nullptr
        std::uint64_t user_handle = 0;  // that the events name
        /// Beside the channel: there is something to say. It may be empty.
        std::function<void()> announces{};
        /// Owner of a completion: from its qp_user and tag_srq_user.
        std::function<CqeOwner(const Completion&)> owner_of;
        /// Index of the first entry, which the record has, too: the program's indices wrap at 2^24.
        std::uint32_t first = 0;
    };
    /// Writes kNotArmed.
    explicit CqRing(Config config);

    /// False: it overran, or the memory is gone.
    bool take(Cq& cq, const Completion& completion) override;
    /// Announces if it is armed and has something to say; to be called on every pass, because the
    /// program arms without a call. True: it did.
    bool poll();
    /// New memory for what comes from now on; its last use of the old one is a RESIZE entry. The
    /// driver copies what it did not consume behind it into the new ring, one place further than it
    /// was. EINVAL: no room for the RESIZE entry, or less in the new ring than entries that are not
    /// consumed. EFAULT: memory is not there.
    int resize(const RingMemory& ring);
    /// Events that the program read, or will: those that were pushed and not taken back. Unread
    /// ones are taken back.
    std::uint32_t retire();
    [[nodiscard]] bool is_gone() const { return is_gone_; }
    [[nodiscard]] const EventPipe* channel() const { return config_.channel; }
    /// From now on, in the place of a channel.
    void announce_by(std::function<void()> announces) { config_.announces = std::move(announces); }
    [[nodiscard]] std::uint32_t number() const { return config_.number; }
    [[nodiscard]] std::uint32_t entries() const { return config_.ring.entries; }
    [[nodiscard]] std::uint32_t entry_bytes() const { return config_.ring.entry_bytes; }

  private:
    /// Address of the 64 bytes of an entry: in a ring with entries of 128, the second half.
    [[nodiscard]] std::uint64_t place_of(std::uint32_t index) const;
    /// False: memory is gone. `before` goes into the first half of an entry of 128 bytes.
    [[nodiscard]] bool put(const CqeImage& image, std::span<const std::byte> before = {});
    /// Entries that the program has not consumed, as far as it said; more than there are if it
    /// lies.
    [[nodiscard]] std::uint32_t unconsumed();

    Config config_;
    Record record_;
    std::uint32_t producer_ = 0;                   // free running; the driver's are 24 bits of it
    std::uint32_t solicited_ = 0, announced_ = 0;  // one past the last such
    // The driver passes over a RESIZE entry, but its record tells so only when it polls.
    std::uint32_t consumed_ = 0, moves_ = 0;  // as told last; RESIZE entries since
    std::uint32_t events_ = 0;
    bool is_gone_ = false;
};

// ---- Receives ----------------------------------------------------------------------------------

class ReceiveRing final : public ReceiveSource {
  public:
    ReceiveRing(const RingMemory& ring, std::uint64_t record)
        : ring_(ring),
          record_(record),
          pieces_(ring.entry_bytes / kSegmentBytes),
          copy_(ring.entry_bytes) {}
    bool next(RecvWork* work_p) override;
    /// The program wrote more than was taken.
    [[nodiscard]] bool has_more() const;
    /// RESET: the counters begin anew.
    void reset() { taken_ = 0; }
    [[nodiscard]] bool is_gone() const { return is_gone_; }

  private:
    RingMemory ring_;
    Record record_;
    std::uint16_t taken_ = 0;
    mutable bool is_gone_ = false;
    std::vector<ibv_sge> pieces_;
    std::vector<std::byte> copy_;
};

/// The list begins at index 0, each entry names the next. The driver links an entry that was
/// completed behind its tail, so an index is in flight once at a time.
class ReceiveList final : public ReceiveSource {
  public:
    ReceiveList(const RingMemory& ring, std::uint64_t record)
        : ring_(ring),
          record_(record),
          pieces_(ring.entry_bytes / kSegmentBytes),
          copy_(ring.entry_bytes) {}
    bool next(RecvWork* work_p) override;
    /// Entries are taken one after the other, whatever they name. Before the first is taken.
    void set_cyclic(bool is_cyclic) { is_cyclic_ = is_cyclic; }
    [[nodiscard]] bool is_gone() const { return is_gone_; }

  private:
    RingMemory ring_;
    Record record_;
    std::uint16_t head_ = 0, taken_ = 0;
    bool is_gone_ = false, is_cyclic_ = false;
    std::vector<ibv_sge> pieces_;
    std::vector<std::byte> copy_;
};

// ---- Sends -------------------------------------------------------------------------------------

/// Where an address vector leads: knows the port and the address handles.
using RouteFinder = std::function<Route(const WqeAddress&)>;

class SendRing {
  public:
    static constexpr unsigned kEntriesPerPoll = 64;

    struct Config {
        RingMemory ring;           // entry_bytes: kBlockBytes
        std::uint64_t record = 0;  // [1] blocks posted, 16 bits
        WqeContext context{};
        RouteFinder route_of{};
        std::uint32_t inline_key = 0;  // opens shadow() for the device
    };
    /// Inline data stay here while the device may still read them: place for place as the ring.
    explicit SendRing(Config config);
    [[nodiscard]] std::span<std::byte> shadow() { return {shadow_.data(), shadow_.size()}; }
    /// Before the first poll().
    void set_inline_key(std::uint32_t key) { config_.inline_key = key; }

    /// Takes what is posted, up to kEntriesPerPoll and the room of `qp`; nothing before RTS. True:
    /// it took something.
    bool poll(Qp& qp, Time now);
    /// RESET: the device begins anew at the first place, and the record is 0 again. A card
    /// reads it when a doorbell rings, so a program may leave it as it was (UCX does).
    void reset();
    [[nodiscard]] bool is_gone() const { return is_gone_; }

  private:
    friend class TagRing;
    /// Copies the entry at seen_ and parses it into wqe_. False: none is posted, or the memory is
    /// gone.
    bool fetch();
    [[nodiscard]] bool copy(std::span<std::byte> to);
    /// The work of wqe_, with its pieces in sges_.
    void complete_work();
    /// wqe_ to the core, or why not: ENOMEM, no room at present; EINVAL, `qp` does not send.
    int post(Qp& qp);
    void add_inline(const WqePiece& piece);
    [[nodiscard]] std::size_t offset_of_seen() const {
        return (seen_ & (config_.ring.entries - 1)) * kBlockBytes;
    }

    Config config_;
    Record record_;
    std::uint16_t seen_ = 0;
    bool is_gone_ = false;
    std::vector<std::byte> shadow_;
    std::vector<ibv_sge> sges_;
    std::array<std::byte, kEntryBytesMax + kBlockBytes> copy_{};
    Wqe wqe_;
};

/// The operations on the list of a tag-matching SRQ. An APPEND names the index of the *next* one;
/// its own is what the one before named, the first one's 0. Shared by all queue pairs that command
/// this SRQ.
class TagIndices {
  public:
    [[nodiscard]] std::uint16_t take(std::uint16_t next) { return std::exchange(next_, next); }
    void put(std::uint16_t index, std::uint32_t handle) {
        handles_[index] = handle;
        owners_[handle] = index;
    }
    /// nullptr: none has this index, or its handle was given to a later one since.
    [[nodiscard]] const std::uint32_t* find(std::uint16_t index) const {
        const auto found = handles_.find(index);
        return found == handles_.end() || owners_.at(found->second) != index ? nullptr
                                                                             : &found->second;
    }

  private:
    std::uint16_t next_ = 0;
    std::unordered_map<std::uint16_t, std::uint32_t> handles_;
    std::unordered_map<std::uint32_t, std::uint16_t> owners_;  // of handles: who had it last
};

class TagRing {
  public:
    TagRing(SendRing::Config config, TagIndices& indices)
        : ring_(std::move(config)), indices_(indices) {}
    /// As SendRing::poll(): operations are carried out on `srq`, all else is sent by `qp`. An
    /// operation that cannot be carried out ends the ring as memory does that is gone.
    bool poll(Qp& qp, Srq& srq, Time now);
    /// The next entry, if it is an operation of a queue pair in `state`; to be followed by done().
    bool next(ibv_qp_state state, TagWork* work_p);
    void done(const TagWork& work, int error);
    /// It sent, and never had an operation: that is what most of them are for.
    [[nodiscard]] bool is_for_sends() const { return has_sent_ && !has_operated_; }
    void reset() { ring_.reset(); }
    [[nodiscard]] bool is_gone() const { return ring_.is_gone(); }
    /// The ring of the requests beside the operations.
    [[nodiscard]] SendRing& ring() { return ring_; }

  private:
    /// Makes the operation of ring_.wqe_.
    void make_work(TagWork* work_p);
    void advance();

    SendRing ring_;
    TagIndices& indices_;
    bool has_sent_ = false, has_operated_ = false;
};

/// The command queues of one SRQ, for the core to ask.
class TagCommanders final : public TagSource {
  public:
    void add(const Qp& qp, TagRing& ring) { all_.push_back({&qp, &ring}); }
    void remove(const Qp& qp) {
        std::erase_if(all_, [&](const Commander& one) { return one.qp == &qp; });
    }
    bool next(TagWork* work_p) override;
    void done(const TagWork& work, int error) override { asked_->done(work, error); }

  private:
    struct Commander {
        const Qp* qp;
        TagRing* ring;
    };
    std::vector<Commander> all_;
    TagRing* asked_ = nullptr;
};

}  // namespace tagwire::vhca::driver
