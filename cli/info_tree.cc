// SPDX-License-Identifier: BSD-3-Clause
#include "cli/info_tree.hpp"

#include <cstdio>

namespace tagwire::tools {
namespace {

void print_node(const InfoNode& node, int depth) {
    constexpr int kIndent = 2;
    constexpr int kNameColumns = 22;
    if (node.children.empty()) {
        std::printf("%*s%-*s %s\n", depth * kIndent, "", kNameColumns, node.name.c_str(),
                    node.list ? "none" : value_text(node.value).c_str());
        return;
    }
    const std::string value = value_text(node.value);
    std::printf("%*s%s%s%s\n", depth * kIndent, "", node.name.c_str(), value.empty() ? "" : " ",
                value.c_str());
    for (const InfoNode& child : node.children)
        print_node(child, depth + 1);
}

}  // namespace

std::string value_text(const InfoNode::Value& value) {
    struct Visitor {
        std::string operator()(std::monostate) const { return ""; }
        std::string operator()(bool flag) const { return flag ? "yes" : "no"; }
        std::string operator()(std::uint64_t number) const { return std::to_string(number); }
        std::string operator()(double number) const {
            char buffer[32];
            std::snprintf(buffer, sizeof(buffer), "%.4g", number);
            return buffer;
        }
        std::string operator()(const std::string& string) const { return string; }
    };
    return std::visit(Visitor(), value);
}

InfoNode& InfoNode::add(std::string child, Value child_value) {
    children.push_back({std::move(child), std::move(child_value), {}, false});
    return children.back();
}

InfoNode& InfoNode::add_list(std::string child) {
    InfoNode& node = add(std::move(child));
    node.list = true;
    return node;
}

void print_tree(const InfoNode& node) {
    print_node(node, 0);
}

}  // namespace tagwire::tools
