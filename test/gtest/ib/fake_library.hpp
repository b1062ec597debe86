// SPDX-License-Identifier: BSD-3-Clause
// A verbs library in memory, for what no device at hand shows: ports that are down, tables of GIDs,
// devices that may not be opened. Its contexts have no extended operations, like those of very old
// drivers.
#pragma once

#include <endian.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "uct/ib/device.hpp"

namespace tagwire::test {

class FakeLibrary {
  public:
    struct FakePort {
        ibv_port_state state = IBV_PORT_ACTIVE;
        bool is_ethernet = false;
        std::vector<ibv_gid_entry> gids;
        std::vector<std::uint16_t> pkeys{0xffff};
    };

    FakeLibrary() {
        self = this;
        library.verbs.open_device = [](ibv_device*) {
            errno = self->open_error;
            return self->open_error == 0 ? &self->context : nullptr;
        };
        library.verbs.close_device = [](ibv_context*) {
            ++self->closed;
            return 0;
        };
        library.verbs.query_device = [](ibv_context*, ibv_device_attr* attr) {
            attr->phys_port_cnt = static_cast<std::uint8_t>(self->ports.size());
            return self->query_error;
        };
        library.verbs.query_port = query_port;
        library.verbs.query_gid = query_gid;
        library.verbs.query_gid_ex = query_gid_ex;
        library.verbs.query_pkey = query_pkey;
        std::strcpy(device.name, "fake0");
        std::strcpy(device.dev_name, "uverbs7");
    }
    ~FakeLibrary() { self = nullptr; }
    FakeLibrary(const FakeLibrary&) = delete;
    FakeLibrary& operator=(const FakeLibrary&) = delete;

    ucs_status_t open(std::unique_ptr<ib::Device>* device_p, std::string* problem_p) {
        const ib::ListedDevice listed{"fake0", &library, "", true, -1};
        return ib::Device::open(listed, &device, device_p, problem_p);
    }

    ib::VerbsLibrary library{ib::VerbsOrigin::kSystem, "fake", {}, {}, false};
    ibv_device device{};
    ibv_context context{};
    std::vector<FakePort> ports{1};
    int open_error = 0;
    int query_error = 0;
    int closed = 0;

  private:
    static FakePort& port_of(unsigned number) { return self->ports.at(number - 1); }

    static int query_port(ibv_context*, std::uint8_t number, _compat_ibv_port_attr* compat) {
        auto* attr = reinterpret_cast<ibv_port_attr*>(compat);
        const FakePort& port = port_of(number);
        attr->state = port.state;
        attr->link_layer = port.is_ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
        attr->gid_tbl_len = static_cast<int>(port.gids.size());
        attr->pkey_tbl_len = static_cast<std::uint16_t>(port.pkeys.size());
        return 0;
    }

    static int query_gid(ibv_context*, std::uint8_t number, int index, ibv_gid* gid) {
        const auto& gids = port_of(number).gids;
        if (index < 0 || static_cast<std::size_t>(index) >= gids.size())
            return -1;
        *gid = gids[static_cast<std::size_t>(index)].gid;
        return 0;
    }

    // As the kernel's: an entry that is empty is not there.
    static int query_gid_ex(ibv_context*, std::uint32_t number, std::uint32_t index,
                            ibv_gid_entry* entry, std::uint32_t, std::size_t) {
        *entry = port_of(number).gids.at(index);
        return entry->gid.global.interface_id == 0 ? ENODATA : 0;
    }

    static int query_pkey(ibv_context*, std::uint8_t number, int index, __be16* pkey) {
        *pkey = htobe16(port_of(number).pkeys.at(static_cast<std::size_t>(index)));
        return 0;
    }

    static inline FakeLibrary* self = nullptr;
};

}  // namespace tagwire::test
