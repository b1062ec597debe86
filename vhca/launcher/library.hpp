// SPDX-License-Identifier: BSD-3-Clause
// libtagwire-vhca.so, loaded for a question. Its functions are those of vhca/face/api.hpp.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "cli/failure.hpp"

namespace tagwire::tools {

class VhcaLibrary {
  public:
    /// Throws Failure.
    explicit VhcaLibrary(const std::string& path)
        : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        if (handle_ == nullptr)
            throw Failure(dlerror());
    }

    /// Throws Failure when it has no such function.
    template <typename Function>
    [[nodiscard]] Function find(const char* name) const {
        void* const symbol = dlsym(handle_.get(), name);
        if (symbol == nullptr)
            throw Failure(path_ + " is of another version: it has no " + name);
        return reinterpret_cast<Function>(symbol);
    }

  private:
    struct Closer {
        void operator()(void* library) const { dlclose(library); }
    };

    std::string path_;
    std::unique_ptr<void, Closer> handle_;
};

}  // namespace tagwire::tools
