// SPDX-License-Identifier: BSD-3-Clause
// `tagwire info config`, `tagwire info progress` and `tagwire info build`.
#include <dlfcn.h>
#include <tagwire.h>
#include <uct/api/tagwire_uct.h>
#include <uct/api/version.h>
#include <tagwire.hpp>

#include <cstdio>

#include "cli/failure.hpp"
#include "tools/describe.hpp"
#include "tools/info.hpp"

namespace tagwire::tools {
namespace {

void add_option(void* arg, const tagwire_config_entry_t* entry) {
    InfoNode& option = static_cast<InfoNode*>(arg)->add("option");
    const auto fact = [&option](const char* name, const char* value) {
        option.add(name, std::string(value));
    };
    fact("table", entry->table);
    fact("name", entry->name);
    fact("type", entry->type);
    fact("unit", entry->unit);
    fact("accepted", entry->accepted);
    fact("default", entry->default_value);
    fact("value", entry->value);
    fact("source", entry->source);
    fact("problem", entry->problem);
    fact("doc", entry->doc);
}

void warn(void*, const char* sentence) {
    std::fprintf(stderr, "tagwire: warning: %s\n", sentence);
}

/// The file of the library that this process has loaded.
std::string library_file() {
    Dl_info library{};
    if (dladdr(reinterpret_cast<const void*>(&tw_context_create), &library) == 0)
        return "unknown";
    return library.dli_fname;
}

}  // namespace

InfoNode gather_config() {
    InfoNode config{"config", {}, {}, true};
    // The status only says that some option has a problem, which is shown beside it.
    tagwire_config_list(&add_option, &config);
    tagwire_config_warnings(&warn, nullptr);
    return config;
}

InfoNode gather_progress() {
    InfoNode progress{"progress", {}, {}, false};
    const Worker worker;
    for (const auto& [key, value] : describe(worker.get()))
        progress.add(key, value);
    return progress;
}

InfoNode gather_build() {
    InfoNode build{"build", {}, {}, false};
    build.add("version", std::string(tagwire_version_string()));
    build.add("compiler", std::string(TAGWIRE_TOOLS_COMPILER));
    build.add("flags", std::string(TAGWIRE_TOOLS_FLAGS));
    build.add("build_type", std::string(TAGWIRE_TOOLS_BUILD_TYPE));
    build.add("sanitizers", std::string(TAGWIRE_TOOLS_SANITIZERS));
    build.add("uct_api", text("UCX %u.%u", unsigned{UCT_VERNO_MAJOR}, unsigned{UCT_VERNO_MINOR}));
    build.add("library", library_file());
    InfoNode& libraries = build.add("libraries");
    libraries.add("fmt", std::string(TAGWIRE_TOOLS_FMT_VERSION));
    libraries.add("spdlog", std::string(TAGWIRE_TOOLS_SPDLOG_VERSION));
    libraries.add("hwloc", std::string(TAGWIRE_TOOLS_HWLOC_VERSION));
    return build;
}

}  // namespace tagwire::tools
