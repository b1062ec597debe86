// SPDX-License-Identifier: BSD-3-Clause
// `tagwire vhca run`: starts a program whose libibverbs and libmlx5 are those of the virtual HCA.
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "tools/failure.hpp"
#include "tools/vhca.hpp"

namespace tagwire::tools {
namespace {

std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
    if (bytes <= 0 || bytes == sizeof path) {
        throw Failure("cannot tell where this program is: /proc/self/exe is not readable");
    }
    const std::string_view whole(path, static_cast<std::size_t>(bytes));
    return std::string(whole.substr(0, whole.rfind('/')));
}

// The environment of the program, made from ours.
class Environment {
  public:
    Environment() {
        for (char** entry = environ; *entry != nullptr; ++entry) {
            entries_.emplace_back(*entry);
        }
    }

    void set(const std::string& name, const std::string& value) {
        std::string entry = name + "=" + value;
        if (std::string* old = find(name)) {
            *old = std::move(entry);
        } else {
            entries_.push_back(std::move(entry));
        }
    }

    /// In front of what the colon-separated list holds already.
    void prepend(const std::string& name, const std::string& value) {
        const std::string* old = find(name);
        const bool is_empty = old == nullptr || old->size() == name.size() + 1;
        set(name, is_empty ? value : value + ":" + old->substr(name.size() + 1));
    }

    /// Good until the next change.
    std::vector<char*> pointers() {
        std::vector<char*> pointers;
        for (std::string& entry : entries_) {
            pointers.push_back(entry.data());
        }
        pointers.push_back(nullptr);
        return pointers;
    }

  private:
    std::string* find(const std::string& name) {
        for (std::string& entry : entries_) {
            if (entry.starts_with(name + "=")) {
                return &entry;
            }
        }
        return nullptr;
    }

    std::vector<std::string> entries_;
};

}  // namespace

VhcaLibraries find_vhca_libraries() {
    const std::string here = own_folder();
    for (const char* folder : {"/../lib/vhca", "/" TAGWIRE_TOOLS_BIN_TO_LIB "/tagwire-vhca"}) {
        char real[PATH_MAX];
        if (realpath((here + folder).c_str(), real) == nullptr) {
            continue;
        }
        VhcaLibraries libraries;
        libraries.folder = real;
        libraries.shim = libraries.folder + "/libtagwire-vhca-dev.so";
        libraries.device =
            libraries.folder.substr(0, libraries.folder.rfind('/')) + "/libtagwire-vhca.so";
        if (access(libraries.device.c_str(), R_OK) == 0 &&
            access((libraries.folder + "/libibverbs.so.1").c_str(), R_OK) == 0) {
            return libraries;
        }
    }
    throw Failure(
        "the virtual HCA's libraries are not there: looked for ../lib/vhca "
        "and " TAGWIRE_TOOLS_BIN_TO_LIB "/tagwire-vhca from " +
        here + "; is the package tagwire-vhca installed, or was this built without it?");
}

int run_vhca_program(const VhcaRunArguments& arguments) {
    const VhcaLibraries libraries = find_vhca_libraries();
    if (libraries.folder.find_first_of(": ;") != std::string::npos) {
        throw Failure("the dynamic linker takes no folder with a blank or colon in its name: " +
                      libraries.folder);
    }
    Environment environment;
    environment.prepend("LD_LIBRARY_PATH", libraries.folder);
    environment.prepend("LD_PRELOAD", libraries.shim);
    for (const auto& [name, value] : arguments.settings) {
        environment.set("TAGWIRE_VHCA_" + name, value);
    }
    std::vector<std::string> words = arguments.command;
    std::vector<char*> argv;
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const std::vector<char*> envp = environment.pointers();
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    std::fprintf(stderr, "%s: cannot start %s: %s\n", program_invocation_short_name, argv[0],
                 std::strerror(error));
    return error == ENOENT ? 127 : 126;
}

}  // namespace tagwire::tools
