// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <memory>

#include "atomic.hpp"
#include "av.hpp"
#include "away.hpp"
#include "cntr.hpp"
#include "cq.hpp"
#include "ep.hpp"
#include "fabric.hpp"
#include "mr.hpp"

namespace tagwire::fi {

namespace {

int close_domain(fid* handle) {
    auto& domain = object_of<Domain, fid_domain>(handle);
    if (domain.children != 0)
        return -FI_EBUSY;
    delete &domain;
    return 0;
}

/// Every key fits 64 bits, and no peer has to prepare for it.
int map_raw(const struct fi_mr_map_raw& raw) {
    if (raw.key_size != sizeof *raw.key)
        return -FI_EINVAL;
    std::memcpy(raw.key, raw.raw_key, sizeof *raw.key);
    return 0;
}

int control_domain(fid*, int command, void* arg) {
    switch (command) {
        case FI_MAP_RAW_MR:
            return map_raw(*static_cast<const struct fi_mr_map_raw*>(arg));
        case FI_UNMAP_KEY:
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

fi_ops domain_fid_ops = {sizeof(fi_ops), close_domain, kAbsent, control_domain,
                         kAbsent,        kAbsent,      kAbsent};
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
        .query_atomic = query_atomic,
        .query_collective = kAbsent,
        .endpoint2 = kAbsent,
    },
    kAbsent);

}  // namespace

Domain::Domain(Fabric& parent, const fi_info& info, void* user_context)
    : fid_domain{},
      fabric(parent),
      is_locked(info.domain_attr->threading != FI_THREAD_DOMAIN ||
                info.domain_attr->data_progress == FI_PROGRESS_AUTO),
      av_type(info.domain_attr->av_type),
      is_mr_basic(info.domain_attr->mr_mode == kMrModeBasic) {
    fid.fclass = FI_CLASS_DOMAIN;
    fid.context = user_context;
    fid.ops = &domain_fid_ops;
    ops = &domain_ops;
    mr = Mr::table();
    ++fabric.children;
}

Domain::~Domain() {
    auto_progress.reset();
    tw_context_destroy(context);
    --fabric.children;
}

int Domain::open(fid_fabric* fabric, fi_info* info, fid_domain** domain_p, void* user_context) {
    if (info == nullptr || info->domain_attr == nullptr)
        return -FI_EINVAL;
    const fi_domain_attr& attr = *info->domain_attr;
    if (attr.name != nullptr && std::strcmp(attr.name, kName) != 0)
        return -FI_EINVAL;
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
        if (attr.data_progress == FI_PROGRESS_AUTO) {
            domain->auto_progress = std::make_unique<AutoProgress>(*domain);
            if (const int error = domain->auto_progress->start(); error != 0)
                return error;
        }
        *domain_p = domain.release();
        return 0;
    });
}

bool Domain::progress() {
    unsigned count = 0;
    for (Ep* ep : eps)
        count |= ep->progress();
    return count != 0;
}

void Domain::progress_politely() {
    Away away(*this);
    {
        const Guard guard(*this);
        if (!progress())
            away.take(eps);
    }
    away.go();
}

void Domain::drop_reports() {
    for (const Ep* ep : eps) {
        tw_completion_t done;
        while (tw_worker_poll(ep->worker, &done, 1) > 0) {
        }
    }
}

}  // namespace tagwire::fi
