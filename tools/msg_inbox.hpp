// SPDX-License-Identifier: BSD-3-Clause
// Memory of one side that the other side writes, reads and changes by one-sided operations of the
// messaging layer. At level uct it is an Inbox (inbox.hpp).
#pragma once

#include <tagwire.h>
#include <uct/api/uct.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/msg_link.hpp"
#include "tools/msg_memory.hpp"

namespace tagwire::tools {

/// Messages, then on a line of its own a control word: how many messages of a stream are complete.
class MsgInbox {
  public:
    /// Both sides call it, in the same order: they show their memory to each other.
    MsgInbox(MsgLink& link, MemoryKind memory, std::size_t message_bytes);
    ~MsgInbox();
    MsgInbox(const MsgInbox&) = delete;
    MsgInbox& operator=(const MsgInbox&) = delete;

    std::uint8_t* data() const { return mine_.data(); }
    /// The other side's memory, by its owner's addresses.
    std::uint64_t remote() const { return remote_; }
    tw_key_h key() const { return key_; }

    /// The word at `offset` of my memory, as another process or device writes it.
    template <class Word>
    Word load(std::size_t offset) const {
        // SYNC msg_inbox(word): pairs with the store that the layer makes for the peer's put or
        // atomic; the data before a fence is visible.
        return std::atomic_ref<Word>(*reinterpret_cast<Word*>(mine_.data() + offset))
            .load(std::memory_order_acquire);
    }

    std::uint64_t control() const { return load<std::uint64_t>(control_offset_); }

    /// Runs between two looks at bytes that are not there yet.
    void look_again() const { link_.progress(); }

    /// As try_put_control(), which is behind a fence in any case.
    ucs_status_t try_finish(std::uint64_t value) const { return try_put_control(value); }

    /// Writes the peer's control word, after all earlier operations have taken effect there.
    ucs_status_t try_put_control(std::uint64_t value) const;

  private:
    void exchange_keys();

    MsgLink& link_;
    std::size_t control_offset_;
    MsgMemory mine_;
    std::uint64_t remote_ = 0;
    tw_key_h key_ = nullptr;
};

}  // namespace tagwire::tools
