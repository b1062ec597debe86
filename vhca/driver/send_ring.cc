// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <utility>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

namespace {
constexpr unsigned kSendsPosted = 1;  // word of the record
}

SendRing::SendRing(Config config)
    : config_(std::move(config)), record_(config_.record), shadow_(config_.ring.bytes()) {}

void SendRing::reset() {
    seen_ = 0;
    static_cast<void>(
        record_.store(kSendsPosted, 0));  // memory that is gone: the next poll finds out
}

/// Bytes beyond the ring's end are at its beginning.
bool SendRing::copy(std::span<std::byte> to) {
    const std::size_t offset = offset_of_seen();
    const std::size_t first = std::min<std::size_t>(to.size(), config_.ring.bytes() - offset);
    const auto* ring = reinterpret_cast<const std::byte*>(config_.ring.address);
    is_gone_ = is_gone_ || !copy_in(to.data(), ring + offset, first) ||
               !copy_in(to.data() + first, ring, to.size() - first);
    return !is_gone_;
}

bool SendRing::fetch() {
    if (is_gone_)
        return false;
    const auto posted = static_cast<std::uint16_t>(record_.load(kSendsPosted, &is_gone_));
    const auto waiting = static_cast<std::uint16_t>(posted - seen_);
    if (is_gone_ || waiting == 0)
        return false;
    if (waiting > config_.ring.entries) {  // no driver writes this
        wqe_.opcode = 0;
        wqe_.work.stream = 0;
        wqe_.blocks = waiting;
        refuse(&wqe_);
        return true;
    }
    std::array<std::byte, kSegmentBytes> control;
    if (!copy(control))
        return false;
    const std::uint32_t blocks = std::min<std::uint32_t>(blocks_of(control), waiting);
    const std::span entry(copy_.data(), blocks * kBlockBytes);
    if (!copy(entry))
        return false;
    std::copy(control.begin(), control.end(), entry.begin());  // as it was when it was measured
    parse_wqe(entry, seen_, config_.context, &wqe_);
    return true;
}

void SendRing::add_inline(const WqePiece& piece) {
    const std::byte* from = copy_.data() + piece.offset;
    std::size_t to = (offset_of_seen() + piece.offset) % shadow_.size();
    for (std::uint32_t left = piece.sge.length; left != 0;) {
        const auto bytes = std::min(left, static_cast<std::uint32_t>(shadow_.size() - to));
        std::copy_n(from, bytes, shadow_.data() + to);
        sges_.push_back(
            {reinterpret_cast<std::uint64_t>(shadow_.data() + to), bytes, config_.inline_key});
        from += bytes;
        left -= bytes;
        to = 0;
    }
}

void SendRing::complete_work() {
    sges_.clear();
    for (const WqePiece& piece : std::span(wqe_.pieces).first(wqe_.piece_count))
        if (piece.is_inline)
            add_inline(piece);
        else
            sges_.push_back(piece.sge);
    SendWork& work = wqe_.work;
    work.wr_id = EntryName{seen_, wqe_.opcode}.pack();
    if (wqe_.has_address)
        work.route = config_.route_of(wqe_.address);
    work.sges = sges_;
}

int SendRing::post(Qp& qp) {
    complete_work();
    const int error = qp.enqueue_send(wqe_.work);
    if (error != EINVAL)
        return error;
    refuse(&wqe_);
    complete_work();
    return qp.enqueue_send(wqe_.work);
}

bool SendRing::poll(Qp& qp, Time now) {
    if (qp.state() < IBV_QPS_RTS)
        return false;
    unsigned taken = 0;
    while (taken != kEntriesPerPoll && fetch()) {
        if (post(qp) != 0)
            break;  // no room at present: it stays where it is
        seen_ = static_cast<std::uint16_t>(seen_ + wqe_.blocks);
        ++taken;
    }
    if (taken != 0)
        qp.ring(now);
    return taken != 0;
}

}  // namespace tagwire::vhca::driver
