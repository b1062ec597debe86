// SPDX-License-Identifier: BSD-3-Clause
// Memory of one side that the other side writes: messages, then on a line of its own a control word
// (how many messages of a stream are complete).
#pragma once

#include <uct/api/uct.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "tools/memory.hpp"
#include "tools/sender.hpp"

namespace tagwire::tools {

class Inbox {
  public:
    Inbox(const Link& link, MemoryKind memory, std::size_t message_bytes)
        : link_(link),
          control_offset_((message_bytes + 63) / 64 * 64),
          mine_(link, memory, control_offset_ + 64),
          theirs_(link, mine_, mine_.bytes()) {}

    std::uint8_t* data() const { return mine_.data(); }
    std::uint64_t remote() const { return theirs_.address(); }
    uct_rkey_t rkey() const { return theirs_.rkey(); }

    /// The word at `offset` of my memory, as another process or device writes it.
    template <class Word>
    Word load(std::size_t offset) const {
        // SYNC inbox(word): pairs with the store that the transport makes for the peer's put or
        // atomic; what was written before it is visible.
        return std::atomic_ref<Word>(*reinterpret_cast<Word*>(mine_.data() + offset))
            .load(std::memory_order_acquire);
    }

    std::uint64_t control() const { return load<std::uint64_t>(control_offset_); }

    /// Runs between two looks at bytes that are not there yet.
    static void look_again() { asm volatile("" : : : "memory"); }

    /// Writes the peer's control word, after all earlier operations have taken effect there.
    ucs_status_t try_finish(std::uint64_t value) const {
        const ucs_status_t flushed =
            uct_iface_flush(link_.interface(0), UCT_FLUSH_FLAG_LOCAL, nullptr);
        return flushed == UCS_OK ? try_put_control(value) : UCS_ERR_NO_RESOURCE;
    }

    /// Writes the peer's control word.
    ucs_status_t try_put_control(std::uint64_t value) const {
        const std::uint64_t address = remote() + control_offset_;
        // SYNC inbox(word): the transport's put is the store that load() of the other side sees.
        if ((link_.attr().cap.flags & UCT_IFACE_FLAG_PUT_SHORT) != 0)
            return uct_ep_put_short(link_.endpoint(0), &value, sizeof(value), address, rkey());
        Packed packed{&value, sizeof(value)};
        return status_of(
            uct_ep_put_bcopy(link_.endpoint(0), &Packed::pack, &packed, address, rkey()));
    }

  private:
    const Link& link_;
    std::size_t control_offset_;
    Buffer mine_;
    RemoteBuffer theirs_;
};

}  // namespace tagwire::tools
