// SPDX-License-Identifier: BSD-3-Clause
// Base of all memory domains: the object that uct_md_h points to.
//
// Control path only, so virtual functions are fine here. A domain may be used by any thread, by one
// at a time. Arguments have been checked by the facade (no null pointers, lengths > 0, known
// flags). Outputs are written on success only.
#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <vector>

#include "uct/component.hpp"

struct tagwire_uct_md {
    uct_component_h component;
};

namespace tagwire::uct {

class Worker;

class Md : public tagwire_uct_md {
  public:
    virtual ~Md();
    Md(const Md&) = delete;
    Md& operator=(const Md&) = delete;

    /// `attr` comes zeroed, with component_name and rkey_packed_size set.
    virtual ucs_status_t query(uct_md_attr_t* attr) = 0;
    virtual ucs_status_t query_tl_resources(std::vector<TlDevice>* devices) = 0;

    /// Opens an interface; params.mode.device names a resource of this domain. `iface_values` were
    /// filled from Component::iface_options for that transport.
    virtual ucs_status_t iface_open(Worker& worker, const uct_iface_params_t& params,
                                    const void* iface_values, uct_iface_h* iface_p) = 0;

    /// Allocates and registers. `*length_p` is the wish on entry, the real length on return;
    /// `*address_p` a hint or, with UCT_MD_MEM_FLAG_FIXED, a demand. Default, as for all below:
    /// UCS_ERR_UNSUPPORTED.
    virtual ucs_status_t mem_alloc(std::size_t* length_p, void** address_p, ucs_memory_type_t type,
                                   unsigned flags, const char* name, uct_mem_h* memh_p);
    virtual ucs_status_t mem_free(uct_mem_h memh);
    virtual ucs_status_t mem_reg(void* address, std::size_t length, unsigned flags,
                                 uct_mem_h* memh_p);
    virtual ucs_status_t mem_dereg(uct_mem_h memh);
    virtual ucs_status_t mem_query(const void* address, std::size_t length,
                                   uct_md_mem_attr_t* attr);
    virtual ucs_status_t mem_advise(uct_mem_h memh, void* address, std::size_t length,
                                    uct_mem_advice_t advice);
    /// Writes Component::rkey_packed_bytes bytes.
    virtual ucs_status_t mkey_pack(uct_mem_h memh, void* packed);

    [[nodiscard]] const Component& owner() const { return component_of(component); }
    [[nodiscard]] unsigned iface_count() const { return iface_count_; }

  protected:
    explicit Md(const Component& owner) : tagwire_uct_md{handle_of(owner)} {}

  private:
    friend class BaseIface;  // counts itself
    unsigned iface_count_ = 0;
};

inline Md& md_of(uct_md_h handle) {
    return *static_cast<Md*>(handle);
}

}  // namespace tagwire::uct
