// SPDX-License-Identifier: BSD-3-Clause
// An environment of a test's own: no TAGWIRE_ variable, and a home directory that holds nothing but
// what the test writes. Everything is put back at the end.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "ucs/config/environment.hpp"

namespace tagwire::test {

class EnvironmentGuard {
  public:
    EnvironmentGuard() {
        std::string path =
            (std::filesystem::temp_directory_path() / "tagwire-test-XXXXXX").string();
        home_ = mkdtemp(path.data());
        for (const auto& [name, value] : ucs::environment_list("TAGWIRE_"))
            unset(name);
        unset("XDG_CONFIG_HOME");
        set("HOME", home_.string());
    }

    ~EnvironmentGuard() {
        for (const auto& [name, value] : before_)
            if (value)
                setenv(name.c_str(), value->c_str(), 1);
            else
                unsetenv(name.c_str());
        std::filesystem::remove_all(home_);
    }

    EnvironmentGuard(const EnvironmentGuard&) = delete;
    EnvironmentGuard& operator=(const EnvironmentGuard&) = delete;

    void set(const std::string& name, const std::string& value) {
        remember(name);
        setenv(name.c_str(), value.c_str(), 1);
    }

    void unset(const std::string& name) {
        remember(name);
        unsetenv(name.c_str());
    }

    /// Writes a file below the home directory and returns its path.
    std::string write(const std::string& relative, const std::string& text) {
        const std::filesystem::path path = home_ / relative;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
        return path.string();
    }

    std::string path(const std::string& relative) const { return (home_ / relative).string(); }

  private:
    void remember(const std::string& name) {
        const char* value = ucs::environment_get(name.c_str());
        before_.emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
    }

    std::filesystem::path home_;
    std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace tagwire::test
