// SPDX-License-Identifier: BSD-3-Clause
// The port, its addresses and keys.
#include <endian.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca {
namespace {

bool has_gid(Engine& engine, std::uint32_t port, std::uint32_t index) {
    return is_port(engine, port) && index < engine.device().config().gids;
}

// The table has one entry that holds; a missing one reads as zero, as on InfiniBand.
int gid_of(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid* gid) {
    Engine& engine = *face(context).engine;
    if (!has_gid(engine, port, index))
        return EINVAL;
    *gid = port == 1 && index == 0 ? engine.port().gid() : ibv_gid{};
    return 0;
}

void fill_entry(Engine& engine, ibv_gid_entry* entry) {
    entry->gid = engine.port().gid();
    entry->gid_index = 0;
    entry->port_num = 1;
    entry->gid_type = engine.port().is_ethernet() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB;
    entry->ndev_ifindex =
        engine.port().interface() != nullptr ? engine.port().interface()->index : 0;
}

int refuse(int error) {
    errno = error;
    return -1;
}

}  // namespace

int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t bytes) {
    Engine& engine = *face(context).engine;
    if (!is_port(engine, port))
        return EINVAL;
    const auto guard = engine.lock();
    if (engine.device().is_dead())
        return EIO;
    ibv_port_attr full;
    describe_port(engine, port, &full);
    std::memset(attr, 0, bytes);
    std::memcpy(attr, &full, std::min(bytes, sizeof full));
    return 0;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

// Programs that call this one may have been built when the structure ended before port_cap_flags2.
int tagwire_vhca_ibv_query_port(ibv_context* context, std::uint8_t port,
                                _compat_ibv_port_attr* attr) {
    return query_port_op(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                         offsetof(ibv_port_attr, flags) + 1);
}

int tagwire_vhca_ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
    const int error =
        index < 0 ? EINVAL : gid_of(context, port, static_cast<std::uint32_t>(index), gid);
    return error != 0 ? refuse(error) : 0;
}

int tagwire_vhca__ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                   ibv_gid_entry* entry, std::uint32_t flags, std::size_t bytes) {
    if (flags != 0)
        return EOPNOTSUPP;
    if (!has_gid(*face(context).engine, port, index) || bytes < sizeof *entry)
        return EINVAL;
    if (port != 1 || index != 0)
        return ENODATA;
    std::memset(entry, 0, bytes);
    fill_entry(*face(context).engine, entry);
    return 0;
}

ssize_t tagwire_vhca__ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                          std::size_t entries_max, std::uint32_t flags,
                                          std::size_t entry_bytes) {
    if (flags != 0)
        return -EOPNOTSUPP;
    if (entries_max == 0 || entry_bytes < sizeof *entries)
        return -EINVAL;
    std::memset(entries, 0, entry_bytes);
    fill_entry(*face(context).engine, entries);
    return 1;
}

// sysfs spells RoCE version 1 and InfiniBand alike: 0. RoCE version 2 is 1.
int tagwire_vhca_ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned int index,
                                    int* type_p) {
    Engine& engine = *face(context).engine;
    if (!has_gid(engine, port, index))
        return refuse(EINVAL);
    *type_p = port == 1 && index == 0 && engine.port().is_ethernet() ? 1 : 0;
    return 0;
}

int tagwire_vhca_ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
    if (!is_port(*face(context).engine, port) || index < 0 || index >= kPkeyTableEntries)
        return refuse(EINVAL);
    *pkey = htobe16(kDefaultPkeyEntry);
    return 0;
}

int tagwire_vhca_ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
    return is_port(*face(context).engine, port) && pkey == htobe16(kDefaultPkeyEntry)
               ? 0
               : refuse(EINVAL);
}
