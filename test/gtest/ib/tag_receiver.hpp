// SPDX-License-Identifier: BSD-3-Clause
// The receiving side of tag matching without a transport: a tag-matching SRQ, its completions and
// its list, driven one completion at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ib/verbs_ends.hpp"
#include "uct/ib/receive_queue.hpp"
#include "uct/ib/tag_list.hpp"

namespace tagwire::test {

/// A posted receive and what became of it.
struct TagReceive : uct_tag_context_t {
    int consumed = 0;
    int ended = 0;
    ib::TagEvent::Kind kind = ib::TagEvent::Kind::kNone;
    ucs_status_t status = UCS_OK;
    ib::TagEntry result{};  // as it was at the end
    std::function<void(TagReceive&)> on_end;
};

struct Unexpected {
    std::uint64_t tag;
    std::uint32_t app_ctx;
    std::uint8_t opcode;
    std::vector<std::byte> data;  // behind the TMH
};

struct TagReceiverOptions {
    unsigned tags = 16;
    unsigned ops = 0;  // 0: enough for all
    unsigned depth = 64;
    unsigned buffers = 0;       // 0: one for each tag and one more
    std::uint8_t timeout = 14;  // of the sender's connection; ibv_modify_qp(3)
};

class TagReceiver {
  public:
    static constexpr std::size_t kBufferBytes = 16384;  // of each receive

    TagReceiver(const ib::IbMd& md, const TagReceiverOptions& options);

    /// The n-th buffer.
    [[nodiscard]] std::byte* buffer(std::size_t n) { return memory.at(n * kBufferBytes); }
    ucs_status_t post(TagReceive& receive, std::uint64_t tag, std::size_t n,
                      std::size_t bytes = kBufferBytes, std::uint64_t mask = ~std::uint64_t{0}) {
        return list.add(tag, mask, buffer(n), bytes, memory.lkey(), &receive);
    }
    /// Handles one completion, false when there was none. Then operations and buffers are posted.
    bool step();
    /// All that are there.
    void progress() {
        while (step()) {
        }
    }
    [[nodiscard]] bool has_data(const TagReceive& receive, std::size_t n, std::size_t bytes,
                                unsigned seed) const {
        return receive.result.byte_len == bytes && memory.has(n * kBufferBytes, bytes, seed);
    }

    ib::CompletionQueue cq;
    ib::ReceiveQueue queue;
    ib::TagList list;
    Memory memory;
    std::vector<Unexpected> unexpected;
    std::uint64_t unexpected_count = 0;
    bool keeps_unexpected = true;
    unsigned no_tag = 0;
    // ---- Observers, called before an event is handled
    std::function<void(const ib::Completion&)> on_completion;
    std::function<void(const ib::TagEvent&)> on_event;
    std::function<void(const Unexpected&)> on_unexpected;

  private:
    void handle_own(const ib::Completion& completion);
    void handle_buffer(const ib::Completion& completion);

    const ib::Completion* batch_ = nullptr;
    unsigned left_ = 0;
};

/// A receiver and somebody who sends to it.
struct TagPair {
    explicit TagPair(const TagReceiverOptions& options = {})
        : receiver(*md, options),
          sender(*md, receiver.queue.srq(), receiver.cq.get(), options.timeout) {}
    /// Progresses both until it is so; false when it does not come.
    template <class Condition>
    bool until(Condition&& condition) {
        for (int i = 0; i != kStepsMax; ++i) {
            if (condition())
                return true;
            sender.progress();
            receiver.step();
        }
        return false;
    }
    /// All messages sent arrive, but the receiver does not look.
    bool arrive() {
        for (int i = 0; i != kStepsMax && !sender.is_idle(); ++i)
            sender.progress();
        return sender.is_idle();
    }
    /// Nothing is under way any more.
    bool drain() {
        const bool has_arrived = until([&] { return sender.is_idle(); });
        for (int i = 0; i != 50; ++i) {
            sender.progress();
            receiver.progress();
        }
        return has_arrived;
    }

    VhcaMd md;
    TagReceiver receiver;
    Sender sender;
};

}  // namespace tagwire::test
