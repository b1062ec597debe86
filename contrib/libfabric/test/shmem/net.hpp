// SPDX-License-Identifier: BSD-3-Clause
// One endpoint of libfabric per PE, the symmetric heap as its memory region, and the operations of
// fi_rma(3) and fi_atomic(3) on the heaps of all PEs.
//
// The PE counts its operations, and two counters of the endpoint count those that have ended: one
// of writes (puts, atomics without a result), one of reads (gets, atomics with one). Only errors
// have entries in the completion queue. A write has ended when it is delivered
// (FI_DELIVERY_COMPLETE).
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace shmem {

struct FidCloser {
    template <class Object>
    void operator()(Object* object) const {
        fi_close(&object->fid);
    }
};
template <class Object>
using Owner = std::unique_ptr<Object, FidCloser>;

struct InfoFreer {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};

class Net {
  public:
    /// Collective: after it every PE reaches the heap of every other one.
    Net(char* heap, std::size_t bytes);

    /// Returns when `source` may be used again.
    void put(void* dest, const void* source, std::size_t bytes, int pe);
    /// `source` stays until wait_for_writes().
    void put_nbi(void* dest, const void* source, std::size_t bytes, int pe);
    /// `dest` is filled after wait_for_reads().
    void get_nbi(void* dest, const void* source, std::size_t bytes, int pe);
    /// `is_after`: takes effect after all earlier operations on that PE.
    void atomic(void* dest, std::uint64_t value, fi_datatype type, fi_op op, int pe, bool is_after);
    /// Returns the value before; `compare_p` with FI_CSWAP only.
    std::uint64_t fetch(const void* dest, std::uint64_t value, const std::uint64_t* compare_p,
                        fi_datatype type, fi_op op, int pe);

    void wait_for_writes() { wait_for(writes_, writes_issued_); }
    void wait_for_reads() { wait_for(reads_, reads_issued_); }
    /// Lets operations of this PE and of others on its heap go on.
    void progress();

  private:
    struct Peer {
        fi_addr_t address = FI_ADDR_UNSPEC;
        std::uint64_t base = 0;
        std::uint64_t key = 0;
    };

    void open_endpoint();
    void meet();
    Owner<fid_cntr> open_counter(std::uint64_t of);
    void wait_for(const Owner<fid_cntr>& counter, std::uint64_t count);
    std::uint64_t at(const void* address, int pe) const;
    const Peer& peer(int pe) const { return peers_[static_cast<std::size_t>(pe)]; }
    template <class Call>
    void issue(const char* what, const Call& call);
    [[noreturn]] void fail_with_entry();

    char* heap_;
    std::size_t bytes_;
    std::unique_ptr<fi_info, InfoFreer> info_;
    Owner<fid_fabric> fabric_;
    Owner<fid_domain> domain_;
    Owner<fid_av> av_;
    Owner<fid_cq> cq_;
    Owner<fid_cntr> writes_, reads_;
    Owner<fid_mr> mr_;
    Owner<fid_ep> ep_;
    std::uint64_t writes_issued_ = 0, reads_issued_ = 0;
    unsigned steps_ = 0;
    std::vector<Peer> peers_;
};

}  // namespace shmem
