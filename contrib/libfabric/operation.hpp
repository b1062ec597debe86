// SPDX-License-Identifier: BSD-3-Clause
// An operation that outlives its call, and the pool of them.
#pragma once

#include <rdma/fabric.h>
#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tagwire::fi {

class Ep;

enum class OperationKind : std::uint8_t {
    kFree,
    kSend,
    kReceive,
    kListen,  ///< Of an endpoint with buffered receives: all messages without a tag.
    kShown    ///< A message that the program has been shown, to be claimed or discarded.
};

struct Operation {
    Ep* ep = nullptr;
    void* context = nullptr;
    OperationKind kind = OperationKind::kFree;
    bool is_reported = false;  ///< Success gets an entry.
    std::uint64_t flags = 0;   ///< Of its entry, besides those that the message decides.
    tw_request_h request = nullptr;
    fi_recv_context shown{};         ///< kShown: what the program has of it.
    tw_message_h message = nullptr;  ///< kShown.
    Operation* next = nullptr;       ///< In the list of free ones.
};

class OperationPool {
  public:
    explicit OperationPool(Ep& owner) : owner_(owner) {}

    /// One that take() will return next; nullptr: no memory.
    Operation* next() {
        if (free_ == nullptr) [[unlikely]]
            grow();
        return free_;
    }
    /// After next().
    Operation& take(OperationKind kind) {
        Operation& taken = *free_;
        free_ = taken.next;
        taken.kind = kind;
        return taken;
    }
    /// The same for what goes on behind its call.
    void begin(OperationKind kind, void* context, std::uint64_t flags, bool is_reported,
               tw_request_h request) {
        Operation& begun = take(kind);
        begun.context = context;
        begun.flags = flags;
        begun.is_reported = is_reported;
        begun.request = request;
    }
    void put(Operation& done) {
        done.kind = OperationKind::kFree;
        done.next = free_;
        free_ = &done;
    }
    /// nullptr: none such.
    Operation* find(OperationKind kind, const void* context) const;
    /// The shown message of this record; nullptr: it is none.
    Operation* find_shown(const void* record) const;

  private:
    static constexpr std::size_t kSlabOperations = 256;

    void grow();

    Ep& owner_;
    Operation* free_ = nullptr;
    std::vector<std::unique_ptr<Operation[]>> slabs_;
};

}  // namespace tagwire::fi
