// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

namespace {

constexpr unsigned kReceivesPosted = 0;  // word of the record

const void* place_of(const RingMemory& ring, std::uint16_t index) {
    return reinterpret_cast<const void*>(ring.address + std::uint64_t{index & (ring.entries - 1)} *
                                                            ring.entry_bytes);
}

std::uint64_t name_of(std::uint16_t counter) {
    return EntryName{counter, 0}.pack();
}

}  // namespace

bool ReceiveRing::has_more() const {
    return !is_gone_ &&
           static_cast<std::uint16_t>(record_.load(kReceivesPosted, &is_gone_)) != taken_ &&
           !is_gone_;
}

bool ReceiveRing::next(RecvWork* work_p) {
    if (!has_more())
        return false;
    if (!copy_in(copy_.data(), place_of(ring_, taken_), copy_.size())) {
        is_gone_ = true;
        return false;
    }
    const std::size_t count = parse_receive(copy_, pieces_);
    *work_p = {name_of(taken_++), {pieces_.data(), count}};
    return true;
}

bool ReceiveList::next(RecvWork* work_p) {
    if (is_gone_ ||
        static_cast<std::uint16_t>(record_.load(kReceivesPosted, &is_gone_)) == taken_ ||
        is_gone_) {
        return false;
    }
    if (head_ >= ring_.entries || !copy_in(copy_.data(), place_of(ring_, head_), copy_.size())) {
        is_gone_ = true;
        return false;
    }
    mlx5_wqe_srq_next_seg link;
    static_assert(sizeof link == kSegmentBytes);
    std::memcpy(&link, copy_.data(), sizeof link);
    const std::size_t count =
        parse_receive(std::span<const std::byte>(copy_).subspan(sizeof link), pieces_);
    *work_p = {name_of(head_), {pieces_.data(), count}};
    head_ = is_cyclic_ ? static_cast<std::uint16_t>((head_ + 1U) % ring_.entries)
                       : be16toh(link.next_wqe_index);
    ++taken_;
    return true;
}

}  // namespace tagwire::vhca::driver
