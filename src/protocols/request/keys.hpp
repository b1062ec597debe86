// SPDX-License-Identifier: BSD-3-Clause
// Remote keys of one buffer, for each memory domain that peers may use, in wire format: KeyHead,
// key, and so on.
#pragma once

#include <uct/api/tagwire_uct.h>
#include <uct/api/uct.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "protocols/request/context.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/wire/rndv_messages.hpp"

namespace tagwire::proto {

inline Loan wire_of(const tagwire_uct_loan_t& loan) {
    return {loan.key,
            {static_cast<std::uint32_t>(loan.generation),
             static_cast<std::uint32_t>(loan.generation >> 32)}};
}

/// The sender's number of its request is that of the buffer.
inline tagwire_uct_loan_t lent_by(const Rts& rts, const Loan& loan) {
    return {rts.address, loan.generation[0] | std::uint64_t{loan.generation[1]} << 32, loan.key,
            rts.send_id};
}

struct Keys {
    std::byte bytes[kKeysBytesMax];
    std::size_t used = 0;
    std::uint8_t count = 0;

    void add(const Domain& domain, std::size_t index, uct_mem_h handle) {
        const std::size_t key_bytes = domain.attr.rkey_packed_size;
        if (used + sizeof(KeyHead) + key_bytes > sizeof bytes || key_bytes > UINT8_MAX)
            return;
        const KeyHead head{static_cast<std::uint8_t>(index), static_cast<std::uint8_t>(key_bytes)};
        if (uct_md_mkey_pack(domain.md, handle, bytes + used + sizeof head) != UCS_OK)
            return;
        std::memcpy(bytes + used, &head, sizeof head);
        used += sizeof head + key_bytes;
        ++count;
    }

    void add(const Loan& loan) {
        const KeyHead head{kLoanDomain, sizeof loan};
        std::memcpy(bytes + used, &head, sizeof head);
        std::memcpy(bytes + used + sizeof head, &loan, sizeof loan);
        used += sizeof head + sizeof loan;
        ++count;
    }

    /// Adds the key of every domain but `main` in which the handle stays registered.
    void add_others(const Memory& memory, std::size_t main) {
        const auto domains = memory.context().domains();
        for (std::size_t i = 0; i < domains.size(); ++i)
            if (i != main && !domains[i].registers_cheaply)
                add(domains[i], i, memory.handle(i));
    }
};

/// The key of the peer's `domain` among `keys`; empty: there is none.
inline std::span<const std::byte> key_of(std::span<const std::byte> keys, std::uint8_t domain) {
    while (keys.size() >= sizeof(KeyHead)) {
        KeyHead head{};
        std::memcpy(&head, keys.data(), sizeof head);
        if (keys.size() - sizeof head < head.bytes)
            break;
        if (head.domain == domain)
            return keys.subspan(sizeof head, head.bytes);
        keys = keys.subspan(sizeof head + head.bytes);
    }
    return {};
}

/// The loan of a request. False: there is none.
inline bool loan_of(std::span<const std::byte> keys, const Rts& rts, tagwire_uct_loan_t* loan_p) {
    const auto bytes = key_of(keys, kLoanDomain);
    Loan loan;
    if (bytes.size() != sizeof loan)
        return false;
    std::memcpy(&loan, bytes.data(), sizeof loan);
    *loan_p = lent_by(rts, loan);
    return true;
}

}  // namespace tagwire::proto
