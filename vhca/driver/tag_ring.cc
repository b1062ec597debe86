// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "vhca/driver/rings.hpp"

namespace tagwire::vhca::driver {

namespace {
constexpr std::uint32_t kNoHandle = ~std::uint32_t{0};  // of no receive: removing it fails
}

void TagRing::make_work(TagWork* work_p) {
    const TagCommand& command = ring_.wqe_.tag;
    TagWork& work = *work_p;
    work = {};
    work.flags = (command.wants_completion ? unsigned{IBV_OPS_SIGNALED} : 0U) |
                 (command.has_count ? unsigned{IBV_OPS_TM_SYNC} : 0U);
    work.unexpected_count = command.count;
    std::uint16_t index = 0;
    switch (command.kind) {
        case TagCommand::Kind::kNop:
            work.opcode = IBV_WR_TAG_SYNC;
            break;
        case TagCommand::Kind::kAppend:
            index = indices_.take(command.index);
            work.opcode = IBV_WR_TAG_ADD;
            work.tag = command.tag;
            work.mask = command.mask;
            work.sges = {&command.sge, command.sge.length != 0 ? 1U : 0U};
            break;
        case TagCommand::Kind::kRemove: {
            index = command.index;
            const std::uint32_t* handle = indices_.find(index);
            work.opcode = IBV_WR_TAG_DEL;
            work.handle = handle == nullptr ? kNoHandle : *handle;
            break;
        }
    }
    work.wr_id = work.recv_wr_id = EntryName{index, 0}.pack();
}

void TagRing::advance() {
    ring_.seen_ = static_cast<std::uint16_t>(ring_.seen_ + ring_.wqe_.blocks);
}

bool TagRing::next(ibv_qp_state state, TagWork* work_p) {
    if (state < IBV_QPS_RTS || !ring_.fetch() || !ring_.wqe_.is_tag_command)
        return false;
    make_work(work_p);
    return true;
}

void TagRing::done(const TagWork& work, int error) {
    has_operated_ = true;
    if (error != 0) {
        ring_.is_gone_ = true;  // the list has no room for it
        return;
    }
    if (work.opcode == IBV_WR_TAG_ADD)
        indices_.put(EntryName::unpack(work.wr_id).counter, work.handle);
    advance();
}

bool TagRing::poll(Qp& qp, Srq& srq, Time now) {
    if (qp.state() < IBV_QPS_RTS)
        return false;
    unsigned taken = 0;
    bool has_sent = false;
    for (; taken != SendRing::kEntriesPerPoll && ring_.fetch(); ++taken) {
        if (ring_.wqe_.is_tag_command) {
            TagWork work;
            make_work(&work);
            std::size_t failed = 0;
            done(work, srq.post_ops({&work, 1}, &failed, now));
        } else if (const int error = ring_.post(qp); error == ENOMEM) {
            break;
        } else {
            ring_.is_gone_ = error != 0;
            has_sent = has_sent || error == 0;
            advance();
        }
    }
    has_sent_ = has_sent_ || has_sent;
    if (has_sent)
        qp.ring(now);
    return taken != 0;
}

bool TagCommanders::next(TagWork* work_p) {
    std::erase_if(all_, [](const Commander& one) { return one.ring->is_for_sends(); });
    for (const Commander& one : all_) {
        if (one.ring->next(one.qp->state(), work_p)) {
            asked_ = one.ring;
            return true;
        }
    }
    return false;
}

}  // namespace tagwire::vhca::driver
