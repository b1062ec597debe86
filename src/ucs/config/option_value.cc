// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/option_value.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>

namespace tagwire::ucs {
namespace {

constexpr std::string_view kInfinite = "inf";

struct Unit {
    std::string_view suffix;
    std::uint64_t factor;
};

// Largest first: printing takes the first that divides the value.
constexpr Unit kByteUnits[] = {
    {"t", 1ULL << 40}, {"g", 1ULL << 30}, {"m", 1ULL << 20}, {"k", 1ULL << 10}, {"", 1}};
constexpr Unit kTimeUnits[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};
constexpr Unit kCountUnits[] = {{"", 1}};

std::span<const Unit> units_of(OptionType type) {
    switch (type) {
        case OptionType::kBytes:
            return kByteUnits;
        case OptionType::kTimeNs:
            return kTimeUnits;
        default:
            return kCountUnits;
    }
}

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        c = lower(c);
    return result;
}

template <class T>
T& field(const Option& option, void* values) {
    return *reinterpret_cast<T*>(static_cast<std::byte*>(values) + option.offset);
}

template <class T>
const T& field(const Option& option, const void* values) {
    return *reinterpret_cast<const T*>(static_cast<const std::byte*>(values) + option.offset);
}

std::optional<bool> parse_bool(std::string_view text) {
    for (const std::string_view word : {"y", "yes", "on", "true", "1"})
        if (text == word)
            return true;
    for (const std::string_view word : {"n", "no", "off", "false", "0"})
        if (text == word)
            return false;
    return std::nullopt;
}

std::optional<double> parse_double(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

// "B" may follow a size: 8kb, 8kib are what people write too.
std::string_view without_byte_letters(std::string_view suffix) {
    for (const std::string_view tail : {"ib", "b"})
        if (suffix.ends_with(tail))
            return suffix.substr(0, suffix.size() - tail.size());
    return suffix;
}

// A whole number, or with a unit above 1 also a fraction ("1.5ms") that is whole in the smallest
// unit.
std::optional<std::uint64_t> parse_scaled(std::string_view text, OptionType type) {
    if (text == kInfinite)
        return UINT64_MAX;
    const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    std::string_view number = text.substr(0, digits);
    std::string_view suffix = text.substr(digits);
    if (type == OptionType::kBytes)
        suffix = without_byte_letters(suffix);
    std::uint64_t factor = 0;
    for (const Unit& unit : units_of(type))
        if (unit.suffix == suffix)
            factor = unit.factor;
    if (factor == 0 && number == "0" && suffix.empty())
        return 0;  // a time of 0 needs no unit
    std::uint64_t whole = 0;
    const char* const number_end = number.data() + number.size();
    const auto [end, error] = std::from_chars(number.data(), number_end, whole);
    if (factor == 0 || error != std::errc{} || whole > UINT64_MAX / factor)
        return std::nullopt;
    if (end == number_end)
        return whole * factor;
    const std::optional<double> fraction = parse_double(number);
    if (!fraction)
        return std::nullopt;
    const double scaled = *fraction * static_cast<double>(factor);
    constexpr double kExactMax = 1e15;
    if (scaled != std::floor(scaled) || scaled > kExactMax)
        return std::nullopt;
    return static_cast<std::uint64_t>(scaled);
}

bool in_range(const Option& option, std::uint64_t value) {
    if (value == 0 && (option.flags & kOptionOrZero) != 0)
        return true;
    const bool shape_ok = (option.flags & kOptionPowerOfTwo) == 0 || std::has_single_bit(value);
    return value >= option.min && value <= option.max && shape_ok;
}

bool parse_number(const Option& option, std::string_view text, void* values) {
    const std::optional<std::uint64_t> value = parse_scaled(text, option.type);
    if (!value || !in_range(option, *value))
        return false;
    field<std::uint64_t>(option, values) = *value;
    return true;
}

bool parse_choice(const Option& option, std::string_view text, void* values) {
    for (int i = 0; option.choices[i] != nullptr; ++i) {
        if (text == lower(option.choices[i])) {
            field<int>(option, values) = i;
            return true;
        }
    }
    return false;
}

bool parse_text(const Option& option, std::string_view text, void* values) {
    OptionString& target = field<OptionString>(option, values);
    if (text.size() >= sizeof(target.text) || text.find('\0') != std::string_view::npos)
        return false;
    text.copy(target.text, text.size());
    target.text[text.size()] = '\0';
    return true;
}

std::string format_number(OptionType type, std::uint64_t value) {
    if (value == UINT64_MAX)
        return std::string(kInfinite);
    for (const Unit& unit : units_of(type))
        if (value % unit.factor == 0 && (value != 0 || unit.factor == 1))
            return std::to_string(value / unit.factor).append(unit.suffix);
    return std::to_string(value);
}

std::string format_double(double value) {
    char text[32];
    const auto [end, error] = std::to_chars(text, std::end(text), value);
    return error == std::errc{} ? std::string(text, end) : std::string();
}

std::string range_text(const Option& option) {
    const OptionType type = option.type == OptionType::kDouble ? OptionType::kCount : option.type;
    if (option.max == UINT64_MAX) {
        const bool may_be_infinite =
            option.type != OptionType::kDouble && (option.flags & kOptionPowerOfTwo) == 0;
        return (option.min == 0 ? "" : ", at least " + format_number(type, option.min)) +
               (may_be_infinite ? ", or inf" : "");
    }
    return " from " + format_number(type, option.min) + " to " + format_number(type, option.max) +
           ((option.flags & kOptionOrZero) != 0 ? ", or 0" : "");
}

}  // namespace

bool option_parse(const Option& option, std::string_view text, void* values) {
    const std::string word = lower(text);
    switch (option.type) {
        case OptionType::kBool:
            if (const std::optional<bool> value = parse_bool(word)) {
                field<bool>(option, values) = *value;
                return true;
            }
            return false;
        case OptionType::kCount:
        case OptionType::kBytes:
        case OptionType::kTimeNs:
            return parse_number(option, word, values);
        case OptionType::kDouble: {
            const std::optional<double> value = parse_double(word);
            if (!value || *value < static_cast<double>(option.min) ||
                *value > static_cast<double>(option.max)) {
                return false;
            }
            field<double>(option, values) = *value;
            return true;
        }
        case OptionType::kEnum:
            return parse_choice(option, word, values);
        case OptionType::kString:
            return parse_text(option, text, values);
    }
    return false;
}

std::string option_format(const Option& option, const void* values) {
    switch (option.type) {
        case OptionType::kBool:
            return field<bool>(option, values) ? "yes" : "no";
        case OptionType::kCount:
        case OptionType::kBytes:
        case OptionType::kTimeNs:
            return format_number(option.type, field<std::uint64_t>(option, values));
        case OptionType::kDouble:
            return format_double(field<double>(option, values));
        case OptionType::kEnum:
            return option.choices[field<int>(option, values)];
        case OptionType::kString:
            return field<OptionString>(option, values).text;
    }
    return {};
}

const char* option_type_name(OptionType type) {
    switch (type) {
        case OptionType::kBool:
            return "yes/no";
        case OptionType::kCount:
            return "count";
        case OptionType::kBytes:
            return "size";
        case OptionType::kTimeNs:
            return "time";
        case OptionType::kDouble:
            return "number";
        case OptionType::kEnum:
            return "choice";
        case OptionType::kString:
            return "text";
    }
    return "";
}

std::string option_accepted(const Option& option) {
    const bool power_of_two = (option.flags & kOptionPowerOfTwo) != 0;
    switch (option.type) {
        case OptionType::kBool:
            return "y, yes, on, true, 1 or n, no, off, false, 0";
        case OptionType::kCount:
            return (power_of_two ? "a power of two" : "a whole number") + range_text(option);
        case OptionType::kBytes:
            return std::string(power_of_two ? "a power of two" : "a size") +
                   " in bytes or with k, m, g" + range_text(option);
        case OptionType::kTimeNs:
            return "a time with unit ns, us, ms or s" + range_text(option);
        case OptionType::kDouble:
            return "a number" + range_text(option);
        case OptionType::kEnum: {
            std::string list = "one of: ";
            for (int i = 0; option.choices[i] != nullptr; ++i)
                list.append(i == 0 ? "" : ", ").append(option.choices[i]);
            return list;
        }
        case OptionType::kString:
            return "text of at most " + std::to_string(kOptionTextBytesMax) + " bytes";
    }
    return {};
}

std::size_t option_field_bytes(OptionType type) {
    switch (type) {
        case OptionType::kBool:
            return sizeof(bool);
        case OptionType::kCount:
        case OptionType::kBytes:
        case OptionType::kTimeNs:
            return sizeof(std::uint64_t);
        case OptionType::kDouble:
            return sizeof(double);
        case OptionType::kEnum:
            return sizeof(int);
        case OptionType::kString:
            return sizeof(OptionString);
    }
    return 0;
}

}  // namespace tagwire::ucs
