// SPDX-License-Identifier: BSD-3-Clause
// A key to memory of this process, over a transport that unpacks keys without a connection; for
// tests of parts that use keys.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "protocols/api/tw_rma.h"
#include "protocols/request/context.hpp"
#include "protocols/request/keys.hpp"
#include "protocols/request/memory.hpp"
#include "protocols/wire/memory_key.hpp"

namespace tagwire::test {

class RealKey {
  public:
    RealKey() {
        EXPECT_EQ(proto::Context::create("tcp", &context_), UCS_OK);
        EXPECT_EQ(
            proto::Memory::make(*context_, bytes.data(), bytes.size(), TW_ACCESS_ALL, &memory_),
            UCS_OK);
        std::array<std::byte, TW_KEY_BYTES_MAX> packed;
        std::size_t length = packed.size();
        EXPECT_EQ(memory_->pack(packed.data(), &length), UCS_OK);
        EXPECT_EQ(decode({packed.data(), length}, &message), nullptr);
        memory_->list_keys(&keys);
        for (std::size_t i = 0; i < proto::kKeyDomainsMax && message.key_of(domain_index).empty();
             ++i)
            domain_index = static_cast<std::uint8_t>(i);
        EXPECT_FALSE(message.key_of(domain_index).empty());
    }
    RealKey(const RealKey&) = delete;
    RealKey& operator=(const RealKey&) = delete;

    const proto::Domain& domain() const { return context_->domains()[domain_index]; }

    std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{1} << 20);
    proto::MemoryKeyMessage message;
    proto::Keys keys;  // of all domains, as a rendezvous has them
    std::uint8_t domain_index = 0;

  private:
    std::unique_ptr<proto::Context> context_;
    std::unique_ptr<proto::Memory> memory_;
};

}  // namespace tagwire::test
