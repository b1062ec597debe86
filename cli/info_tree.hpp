// SPDX-License-Identifier: BSD-3-Clause
// A tree of named facts, which the info subcommands gather, then print or write as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

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

/// As it is printed: yes and no, numbers, the text itself.
std::string value_text(const InfoNode::Value& value);

void print_tree(const InfoNode& node);

/// Throws Failure.
void write_info_json(const std::string& file, const std::vector<InfoNode>& nodes);

}  // namespace tagwire::tools
