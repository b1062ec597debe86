// SPDX-License-Identifier: BSD-3-Clause
// Names of endpoints, as fi_getname() returns them and an AV takes them, and their text form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "provider.hpp"

namespace tagwire::fi {

struct Name {
    std::array<std::byte, kNameBytes> bytes{};

    /// Nothing: the address is too long.
    static std::optional<Name> of(std::span<const std::byte> address);
    /// `text` as str() gives it.
    static std::optional<Name> parse(std::string_view text);

    /// The address of the messaging layer; empty: these bytes are no name.
    std::span<const std::byte> address() const;
    /// The identifier of its worker; nothing: these bytes are no name.
    std::optional<std::uint64_t> worker_id() const;
    /// "tagwire://" and the address in hexadecimal digits.
    std::string str() const;
};
static_assert(sizeof(Name) == kNameBytes);

}  // namespace tagwire::fi
