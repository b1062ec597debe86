// SPDX-License-Identifier: BSD-3-Clause
// Paths as programs write them.
#pragma once

#include <climits>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace tagwire::vhca::files {

/// A path in the buffer of its caller: absolute, without repeated slashes and "." components. ".."
/// stays, because it may follow a link, but behind folders of ours that are none.
class Lexical {
  public:
    /// `dir_fd` as of openat(2). False: too long, or nobody knows where it begins.
    bool set(int dir_fd, const char* path);
    /// ".." led out of a folder of ours, which the kernel may not have: view() is to be asked for.
    [[nodiscard]] bool has_left() const { return has_left_; }
    [[nodiscard]] std::string_view view() const { return {text_.data(), bytes_}; }

  private:
    bool add_folder(int dir_fd);
    bool add(std::string_view path);
    [[nodiscard]] bool leave_folder();

    std::array<char, PATH_MAX> text_{};
    std::size_t bytes_ = 0;
    bool has_left_ = false;
};

/// As in the name of a device: no leading zeros.
[[nodiscard]] std::optional<unsigned> number_of(std::string_view text);

inline constexpr std::string_view kRdmaCmPath = "/dev/infiniband/rdma_cm";

}  // namespace tagwire::vhca::files
