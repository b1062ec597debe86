// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include "cli/info_tree.hpp"
#include "cli/json_file.hpp"
#include "tagwire_version.h"

namespace tagwire::tools {
namespace {

using nlohmann::ordered_json;

ordered_json value_json(const InfoNode::Value& value) {
    struct Visitor {
        ordered_json operator()(std::monostate) const { return nullptr; }
        ordered_json operator()(bool flag) const { return flag; }
        ordered_json operator()(std::uint64_t number) const { return number; }
        ordered_json operator()(double number) const { return number; }
        ordered_json operator()(const std::string& string) const { return string; }
    };
    return std::visit(Visitor(), value);
}

ordered_json node_json(const InfoNode& node) {
    if (node.list) {
        ordered_json array = ordered_json::array();
        for (const InfoNode& child : node.children)
            array.push_back(node_json(child));
        return array;
    }
    if (node.children.empty())
        return value_json(node.value);
    ordered_json object = ordered_json::object();
    if (!std::holds_alternative<std::monostate>(node.value))
        object["name"] = value_json(node.value);
    for (const InfoNode& child : node.children)
        object[child.name] = node_json(child);
    return object;
}

}  // namespace

void write_info_json(const std::string& file, const std::vector<InfoNode>& nodes) {
    ordered_json document{{"schema", 1}, {"tagwire", TAGWIRE_VERSION_STRING}};
    for (const InfoNode& node : nodes)
        document[node.name] = node_json(node);
    write_text_file(file, document.dump(2) + "\n");
}

}  // namespace tagwire::tools
