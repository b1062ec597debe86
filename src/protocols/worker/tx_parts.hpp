// SPDX-License-Identifier: BSD-3-Clause
// The endpoints of transmit contexts beside one of the program, as that endpoint sees them: they
// send in its place, and are flushed, closed and ended with it. tx_contexts.hpp has the rest.
#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "protocols/api/tw_def.h"

namespace tagwire::proto {

class Endpoint;
class TxContext;
class TxParts;

/// Never UINT32_MAX.
unsigned new_number_of_thread();

/// The number of the calling thread, among all that have asked.
inline unsigned number_of_thread() {
    [[gnu::tls_model("initial-exec")]] static thread_local constinit unsigned number = UINT32_MAX;
    if (number == UINT32_MAX) [[unlikely]]
        number = new_number_of_thread();
    return number;
}

/// An endpoint of one context beside one of the program. With the context's lock; who sends by it
/// reads `ep` without, for the program does not close what it uses.
struct TxPart {
    TxContext* context;
    Endpoint* ep;  // nullptr: it has gone
};

struct TxCalls {
    void (*begin)(TxParts& parts);
    void (*fail)(TxParts& parts, ucs_status_t status);
    tw_status_t (*flush)(TxParts& parts, bool closes, tw_flush_level_t level, bool is_kept);
    void (*release)(TxParts& parts);
};

/// With the lock of the front's worker, but of_this_thread().
class TxParts {
  public:
    TxParts(const TxParts&) = delete;
    TxParts& operator=(const TxParts&) = delete;

    /// nullptr: it was closed, and its front is being closed.
    Endpoint* of_this_thread() const {
        const std::size_t number = number_of_thread();
        return (number < parts_.size() ? parts_[number] : parts_[number % parts_.size()]).ep;
    }
    /// The front is connected.
    void begin() { calls_.begin(*this); }
    /// The front has failed: fails each context.
    void fail(ucs_status_t status) { calls_.fail(*this, status); }
    /// Begins to flush, or to close all. TW_ERR_NO_RESOURCE: to be called again. `is_kept`: with
    /// TW_OP_QUEUE.
    tw_status_t flush(bool closes, tw_flush_level_t level, bool is_kept) {
        return calls_.flush(*this, closes, level, is_kept);
    }
    /// Some of what flush() has begun has not ended.
    bool awaits_ends() const { return ends_ > 0; }
    /// The front goes: those that are open are closed by force, and this goes as soon as nothing is
    /// awaited.
    void release() { calls_.release(*this); }

  protected:
    explicit TxParts(const TxCalls& calls) : calls_(calls) {}
    ~TxParts() = default;

    const TxCalls& calls_;
    std::vector<TxPart> parts_;
    std::size_t ends_ = 0;
};

/// Part of an endpoint in transmit contexts.
struct EpTx {
    // Endpoints by which messages of the program leave in its place; nullptr: there are none.
    TxParts* contexts = nullptr;
    // The worker is a transmit context: the endpoint that the program has, and its place there.
    Endpoint* front = nullptr;
    TxPart* part = nullptr;
};

}  // namespace tagwire::proto
