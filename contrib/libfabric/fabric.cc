// SPDX-License-Identifier: BSD-3-Clause
#include "fabric.hpp"

#include <cstring>
#include <memory>

#include "cntr.hpp"
#include "cq.hpp"
#include "eq.hpp"

namespace tagwire::fi {

namespace {

int close_fabric(fid* handle) {
    auto& fabric = object_of<Fabric, fid_fabric>(handle);
    if (fabric.children != 0)
        return -FI_EBUSY;
    delete &fabric;
    return 0;
}

/// -FI_EAGAIN: there is something to read, or to progress.
int try_wait_for(fid* handle) {
    switch (handle->fclass) {
        case FI_CLASS_CQ:
            return object_of<Cq, fid_cq>(handle).try_wait();
        case FI_CLASS_CNTR:
            return object_of<Cntr, fid_cntr>(handle).try_wait();
        case FI_CLASS_EQ:
            return object_of<Eq, fid_eq>(handle).try_wait();
        default:
            return -FI_EINVAL;
    }
}

int try_wait(fid_fabric*, fid** fids, int count) {
    return without_exceptions([&] {
        for (int i = 0; i < count; ++i)
            if (const int status = try_wait_for(fids[i]); status != 0)
                return status;
        return 0;
    });
}

fi_ops fabric_fid_ops = {sizeof(fi_ops), close_fabric, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent};
fi_ops_fabric fabric_ops = {
    .size = sizeof(fi_ops_fabric),
    .domain = Domain::open,
    .passive_ep = kAbsent,
    .eq_open = Eq::open,
    .wait_open = kAbsent,
    .trywait = try_wait,
    .domain2 = kAbsent,
};

}  // namespace

Fabric::Fabric(void* user_context) : fid_fabric{} {
    fid.fclass = FI_CLASS_FABRIC;
    fid.context = user_context;
    fid.ops = &fabric_fid_ops;
    ops = &fabric_ops;
}

int open_fabric(fi_fabric_attr* attr, fid_fabric** fabric_p, void* context) {
    if (attr->name != nullptr && std::strcmp(attr->name, kName) != 0)
        return -FI_EINVAL;
    return without_exceptions([&] {
        auto fabric = std::make_unique<Fabric>(context);
        fabric->api_version = attr->api_version;
        *fabric_p = fabric.release();
        return 0;
    });
}

}  // namespace tagwire::fi
