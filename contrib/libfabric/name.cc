// SPDX-License-Identifier: BSD-3-Clause
#include "name.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace tagwire::fi {

namespace {

constexpr std::string_view kScheme = "tagwire://";

}  // namespace

std::optional<Name> Name::of(std::span<const std::byte> address) {
    if (address.empty() || address.size() >= kNameBytes)
        return std::nullopt;
    Name name;
    std::ranges::copy(address, name.bytes.begin());
    name.bytes.back() = static_cast<std::byte>(address.size());
    return name;
}

std::optional<Name> Name::parse(std::string_view text) {
    if (!text.starts_with(kScheme))
        return std::nullopt;
    text.remove_prefix(kScheme.size());
    if (text.size() % 2 != 0 || text.size() / 2 >= kNameBytes)
        return std::nullopt;
    std::array<std::byte, kNameBytes> address{};
    for (std::size_t i = 0; i < text.size() / 2; ++i) {
        unsigned value = 0;
        const char* digits = text.data() + 2 * i;
        if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2)
            return std::nullopt;
        address[i] = static_cast<std::byte>(value);
    }
    const auto name = of(std::span(address).first(text.size() / 2));
    return name && name->worker_id() ? name : std::nullopt;
}

std::span<const std::byte> Name::address() const {
    const auto length = std::to_integer<std::size_t>(bytes.back());
    return length < kNameBytes ? std::span(bytes).first(length) : std::span<const std::byte>();
}

std::optional<std::uint64_t> Name::worker_id() const {
    const auto inside = address();
    std::uint64_t id = 0;
    if (inside.empty() || tw_address_worker_id(inside.data(), inside.size(), &id) != TW_OK)
        return std::nullopt;
    return id;
}

std::string Name::str() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text(kScheme);
    for (const std::byte byte : address()) {
        const auto value = std::to_integer<unsigned>(byte);
        text += kDigits[value >> 4];
        text += kDigits[value & 15];
    }
    return text;
}

}  // namespace tagwire::fi
