// SPDX-License-Identifier: BSD-3-Clause
// Operations beside messages that are matched: puts, gets, additions, active messages.
#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

bool ThreadTraffic::is_other(const ThreadOp& op) {
    return op.kind == Kind::kPut || op.kind == Kind::kGet || op.kind == Kind::kAdd ||
           op.kind == Kind::kAm;
}

void ThreadTraffic::act_otherwise(TrafficThread& self, unsigned worker) {
    if (chance(self, 4))
        am_.act(self, worker);
    else
        memory_.act(self, worker);
}

/// The end of any operation, in whichever thread is told of it.
void ThreadTraffic::told(ThreadOp& op, const tw_completion_t& done) {
    if (!is_other(op))
        return ended(op, done);
    // As in ended(): an endpoint that came after a break may have met what was left of it.
    if (done.status < TW_OK && done.status != TW_ERR_CANCELED &&
        way(op.ep->from, op.ep->to).broken > 0)
        op.ep->has_met_a_break = true;
    if (op.kind == Kind::kAm)
        am_.end(op, done);
    else
        memory_.end(op, done);
    op.status = done.status;
    op.told = tick();
    // SYNC thread_op_end: as in ended().
    if (op.ends.fetch_add(1, std::memory_order_release) != 0)
        return wrong("it ends twice", &op);
    workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
    give_back(op);
}

}  // namespace tagwire::test
