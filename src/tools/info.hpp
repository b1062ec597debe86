// SPDX-License-Identifier: BSD-3-Clause
// `tagwire info`: what the library finds on this machine, its options, and how it was built.
// Everything is gathered first, as a tree of named facts, then printed or written as JSON.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tools/options.hpp"

namespace tagwire::tools {

/// A named value or a named group of nodes.
struct InfoNode {
    using Value = std::variant<std::monostate, bool, std::uint64_t, double, std::string>;

    std::string name;
    Value value;                     // empty for a group
    std::vector<InfoNode> children;  // of a group
    bool list = false;               // children are alike: a JSON array

    InfoNode& add(std::string child, Value child_value = {});
    InfoNode& add_list(std::string child);
};

InfoNode gather_devices();
InfoNode gather_config();
InfoNode gather_build();

void print_tree(const InfoNode& node);
void print_config(const InfoNode& config);
void write_info_json(const std::string& file, const std::vector<InfoNode>& nodes);

/// Throws Failure.
void run_info(const InfoArguments& arguments);

}  // namespace tagwire::tools
