// SPDX-License-Identifier: BSD-3-Clause
//
// Errors and owners of the C++ wrapper. Included by tagwire.hpp.
#ifndef TAGWIRE_UCT_API_CXX_BASE_HPP
#define TAGWIRE_UCT_API_CXX_BASE_HPP

#include <uct/api/tagwire_uct.h>

#include <cstddef>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace tagwire {
inline namespace v1 {

class Error : public std::runtime_error {
  public:
    Error(const std::string& what, ucs_status_t status)
        : std::runtime_error(what + ": " + ucs_status_string(status)), status_(status) {}

    [[nodiscard]] ucs_status_t status() const { return status_; }

  private:
    ucs_status_t status_;
};

/// Throws unless the status is UCS_OK.
inline void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw Error(what, status);
}

namespace detail {

/// Owner of a C handle: closes it once.
template <class Handle, auto kClose>
class Owner {
  public:
    explicit Owner(Handle handle = nullptr) : handle_(handle) {}
    ~Owner() { reset(); }
    Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Owner& operator=(Owner&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }

    [[nodiscard]] Handle get() const { return handle_; }
    void reset() {
        if (handle_ != nullptr)
            kClose(std::exchange(handle_, nullptr));
    }

  private:
    Handle handle_;
};

inline std::span<std::byte> bytes_of(void* data, std::size_t length) {
    return {static_cast<std::byte*>(data), length};
}

}  // namespace detail

/// Names and values for options, as in "SM_RING_SLOTS" = "64".
using Options = std::map<std::string, std::string>;

/// An unregistered buffer as an element of a gather or scatter list.
inline uct_iov_t iov(std::span<const std::byte> buffer, uct_mem_h memh = UCT_MEM_HANDLE_NULL) {
    return {const_cast<std::byte*>(buffer.data()), buffer.size(), memh, 0, 1};
}

}  // namespace v1
}  // namespace tagwire

#endif
