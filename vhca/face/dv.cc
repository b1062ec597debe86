// SPDX-License-Identifier: BSD-3-Clause
// libmlx5: opening and identifying the device.
#include <cerrno>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/hardware_profile.hpp"

using namespace tagwire::vhca;

bool tagwire_vhca_mlx5dv_is_supported(ibv_device* device) {
    return index_of(device).has_value() && hardware_profile().is_mlx5;
}

ibv_context* tagwire_vhca_mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    if (!hardware_profile().is_mlx5)
        return fail(EOPNOTSUPP);
    // DEVX, the firmware's own commands, is all that can be asked for.
    if (attr != nullptr && (attr->flags != 0 || attr->comp_mask != 0))
        return fail(EOPNOTSUPP);
    return tagwire_vhca_ibv_open_device(device);
}

// Bits of comp_mask that the caller sets and the device does not offer are cleared.
int tagwire_vhca_mlx5dv_query_device(ibv_context* context, mlx5dv_context* attr) {
    const DeviceConfig& config = face(context).engine->device().config();
    const std::uint64_t wanted = attr->comp_mask;
    attr->version = 1;
    attr->flags = 0;
    attr->comp_mask = 0;
    attr->cqe_comp_caps = {};
    if ((wanted & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0 && config.has_dc) {
        attr->comp_mask |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
        attr->dci_streams_caps = {.max_log_num_concurent = config.dc_streams_log_max,
                                  .max_log_num_errored = config.dc_errored_log_max};
    }
    return 0;
}

int tagwire_vhca_query_tm(ibv_context* context, tagwire_vhca_tm_caps* caps) {
    const DeviceConfig& config = face(context).engine->device().config();
    const bool has_both = config.tm_tags_max != 0 && config.has_dc;
    caps->flags = has_both ? TAGWIRE_VHCA_TM_DC : 0U;
    caps->flags |= has_both && config.has_dc_rendezvous ? TAGWIRE_VHCA_TM_DC_RENDEZVOUS : 0U;
    return 0;
}
