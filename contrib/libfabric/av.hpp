// SPDX-License-Identifier: BSD-3-Clause
// Address vector. An fi_addr_t is an index, for tables and for maps; each endpoint keeps its
// connection to that address under the same index (Ep::peer()).
//
// 1. An address that was inserted twice has two indices, and one connection. Its messages are
//    reported with the oldest of the indices that it still has.
// 2. Indices grow in the order of insertion; those of removed addresses are used again.
#pragma once

#include <rdma/fi_domain.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "eq.hpp"
#include "fabric.hpp"
#include "name.hpp"

namespace tagwire::fi {

class Ep;

class Av : public fid_av {
  public:
    Av(Domain& parent, const fi_av_attr& attr, void* user_context);
    Av(const Av&) = delete;
    Av& operator=(const Av&) = delete;
    ~Av();

    static int open(fid_domain* domain, fi_av_attr* attr, fid_av** av_p, void* user_context);

    /// FI_ADDR_NOTAVAIL: it is no name. May throw for want of memory: nothing has changed.
    fi_addr_t insert(const Name& name);
    /// False: nothing is there.
    bool remove(fi_addr_t addr);
    /// nullptr: nothing is there.
    const Name* find(fi_addr_t addr) const;
    /// The address with which messages of that worker are reported. FI_ADDR_NOTAVAIL: it was not
    /// inserted.
    fi_addr_t addr_of(std::uint64_t worker_id) const;
    /// Calls with each number of that worker.
    template <class Call>
    void for_each_addr(std::uint64_t worker_id, Call call) const {
        if (const auto found = by_id_.find(worker_id); found != by_id_.end())
            for (const fi_addr_t addr : found->second)
                call(addr);
    }

    Domain& domain;
    const bool is_asynchronous;
    Eq* eq = nullptr;
    std::vector<Ep*> eps;

  private:
    struct Entry {
        Name name;
        std::uint64_t worker_id = 0;
        bool is_used = false;
    };

    std::vector<Entry> entries_;
    std::vector<fi_addr_t> free_;
    /// By worker id: its numbers, oldest first; never empty.
    std::unordered_map<std::uint64_t, std::vector<fi_addr_t>> by_id_;
};

}  // namespace tagwire::fi
