// SPDX-License-Identifier: BSD-3-Clause
// Protection domains and memory regions.
#include <cerrno>
#include <new>
#include <utility>

#include "vhca/face/api.hpp"
#include "vhca/face/context.hpp"
#include "vhca/setup/pinning.hpp"

namespace tagwire::vhca {
namespace {

constexpr unsigned kAccessKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

// The answer of a card to `access` before it looks at the memory.
int check_access(unsigned access) {
    if ((access & IBV_ACCESS_ON_DEMAND) != 0)
        return EOPNOTSUPP;
    return (access & ~kAccessKnown) != 0 ? EINVAL : 0;
}

ibv_mr* register_memory(ibv_pd* pd, void* base, std::size_t bytes, std::uint64_t iova,
                        unsigned access) {
    access &= ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    if (const int error = check_access(access))
        return fail(error);
    Pinned pinned;
    if (const int error = pin(base, bytes, access, &pinned))
        return fail(error);
    if ((access & IBV_ACCESS_ZERO_BASED) != 0)
        iova = 0;
    auto* made = new (std::nothrow) FaceMr{};
    if (made == nullptr)
        return fail(ENOMEM);
    FaceContext& owner = face(pd->context);
    int error = 0;
    {
        const auto guard = owner.engine->lock();
        error = owner.engine->device().create_mr(*face(pd).core, base, bytes, iova, access,
                                                 &made->core);
        if (error == 0)
            owner.mrs.push_back(*made);
    }
    if (error != 0) {
        delete made;
        return fail(error);
    }
    made->pinned = std::move(pinned);
    made->core->user = made;
    made->mr.context = pd->context;
    made->mr.pd = pd;
    made->mr.addr = base;
    made->mr.length = bytes;
    made->mr.handle = made->core->key;
    made->mr.lkey = made->mr.rkey = made->core->key;
    return &made->mr;
}

}  // namespace

int remove(FacePd& pd) {
    FaceContext& owner = face(pd.pd.context);
    const auto guard = owner.engine->lock();
    const int error = owner.engine->device().destroy_pd(*pd.core);
    if (error == 0)
        owner.pds.erase(pd);
    return error;
}

void dispose(FacePd& pd) {
    delete &pd;
}

void dispose(FaceMr& mr) {
    delete &mr;
}

int remove(FaceMr& mr) {
    FaceContext& owner = face(mr.mr.context);
    const auto guard = owner.engine->lock();
    const int error = owner.engine->device().destroy_mr(*mr.core);
    if (error == 0)
        owner.mrs.erase(mr);
    return error;
}

}  // namespace tagwire::vhca

using namespace tagwire::vhca;

ibv_pd* tagwire_vhca_ibv_alloc_pd(ibv_context* context) {
    auto* made = new (std::nothrow) FacePd{};
    if (made == nullptr)
        return fail(ENOMEM);
    FaceContext& owner = face(context);
    int error = 0;
    {
        const auto guard = owner.engine->lock();
        error = owner.engine->device().create_pd(made, &made->core);
        if (error == 0)
            owner.pds.push_back(*made);
    }
    if (error != 0) {
        delete made;
        return fail(error);
    }
    made->pd.context = context;
    return &made->pd;
}

int tagwire_vhca_ibv_dealloc_pd(ibv_pd* pd) {
    if (const int error = remove(face(pd)))
        return error;
    dispose(face(pd));
    return 0;
}

ibv_mr* tagwire_vhca_ibv_reg_mr(ibv_pd* pd, void* base, std::size_t bytes, int access) {
    return register_memory(pd, base, bytes, reinterpret_cast<std::uintptr_t>(base),
                           static_cast<unsigned>(access));
}

ibv_mr* tagwire_vhca_ibv_reg_mr_iova(ibv_pd* pd, void* base, std::size_t bytes, std::uint64_t iova,
                                     int access) {
    return register_memory(pd, base, bytes, iova, static_cast<unsigned>(access));
}

ibv_mr* tagwire_vhca_ibv_reg_mr_iova2(ibv_pd* pd, void* base, std::size_t bytes, std::uint64_t iova,
                                      unsigned int access) {
    return register_memory(pd, base, bytes, iova, access);
}

int tagwire_vhca_ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* base, std::size_t bytes,
                              int access) {
    constexpr int kFlags =
        IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    const bool changes_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
    const auto rights =
        static_cast<unsigned>(access) & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
    int error = 0;
    if (flags == 0 || (flags & ~kFlags) != 0 || (moves && (base == nullptr || bytes == 0)) ||
        (changes_pd && pd == nullptr)) {
        error = EINVAL;
    } else if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 && check_access(rights) != 0) {
        error = check_access(rights);
    }
    FaceMr& region = face(mr);
    const unsigned wanted =
        (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? rights : region.core->access;
    // A region that may be changed from now on is pinned anew, as one that moves.
    const bool pins = moves || (changes_memory(wanted) && !changes_memory(region.core->access));
    Pinned pinned;
    if (error == 0 && pins)
        error = pin(moves ? base : mr->addr, moves ? bytes : mr->length, wanted, &pinned);
    if (error != 0) {
        errno = error;
        return IBV_REREG_MR_ERR_INPUT;
    }
    Engine& engine = *face(mr->context).engine;
    {
        const auto guard = engine.lock();
        error = engine.device().change_mr(*region.core, flags, changes_pd ? face(pd).core : nullptr,
                                          base, bytes, rights);
        mr->lkey = mr->rkey = region.core->key;
    }
    if (error != 0) {
        errno = error;
        return IBV_REREG_MR_ERR_CMD;
    }
    if (pins)
        region.pinned = std::move(pinned);
    if (moves) {
        mr->addr = base;
        mr->length = bytes;
    }
    if (changes_pd)
        mr->pd = pd;
    return 0;
}

int tagwire_vhca_ibv_dereg_mr(ibv_mr* mr) {
    if (const int error = remove(face(mr)))
        return error;
    dispose(face(mr));
    return 0;
}
