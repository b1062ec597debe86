// SPDX-License-Identifier: BSD-3-Clause
// Errors of the command: one of two exceptions, caught in main(). The library itself throws
// nothing; these never cross a callback that the library calls.
#pragma once

#include <stdexcept>
#include <string>

namespace tagwire::tools {

/// The machine, the peer or the transport failed: exit status 1.
class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The command line asks for what does not exist or makes no sense: exit status 2.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

}  // namespace tagwire::tools
