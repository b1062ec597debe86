// SPDX-License-Identifier: BSD-3-Clause
// A directory and the small files in it by which processes tell each other something.
//
// 1. A file appears whole: it is written under a name that nobody looks for and then renamed.
// 2. Only regular files of this user are read, and none that is longer than the reader expects.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/result.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::bootstrap {

class Folder {
  public:
    /// UCS_ERR_INVALID_PARAM: no directory there.
    static Result open(const std::string& path, Folder* folder_p);

    /// A directory of this user in this one. False: there is none, or it is somebody else's.
    bool open_below(const std::string& name, Folder* folder_p) const;
    Result make_below(const std::string& name, Folder* folder_p) const;
    void remove_below(const std::string& name) const;

    /// Replaces a file of that name. Each name has one writer.
    Result write(const std::string& name, std::span<const std::byte> bytes) const;
    /// The first of several writers stays; `writer` tells them apart.
    void write_once(const std::string& name, const std::string& writer,
                    std::span<const std::byte> bytes) const;
    std::optional<std::vector<std::byte>> read(const std::string& name,
                                               std::size_t bytes_max) const;
    bool has(const std::string& name) const;
    void remove(const std::string& name) const;

    /// Names, without those of unfinished files.
    std::vector<std::string> list() const;
    /// Removes every file.
    void clear() const;
    /// Somebody removed it.
    bool is_gone() const;

  private:
    int write_hidden(const std::string& hidden, std::span<const std::byte> bytes) const;
    std::vector<std::string> entries() const;

    ucs::UniqueFd fd_;
};

}  // namespace tagwire::bootstrap
