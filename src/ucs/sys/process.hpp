// SPDX-License-Identifier: BSD-3-Clause
// Other processes: are they alive, may we copy from their memory, and the system-wide memory
// barrier.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>
#include <ucs/type/status.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ucs/sys/fd.hpp"

namespace tagwire::ucs {

/// Ways to notice the death of a peer, the best one first.
enum class DeathSource : int { kPeerPidfd, kPidfdOpen, kHangup };

/// Opens a pidfd of the process at the other end of `socket_fd`.
///   kPeerPidfd: getsockopt(SO_PEERPIDFD) (Linux 6.5), free of races.
///   kPidfdOpen: pidfd_open(2) of `pid`. The pid may have been given to another process meanwhile,
///               so the connection is checked afterwards: while it stands, the peer lives.
/// UCS_ERR_UNSUPPORTED: the kernel (or a seccomp filter) does not offer it.
/// UCS_ERR_CONNECTION_RESET: gone already.
ucs_status_t open_peer_pidfd(DeathSource source, int socket_fd, pid_t pid, UniqueFd* fd_p);

/// False once the process behind the pidfd has ended.
bool pidfd_is_alive(int pidfd);

/// Registers this process for membarrier(2) GLOBAL_EXPEDITED: from then on another process' (or
/// thread's) global_barrier() acts as a full memory barrier on every processor that runs us. False:
/// not available.
bool register_global_barrier();

/// membarrier(2) GLOBAL_EXPEDITED: on return, every running thread of every registered process has
/// passed a full barrier. False: not available.
bool global_barrier();

/// Stores before it come before loads after it, as other threads and processes see them.
inline void full_barrier() {
#if defined(__SANITIZE_THREAD__)
    // ThreadSanitizer knows no fences; a locked instruction is one on the machines it runs on.
    std::atomic<int> here{0};  // SYNC sm_sleep, SYNC vhca_sleep: as the fence below
    here.fetch_add(1, std::memory_order_seq_cst);
#else
    // SYNC sm_sleep, SYNC vhca_sleep, SYNC sm_revoke: the callers' store comes before what follows.
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Loads before it, of plain memory too, come before loads after it.
inline void read_barrier() {
#if defined(__SANITIZE_THREAD__)
    std::atomic<int> here{0};  // SYNC sm_revoke: as above
    here.fetch_add(1, std::memory_order_acq_rel);
#else
    // SYNC sm_revoke: the callers' copy comes before their load.
    std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

/// process_vm_readv/writev(2) of one contiguous remote range; copies everything or fails.
/// UCS_ERR_REJECTED: not permitted (Yama, another user, not dumpable). UCS_ERR_CONNECTION_RESET: no
/// such process. UCS_ERR_INVALID_ADDR: one of the ranges is not mapped.
ucs_status_t process_read(pid_t pid, const iovec* local, std::size_t local_count,
                          std::uint64_t remote, std::size_t bytes);
ucs_status_t process_write(pid_t pid, const iovec* local, std::size_t local_count,
                           std::uint64_t remote, std::size_t bytes);

/// As process_write(), to several remote ranges, of `bytes` together.
ucs_status_t process_write_ranges(pid_t pid, const iovec* local, std::size_t local_count,
                                  const iovec* remote, std::size_t remote_count, std::size_t bytes);

/// Yama's ptrace_scope; -1 where the kernel has no Yama.
int yama_ptrace_scope();

/// prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY): lets every process of this user attach to us, so that
/// Yama scope 1 does not stop process_vm_readv. Only on the user's explicit wish.
void allow_any_ptracer();

/// 8 bytes from getrandom(2).
std::uint64_t random_u64();

/// A number that is the same for all processes of this boot of this machine, whatever container
/// they are in. Where it cannot be found out it is a random one of this process, equal to nobody's.
std::uint64_t boot_id();

/// Inode of the calling thread's network namespace: abstract sockets are seen only within one.
/// Where it cannot be found out it is a random number, as boot_id().
std::uint64_t network_namespace();

}  // namespace tagwire::ucs
