// SPDX-License-Identifier: BSD-3-Clause
// Reads of another process' memory that are known to be that process'. A pid and a pidfd name the
// process also when it has executed another program (execve(2)), whose memory is another one; and a
// pid may be given to a new process. So each process has a random word at an address that it tells
// its peers. A reader reads that word by the same system call as the data: one call reads one
// memory, so the data is the peer's if the word is.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>

#include "ucs/sys/anonymous_memory.hpp"

namespace tagwire::ucs {

/// A random word of a process, as its peers know it.
struct ProcessProof {
    std::uint64_t address = 0;
    std::uint64_t value = 0;
};

/// The word of this process, in a page that a forked child has zeroed.
class OwnProof {
  public:
    OwnProof() = default;
    OwnProof(const OwnProof&) = delete;
    OwnProof& operator=(const OwnProof&) = delete;
    ~OwnProof();

    /// UCS_ERR_NO_MEMORY.
    ucs_status_t open();
    [[nodiscard]] ProcessProof get() const;

  private:
    AnonymousMemory page_{};
};

/// At most this many pieces of local memory.
constexpr std::size_t kProvedPiecesMax = 16;

/// As process_read() of ucs/sys/process.hpp. UCS_ERR_CONNECTION_RESET: the memory that was read is
/// not that of the process with this word, or there is no such process.
ucs_status_t process_read_proved(pid_t pid, const ProcessProof& proof, const iovec* local,
                                 std::size_t local_count, std::uint64_t remote, std::size_t bytes);

/// Most ranges of one call, beside that of the word: what the system takes.
constexpr std::size_t kProvedRangesMax = 1023;

/// As process_read_proved(), of several remote ranges, of `bytes` together. Both arrays have room
/// for one more element behind the count, which is written.
ucs_status_t process_read_ranges_proved(pid_t pid, const ProcessProof& proof, iovec* local,
                                        std::size_t local_count, iovec* remote,
                                        std::size_t remote_count, std::size_t bytes);

/// The process has the word now: before something is written to its memory, which no system call
/// can prove. UCS_OK, UCS_ERR_CONNECTION_RESET, or UCS_ERR_REJECTED: not permitted.
ucs_status_t process_prove(pid_t pid, const ProcessProof& proof);

}  // namespace tagwire::ucs
