// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info.hpp"

#include <cstdio>

#include "tools/report.hpp"

namespace tagwire::tools {
namespace {

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
    for (const InfoNode& child : node.children) {
        print_node(child, depth + 1);
    }
}

}  // namespace

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

void print_config(const InfoNode& config) {
    std::string table;
    for (const InfoNode& option : config.children) {
        const auto field = [&option](const char* name) {
            for (const InfoNode& fact : option.children) {
                if (fact.name == name) {
                    return value_text(fact.value);
                }
            }
            return std::string();
        };
        if (field("table") != table) {
            table = field("table");
            std::printf("# %s\n", table.c_str());
        }
        const std::string unit = field("unit");
        std::printf("%s=%s\n    %s\n    %s%s%s; default %s; from %s\n", field("name").c_str(),
                    field("value").c_str(), field("doc").c_str(), field("accepted").c_str(),
                    unit.empty() ? "" : ", in ", unit.c_str(), field("default").c_str(),
                    field("source").c_str());
        if (const std::string problem = field("problem"); !problem.empty()) {
            std::printf("    refused: %s\n", problem.c_str());
        }
    }
}

void run_info(const InfoArguments& arguments) {
    std::vector<InfoNode> nodes;
    if (arguments.what.empty() || arguments.what == "build") {
        nodes.push_back(gather_build());
    }
    if (arguments.what.empty() || arguments.what == "devices") {
        nodes.push_back(gather_devices());
    }
    if (arguments.what.empty() || arguments.what == "config") {
        nodes.push_back(gather_config());
    }
    if (!arguments.json.empty()) {
        write_info_json(arguments.json, nodes);
    }
    for (const InfoNode& node : nodes) {
        if (arguments.json == "-") {
            break;
        }
        node.name == "config" ? print_config(node) : print_tree(node);
    }
}

}  // namespace tagwire::tools
