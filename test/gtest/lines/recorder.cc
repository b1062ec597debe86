// SPDX-License-Identifier: BSD-3-Clause
#include "lines/recorder.hpp"

#include <algorithm>

namespace tagwire::test {

namespace {

constinit thread_local LineRecorder* active = nullptr;

}  // namespace

LineRecorder::LineRecorder() : slots_(new Slot[kSlots]()) {
    touches_.reserve(kTouchesMax);
}

void LineRecorder::start(std::uint32_t turn) {
    turn_ = turn;
    active = this;
}

void LineRecorder::stop() {
    active = nullptr;
}

void LineRecorder::clear() {
    std::fill_n(slots_.get(), kSlots, Slot{});
    touches_.clear();
    used_ = 0;
}

void LineRecorder::note(const volatile void* address, std::size_t bytes, bool writes,
                        const void* code) {
    if (active == nullptr)
        return;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    for (std::uintptr_t at = begin; at < begin + bytes;) {
        const std::uintptr_t line = at / kLineBytes;
        const std::uintptr_t end = std::min(begin + bytes, (line + 1) * kLineBytes);
        const std::uint64_t ones = ~std::uint64_t{0} >> (kLineBytes - (end - at));
        active->add(line, ones << (at % kLineBytes), writes, code);
        at = end;
    }
}

void LineRecorder::add(std::uintptr_t line, std::uint64_t bytes, bool writes, const void* code) {
    Touch* touch = touch_of(line);
    if (touch == nullptr)
        return;
    (writes ? touch->written : touch->read) |= bytes;
    const void*& first = writes ? touch->writer : touch->reader;
    if (first == nullptr)
        first = code;
}

/// The record of this turn; null: no room.
Touch* LineRecorder::touch_of(std::uintptr_t line) {
    std::size_t at = (line * 0x9e3779b97f4a7c15u) >> 47;
    static_assert(kSlots == std::size_t{1} << (64 - 47));
    while (slots_[at].line != line && slots_[at].line != 0)
        at = (at + 1) % kSlots;
    Slot& slot = slots_[at];
    if (slot.line == line && slot.turn == turn_)
        return &touches_[slot.touch];
    if (touches_.size() == kTouchesMax || used_ == kSlots / 2) {
        is_full_ = true;
        return nullptr;
    }
    used_ += slot.line == 0;
    slot = {line, turn_, static_cast<std::uint32_t>(touches_.size())};
    Touch touch{};
    touch.line = line;
    touch.turn = turn_;
    return &touches_.emplace_back(touch);
}

}  // namespace tagwire::test
