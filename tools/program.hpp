// SPDX-License-Identifier: BSD-3-Clause
// Another program that this command runs: its input is given at once, its output is collected. It
// ends with its Program, and with this process. Start it from the main thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace tagwire::tools {

struct ProgramResult {
    int status = -1;  // exit status; 128 + signal when it was killed
    std::string out, error;
};

class Program {
  public:
    /// `command`: the program, found along the path, and its arguments. Throws Failure.
    explicit Program(const std::vector<std::string>& command, std::string input = "");
    /// Kills it if it runs.
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    /// To its end. Throws Failure when that does not come in time; it was killed then.
    ProgramResult wait(int timeout_ms);

    bool is_running();

  private:
    void exchange(int timeout_ms);
    void write_some();
    void end();

    std::string name_;
    std::string input_;
    std::size_t written_ = 0;
    ProgramResult result_;
    pid_t pid_ = -1;
    int in_ = -1, out_ = -1, error_ = -1;
};

/// Runs it to its end.
ProgramResult run_program(const std::vector<std::string>& command, int timeout_ms,
                          std::string input = "");

/// Whether such a program is found along the path.
bool has_program(const std::string& name);

}  // namespace tagwire::tools
