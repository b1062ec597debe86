// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <memory>

#include "av.hpp"
#include "cntr.hpp"
#include "cq.hpp"
#include "ep.hpp"
#include "fabric.hpp"

namespace tagwire::fi {

namespace {

int close_domain(fid* handle) {
    auto& domain = object_of<Domain, fid_domain>(handle);
    if (domain.children != 0)
        return -FI_EBUSY;
    delete &domain;
    return 0;
}

fi_ops domain_fid_ops = {sizeof(fi_ops), close_domain, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent};
fi_ops_domain domain_ops = with_later_calls(
    fi_ops_domain{
        .size = sizeof(fi_ops_domain),
        .av_open = Av::open,
        .cq_open = Cq::open,
        .endpoint = Ep::open,
        .scalable_ep = kAbsent,
        .cntr_open = Cntr::open,
        .poll_open = kAbsent,
        .stx_ctx = kAbsent,
        .srx_ctx = kAbsent,
        .query_atomic = kAbsent,
        .query_collective = kAbsent,
        .endpoint2 = kAbsent,
    },
    kAbsent);

}  // namespace

Domain::Domain(Fabric& parent, const fi_info& info, void* user_context)
    : fid_domain{},
      fabric(parent),
      is_locked(info.domain_attr->threading != FI_THREAD_DOMAIN),
      av_type(info.domain_attr->av_type) {
    fid.fclass = FI_CLASS_DOMAIN;
    fid.context = user_context;
    fid.ops = &domain_fid_ops;
    ops = &domain_ops;
    mr = Mr::table();
    ++fabric.children;
}

Domain::~Domain() {
    tw_context_destroy(context);
    --fabric.children;
}

int Domain::open(fid_fabric* fabric, fi_info* info, fid_domain** domain_p, void* user_context) {
    if (info == nullptr || info->domain_attr == nullptr)
        return -FI_EINVAL;
    const fi_domain_attr& attr = *info->domain_attr;
    if (attr.name != nullptr && std::strcmp(attr.name, kName) != 0)
        return -FI_EINVAL;
    if (attr.data_progress == FI_PROGRESS_AUTO)
        return -FI_EOPNOTSUPP;
    return without_exceptions([&] {
        auto domain = std::make_unique<Domain>(static_cast<Fabric&>(*fabric), *info, user_context);
        const tw_context_params_t params = {
            .transports = settings().transports.empty() ? nullptr : settings().transports.c_str(),
            .tag_sender_mask = 0};
        const tw_status_t status = tw_context_create(&params, &domain->context);
        if (status != TW_OK) {
            FI_WARN(&provider, FI_LOG_DOMAIN, "cannot create a context: %s\n",
                    tw_status_string(status));
            return -error_of(status);
        }
        *domain_p = domain.release();
        return 0;
    });
}

void Domain::progress() {
    for (Ep* ep : eps)
        ep->progress();
}

}  // namespace tagwire::fi
