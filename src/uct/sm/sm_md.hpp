// SPDX-License-Identifier: BSD-3-Clause
// The memory domain of shared memory: allocates from its arena, keeps track of registrations.
//
// Threads: any. Registering needs no system call: it says which memory peers may use. Peers that
// copy by themselves (process_vm_*, loads and stores) run as the same user, and check that the
// registration is still in force (key_guard.hpp); for peers that send requests, every access is
// checked against it.
#pragma once

#include <memory>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/base_md.hpp"
#include "uct/sm/arena.hpp"
#include "uct/sm/key_table.hpp"
#include "uct/sm/options.hpp"
#include "uct/sm/wire.hpp"
#include "uct/sm/writers.hpp"

namespace tagwire::sm {

/// The object that uct_rkey_t points to.
struct SmRemoteKey : ucs::FromReserve {
    PackedRkey packed;
};

class SmMd : public uct::Md {
  public:
    static ucs_status_t open(const uct::Component& family, const SmMdOptions& options,
                             uct::Md** md_p);
    ~SmMd() override;

    ucs_status_t query(uct_md_attr_t* attr) override;
    ucs_status_t query_tl_resources(std::vector<uct::TlDevice>* devices) override;
    ucs_status_t iface_open(uct::Worker& worker, const uct_iface_params_t& params,
                            const void* iface_values, uct_iface_h* iface_p) override;
    ucs_status_t mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                           unsigned flags, const char* name, uct_mem_h* memh_p) override;
    ucs_status_t mem_free(uct_mem_h memh) override;
    ucs_status_t mem_reg(void* address, std::size_t length, unsigned flags,
                         uct_mem_h* memh_p) override;
    ucs_status_t mem_dereg(uct_mem_h memh) override;
    ucs_status_t mkey_pack(uct_mem_h memh, void* packed) override;

    /// Local address of [address, address + length) when registration `key` covers it with one of
    /// the rights in `access` (UCT_MD_MEM_ACCESS_REMOTE_*), else null. For requests of peers.
    std::byte* resolve(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                       unsigned access) {
        return keys_.resolve(key, address, length, access);
    }

    /// As mem_dereg(), in a forked child, where the registration is that of the parent: peers, who
    /// look at the arena that both have, see no end of it.
    void abandon(MemHandle* handle) {
        keys_.forget(*handle);
        delete handle;
    }

    [[nodiscard]] const Arena& arena() const { return *arena_; }
    [[nodiscard]] Writers& writers() { return writers_; }

  private:
    SmMd(const uct::Component& family, std::unique_ptr<Arena> arena);
    MemHandle* track(std::byte* address, std::size_t length, unsigned flags);
    /// When nobody reads or writes by its key any more.
    void forget(MemHandle* handle);

    std::unique_ptr<Arena> arena_;
    KeyTable keys_;
    Writers writers_;
};

}  // namespace tagwire::sm
