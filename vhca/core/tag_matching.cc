// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/core/tag_matching.hpp"

#include <cerrno>

#include "vhca/core/device_impl.hpp"

namespace tagwire::vhca {

namespace {

ibv_wc_opcode completion_opcode(ibv_ops_wr_opcode opcode) {
    switch (opcode) {
        case IBV_WR_TAG_ADD:
            return IBV_WC_TM_ADD;
        case IBV_WR_TAG_DEL:
            return IBV_WC_TM_DEL;
        default:
            return IBV_WC_TM_SYNC;
    }
}

bool is_operation(const Cqe& cqe) {
    return cqe.wc.opcode >= IBV_WC_TM_ADD && cqe.wc.opcode <= IBV_WC_TM_SYNC;
}
static_assert(IBV_WC_TM_DEL == IBV_WC_TM_ADD + 1 && IBV_WC_TM_SYNC == IBV_WC_TM_DEL + 1);

}  // namespace

int TagMatching::post(TagWork& work) {
    const bool is_add = work.opcode == IBV_WR_TAG_ADD;
    const bool is_full = !config_.keeps_places && op_head_ - op_free_ == config_.ops_max;
    if (is_full || (is_add && list_.size() == list_.entries_max()))
        return ENOMEM;
    if (work.opcode > IBV_WR_TAG_SYNC || (is_add && work.sges.size() > 1))
        return EINVAL;
    if ((work.flags & IBV_OPS_TM_SYNC) != 0)
        list_.sync(static_cast<std::uint16_t>(work.unexpected_count));
    Cqe cqe{};
    cqe.wc.wr_id = work.wr_id;
    cqe.wc.opcode = completion_opcode(work.opcode);
    if (is_add)
        add(work, cqe);
    else if (work.opcode == IBV_WR_TAG_DEL)
        remove(work, cqe);
    cqe.place = ++op_head_;
    if ((work.flags & IBV_OPS_SIGNALED) != 0)
        publish(cqe);
    else
        let_go(cqe);
    return 0;
}

void TagMatching::catch_up() {
    if (config_.source == nullptr) [[likely]]
        return;
    for (TagWork work; config_.source->next(&work);) {
        const int error = post(work);
        config_.source->done(work, error);
    }
}

void TagMatching::add(TagWork& work, Cqe& cqe) {
    const ibv_sge sge = work.sges.empty() ? ibv_sge{} : work.sges.front();
    static_cast<void>(  // there is room
        list_.add({work.tag, work.mask, work.recv_wr_id, sge}, &work.handle));
    TagEntry& entry = *list_.find(work.handle);
    entry.holds = 2;
    name(entry, cqe);
}

void TagMatching::remove(const TagWork& work, Cqe& cqe) {
    if (TagEntry* removed = list_.remove(work.handle); removed != nullptr) {
        name(*removed, cqe);  // its last completion will not come: that hold becomes this one's
        return;
    }
    cqe.wc.status = IBV_WC_TM_ERR;
    if (TagEntry* consumed = list_.find(work.handle); consumed != nullptr) {
        ++consumed->holds;
        name(*consumed, cqe);
    }
}

/// `cqe` holds `entry`, and asks for a count that is newer than that of the entry.
void TagMatching::name(const TagEntry& entry, Cqe& cqe) {
    cqe.handle = entry.handle;
    cqe.is_holder = true;
    cqe.wc.wc_flags = entry.phase == list_.unexpected_count() ? 0U : unsigned{IBV_WC_TM_SYNC_REQ};
}

TagEntry* TagMatching::match(std::uint64_t tag) {
    return list_.match(tag);
}

void TagMatching::complete(const TagEntry& entry, Cqe cqe, bool is_final) {
    cqe.wc.wr_id = entry.wr_id;
    cqe.wc.opcode = IBV_WC_TM_RECV;
    cqe.handle = entry.handle;
    cqe.is_holder = is_final;
    publish(cqe);
}

void TagMatching::publish(Cqe& cqe) {
    cqe.time = device_.now;
    cqe.matching = this;
    cqe.tag_srq_user = user_;
    cqe.tm_count = list_.unexpected_count();
    cqe.is_solicited = cqe.is_solicited || cqe.wc.status != IBV_WC_SUCCESS;
    Cqe* place = cq().claim();
    if (place == nullptr) [[unlikely]] {
        let_go(cqe);
        return;
    }
    *place = cqe;
    cq().publish(cqe);
}

void TagMatching::give_back(const Cqe& cqe) {
    if (is_operation(cqe))
        op_free_ = cqe.place;
    let_go(cqe);
}

void TagMatching::let_go(const Cqe& cqe) {
    if (cqe.is_holder)
        drop(*list_.find(cqe.handle));
}

void TagMatching::drop(TagEntry& entry) {
    if (--entry.holds == 0)
        list_.release(entry);
}

}  // namespace tagwire::vhca
