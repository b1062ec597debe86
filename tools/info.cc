// SPDX-License-Identifier: BSD-3-Clause
#include "tools/info.hpp"

#include <cstdio>

namespace tagwire::tools {

void print_config(const InfoNode& config) {
    std::string table;
    for (const InfoNode& option : config.children) {
        const auto field = [&option](const char* name) {
            for (const InfoNode& fact : option.children)
                if (fact.name == name)
                    return value_text(fact.value);
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
        if (const std::string problem = field("problem"); !problem.empty())
            std::printf("    refused: %s\n", problem.c_str());
    }
}

void run_info(const InfoArguments& arguments) {
    std::vector<InfoNode> nodes;
    if (arguments.what.empty() || arguments.what == "build")
        nodes.push_back(gather_build());
    if (arguments.what.empty() || arguments.what == "devices")
        nodes.push_back(gather_devices());
    if (arguments.what.empty() || arguments.what == "config")
        nodes.push_back(gather_config());
    if (arguments.what.empty() || arguments.what == "progress")
        nodes.push_back(gather_progress());
    if (!arguments.json.empty())
        write_info_json(arguments.json, nodes);
    if (arguments.what.empty() && arguments.json != "-") {
        print_summary({nodes[0], nodes[1], nodes[2], nodes[3]});
        std::printf("\n");
    }
    for (const InfoNode& node : nodes) {
        if (arguments.json == "-")
            break;
        node.name == "config" ? print_config(node) : print_tree(node);
    }
}

}  // namespace tagwire::tools
