// SPDX-License-Identifier: BSD-3-Clause
//
// Errors, owners and costs of the messaging layer's C++ wrapper. Included by tagwire_msg.hpp.
#ifndef TAGWIRE_PROTOCOLS_API_CXX_MSG_BASE_HPP
#define TAGWIRE_PROTOCOLS_API_CXX_MSG_BASE_HPP

#include <tagwire.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace tagwire {
inline namespace v1 {
namespace msg {

class Error : public std::runtime_error {
  public:
    Error(const std::string& what, tw_status_t status)
        : std::runtime_error(what + ": " + tw_status_string(status)), status_(status) {}

    [[nodiscard]] tw_status_t status() const { return status_; }

  private:
    tw_status_t status_;
};

/// Throws if the status is an error; TW_INPROGRESS is not.
inline void check(tw_status_t status, const char* what) {
    if (status < TW_OK)
        throw Error(what, status);
}

/// The status of a call, and the call. A program looks at it, throws for an error (or_throw()), or
/// says that it does not care (ignore()). It converts to the status of the C API and compares with
/// those.
class [[nodiscard]] Status {
  public:
    /// `call`: a text that outlives the object; the name of the call.
    constexpr Status(tw_status_t value, const char* call) : value_(value), call_(call) {}

    constexpr operator tw_status_t() const { return value_; }
    [[nodiscard]] constexpr tw_status_t get() const { return value_; }
    /// Less than TW_OK: the call was refused, or the operation has failed. TW_INPROGRESS is none.
    [[nodiscard]] constexpr bool is_error() const { return value_ < TW_OK; }
    [[nodiscard]] constexpr bool is_in_progress() const { return value_ == TW_INPROGRESS; }
    [[nodiscard]] constexpr const char* call() const { return call_; }
    /// Throws Error, with the call and the text of the status, if it is one. TW_ERR_NO_RESOURCE is
    /// an error, too: a program that repeats the call looks for that first.
    constexpr tw_status_t or_throw() const {
        if (is_error())
            throw Error(call_, value_);
        return value_;
    }
    constexpr void ignore() const {}

  private:
    tw_status_t value_;
    const char* call_;
};

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
    [[nodiscard]] Handle release() { return std::exchange(handle_, nullptr); }
    void reset(Handle handle = nullptr) {
        if (handle_ != nullptr)
            kClose(handle_);
        handle_ = handle;
    }

  private:
    Handle handle_;
};

template <class Callable>
void* arg_of(Callable& callable) {
    return const_cast<void*>(static_cast<const void*>(std::addressof(callable)));
}

}  // namespace detail

/// The bytes of an object, as a header or a buffer: `ep.am_send(id, bytes_of(header), data)`.
template <class T>
requires std::is_trivially_copyable_v<T> std::span<const std::byte> bytes_of(const T& object) {
    return std::as_bytes(std::span(&object, 1));
}

/// A buffer as an element of a gather or scatter list.
inline tw_iov_t iov(std::span<const std::byte> buffer) {
    return {const_cast<std::byte*>(buffer.data()), buffer.size()};
}

/// The id of the worker that an address leads to. Throws for bytes that are no address.
inline std::uint64_t worker_id(std::span<const std::byte> address) {
    std::uint64_t id = 0;
    check(tw_address_worker_id(address.data(), address.size(), &id), "tw_address_worker_id");
    return id;
}

/// Where the library looks for measured costs by default. Throws if neither XDG_CONFIG_HOME nor
/// HOME is set.
inline std::string calibration_path() {
    std::size_t length = 0;
    const tw_status_t status = tw_calibration_path(nullptr, &length);
    if (status != TW_ERR_BUFFER_TOO_SMALL)
        check(status, "tw_calibration_path");
    std::string path(length, '\0');
    check(tw_calibration_path(path.data(), &length), "tw_calibration_path");
    path.resize(path.find('\0'));
    return path;
}

/// Stores measured costs; `path` nullptr: where the library looks.
inline void store_calibration(std::span<const tw_cost_sample_t> samples,
                              const char* path = nullptr) {
    check(tw_calibration_store(path, samples.data(), samples.size()), "tw_calibration_store");
}

}  // namespace msg
}  // namespace v1
}  // namespace tagwire

#endif
