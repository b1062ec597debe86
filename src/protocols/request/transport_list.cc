// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/request/transport_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tagwire::proto {

namespace {

constexpr std::string_view kAuto = "auto";
/// Devices of the virtual HCA reach processes of this host, which shared memory does better.
constexpr std::string_view kVirtual = "vhca";
constexpr std::string_view kBlanks = " \t";
/// Before the name of what is left out.
constexpr char kExcept = '^';

std::string_view trimmed(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// `is_left_out`: without a ^ of its own, too.
TransportName parsed_name(std::string_view part, bool is_left_out) {
    TransportName name{};
    name.is_exception = is_left_out || part.starts_with(kExcept);
    if (part.starts_with(kExcept))
        part = trimmed(part.substr(1));
    name.text = part;
    const std::size_t colon = part.find(':');
    name.transport = part.substr(0, colon);
    std::ranges::transform(name.transport, name.transport.begin(),
                           [](unsigned char each) { return std::tolower(each); });
    if (colon != std::string_view::npos)
        name.device = part.substr(colon + 1);
    return name;
}

/// Empty: nothing.
std::string problem_with_name(const TransportName& name, std::string_view part) {
    if (name.transport.empty() && part.empty())
        return "an empty name; write one comma between two names, and none at the ends";
    if (name.transport.empty())
        return fmt::format("\"{}\" names no transport; expected one such as sm or rc:mlx5_0:1",
                           part);
    if (name.text.ends_with(':'))
        return fmt::format("\"{}\" names no device behind its colon", part);
    if ((name.is_auto() || name.is_all()) && !name.device.empty()) {
        return fmt::format(
            "\"{}\": {} is of no device; name the transport, as in tcp:{}, or leave a device out, "
            "as in {},^tcp:{}",
            part, name.transport, name.device, name.transport, name.device);
    }
    if (name.is_exception && (name.is_auto() || name.is_all())) {
        return fmt::format(
            "\"{}\" leaves out nothing but everything; begin with {}, then leave transports out: "
            "{},^tcp",
            part, name.transport, name.transport);
    }
    return {};
}

}  // namespace

bool is_virtual(std::string_view device) {
    return device.starts_with(kVirtual);
}

bool TransportName::names(const uct_tl_resource_desc_t& desc) const {
    if (is_auto())
        return !is_virtual(desc.dev_name);
    return is_all() || (transport == desc.tl_name && (device.empty() || device == desc.dev_name));
}

bool TransportList::parse(std::string_view text, TransportList* list, std::string* problem) {
    std::vector<TransportName>& names = list->names_;
    names.clear();
    // As UCX reads it: then the list tells what is left out.
    const bool begins_with_except = trimmed(text).starts_with(kExcept);
    for (std::size_t begin = 0; !trimmed(text).empty() && begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view part = trimmed(text.substr(begin, end - begin));
        names.push_back(parsed_name(part, begins_with_except));
        *problem = problem_with_name(names.back(), part);
        if (!problem->empty())
            return false;
        begin = end + 1;
    }
    if (names.empty() || begins_with_except)
        names.insert(names.begin(), parsed_name(kAuto, false));
    return true;
}

bool TransportList::wants(const uct_tl_resource_desc_t& desc) const {
    bool is_named = false;
    for (const TransportName& name : names_) {
        if (name.is_exception && name.names(desc))
            return false;
        is_named |= name.names(desc);
    }
    return is_named;
}

}  // namespace tagwire::proto
