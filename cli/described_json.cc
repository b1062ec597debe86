// SPDX-License-Identifier: BSD-3-Clause
#include "cli/described_json.hpp"

#include <nlohmann/json.hpp>

#include "cli/failure.hpp"

namespace tagwire::tools {
namespace {

nlohmann::ordered_json description_json(const DescribedCommand& command) {
    nlohmann::ordered_json options = nlohmann::ordered_json::array();
    for (const DescribedOption& option : command.options) {
        options.push_back({{"names", option.names},
                           {"type", option.type},
                           {"text", option.text},
                           {"is_positional", option.is_positional}});
    }
    nlohmann::ordered_json commands = nlohmann::ordered_json::array();
    for (const DescribedCommand& sub : command.commands)
        commands.push_back(description_json(sub));
    return {{"name", command.name},
            {"text", command.text},
            {"starts_program", command.starts_program},
            {"options", options},
            {"commands", commands}};
}

DescribedCommand description_from(const nlohmann::json& json) {
    DescribedCommand command;
    command.name = json.at("name").get<std::string>();
    command.text = json.at("text").get<std::string>();
    command.starts_program = json.at("starts_program").get<bool>();
    for (const nlohmann::json& option : json.at("options")) {
        command.options.push_back({option.at("names").get<std::vector<std::string>>(),
                                   option.at("type").get<std::string>(),
                                   option.at("text").get<std::string>(),
                                   option.at("is_positional").get<bool>()});
        if (command.options.back().names.empty())
            throw Failure("an option of '" + command.name + "' has no name");
    }
    for (const nlohmann::json& sub : json.at("commands"))
        command.commands.push_back(description_from(sub));
    return command;
}

}  // namespace

std::string to_json(const DescribedCommand& command) {
    return description_json(command).dump();
}

DescribedCommand described_from_json(const std::string& text) {
    try {
        return description_from(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& error) {
        throw Failure(std::string("no description of a command: ") + error.what());
    }
}

}  // namespace tagwire::tools
