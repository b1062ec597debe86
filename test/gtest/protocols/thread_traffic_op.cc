// SPDX-License-Identifier: BSD-3-Clause
// Any operation: how it is told about, and its end.
#include <algorithm>
#include <sstream>
#include <utility>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kThreadHistory = 12;

std::string text_of(const tw_completion_t& done) {
    std::ostringstream out;
    out << " (" << tw_status_string(done.status) << ", tag " << std::hex << done.tag << std::dec
        << ", " << done.length << " of " << done.message_length << " bytes)";
    return out.str();
}

const char* name_of(ThreadOp::Kind kind) {
    constexpr const char* kNames[] = {"send",  "receive", "many", "peek", "claim",         "flush",
                                      "close", "put",     "get",  "add",  "active message"};
    return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace

ThreadOp& ThreadTraffic::new_op(TrafficThread& self, Kind kind, unsigned worker) {
    ThreadOp& op = kind == Kind::kSend ? self.sends[self.sent++] : self.others.emplace_back();
    op.traffic = this;
    op.owner = &self;
    op.kind = kind;
    op.worker = worker;
    return op;
}

void ThreadTraffic::draw_report(TrafficThread& self, ThreadOp& op) {
    op.is_plain = chance(self, 3) && op.kind != Kind::kMany;
    if (op.is_plain) {
        op.report = op.kind == Kind::kSend && chance(self, 2) ? Report::kNobody
                    : self.depth > 0 || chance(self, 2)       ? Report::kCalled
                                                              : Report::kTested;
        return;
    }
    op.report = static_cast<Report>(pick(self, 5));
    // Nobody would learn of the message, or that the buffer may go.
    if (op.report == Report::kNobody && op.kind != Kind::kSend)
        op.report = Report::kPolled;
    // Completions in a queue of all stay there when their worker is no more.
    if (op.report == Report::kQueued && self.mortal)
        op.report = Report::kPolled;
    if (op.report == Report::kTested && (op.kind == Kind::kMany || self.depth > 0))
        op.report = Report::kCalled;
    if (op.report == Report::kPolled || op.report == Report::kQueued ||
        (op.report == Report::kCalled && chance(self, 2)))
        op.flags |= TW_OP_COMPLETION;
    if (op.report == Report::kQueued)
        op.flags |= TW_OP_CQ;
    if (!self.mortal && chance(self, 3))
        op.flags |= TW_OP_COUNTER;
    if (chance(self, 8))
        op.flags |= TW_OP_MORE;
    if (chance(self, 6) && op.report != Report::kTested && op.report != Report::kNobody)
        op.memory.reset(std::aligned_alloc(64, (tw_request_bytes() + 63) / 64 * 64));
}

/// Sometimes a list instead of one buffer, and sometimes memory that is mapped.
void ThreadTraffic::draw_list(TrafficThread& self, ThreadOp& op, Bytes& data) {
    if (op.is_plain)
        return;
    if (chance(self, 4)) {
        std::size_t at = 0;
        for (std::size_t left = 1 + pick(self, TW_IOV_MAX); left > 0; --left) {
            const std::size_t rest = op.length - at;
            const std::size_t now = left == 1 ? rest : pick(self, rest + 1);
            op.list.push_back({data.data() + at, now});
            at += now;
        }
    }
    // Over dc a peer may read from memory with a handle after a close by force.
    const bool may_map = !options_.has_breaks && !options_.has_death;
    if (may_map && (op.flags & TW_OP_INJECT) == 0 && !data.empty() && chance(self, 10) &&
        tw_mem_map(context_, data.data(), data.size(), nullptr, &op.mapped) != TW_OK)
        wrong("memory is not mapped", &op);
}

tw_op_t ThreadTraffic::how(ThreadOp& op, tw_completion_t* done) {
    tw_op_t what{};
    what.flags = op.flags;
    what.context = &op;
    what.complete = op.report == Report::kCalled ? on_complete : nullptr;
    what.request = op.memory.get();
    what.imm = op.imm;
    what.mem = op.mapped;
    what.message = op.message;
    what.done = op.is_plain && op.kind == Kind::kSend ? nullptr : done;
    what.cq = (op.flags & TW_OP_CQ) != 0 ? queue_ : nullptr;
    what.counter = counter_;
    const bool is_receive =
        op.kind == Kind::kReceive || op.kind == Kind::kMany || op.kind == Kind::kPeek;
    if (is_receive && op.peer != kAnybody)
        what.source = op.ep->handle;
    return what;
}

/// False: the call was refused, and nothing happened.
bool ThreadTraffic::post(TrafficThread& self, ThreadOp& op, const Call& call) {
    tw_completion_t done{};
    const tw_op_t what = how(op, &done);
    tw_request_h request = nullptr;
    const Report report = op.report;
    if (report != Report::kNobody)
        workers_[op.worker].open.fetch_add(1, std::memory_order_relaxed);
    const bool is_bare = op.is_plain && report == Report::kNobody && op.flags == 0;
    op.call.begin = tick();
    const tw_status_t status =
        call(is_bare ? nullptr : &what, report == Report::kNobody ? nullptr : &request);
    op.call.end = tick();
    if (status >= TW_OK && op.kind != Kind::kMany && (op.flags & TW_OP_COUNTER) != 0)
        tallied_.fetch_add(1, std::memory_order_relaxed);
    if (status == TW_OK && what.done == nullptr) {
        done.context = &op;
        done.tag = op.tag;
        done.length = done.message_length = op.length;
    }
    if (status != TW_INPROGRESS)
        return answered(op, status, done);
    if (report == Report::kTested) {
        {
            const std::lock_guard guard(op.guard);
            op.request = request;
        }
        self.tested.push_back(&op);
        if (op.kind != Kind::kClose && !self.mortal)
            cancellable_.at(pick(self, kCancellable)).store(&op, std::memory_order_release);
    } else if (op.kind == Kind::kReceive || op.kind == Kind::kMany) {
        op.request = request;  // for the end of the run, when no other thread is there
    }
    return true;
}

bool ThreadTraffic::answered(ThreadOp& op, tw_status_t status, const tw_completion_t& done) {
    if (op.ends > 0)
        wrong("it was reported and answered", &op);
    if (status == TW_ERR_NO_RESOURCE || done.context == nullptr) {
        if (status != TW_ERR_NO_RESOURCE &&
            (op.ep == nullptr || status >= TW_OK || (!is_broken(*op.ep) && !options_.has_breaks)))
            wrong(std::string("a call answers ") + tw_status_string(status), &op);
        if (op.report != Report::kNobody)
            workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
        op.is_refused = true;
        op.status = status;
        op.ends = 1;
        give_back(op);
        return false;
    }
    if (done.context != &op || done.status != status)
        wrong("op->done has something else than was answered", &op);
    if ((op.flags & TW_OP_COMPLETION) != 0)
        wrong("it is answered, and was to be reported", &op);
    if (op.report == Report::kNobody)
        workers_[op.worker].open.fetch_add(1, std::memory_order_relaxed);
    told(op, done);
    return true;
}

void ThreadTraffic::on_complete(const tw_completion_t* done) {
    ThreadOp& op = *static_cast<ThreadOp*>(done->context);
    ThreadTraffic& traffic = *op.traffic;
    if (op.report != Report::kCalled)
        traffic.wrong("a callback of an operation without one", &op);
    const unsigned worker = op.worker;
    traffic.told(op, *done);
    TrafficThread* const self = t_self;
    if (self == nullptr || traffic.is_settling_ || self->depth > 0 || !traffic.chance(*self, 5))
        return;
    ++self->depth;
    traffic.act(*self, worker);
    --self->depth;
}

void ThreadTraffic::ended(ThreadOp& op, const tw_completion_t& done) {
    if (op.kind == Kind::kMany && (op.flags & TW_OP_COUNTER) != 0)
        tallied_.fetch_add(1, std::memory_order_relaxed);
    const bool is_send = op.kind == Kind::kSend;
    const bool goes_on = op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) == 0;
    // An endpoint that came after a break may have met what was left of the connection.
    if (op.ep != nullptr && done.status < TW_OK && done.status != TW_ERR_CANCELED &&
        way(op.ep->from, op.ep->to).broken > 0)
        op.ep->has_met_a_break = true;
    if (is_send && (done.tag != op.tag || done.message_length != op.length ||
                    (done.status == TW_OK && done.length != op.length)))
        wrong("a send ends as another one" + text_of(done), &op);
    if (!is_send && op.kind != Kind::kFlush && op.kind != Kind::kClose)
        end_receive(op, done);
    if (goes_on)
        return;
    op.status = done.status;
    op.told = tick();
    op.told_source = done.source;
    // SYNC thread_op_end: pairs with the acquire in is_everything_received(): the status.
    if (op.ends.fetch_add(1, std::memory_order_release) != 0)
        return wrong("it ends twice", &op);
    if (op.report != Report::kNobody)
        workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
    // Messages of a receive of many may be looked at by other threads still.
    if (op.kind != Kind::kMany && op.report != Report::kNobody)
        give_back(op);
}

void ThreadTraffic::give_back(ThreadOp& op) {
    if (op.mapped != nullptr && tw_mem_unmap(context_, std::exchange(op.mapped, nullptr)) != TW_OK)
        wrong("memory is not unmapped", &op);
    op.memory.reset();
    std::ranges::fill(op.bytes, std::byte{0xdd});  // nothing may be read from it any more
    Bytes().swap(op.bytes);
}

// ---- Violations, and the calls before them

void ThreadTraffic::wrong(const std::string& what, const ThreadOp* op) {
    constexpr std::size_t kSome = 4000;
    has_failed_ = true;
    const std::lock_guard guard(wrong_lock_);
    if (wrong_.size() < kSome)
        wrong_ += what + (op == nullptr ? "" : ": " + text(*op)) + "\n";
}

std::string ThreadTraffic::text(const ThreadOp& op) {
    std::ostringstream out;
    out << name_of(op.kind) << " at worker " << op.worker;
    if (op.peer != kAnybody)
        out << ", peer " << op.peer;
    out << std::hex << ", flags " << op.flags << std::dec << ", report "
        << static_cast<int>(op.report);
    if (op.ep != nullptr)
        out << ", endpoint " << op.ep->number << " of " << op.ep->created
            << (op.is_forced ? ", by force" : "");
    if (op.is_tagged)
        out << std::hex << ", tag " << op.tag << " of " << op.mask << std::dec;
    out << ", " << op.length << " bytes, number " << op.number << ", called " << op.call.begin
        << " to " << op.call.end;
    if (op.cancelled != kNever)
        out << ", cancelled " << op.cancelled;
    if (op.is_over())
        out << ", told " << op.told << ": " << tw_status_string(op.status)
            << (op.is_refused ? " (refused)" : "");
    for (const RefMatch& match : op.matches)
        out << ", has " << match.message;
    if (op.claimed_by != nullptr)
        out << ", claims " << op.claimed_by->matches[op.match].message;
    return out.str();
}

/// The last operations of each thread.
std::string ThreadTraffic::history() {
    std::ostringstream out;
    for (const TrafficThread& thread : threads_) {
        std::vector<const ThreadOp*> all;
        for (std::size_t i = 0; i < thread.sent; ++i)
            all.push_back(&thread.sends[i]);
        for (const ThreadOp& op : thread.others)
            all.push_back(&op);
        std::ranges::sort(all, {}, [](const ThreadOp* op) { return op->call.begin; });
        out << "thread " << thread.number << ", " << all.size() << " operations, the last ones:\n";
        for (std::size_t i = all.size() - std::min(all.size(), kThreadHistory); i < all.size(); ++i)
            out << "  " << text(*all[i]) << "\n";
        out << " not ended:\n";
        for (const ThreadOp* op : all)
            if (!op->is_over() && op->report != Report::kNobody)
                out << "  " << text(*op) << "\n";
    }
    return out.str();
}

}  // namespace tagwire::test
