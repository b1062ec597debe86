// SPDX-License-Identifier: BSD-3-Clause
// `tagwire-vhca run`: starts a program whose libibverbs and libmlx5 are those of the virtual HCA,
// or the system's above the virtual HCA.
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/failure.hpp"
#include "vhca/launcher/launcher.hpp"
#include "vhca/launcher/library.hpp"
#include "vhca/launcher/program_file.hpp"

namespace tagwire::tools {
namespace {

std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
    if (bytes <= 0 || bytes == sizeof path)
        throw Failure("cannot tell where this program is: /proc/self/exe is not readable");
    const std::string_view whole(path, static_cast<std::size_t>(bytes));
    return std::string(whole.substr(0, whole.rfind('/')));
}

// The environment of the program, made from this process's.
class Environment {
  public:
    Environment() {
        for (char** entry = environ; *entry != nullptr; ++entry)
            entries_.emplace_back(*entry);
    }

    void set(const std::string& name, const std::string& value) {
        std::string entry = name + "=" + value;
        if (std::string* old = find(name))
            *old = std::move(entry);
        else
            entries_.push_back(std::move(entry));
    }

    /// In front of what the colon-separated list holds already.
    void prepend(const std::string& name, const std::string& value) {
        const std::string* old = find(name);
        const bool is_empty = old == nullptr || old->size() == name.size() + 1;
        set(name, is_empty ? value : value + ":" + old->substr(name.size() + 1));
    }

    /// Empty: it is not set, or so.
    [[nodiscard]] std::string get(const std::string& name) const {
        for (const std::string& entry : entries_)
            if (entry.starts_with(name + "="))
                return entry.substr(name.size() + 1);
        return {};
    }

    /// Good until the next change.
    std::vector<char*> pointers() {
        std::vector<char*> pointers;
        for (std::string& entry : entries_)
            pointers.push_back(entry.data());
        pointers.push_back(nullptr);
        return pointers;
    }

  private:
    std::string* find(const std::string& name) {
        for (std::string& entry : entries_)
            if (entry.starts_with(name + "="))
                return &entry;
        return nullptr;
    }

    std::vector<std::string> entries_;
};

}  // namespace

VhcaLibraries find_vhca_libraries() {
    const std::string here = own_folder();
    for (const char* folder : {"/../lib/vhca", "/" TAGWIRE_VHCA_BIN_TO_LIB "/tagwire-vhca"}) {
        char real[PATH_MAX];
        if (realpath((here + folder).c_str(), real) == nullptr)
            continue;
        VhcaLibraries libraries;
        libraries.folder = real;
        libraries.shim = libraries.folder + "/libtagwire-vhca-dev.so";
        libraries.kernel = libraries.folder + "/libtagwire-vhca-kernel.so";
        libraries.device =
            libraries.folder.substr(0, libraries.folder.rfind('/')) + "/libtagwire-vhca.so";
        if (access(libraries.device.c_str(), R_OK) == 0 &&
            access((libraries.folder + "/libibverbs.so.1").c_str(), R_OK) == 0) {
            return libraries;
        }
    }
    throw Failure(
        "the virtual HCA's libraries are not there: looked for ../lib/vhca "
        "and " TAGWIRE_VHCA_BIN_TO_LIB "/tagwire-vhca from " +
        here + "; is the package tagwire-vhca installed, or was this built without it?");
}

namespace {

// Ours take the place of the system's libraries.
void set_tagwire(const VhcaLibraries& libraries, Environment* environment) {
    environment->prepend("LD_LIBRARY_PATH", libraries.folder);
    environment->prepend("LD_PRELOAD", libraries.shim);
}

// The system's libraries stay; the shim serves as the kernel that they find.
void set_mlx5(const VhcaLibraries& libraries, const VhcaRunArguments& arguments,
              Environment* environment) {
    if (access(libraries.kernel.c_str(), R_OK) != 0)
        throw Failure("the driver face is not there: no " + libraries.kernel);
    const std::optional<std::string> program =
        find_program(arguments.command.front(), environment->get("PATH"));
    const std::string problem = program ? why_not_preloaded(*program) : std::string();
    if (!problem.empty()) {
        throw Failure(problem +
                      ": the emulated kernel of --driver mlx5, a preloaded library, "
                      "cannot get into it");
    }
    environment->prepend("LD_PRELOAD", libraries.kernel);
}

/// Throws UsageError, and the log said why: a program that was started would fail where it opens
/// the device.
void check_options(const VhcaLibraries& libraries, const VhcaRunArguments& arguments) {
    for (const auto& [name, value] : arguments.settings)
        if (::setenv(("TAGWIRE_VHCA_" + name).c_str(), value.c_str(), 1) != 0)
            throw Failure("no memory for the environment");
    using Check = int (*)();
    if (VhcaLibrary(libraries.device).find<Check>("tagwire_vhca_check_options")() != 0)
        throw UsageError("there is no such device; the program was not started");
}

// The profile that the options or else the environment name.
void check_profile(const Environment& environment) {
    const std::string profile = environment.get("TAGWIRE_VHCA_PROFILE");
    if (profile == "soft-roce")
        throw Failure(
            "--driver mlx5 shows a card that libmlx5 drives; --profile soft-roce is none");
}

}  // namespace

int run_vhca_program(const VhcaRunArguments& arguments) {
    const VhcaLibraries libraries = find_vhca_libraries();
    if (libraries.folder.find_first_of(": ;") != std::string::npos) {
        throw Failure("the dynamic linker takes no folder with a blank or colon in its name: " +
                      libraries.folder);
    }
    check_options(libraries, arguments);
    Environment environment;
    const bool is_mlx5 = arguments.driver == VhcaRunArguments::Driver::kMlx5;
    if (is_mlx5)
        set_mlx5(libraries, arguments, &environment);
    else
        set_tagwire(libraries, &environment);
    for (const auto& [name, value] : arguments.settings) {
        const bool is_file = name == "TRACE" && !value.empty();  // the program may go elsewhere
        environment.set("TAGWIRE_VHCA_" + name,
                        is_file ? std::filesystem::absolute(value).string() : value);
    }
    if (is_mlx5)
        check_profile(environment);
    std::vector<std::string> words = arguments.command;
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::vector<char*> envp = environment.pointers();
    execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    std::fprintf(stderr, "%s: cannot start %s: %s\n", program_name().c_str(), argv[0],
                 std::strerror(error));
    return error == ENOENT ? 127 : 126;
}

}  // namespace tagwire::tools
