// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/files/path.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstring>

namespace tagwire::vhca::files {

bool Lexical::set(int dir_fd, const char* path) {
    if (path[0] != '/' && !add_folder(dir_fd))
        return false;
    return add(path);
}

bool Lexical::add_folder(int dir_fd) {
    std::array<char, PATH_MAX> folder{};
    long bytes = 0;
    if (dir_fd == AT_FDCWD) {
        bytes = ::syscall(SYS_getcwd, folder.data(), folder.size());
    } else {
        std::array<char, 32> link{};
        std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", dir_fd);
        bytes = ::syscall(SYS_readlinkat, AT_FDCWD, link.data(), folder.data(), folder.size() - 1);
    }
    return bytes > 0 && folder[0] == '/' && add(folder.data());
}

// Behind these the kernel would look in a folder where there is nothing of ours, and find all else.
bool Lexical::leave_folder() {
    for (const std::string_view folder : {"/dev/infiniband", "/sys/class/infiniband",
                                          "/sys/class/infiniband_verbs", "/sys/class", "/sys"}) {
        if (view() == folder) {
            bytes_ = folder.rfind('/');
            has_left_ = true;
            return true;
        }
    }
    return false;
}

bool Lexical::add(std::string_view path) {
    while (!path.empty()) {
        const std::size_t end = path.find('/');
        const std::string_view part = path.substr(0, end);
        path = end == std::string_view::npos ? std::string_view() : path.substr(end + 1);
        if (part.empty() || part == "." || (part == ".." && leave_folder()))
            continue;
        if (bytes_ + 1 + part.size() >= text_.size())
            return false;
        text_[bytes_++] = '/';
        std::memcpy(text_.data() + bytes_, part.data(), part.size());
        bytes_ += part.size();
    }
    return true;
}

std::optional<unsigned> number_of(std::string_view text) {
    unsigned number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
        (text.size() > 1 && text.front() == '0')) {
        return std::nullopt;
    }
    return number;
}

}  // namespace tagwire::vhca::files
