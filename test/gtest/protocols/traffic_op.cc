// SPDX-License-Identifier: BSD-3-Clause
// Any operation: how it is told about, and its end.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

constexpr std::size_t kTrafficHistory = 12;

const char* name_of(TrafficOp::Kind kind) {
    constexpr const char* kNames[] = {
        "send",  "receive", "receive of many", "peek",
        "claim", "flush",   "close",           "put",
        "get",   "atomic",  "active message",  "receive of an active message"};
    return kNames[static_cast<std::size_t>(kind)];
}

/// Flags that the end of an operation has.
std::uint32_t done_flags(const TrafficOp& op, const tw_completion_t& done) {
    using Kind = TrafficOp::Kind;
    const std::uint32_t tagged = op.is_tagged ? unsigned{TW_DONE_TAGGED} : 0U;
    switch (op.kind) {
        case Kind::kSend:
            return TW_DONE_SEND | tagged | (op.imm != 0 ? unsigned{TW_DONE_IMM} : 0U);
        case Kind::kFlush:
        case Kind::kClose:
            return TW_DONE_FLUSH;
        case Kind::kPut:
            return TW_DONE_PUT | (done.flags & TW_DONE_IMM);
        case Kind::kGet:
            return TW_DONE_GET;
        case Kind::kAtomic:
            return TW_DONE_ATOMIC;
        case Kind::kAm:
            return TW_DONE_SEND | TW_DONE_AM;
        case Kind::kAmReceive:
            return TW_DONE_RECV | TW_DONE_AM;
        default:
            break;
    }
    std::uint32_t flags = TW_DONE_RECV | tagged | (done.imm != 0 ? unsigned{TW_DONE_IMM} : 0U);
    if (op.has(TrafficOp::kBuffered))
        flags |=
            TW_DONE_BUFFERED | (done.length < done.message_length ? unsigned{TW_DONE_MORE} : 0U);
    return flags;
}

}  // namespace

TrafficOp& Traffic::new_op(TrafficThread& self, Kind kind, unsigned worker) {
    TrafficOp& op = kind == Kind::kSend ? self.sends[self.sent++] : self.others.emplace_back();
    op.traffic = this;
    op.owner = &self;
    op.kind = kind;
    op.worker = worker;
    return op;
}

void Traffic::draw_report(TrafficThread& self, TrafficOp& op) {
    op.is_plain = chance(self, 3) && op.kind != Kind::kMany;
    if (op.is_plain) {
        op.report = op.kind == Kind::kSend && chance(self, 2) ? Report::kNobody
                    : chance(self, 2)                         ? Report::kCalled
                                                              : Report::kTested;
        return;
    }
    op.report = static_cast<Report>(pick(self, 5));
    // Nobody would learn of the message, or that the buffer may go.
    const bool may_be_untold = op.kind == Kind::kSend || (is_alone() && op.kind == Kind::kPeek);
    if (op.report == Report::kNobody && !may_be_untold)
        op.report = Report::kPolled;
    // Completions in a queue of all stay there when their worker is no more.
    const bool is_of_queue = !self.mortal && workers_[op.worker].context == context_;
    if (op.report == Report::kQueued && !is_of_queue)
        op.report = Report::kPolled;
    if (op.report == Report::kTested && op.kind == Kind::kMany)
        op.report = Report::kCalled;
    if (op.report == Report::kPolled || op.report == Report::kQueued ||
        (op.report == Report::kCalled && chance(self, 2)))
        op.flags |= TW_OP_COMPLETION;
    // A queue has also those that end after their call, without the flag.
    if (op.report == Report::kQueued && op.kind != Kind::kMany && chance(self, 2))
        op.flags &= ~std::uint32_t{TW_OP_COMPLETION};
    op.is_counted = !self.mortal && !(is_alone() && options_.has_death) && chance(self, 3);
    if (chance(self, 8))
        op.flags |= TW_OP_MORE;
    if (chance(self, 4))
        op.flags |= TW_OP_QUEUE;
    if (chance(self, 6) && op.report != Report::kTested && op.report != Report::kNobody)
        op.memory.reset(std::aligned_alloc(16, TW_REQUEST_BYTES));
}

/// Sometimes a list instead of one buffer, and sometimes memory that is mapped.
void Traffic::draw_list(TrafficThread& self, TrafficOp& op, Bytes& data) {
    if (op.is_plain)
        return;
    if (chance(self, 4)) {
        std::size_t at = 0;
        for (std::size_t left = 1 + pick(self, TW_IOV_MAX); left > 0; --left) {
            const std::size_t rest = op.length - at;
            const std::size_t now = left == 1 ? rest : chance(self, 4) ? 0 : pick(self, rest + 1);
            op.list.push_back({now == 0 && chance(self, 2) ? nullptr : data.data() + at, now});
            at += now;
        }
    }
    // Over dc a peer may read from memory with a handle after a close by force.
    const bool may_map = is_alone() || (!options_.has_breaks && !options_.has_death);
    const auto has_null = [](const tw_iov_t& element) { return element.base == nullptr; };
    if (!may_map || op.has(TW_OP_INJECT) || op.length == 0 || !chance(self, 10) ||
        std::ranges::any_of(op.list, has_null))
        return;
    const tw_status_t status =
        tw_mem_map(workers_[op.worker].context, data.data(), data.size(), nullptr, &op.mapped);
    if (status != TW_OK && !is_for_lack_of_memory(status))
        wrong("memory is not mapped", &op);
}

tw_op_t Traffic::how(TrafficOp& op, tw_message_info_t* info) {
    tw_op_t what{};
    what.flags = op.flags & ~TrafficOp::kKindFlags;
    what.context = &op;
    what.complete = op.report == Report::kCalled ? on_complete : nullptr;
    what.request = op.memory.get();
    what.imm = op.imm;
    what.mem = op.mapped;
    what.info = info;
    what.cq = op.report == Report::kQueued ? queue_ : nullptr;
    what.counter = op.is_counted ? counter_ : nullptr;
    const bool is_receive =
        op.kind == Kind::kReceive || op.kind == Kind::kMany || op.kind == Kind::kPeek;
    if (is_receive && op.peer != kAnybody)
        what.source = op.ep->handle;
    return what;
}

/// The answer of a call as a completion of its operation; the context is NULL if nothing has
/// happened.
tw_completion_t Traffic::answer_of(TrafficOp& op, tw_status_t status,
                                   const tw_message_info_t& info) {
    const bool is_receive = op.kind == Kind::kReceive || op.kind == Kind::kMany ||
                            op.kind == Kind::kPeek || op.kind == Kind::kClaim ||
                            op.kind == Kind::kAmReceive;
    const bool is_refused = status == TW_ERR_NO_RESOURCE || status == TW_ERR_INVALID_PARAM ||
                            is_for_lack_of_memory(status);
    if (is_refused || (status != TW_OK && !is_receive))
        return {};
    if (is_receive) {
        const std::size_t room = op.kind == Kind::kPeek ? info.length : op.length;
        tw_completion_t done = msg::completion_of(status, info, room, &op);
        done.message = op.kind == Kind::kPeek ? op.message : nullptr;
        if (op.kind == Kind::kAmReceive)
            done.tag = op.tag;
        return done;
    }
    tw_completion_t done{};
    done.context = &op;
    done.flags = done_flags(op, done);
    done.tag = op.tag;
    done.length = done.message_length = op.length;
    done.ep = op.ep == nullptr ? nullptr : op.ep->handle;
    return done;
}

/// False: the call was refused, and nothing happened.
bool Traffic::post(TrafficThread& self, TrafficOp& op, const Call& call) {
    tw_message_info_t info{};
    const tw_op_t what = how(op, &info);
    tw_request_h request = nullptr;
    const Report report = op.report;
    if (report != Report::kNobody)
        workers_[op.worker].open.fetch_add(1, std::memory_order_relaxed);
    const bool is_bare = op.is_plain && report == Report::kNobody && op.flags == 0;
    op.call.begin = tick();
    if (is_alone())
        op.call.end = op.call.begin;
    const tw_status_t status =
        call(is_bare ? nullptr : &what, report == Report::kNobody ? nullptr : &request);
    if (!is_alone())
        op.call.end = tick();
    if (status >= TW_OK && op.kind != Kind::kMany && op.is_counted)
        tallied_.fetch_add(1, std::memory_order_relaxed);
    if (status != TW_INPROGRESS)
        return answered(op, status, answer_of(op, status, info));
    keep_request(self, op, request);
    return true;
}

/// For tests, and for cancels. The handle of an operation that is reported otherwise is valid until
/// it is reported (put into the queue of all): only one thread alone, or the end of the run, knows
/// until when that is.
void Traffic::keep_request(TrafficThread& self, TrafficOp& op, tw_request_h request) {
    if (op.report == Report::kNobody || (is_alone() && op.is_over()))
        return;
    if (request == nullptr)
        wrong("there is no request", &op);
    if (op.report == Report::kTested) {
        const std::lock_guard guard(op.guard);
        op.request = request;
        self.tested.push_back(&op);
    } else if (is_alone() || op.kind == Kind::kReceive || op.kind == Kind::kMany) {
        op.request = request;
    }
    const bool is_known =
        is_alone() ? op.report != Report::kQueued : op.report == Report::kTested && !self.mortal;
    if (is_known && op.kind != Kind::kClose)
        cancellable_.at(pick(self, kCancellable)).store(&op, std::memory_order_release);
}

bool Traffic::answered(TrafficOp& op, tw_status_t status, const tw_completion_t& done) {
    if (op.ends > 0)
        wrong("it was reported and answered", &op);
    if (status == TW_ERR_NO_RESOURCE || done.context == nullptr) {
        const bool has_broken = op.ep != nullptr ? is_broken(*op.ep) || options_.has_breaks
                                                 : is_anything_broken(op.worker);
        if (status != TW_ERR_NO_RESOURCE && !is_for_lack_of_memory(status) &&
            (status >= TW_OK || !has_broken))
            wrong(std::string("a call answers ") + tw_status_string(status), &op);
        if (op.report != Report::kNobody)
            workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
        op.is_refused = true;
        op.status = status;
        op.told = tick();
        op.ends = 1;
        give_back(op);
        return false;
    }
    if (done.context != &op || done.status != status)
        wrong("a call has told something else than it has answered", &op);
    if (op.has(TW_OP_COMPLETION))
        wrong("it is answered, and was to be reported", &op);
    if (op.report == Report::kNobody)
        workers_[op.worker].open.fetch_add(1, std::memory_order_relaxed);
    ended(op, done);
    return true;
}

void Traffic::on_complete(const tw_completion_t* done) {
    TrafficOp& op = *static_cast<TrafficOp*>(done->context);
    Traffic& traffic = *op.traffic;
    if (op.report != Report::kCalled)
        traffic.wrong("a callback of an operation without one", &op);
    const unsigned worker = op.worker;
    traffic.ended(op, *done);
    TrafficThread* const self = t_self;
    if (self == nullptr || traffic.is_settling_ || traffic.has_failed_ || self->depth > 1 ||
        !traffic.chance(*self, 5))
        return;
    ++self->depth;
    traffic.act(*self, worker);
    --self->depth;
}

/// The end of any operation, in whichever thread is told of it.
void Traffic::ended(TrafficOp& op, const tw_completion_t& done) {
    if (workers_[op.worker].is_dead) {
        if (op.report != Report::kQueued)
            wrong("it ends although its worker is destroyed", &op);
        return;
    }
    if (op.kind == Kind::kMany && op.is_counted)
        tallied_.fetch_add(1, std::memory_order_relaxed);
    const bool goes_on = op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) == 0;
    // An endpoint that came after a break may have met what was left of the connection.
    if (op.ep != nullptr && done.status < TW_OK && done.status != TW_ERR_CANCELED &&
        way(op.ep->from, op.ep->to).broken > 0)
        op.ep->has_met_a_break = true;
    if (is_alone() && !goes_on)
        op.request = nullptr;
    check_end(op, done);
    if (goes_on)
        return;
    op.status = done.status;
    op.told = tick();
    op.told_source = done.source;
    // SYNC traffic_op_end: pairs with the acquire in is_everything_received(): the status.
    if (op.ends.fetch_add(1, std::memory_order_release) != 0)
        return wrong("it ends twice", &op);
    if (op.report != Report::kNobody)
        workers_[op.worker].open.fetch_sub(1, std::memory_order_relaxed);
    // Messages of a receive of many may be looked at by other threads still.
    if (is_alone() || (op.kind != Kind::kMany && op.report != Report::kNobody))
        give_back(op);
}

void Traffic::check_end(TrafficOp& op, const tw_completion_t& done) {
    const bool is_receive = op.kind == Kind::kReceive || op.kind == Kind::kMany ||
                            op.kind == Kind::kClaim || op.kind == Kind::kPeek;
    const bool is_full = op.kind == Kind::kMany && (done.flags & TW_DONE_MULTI_RECV) != 0;
    const bool has_come = done.status == TW_OK || done.status == TW_ERR_MESSAGE_TRUNCATED;
    const bool has_flags =
        is_receive ? has_come && !is_full : op.kind != Kind::kAmReceive || has_come;
    if (has_flags && done.flags != done_flags(op, done))
        wrong("it ends as another one: flags " + std::to_string(done.flags), &op);
    if (op.kind == Kind::kMany && !is_full && !has_come && !is_anything_broken(op.worker))
        wrong(std::string("a message ends with ") + tw_status_string(done.status), &op);
    if (op.kind == Kind::kMany && !is_full && !has_come)
        op.has_lost_part.store(true, std::memory_order_relaxed);
    if (is_full && done.status == TW_OK && done.length != 0)
        wrong("the end of a receive of many has a message", &op);
    if (is_receive)
        return end_receive(op, done);
    switch (op.kind) {
        case Kind::kSend:
            return end_send(op, done);
        case Kind::kFlush:
        case Kind::kClose:
            return end_flush(op, done);
        case Kind::kAm:
            return am_.end(op, done);
        case Kind::kAmReceive:
            return am_.end_receive(op, done);
        default:
            memory_.end(op, done);
    }
}

/// Over dc, where the peer reads from no queue pair of its own: memory while the cache has its
/// pages registered for another operation.
bool Traffic::may_be_read_still(const TrafficOp& op) {
    static const bool has_dc = [] {
        const char* const transports = std::getenv("TAGWIRE_TEST_TRANSPORTS");
        return transports == nullptr || std::strstr(transports, "dc") != nullptr;
    }();
    static const bool has_cache = std::getenv("TAGWIRE_REG_CACHE") != nullptr;
    return has_dc && has_cache && op.kind == Kind::kSend && !op.is_refused &&
           way(op.worker, op.peer).broken > 0;
}

void Traffic::give_back(TrafficOp& op) {
    const bool is_read = op.mapped == nullptr && may_be_read_still(op);
    if (op.mapped != nullptr &&
        tw_mem_unmap(workers_[op.worker].context, std::exchange(op.mapped, nullptr)) != TW_OK)
        wrong("memory is not unmapped", &op);
    op.memory.reset();
    if (is_read)
        return;
    std::ranges::fill(op.bytes, std::byte{0xdd});  // nothing may be read from it any more
    Bytes().swap(op.bytes);
}

void Traffic::for_each_op(const std::function<void(TrafficOp&)>& act) {
    for (TrafficThread& thread : threads_) {
        for (std::size_t i = 0; i < thread.sent; ++i)
            act(thread.sends[i]);
        for (TrafficOp& op : thread.others)
            act(op);
    }
    for (TrafficOp& op : main_.others)
        act(op);
}

// ---- Violations, and the calls before them

void Traffic::wrong(const std::string& what, const TrafficOp* op) {
    constexpr std::size_t kSome = 4000;
    has_failed_ = true;
    const std::lock_guard guard(wrong_lock_);
    if (wrong_.size() < kSome)
        wrong_ += what + (op == nullptr ? "" : ": " + text(*op)) + "\n";
}

std::string Traffic::text(const TrafficOp& op) {
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
std::string Traffic::history() {
    std::ostringstream out;
    for (const TrafficThread& thread : threads_) {
        std::vector<const TrafficOp*> all;
        for (std::size_t i = 0; i < thread.sent; ++i)
            all.push_back(&thread.sends[i]);
        for (const TrafficOp& op : thread.others)
            all.push_back(&op);
        std::ranges::sort(all, {}, [](const TrafficOp* op) { return op->call.begin; });
        out << "thread " << thread.number << ", " << all.size() << " operations, the last ones:\n";
        for (std::size_t i = all.size() - std::min(all.size(), kTrafficHistory); i < all.size();
             ++i)
            out << "  " << text(*all[i]) << "\n";
        out << " not ended:\n";
        for (const TrafficOp* op : all)
            if (!op->is_over() && op->report != Report::kNobody)
                out << "  " << text(*op) << "\n";
    }
    return out.str();
}

}  // namespace tagwire::test
