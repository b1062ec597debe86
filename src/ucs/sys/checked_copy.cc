// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/checked_copy.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "ucs/sys/fd.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::ucs {

namespace {

constexpr std::size_t kPipeStep = 4096;  // fits into an empty pipe

class Pipe {
  public:
    Pipe() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
            out_.reset(ends[0]);
            in_.reset(ends[1]);
        }
    }
    explicit operator bool() const { return static_cast<bool>(out_); }
    /// UCS_ERR_INVALID_ADDR: none of it could be read, or written. Moves at most kPipeStep bytes.
    ucs_status_t move(void* to, const void* from, std::size_t* bytes_p) const {
        const ssize_t in = ::write(in_.get(), from, std::min(*bytes_p, kPipeStep));
        if (in <= 0 || ::read(out_.get(), to, static_cast<std::size_t>(in)) != in)
            return UCS_ERR_INVALID_ADDR;
        *bytes_p = static_cast<std::size_t>(in);
        return UCS_OK;
    }

  private:
    UniqueFd out_;
    UniqueFd in_;
};

ucs_status_t move_by_pipe(void* to, const void* from, std::size_t bytes) {
    const Pipe pipe;
    if (!pipe)
        return UCS_ERR_NO_RESOURCE;
    for (std::size_t done = 0, step = 0; done < bytes; done += step) {
        step = bytes - done;
        const ucs_status_t status = pipe.move(static_cast<std::byte*>(to) + done,
                                              static_cast<const std::byte*>(from) + done, &step);
        if (status != UCS_OK)
            return status;
    }
    return UCS_OK;
}

}  // namespace

namespace detail {

ucs_status_t read_by_pipe(void* to, const void* from, std::size_t bytes) {
    return move_by_pipe(to, from, bytes);
}

ucs_status_t write_by_pipe(void* to, const void* from, std::size_t bytes) {
    return move_by_pipe(to, from, bytes);
}

}  // namespace detail

ucs_status_t read_checked(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0)
        return UCS_OK;
    const iovec local{const_cast<void*>(from), bytes};
    const ucs_status_t status =
        process_write(::getpid(), &local, 1, reinterpret_cast<std::uintptr_t>(to), bytes);
    return status == UCS_ERR_REJECTED ? detail::read_by_pipe(to, from, bytes) : status;
}

ucs_status_t write_checked(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0)
        return UCS_OK;
    const iovec local{to, bytes};
    const ucs_status_t status =
        process_read(::getpid(), &local, 1, reinterpret_cast<std::uintptr_t>(from), bytes);
    return status == UCS_ERR_REJECTED ? detail::write_by_pipe(to, from, bytes) : status;
}

// FUTEX_WAKE_OP adds 0 to the word, and wakes nobody whose word is not -2048 (futex(2)).
bool is_writable_word(void* at) {
    constexpr std::uint32_t kAddNothing =
        static_cast<std::uint32_t>(FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0x800));
    std::uint32_t nobody = 0;
    return ::syscall(SYS_futex, &nobody, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, 0L, at,
                     kAddNothing) >= 0 ||
           errno != EFAULT;
}

}  // namespace tagwire::ucs
