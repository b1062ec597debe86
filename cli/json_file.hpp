// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tagwire::tools {

/// Throws Failure when write_text_file() could not write there; for use before a long run.
void check_writable(const std::string& file);

/// Whether both names lead to one file that cannot have the content of two.
bool is_one_file(const std::string& one, const std::string& other);

/// Replaces `file` as a whole ("-": writes to standard output). Throws Failure.
void write_text_file(const std::string& file, const std::string& content);

}  // namespace tagwire::tools
