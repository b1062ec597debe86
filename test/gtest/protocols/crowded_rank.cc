// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/crowded_rank.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "protocols/victim.hpp"

namespace tagwire::test {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kWorkPatienceNs = 100 * kSecondNs;  // then it hangs
constexpr std::uint64_t kControlNs = 5'000'000;             // between looks at the channel
constexpr unsigned kCallsPerLook = 256;                     // the same, of one that does not wait
constexpr std::size_t kEagerMax = 4000;
constexpr std::size_t kAmMax = 2000;

struct AmHead {
    std::uint32_t from, number;
};

constexpr std::uint32_t kDelivered = TW_OP_COMPLETION | TW_OP_DELIVERY_COMPLETE;

}  // namespace

// ---- Contents

std::size_t CrowdedRank::length_of(Kind kind, unsigned from, unsigned to,
                                   std::uint32_t number) const {
    const std::uint64_t mixed =
        (std::uint64_t{from} << 40 | std::uint64_t{to} << 32 | (number + 1)) * 0x9e3779b97f4a7c15 >>
        20;
    switch (kind) {
        case Kind::kEager:
            return mixed % kEagerMax;
        case Kind::kRendezvous:
            return plan_.long_bytes + mixed % plan_.long_bytes;
        case Kind::kPut:
            return kPutBytes;
        case Kind::kGet:
            return 1 + mixed % plan_.long_bytes;
        case Kind::kAtomic:
            return sizeof(std::uint64_t);
        default:
            return mixed % kAmMax;
    }
}

Bytes CrowdedRank::content(Kind kind, unsigned from, unsigned to, std::uint32_t number) const {
    const auto seed = static_cast<std::uint64_t>(kind) + std::uint64_t{31} * from +
                      std::uint64_t{521} * to + std::uint64_t{9001} * number;
    return pattern(length_of(kind, from, to, number), seed);
}

// The memory of a rank: what peers get, a place for each of the two last puts of each, a counter
// for the additions of each.
std::size_t CrowdedRank::put_offset(unsigned from, std::uint32_t number) const {
    return plan_.long_bytes + (kWindow * from + number % kWindow) * kPutBytes;
}

std::size_t CrowdedRank::counter_offset(unsigned from) const {
    const std::size_t begin = put_offset(plan_.ranks, 0);
    return (begin + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t) * sizeof(std::uint64_t) +
           from * sizeof(std::uint64_t);
}

// ---- Set-up

CrowdedRank::CrowdedRank(const CrowdedPlan& plan, CrowdedBoard& board, unsigned rank)
    : plan_(plan), board_(board), rank_(rank), way_(static_cast<Way>(rank % 5)) {
    tw_context_params_t params{};
    params.transports = kill_transports();
    if (tw_context_create(&params, &context_) != TW_OK)
        throw std::runtime_error("no context");
    node_ = std::make_unique<Node>(context_,
                                   way_ == Way::kSharesWorker ? TW_THREAD_MULTI : TW_THREAD_SINGLE);
    memory_ = std::make_unique<Shared>(context_, counter_offset(plan_.ranks));
    const Bytes source = pattern(plan_.long_bytes, rank_);
    std::ranges::copy(source, memory_->at());
    const auto handler = [](void* arg, tw_am_t* am) {
        static_cast<CrowdedRank*>(arg)->take_am(*am);
    };
    EXPECT_EQ(tw_am_register(node_->worker(), kAmId, handler, this), TW_OK);
}

CrowdedRank::~CrowdedRank() {
    for (const Peer& peer : peers_)
        tw_key_free(peer.key);
    node_.reset();
    memory_.reset();
    tw_context_destroy(context_);
    if (child_ > 0) {
        ::close(child_pipe_);
        EXPECT_EQ(::waitpid(child_, nullptr, 0), child_);
    }
}

Bytes CrowdedRank::introduction() const {
    const std::string key = memory_->packed();
    const auto* key_bytes = reinterpret_cast<const std::byte*>(key.data());
    const std::uint64_t address = memory_->address();
    const auto* address_bytes = reinterpret_cast<const std::byte*>(&address);
    return pack({node_->address(), Bytes(key_bytes, key_bytes + key.size()),
                 Bytes(address_bytes, address_bytes + sizeof address)});
}

void CrowdedRank::connect(const std::vector<Bytes>& introductions) {
    for (unsigned rank = 0; rank < introductions.size(); ++rank) {
        if (rank == rank_)
            continue;
        const std::vector<Bytes> parts = unpack(introductions[rank]);
        Peer& peer = peers_.emplace_back();
        peer.rank = rank;
        std::memcpy(&peer.memory, parts.at(2).data(), sizeof peer.memory);
        const tw_ep_params_t params{.address = parts.at(0).data(),
                                    .address_length = parts.at(0).size(),
                                    .user_data = &peer};
        EXPECT_EQ(tw_ep_create(node_->worker(), &params, &peer.ep), TW_OK);
        EXPECT_EQ(tw_key_unpack(node_->worker(), parts.at(1).data(), parts.at(1).size(), &peer.key),
                  TW_OK);
        for (std::size_t kind = 0; kind < kKinds; ++kind)
            for (Slot& slot : peer.sends[kind].slots)
                slot = {.peer = &peer, .kind = static_cast<Kind>(kind), .bytes = {}};
        for (std::size_t kind = 0; kind < peer.receives.size(); ++kind)
            for (Slot& slot : peer.receives[kind].slots)
                slot = {.peer = &peer,
                        .kind = static_cast<Kind>(kind),
                        .is_receive = true,
                        .bytes = {}};
    }
}

// ---- Operations

template <class Action>
void CrowdedRank::for_each_slot(Peer& peer, const Action& action) {
    for (Stream& stream : peer.sends)
        std::ranges::for_each(stream.slots, action);
    for (Stream& stream : peer.receives)
        std::ranges::for_each(stream.slots, action);
}

void CrowdedRank::fill(Peer& peer) {
    for (Stream& stream : peer.receives)
        fill(peer, stream);
    for (Stream& stream : peer.sends)
        fill(peer, stream);
}

/// A put follows the one before it in the same place.
void CrowdedRank::fill(Peer& peer, Stream& stream) {
    while (stream.begun < plan_.rounds && !peer.has_failed) {
        Slot& slot = stream.slots[stream.begun % kWindow];
        if (slot.is_used)
            return;
        slot.number = stream.begun;
        const tw_status_t status = slot.is_receive ? begin_receive(slot) : begin(slot);
        if (status == TW_ERR_NO_RESOURCE)
            return;
        if (status != TW_INPROGRESS) {
            EXPECT_TRUE(plan_.is_doomed(peer.rank)) << tw_status_string(status);
            return;  // its failure is told in progress
        }
        slot.is_used = true;
        ++stream.begun;
    }
}

tw_status_t CrowdedRank::begin(Slot& slot) {
    const Peer& peer = *slot.peer;
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &slot;
    slot.bytes = content(slot.kind, rank_, peer.rank, slot.number);
    const std::uint64_t tag = static_cast<std::uint64_t>(slot.kind);
    const std::byte* const data = slot.bytes.data();
    const std::size_t length = slot.bytes.size();
    switch (slot.kind) {
        case Kind::kRendezvous:
            how.flags = slot.number % 2 == 0 ? kDelivered : how.flags;
            [[fallthrough]];
        case Kind::kEager:
            return tw_tag_send(peer.ep, data, length, tag, &how, nullptr);
        case Kind::kPut:
            how.flags = kDelivered;
            return tw_put(peer.ep, data, length, peer.memory + put_offset(rank_, slot.number),
                          peer.key, &how, nullptr);
        case Kind::kGet:
            std::ranges::fill(slot.bytes, std::byte{0});
            return tw_get(peer.ep, slot.bytes.data(), length, peer.memory, peer.key, &how, nullptr);
        case Kind::kAtomic: {
            const std::uint64_t one = 1;
            return tw_atomic(peer.ep, TW_ATOMIC_ADD, TW_UINT64, &one,
                             peer.memory + counter_offset(rank_), peer.key, &how, nullptr);
        }
        default: {
            const AmHead head{rank_, slot.number};
            how.flags = kDelivered;
            return tw_am_send(peer.ep, kAmId, &head, sizeof head, data, length, &how, nullptr);
        }
    }
}

tw_status_t CrowdedRank::begin_receive(Slot& slot) {
    tw_op_t how{};
    how.flags = TW_OP_COMPLETION;
    how.context = &slot;
    how.source = slot.peer->ep;
    slot.bytes = Bytes(length_of(slot.kind, slot.peer->rank, rank_, slot.number) + 1);
    return tw_tag_recv(node_->worker(), slot.bytes.data(), slot.bytes.size(),
                       static_cast<std::uint64_t>(slot.kind), 0, &how, nullptr);
}

void CrowdedRank::take_end(Slot& slot, const tw_completion_t& done) {
    const Peer& peer = *slot.peer;
    EXPECT_TRUE(std::exchange(slot.is_used, false)) << "an operation has ended twice";
    EXPECT_FALSE(peer.has_failed) << "an operation has ended behind the failure of its endpoint";
    ++ended_;
    if (done.status != TW_OK) {
        EXPECT_TRUE(plan_.is_doomed(peer.rank)) << tw_status_string(done.status);
        return;
    }
    if (slot.is_receive) {
        const Bytes expected = content(slot.kind, peer.rank, rank_, slot.number);
        EXPECT_EQ(done.length, expected.size());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), slot.bytes.begin()));
    } else if (slot.kind == Kind::kGet) {
        const Bytes expected = pattern(slot.bytes.size(), peer.rank);
        EXPECT_EQ(slot.bytes, expected);
    } else if (slot.kind == Kind::kAm) {
        board_.delivered[rank_][peer.rank].fetch_add(1, std::memory_order_relaxed);
    }
}

void CrowdedRank::take_am(const tw_am_t& am) {
    AmHead head{};
    ASSERT_EQ(am.header_length, sizeof head);
    std::memcpy(&head, am.header, sizeof head);
    ASSERT_LT(head.from, plan_.ranks);
    const auto peer = std::ranges::find(peers_, head.from, &Peer::rank);
    EXPECT_EQ(head.number, peer->next_am++);
    const Bytes expected = content(Kind::kAm, head.from, rank_, head.number);
    EXPECT_EQ(am.length, expected.size());
    board_.handled[rank_][head.from].fetch_add(1, std::memory_order_relaxed);
    if ((am.flags & TW_AM_RNDV) == 0) {
        EXPECT_TRUE(
            std::equal(expected.begin(), expected.end(), static_cast<const std::byte*>(am.data)));
        return;
    }
    Bytes& bytes = long_ams_.emplace_back(am.length);
    EXPECT_GE(tw_message_recv(am.worker, am.message, bytes.data(), bytes.size(), nullptr, nullptr),
              TW_OK);
}

// ---- Work

void CrowdedRank::move(std::uint64_t timeout_ns) {
    constexpr unsigned kCalls = 16;
    const auto wait = [&](tw_wait_mode_t mode) {
        static_cast<void>(tw_worker_wait(node_->worker(), mode, timeout_ns));
    };
    switch (way_) {
        case Way::kWaitsSpinning:
            wait(TW_WAIT_SPIN);
            break;
        case Way::kWaitsYielding:
            wait(TW_WAIT_YIELD);
            break;
        case Way::kSleeps:
            wait(TW_WAIT_SLEEP);
            break;
        default:
            for (unsigned i = 0; i < kCalls && node_->done.empty(); ++i)
                node_->progress();
            break;
    }
    node_->progress();
    take_ends();
}

void CrowdedRank::take_ends() {
    for (const tw_completion_t& done : std::exchange(node_->done, {}))
        take_end(*static_cast<Slot*>(done.context), done);
    take_failures();
}

void CrowdedRank::take_failures() {
    for (; failures_taken_ < node_->failures.size(); ++failures_taken_) {
        const auto& [ep, status] = node_->failures[failures_taken_];
        auto& peer = *static_cast<Peer*>(tw_ep_user_data(ep));
        EXPECT_TRUE(plan_.is_doomed(peer.rank)) << peer.rank << ": " << tw_status_string(status);
        EXPECT_FALSE(std::exchange(peer.has_failed, true)) << "an endpoint has failed twice";
        for_each_slot(peer, [](const Slot& slot) {
            EXPECT_FALSE(slot.is_used) << "an operation has no end, and its endpoint has failed";
        });
        EXPECT_EQ(tw_ep_close(peer.ep, TW_FLUSH_DELIVERED, nullptr, nullptr), status);
    }
}

bool CrowdedRank::is_over(Peer& peer) {
    if (peer.has_failed || plan_.is_doomed(peer.rank))
        return peer.has_failed;
    bool is_done = peer.next_am == plan_.rounds;
    for (const Stream& stream : peer.sends)
        is_done &= stream.begun == plan_.rounds;
    for (const Stream& stream : peer.receives)
        is_done &= stream.begun == plan_.rounds;
    for_each_slot(peer, [&](const Slot& slot) { is_done &= !slot.is_used; });
    return is_done;
}

void CrowdedRank::work() {
    const std::uint64_t end = now_ns() + kWorkPatienceNs;
    constexpr std::uint64_t kOperations = kKinds + 2;
    const std::uint64_t quarter = kOperations * plan_.rounds * peers_.size() / 4;
    while (!std::ranges::all_of(peers_, [this](Peer& peer) { return is_over(peer); })) {
        std::ranges::for_each(peers_, [this](Peer& peer) { fill(peer); });
        move(kSecondNs);
        if (ended_ >= quarter && !std::exchange(has_met_fate_, true))
            meet_fate();
        if (now_ns() > end) {
            ADD_FAILURE() << "rank " << rank_ << " hangs: " << missing() << node_->description();
            return;
        }
    }
}

void CrowdedRank::meet_fate() {
    switch (plan_.fate_of(rank_)) {
        case Fate::kLives:
            break;
        case Fate::kKilled:
            ::raise(SIGKILL);
            break;
        case Fate::kStopped:
            ::raise(SIGSTOP);
            break;
        case Fate::kComputes:
            spin_ns(kSecondNs);
            break;
        case Fate::kForks:
        case Fate::kForksBriefly: {
            const bool is_brief = plan_.fate_of(rank_) == Fate::kForksBriefly;
            int ends[2];
            ASSERT_EQ(::pipe(ends), 0);
            child_pipe_ = ends[1];
            child_ = ::fork();
            ASSERT_GE(child_, 0);
            if (child_ == 0) {
                ::close(ends[1]);
                char byte = 0;
                const bool has_gone = is_brief || ::read(ends[0], &byte, 1) == 0;
                ::_exit(has_gone ? 0 : 1);
            }
            ::close(ends[0]);
            break;
        }
    }
}

std::string CrowdedRank::missing() {
    std::string text;
    for (Peer& peer : peers_) {
        if (is_over(peer))
            continue;
        text += "peer " + std::to_string(peer.rank) + (peer.has_failed ? " (failed)" : "") +
                ": active messages " + std::to_string(peer.next_am);
        for_each_slot(peer, [&](const Slot& slot) {
            if (slot.is_used) {
                text += (slot.is_receive ? ", receive " : ", send ") + std::to_string(slot.number) +
                        " of kind " + std::to_string(static_cast<int>(slot.kind));
            }
        });
        text += "\n";
    }
    return text;
}

// ---- The end

void CrowdedRank::await(const Channel& control) {
    const std::uint64_t end = now_ns() + kWorkPatienceNs;
    const bool waits = way_ != Way::kSpins && way_ != Way::kSharesWorker;
    while (!control.has_message() && now_ns() < end)
        for (unsigned i = 0; i < (waits ? 1 : kCallsPerLook); ++i)
            move(kControlNs);
    EXPECT_TRUE(control.await_signal());
}

void CrowdedRank::check_memory() const {
    EXPECT_TRUE(std::ranges::equal(std::span(memory_->at(), plan_.long_bytes),
                                   pattern(plan_.long_bytes, rank_)));
    for (const Peer& peer : peers_) {
        const auto counted = memory_->number<std::uint64_t>(counter_offset(peer.rank));
        if (plan_.is_doomed(peer.rank)) {
            EXPECT_LE(counted, plan_.rounds);
            continue;
        }
        EXPECT_EQ(counted, plan_.rounds) << "additions of " << peer.rank;
        for (std::uint32_t i = plan_.rounds - kWindow; i < plan_.rounds; ++i) {
            const std::span put(memory_->at() + put_offset(peer.rank, i), kPutBytes);
            EXPECT_TRUE(std::ranges::equal(put, content(Kind::kPut, peer.rank, rank_, i)))
                << "put " << i << " of " << peer.rank;
        }
    }
}

void CrowdedRank::close() {
    const std::uint64_t end = now_ns() + kWorkPatienceNs;
    std::size_t open = 0;
    for (Peer& peer : peers_) {
        if (peer.has_failed)
            continue;
        tw_op_t how{};
        how.flags = TW_OP_COMPLETION;
        how.context = &peer;
        tw_status_t status = TW_ERR_NO_RESOURCE;
        while ((status = tw_ep_close(peer.ep, TW_FLUSH_DELIVERED, &how, nullptr)) ==
               TW_ERR_NO_RESOURCE)
            tw_worker_progress(node_->worker());
        EXPECT_EQ(status, TW_INPROGRESS);
        ++open;
    }
    while (open > 0 && now_ns() < end) {
        if (way_ == Way::kSleeps)
            static_cast<void>(tw_worker_wait(node_->worker(), TW_WAIT_SLEEP, kSecondNs));
        node_->progress();
        for (const tw_completion_t& done : std::exchange(node_->done, {})) {
            EXPECT_EQ(done.status, TW_OK);
            EXPECT_EQ(++static_cast<Peer*>(done.context)->closes, 1);
            --open;
        }
    }
    EXPECT_EQ(open, 0U) << "closes have no end" << node_->description();
    EXPECT_EQ(node_->failures.size(), failures_taken_);
}

}  // namespace tagwire::test
