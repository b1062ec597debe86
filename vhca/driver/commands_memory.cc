// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, memory regions and address handles.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "vhca/driver/commands.hpp"
#include "vhca/setup/describe.hpp"

namespace tagwire::vhca::driver {
namespace {

constexpr unsigned kAccessOptional = unsigned{IBV_ACCESS_OPTIONAL_RANGE};
constexpr unsigned kAccessKnown = ((unsigned{IBV_ACCESS_HUGETLB} << 1) - 1) | kAccessOptional;

int check_access(unsigned access) {
    const bool changes_unwritable =
        (access & (IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE)) != 0 &&
        (access & IBV_ACCESS_LOCAL_WRITE) == 0;
    if (changes_unwritable || (access & ~kAccessKnown) != 0)
        return EINVAL;
    return (access & IBV_ACCESS_ON_DEMAND) != 0 ? EOPNOTSUPP : 0;
}

/// Flags that are rights; the others are hints.
unsigned rights_without_hints(unsigned access) {
    return access & ~kAccessOptional & ~unsigned{IBV_ACCESS_HUGETLB};
}

/// Where in its page memory begins is the same for who registers and who accesses it.
bool are_aligned_alike(std::uint64_t a, std::uint64_t b) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return (a & (page - 1)) == (b & (page - 1));
}

int pin_range(std::uint64_t start, std::uint64_t bytes, unsigned access, Pinned* pinned_p) {
    if (bytes == 0 || start + bytes < start)
        return EINVAL;
    return pin(reinterpret_cast<const void*>(start), bytes, access, pinned_p);
}

using Mac = std::array<std::uint8_t, 6>;

/// The kernel finds the owner of a GID in its neighbour table. Here every GID has a MAC address of
/// its own: the one that a link-local GID is made of, else a locally administered one.
Mac mac_of(const ibv_gid& gid) {
    constexpr std::uint8_t kIsLocal = 2;
    const auto& raw = gid.raw;
    if (raw[0] == 0xfe && raw[1] == 0x80) {
        return {static_cast<std::uint8_t>(raw[8] ^ kIsLocal),
                raw[9],
                raw[10],
                raw[13],
                raw[14],
                raw[15]};
    }
    return {kIsLocal, 0, raw[12], raw[13], raw[14], raw[15]};
}

}  // namespace

int check_path(Context& context, const ibv_ah_attr& attr) {
    Engine& engine = context.engine;
    if (!is_port(engine, attr.port_num))
        return EINVAL;
    if (attr.is_global != 0 && attr.grh.sgid_index != 0)
        return attr.grh.sgid_index < engine.device().config().gids ? ENODATA : EINVAL;
    return is_path(engine, attr) ? 0 : EINVAL;
}

int alloc_pd(Context& context, const Call& call) {
    auto pd = std::make_unique<PdObject>();
    if (const int error = context.engine.device().create_pd(pd.get(), &pd->core))
        return error;
    const std::uint32_t handle = context.pds.add(std::move(pd));
    int error = write_user(call.driver_out, mlx5_ib_alloc_pd_resp{.pdn = handle});
    if (error == 0)
        error = write_response(call.core_out, ib_uverbs_alloc_pd_resp{.pd_handle = handle});
    if (error != 0)
        static_cast<void>(end_object(context, context.pds, handle));
    return error;
}

int Context::remove(PdObject& pd) {
    return engine.device().destroy_pd(*pd.core);
}

int dealloc_pd(Context& context, const Call& call) {
    ib_uverbs_dealloc_pd request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    return end_object(context, context.pds, request.pd_handle);
}

int reg_mr(Context& context, const Call& call) {
    ib_uverbs_reg_mr request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    if (!are_aligned_alike(request.start, request.hca_va))
        return EINVAL;
    if (const int error = check_access(request.access_flags))
        return error;
    PdObject* pd = context.pds.find(request.pd_handle);
    if (pd == nullptr)
        return EINVAL;
    auto mr = std::make_unique<MrObject>();
    if (const int error =
            pin_range(request.start, request.length, request.access_flags, &mr->pinned)) {
        return error;
    }
    mr->pd = pd;
    if (const int error = context.engine.device().create_mr(
            *pd->core, reinterpret_cast<void*>(request.start), request.length, request.hca_va,
            rights_without_hints(request.access_flags), &mr->core)) {
        return error;
    }
    MrObject& made = *mr;
    made.core->user = &made;
    const std::uint32_t handle = context.mrs.add(std::move(mr));
    const ib_uverbs_reg_mr_resp response{
        .mr_handle = handle, .lkey = made.core->key, .rkey = made.core->key};
    const int error = write_response(call.core_out, response);
    if (error != 0)
        static_cast<void>(end_object(context, context.mrs, handle));
    return error;
}

int Context::remove(MrObject& mr) {
    return engine.device().destroy_mr(*mr.core);
}

int rereg_mr(Context& context, const Call& call) {
    ib_uverbs_rereg_mr request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    constexpr std::uint32_t kKnown =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    if (request.flags == 0)
        return EINVAL;
    if ((request.flags & ~kKnown) != 0)
        return EOPNOTSUPP;
    const bool moves = (request.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    if (moves && !are_aligned_alike(request.start, request.hca_va))
        return EINVAL;
    MrObject* mr = context.mrs.find(request.mr_handle);
    if (mr == nullptr)
        return ENOENT;
    if ((request.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) {
        if (const int error = check_access(request.access_flags))
            return error;
    }
    PdObject* pd = mr->pd;
    if ((request.flags & IBV_REREG_MR_CHANGE_PD) != 0) {
        pd = context.pds.find(request.pd_handle);
        if (pd == nullptr)
            return EINVAL;
    }
    const unsigned access =
        (request.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? request.access_flags : mr->core->access;
    // A region that may be changed from now on is pinned anew, as one that moves.
    const bool pins = moves || (changes_memory(access) && !changes_memory(mr->core->access));
    Pinned pinned;
    if (pins) {
        const Mr& old = *mr->core;
        if (const int error = moves ? pin_range(request.start, request.length, access, &pinned)
                                    : pin(old.base, old.length, access, &pinned)) {
            return error;
        }
    }
    if (const int error = context.engine.device().change_mr(
            *mr->core, static_cast<int>(request.flags), pd->core,
            reinterpret_cast<void*>(request.start), request.length,
            rights_without_hints(request.access_flags))) {
        return error;
    }
    mr->pd = pd;
    if (pins)
        mr->pinned = std::move(pinned);
    if (moves)
        mr->core->iova = request.hca_va;
    return write_response(call.core_out,
                          ib_uverbs_rereg_mr_resp{.lkey = mr->core->key, .rkey = mr->core->key});
}

int dereg_mr(Context& context, const Call& call) {
    ib_uverbs_dereg_mr request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    return end_object(context, context.mrs, request.mr_handle);
}

int create_ah(Context& context, const Call& call) {
    ib_uverbs_create_ah request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    const ib_uverbs_global_route& grh = request.attr.grh;
    const ibv_ah_attr attr = ah_attr_of(request.attr, grh.dgid,
                                        {.dgid = {},
                                         .flow_label = grh.flow_label,
                                         .sgid_index = grh.sgid_index,
                                         .hop_limit = grh.hop_limit,
                                         .traffic_class = grh.traffic_class});
    if (!is_port(context.engine, attr.port_num))
        return EINVAL;
    PdObject* pd = context.pds.find(request.pd_handle);
    if (pd == nullptr)
        return EINVAL;
    if (const int error = check_path(context, attr))
        return error;
    mlx5_ib_create_ah_resp driver{};
    constexpr std::size_t kResponseBytesMin = offsetof(mlx5_ib_create_ah_resp, reserved);
    if (context.engine.port().is_ethernet() && call.driver_out.bytes != 0) {
        if (call.driver_out.bytes < kResponseBytesMin)
            return EINVAL;
        driver.response_length = kResponseBytesMin;
        const Mac mac = mac_of(attr.grh.dgid);
        std::memcpy(driver.dmac, mac.data(), mac.size());
    }
    const std::uint32_t handle =
        context.ahs.add(std::make_unique<AhObject>(AhObject{.attr = attr, .pd = pd}));
    ++pd->core->users;
    int error = write_user(call.driver_out, driver);
    if (error == 0)
        error = write_response(call.core_out, ib_uverbs_create_ah_resp{.ah_handle = handle});
    if (error != 0)
        static_cast<void>(end_object(context, context.ahs, handle));
    return error;
}

int Context::remove(AhObject& ah) {
    --ah.pd->core->users;
    return 0;
}

int destroy_ah(Context& context, const Call& call) {
    ib_uverbs_destroy_ah request;
    if (const int error = read_request(call.core_in, &request))
        return error;
    return end_object(context, context.ahs, request.ah_handle);
}

}  // namespace tagwire::vhca::driver
