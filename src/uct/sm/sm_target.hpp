// SPDX-License-Identifier: BSD-3-Clause
// The remote memory of a put, a get or an atomic, for the bodies of an endpoint that move data.
//
// Threads: the owner of the interface.
#pragma once

#include <cstddef>

#include "ucs/log/log.hpp"
#include "uct/sm/key_guard.hpp"
#include "uct/sm/sm_ep.hpp"
#include "uct/sm/sm_md.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::sm {

[[gnu::noinline, gnu::cold]] inline ucs_status_t refuse_ended_key(const SmRemoteKey& key) {
    TW_LOG_DEBUG("remote access by key 0x%x, which its owner has deregistered", key.packed.key);
    return UCS_ERR_INVALID_ADDR;
}

/// The remote memory of an operation. resolve() leaves the key's generation to the functions here,
/// one of which each operation calls: a write needs no look at it but the one within its word.
struct SmEp::Target {
    std::byte* direct = nullptr;  // null: by the link's copy path
    const SmRemoteKey* key = nullptr;
    KeyGuard guard;

    /// Whether the key is good now. Each later step of a transfer looks again.
    [[nodiscard]] ucs_status_t check() const {
        return guard.is_good() ? UCS_OK : refuse_ended_key(*key);
    }
    /// By stores; an owner whose key ends waits for them.
    template <class Store>
    ucs_status_t write(const Link& link, Store store) const {
        {
            const Writing writing(link.writer);
            if (guard.is_good()) {
                store();
                return UCS_OK;
            }
        }
        return refuse_ended_key(*key);  // logs, which an owner need not wait for
    }
    /// By loads; what was read counts only if the key is good afterwards, too.
    template <class Load>
    ucs_status_t read(Load load) const {
        if (!guard.is_good()) [[unlikely]]
            return refuse_ended_key(*key);
        load();
        return guard.status();
    }
};

}  // namespace tagwire::sm
