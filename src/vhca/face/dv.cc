// SPDX-License-Identifier: BSD-3-Clause
// The part of libmlx5 that exists so far: who the device is.
#include <cerrno>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/face/look.hpp"

using namespace tagwire::vhca;

bool tagwire_vhca_mlx5dv_is_supported(ibv_device* device) {
    return device == the_device() && look().is_mlx5;
}

ibv_context* tagwire_vhca_mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    if (!look().is_mlx5) {
        return fail(EOPNOTSUPP);
    }
    // DEVX, the firmware's own commands, is all that can be asked for.
    if (attr != nullptr && (attr->flags != 0 || attr->comp_mask != 0)) {
        return fail(EOPNOTSUPP);
    }
    return tagwire_vhca_ibv_open_device(device);
}

// What a caller asks for in comp_mask and is not offered is taken out of it.
int tagwire_vhca_mlx5dv_query_device(ibv_context*, mlx5dv_context* attr) {
    attr->version = 1;
    attr->flags = 0;
    attr->comp_mask = 0;
    attr->cqe_comp_caps = {};
    return 0;
}
