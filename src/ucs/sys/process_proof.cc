// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/process_proof.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "ucs/debug/check.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::ucs {

namespace {

iovec remote_range(std::uint64_t address, std::size_t bytes) {
    return {reinterpret_cast<void*>(address), bytes};
}

}  // namespace

OwnProof::~OwnProof() {
    if (page_.address != nullptr)
        unmap_anonymous(page_);
}

ucs_status_t OwnProof::open() {
    const ucs_status_t status =
        map_anonymous(sizeof(std::uint64_t), AnonymousPages::kNormal, nullptr, false, &page_);
    if (status != UCS_OK)
        return status;
    ::madvise(page_.address, page_.bytes, MADV_WIPEONFORK);
    *static_cast<std::uint64_t*>(page_.address) = random_u64();
    return UCS_OK;
}

ProcessProof OwnProof::get() const {
    return {reinterpret_cast<std::uintptr_t>(page_.address),
            *static_cast<const std::uint64_t*>(page_.address)};
}

ucs_status_t process_read_proved(pid_t pid, const ProcessProof& proof, const iovec* local,
                                 std::size_t local_count, std::uint64_t remote, std::size_t bytes) {
    TW_ASSERT(local_count <= kProvedPiecesMax);
    std::array<iovec, kProvedPiecesMax + 1> here;
    std::copy_n(local, local_count, here.begin());
    iovec there[2] = {remote_range(remote, bytes)};
    return process_read_ranges_proved(pid, proof, here.data(), local_count, there, 1, bytes);
}

ucs_status_t process_read_ranges_proved(pid_t pid, const ProcessProof& proof, iovec* local,
                                        std::size_t local_count, iovec* remote,
                                        std::size_t remote_count, std::size_t bytes) {
    std::uint64_t seen = 0;
    local[local_count] = {&seen, sizeof seen};
    remote[remote_count] = remote_range(proof.address, sizeof seen);
    const ssize_t moved =
        ::process_vm_readv(pid, local, local_count + 1, remote, remote_count + 1, 0);
    if (moved == static_cast<ssize_t>(bytes + sizeof seen))
        return seen == proof.value ? UCS_OK : UCS_ERR_CONNECTION_RESET;
    if (moved < 0 && (errno == EPERM || errno == ENOSYS))
        return UCS_ERR_REJECTED;
    if (moved < 0 && errno != EFAULT)
        return errno == ESRCH ? UCS_ERR_CONNECTION_RESET : UCS_ERR_IO_ERROR;
    // Some of it is not mapped: of the peer's memory, or of that of another program.
    const ucs_status_t status = process_prove(pid, proof);
    return status == UCS_OK ? UCS_ERR_INVALID_ADDR : status;
}

ucs_status_t process_prove(pid_t pid, const ProcessProof& proof) {
    std::uint64_t seen = 0;
    const iovec here{&seen, sizeof seen};
    const ucs_status_t status = process_read(pid, &here, 1, proof.address, sizeof seen);
    if (status == UCS_OK)
        return seen == proof.value ? UCS_OK : UCS_ERR_CONNECTION_RESET;
    return status == UCS_ERR_REJECTED ? status : UCS_ERR_CONNECTION_RESET;
}

}  // namespace tagwire::ucs
