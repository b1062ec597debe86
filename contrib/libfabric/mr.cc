// SPDX-License-Identifier: BSD-3-Clause
// Memory registration. No operation needs it; a buffer with a descriptor is sent and received
// without a copy where a device wants it registered.
#include <sys/uio.h>

#include <memory>

#include "fabric.hpp"

namespace tagwire::fi {

namespace {

constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

int close_mr(fid* handle) {
    auto& mr = object_of<Mr, fid_mr>(handle);
    Domain& domain = mr.domain;
    {
        const Guard guard(domain);
        if (mr.mem != nullptr && tw_mem_unmap(domain.context, mr.mem) != TW_OK)
            return -FI_EBUSY;
        domain.keys.erase(mr.key);
    }
    delete &mr;
    --domain.children;
    return 0;
}

fi_ops mr_fid_ops = {sizeof(fi_ops), close_mr, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent};

struct Range {
    void* base;
    std::size_t length;
    std::uint64_t access;
    std::uint64_t key;
};

int make_mr(Domain& domain, const Range& range, void* context, fid_mr** mr_p) {
    if ((range.access & ~kAccess) != 0)
        return -FI_EINVAL;
    const Guard guard(domain);
    return without_exceptions([&] {
        if (!domain.keys.insert(range.key).second)
            return -FI_ENOKEY;
        auto mr = std::make_unique<Mr>(domain, range.key, context);
        if (range.length > 0) {
            const tw_status_t status =
                tw_mem_map(domain.context, range.base, range.length, nullptr, &mr->mem);
            if (status != TW_OK) {
                domain.keys.erase(range.key);
                return -error_of(status);
            }
        }
        ++domain.children;
        *mr_p = mr.release();
        return 0;
    });
}

int reg(fid* handle, const void* buf, std::size_t len, std::uint64_t access, std::uint64_t,
        std::uint64_t requested_key, std::uint64_t flags, fid_mr** mr_p, void* context) {
    if (flags != 0 || handle->fclass != FI_CLASS_DOMAIN)
        return -FI_EINVAL;
    auto& domain = object_of<Domain, fid_domain>(handle);
    return make_mr(domain, {const_cast<void*>(buf), len, access, requested_key}, context, mr_p);
}

int regv(fid* handle, const iovec* iov, std::size_t count, std::uint64_t access,
         std::uint64_t offset, std::uint64_t requested_key, std::uint64_t flags, fid_mr** mr_p,
         void* context) {
    if (count != 1)
        return -FI_EINVAL;
    return reg(handle, iov->iov_base, iov->iov_len, access, offset, requested_key, flags, mr_p,
               context);
}

int regattr(fid* handle, const fi_mr_attr* attr, std::uint64_t flags, fid_mr** mr_p) {
    if (attr->iface != FI_HMEM_SYSTEM)
        return -FI_EOPNOTSUPP;
    return regv(handle, attr->mr_iov, attr->iov_count, attr->access, attr->offset,
                attr->requested_key, flags, mr_p, attr->context);
}

fi_ops_mr mr_ops = {.size = sizeof(fi_ops_mr), .reg = reg, .regv = regv, .regattr = regattr};

}  // namespace

Mr::Mr(Domain& parent, std::uint64_t access_key, void* user_context) : fid_mr{}, domain(parent) {
    fid.fclass = FI_CLASS_MR;
    fid.context = user_context;
    fid.ops = &mr_fid_ops;
    mem_desc = this;
    key = access_key;
}

fi_ops_mr* Mr::table() {
    return &mr_ops;
}

}  // namespace tagwire::fi
