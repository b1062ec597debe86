// SPDX-License-Identifier: BSD-3-Clause
// Runs the built commands as a user would.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace tagwire::test {

struct Finished {
    int status;  // exit status; 128 + signal when it was killed
    std::string out;
    std::string error;
};

/// A started command; its output is read when it ended.
class Command {
  public:
    /// `program`: the environment variable that names the binary.
    Command(const char* program, const std::vector<std::string>& arguments);
    ~Command();
    Command(const Command&) = delete;
    Command& operator=(const Command&) = delete;

    /// The next line of its standard output, without the newline.
    std::string read_line();
    Finished wait();
    pid_t pid() const { return pid_; }
    /// Nothing when the command was not started: kill(-1) would signal every process there is.
    void send(int signal) const;
    void kill_now() const { send(SIGKILL); }

  private:
    pid_t pid_ = -1;
    int out_ = -1;
    int error_ = -1;
};

/// A variable of the environment that the started programs see.
class Setting {
  public:
    Setting(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Setting() { unsetenv(name_); }
    Setting(const Setting&) = delete;
    Setting& operator=(const Setting&) = delete;

  private:
    const char* name_;
};

/// Runs `tagwire` with these arguments to its end.
Finished tagwire(const std::vector<std::string>& arguments);

}  // namespace tagwire::test
