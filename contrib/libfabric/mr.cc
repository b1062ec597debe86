// SPDX-License-Identifier: BSD-3-Clause
// Memory registration. No operation needs it at the initiator; a buffer with a descriptor is moved
// without a copy where a device wants it registered.
#include "mr.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "cntr.hpp"
#include "deadline.hpp"
#include "ep.hpp"

namespace tagwire::fi {

namespace {

constexpr std::uint64_t kAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

/// Peers forget the key first: it may soon name another region.
void revoke(const Mr& mr) {
    for (Ep* ep : mr.domain.eps)
        ep->key_service.revoke(mr.key);
}

bool is_revoking(Domain& domain, std::uint64_t key) {
    const Guard guard(domain);
    return std::ranges::any_of(domain.eps,
                               [key](const Ep* ep) { return ep->key_service.is_revoking(key); });
}

/// A peer that uses a key for the region that it named before reaches nothing, or by a device loses
/// its connection.
void await_revocation(Domain& domain, std::uint64_t key) {
    const Deadline deadline(settings().linger_ms);
    while (is_revoking(domain, key)) {
        domain.progress_politely();
        if (!deadline.is_over())
            continue;
        FI_INFO(&provider, FI_LOG_MR, "peers may not know yet that key %llu has ended\n",
                static_cast<unsigned long long>(key));
        return;
    }
}

int close_mr(fid* handle) {
    auto& mr = object_of<Mr, fid_mr>(handle);
    Domain& domain = mr.domain;
    {
        const Guard guard(domain);
        revoke(mr);
        const tw_status_t status = mr.mem == nullptr ? TW_OK : tw_mem_unmap(domain.context, mr.mem);
        if (status != TW_OK)
            return status == TW_ERR_NO_MEMORY ? -FI_ENOMEM : -FI_EBUSY;
        domain.regions.remove(mr.key);
        mr.release_counters();
    }
    delete &mr;
    return 0;
}

int bind_mr(fid* handle, fid* other, std::uint64_t flags) {
    auto& mr = object_of<Mr, fid_mr>(handle);
    const Guard guard(mr.domain);
    switch (other->fclass) {
        case FI_CLASS_CNTR:
            return mr.bind(object_of<Cntr, fid_cntr>(other), flags);
        case FI_CLASS_EP:  // for FI_MR_ENDPOINT, which no region needs
            return flags == 0 ? 0 : -FI_EINVAL;
        default:
            return -FI_EINVAL;
    }
}

/// Every key fits 64 bits, so the raw one is the same.
int tell_raw(const Mr& mr, const struct fi_mr_raw_attr& raw) {
    const std::size_t room = *raw.key_size;
    *raw.key_size = sizeof mr.key;
    if (room < sizeof mr.key)
        return -FI_ETOOSMALL;
    *raw.base_addr = mr.domain.is_mr_basic ? reinterpret_cast<std::uintptr_t>(mr.range.base) : 0;
    std::memcpy(raw.raw_key, &mr.key, sizeof mr.key);
    return 0;
}

int control_mr(fid* handle, int command, void* arg) {
    const auto& mr = object_of<Mr, fid_mr>(handle);
    switch (command) {
        case FI_GET_RAW_MR:
            return tell_raw(mr, *static_cast<const struct fi_mr_raw_attr*>(arg));
        case FI_ENABLE:
        case FI_REFRESH:
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

fi_ops mr_fid_ops = {sizeof(fi_ops), close_mr, bind_mr, control_mr, kAbsent, kAbsent, kAbsent};

std::uint32_t rights_of(std::uint64_t access) {
    std::uint32_t rights = 0;
    if ((access & FI_REMOTE_READ) != 0)
        rights |= TW_ACCESS_READ;
    if ((access & FI_REMOTE_WRITE) != 0)
        rights |= TW_ACCESS_WRITE | TW_ACCESS_ATOMIC;
    return rights == 0 ? std::uint32_t{TW_ACCESS_NONE} : rights;
}

/// Maps the range, which may be any addresses of the process, and all of them (fi_mr(3), "Default
/// Memory Registration"): an operation that reaches it sees whether memory is there. Address 0 is
/// nobody's.
int map_range(Domain& domain, const Mr::Range& range, tw_mem_h* mem_p) {
    const std::size_t skipped = range.base == nullptr ? 1 : 0;
    const auto base = reinterpret_cast<std::uintptr_t>(range.base);  // none to calculate from
    if (range.length <= skipped || range.length > UINTPTR_MAX - base)
        return -FI_EINVAL;
    tw_mem_params_t params{};
    params.struct_bytes = sizeof params;
    params.access = rights_of(range.access);
    const tw_status_t status = tw_mem_map(domain.context, reinterpret_cast<void*>(base + skipped),
                                          range.length - skipped, &params, mem_p);
    if (status == TW_OK || skipped == 0)
        return -error_of(status);
    FI_WARN(
        &provider, FI_LOG_MR,
        "cannot register %zu bytes from address 0: devices register memory that is there only\n",
        range.length);
    return -FI_EOPNOTSUPP;
}

int make_mr(Domain& domain, const Mr::Range& range, std::uint64_t key, void* context,
            fid_mr** mr_p) {
    if ((range.access & ~kAccess) != 0)
        return -FI_EINVAL;
    if (!domain.is_mr_basic)
        await_revocation(domain, key);
    const Guard guard(domain);
    return without_exceptions([&] {
        auto mr = std::make_unique<Mr>(domain, range, context);
        mr->key = key;
        if (const int error = domain.regions.add(*mr, domain.is_mr_basic); error != 0)
            return error;
        if (range.length > 0) {
            if (const int error = map_range(domain, range, &mr->mem); error != 0) {
                domain.regions.remove(mr->key);
                return error;
            }
        }
        *mr_p = mr.release();
        return 0;
    });
}

/// FI_RMA_EVENT announces a counter (FI_MR_RMA_EVENT), which may be bound at any time here.
int reg(fid* handle, const void* buf, std::size_t len, std::uint64_t access, std::uint64_t offset,
        std::uint64_t requested_key, std::uint64_t flags, fid_mr** mr_p, void* context) {
    if ((flags & ~std::uint64_t{FI_RMA_EVENT}) != 0 || offset != 0 ||
        handle->fclass != FI_CLASS_DOMAIN)
        return -FI_EINVAL;
    auto& domain = object_of<Domain, fid_domain>(handle);
    return make_mr(domain, {const_cast<void*>(buf), len, access}, requested_key, context, mr_p);
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

Mr::Mr(Domain& parent, const Range& memory, void* user_context)
    : fid_mr{}, domain(parent), range(memory) {
    fid.fclass = FI_CLASS_MR;
    fid.context = user_context;
    fid.ops = &mr_fid_ops;
    mem_desc = this;
    ++domain.children;
}

Mr::~Mr() {
    --domain.children;
}

void Mr::release_counters() {
    for (Cntr* cntr : {remote_reads, remote_writes})
        if (cntr != nullptr)
            cntr->remove_region();
}

fi_ops_mr* Mr::table() {
    return &mr_ops;
}

std::uint64_t Mr::origin() const {
    return domain.is_mr_basic ? 0 : reinterpret_cast<std::uintptr_t>(range.base);
}

void* Mr::find(std::uint64_t address, std::size_t length, std::uint64_t access) const {
    const auto base = reinterpret_cast<std::uintptr_t>(range.base);
    const std::uint64_t at = address + origin() - base;
    const bool is_inside = at <= range.length && length <= range.length - at;
    return is_inside && (range.access & access) == access ? reinterpret_cast<void*>(base + at)
                                                          : nullptr;
}

int Mr::bind(Cntr& cntr, std::uint64_t flags) {
    if (flags == 0 || (flags & ~std::uint64_t{FI_REMOTE_READ | FI_REMOTE_WRITE}) != 0)
        return -FI_EBADFLAGS;
    if (&cntr.domain != &domain)
        return -FI_EDOMAIN;
    const bool reads = (flags & FI_REMOTE_READ) != 0;
    const bool writes = (flags & FI_REMOTE_WRITE) != 0;
    if ((reads && remote_reads != nullptr) || (writes && remote_writes != nullptr))
        return -FI_EINVAL;
    for (int users = 0; users < (reads ? 1 : 0) + (writes ? 1 : 0); ++users) {
        const int error = without_exceptions([&] { return cntr.add_region(); });
        if (error == 0)
            continue;
        while (users-- > 0)
            cntr.remove_region();
        return error;
    }
    if (reads)
        remote_reads = &cntr;
    if (writes)
        remote_writes = &cntr;
    revoke(*this);
    return 0;
}

void Mr::count(std::uint64_t access) const {
    if ((access & FI_REMOTE_READ) != 0 && remote_reads != nullptr)
        remote_reads->count_success();
    if ((access & FI_REMOTE_WRITE) != 0 && remote_writes != nullptr)
        remote_writes->count_success();
}

// ---- Regions

int Regions::add(Mr& mr, bool is_provided) {
    if (is_provided)
        mr.key = ++last_key_;
    return by_key_.emplace(mr.key, &mr).second ? 0 : -FI_ENOKEY;
}

}  // namespace tagwire::fi
