// SPDX-License-Identifier: BSD-3-Clause
// Endpoints: made, flushed, closed, failed.
#include <algorithm>
#include <string_view>
#include <utility>

#include "protocols/traffic.hpp"

namespace tagwire::test {

namespace {

/// The answer of a close: that of an endpoint that had failed has closed it all the same.
bool is_closed_by(tw_status_t answer) {
    return answer != TW_ERR_NO_RESOURCE && answer != TW_ERR_NO_MEMORY;
}

}  // namespace

/// Operations on it may end with an error, and its messages may be lost.
bool Traffic::is_broken(const TrafficEp& ep) {
    return ep.failures > 0 || ep.has_met_a_break || way(ep.from, ep.to).broken > ep.created;
}

bool Traffic::is_anything_broken(unsigned worker) {
    for (unsigned i = 0; i < workers_max(); ++i)
        if (way(worker, i).broken > 0 || way(i, worker).broken > 0)
            return true;
    return false;
}

/// An operation over an endpoint, which may have had no effect. With one thread only calls before
/// the program was told of the break are excused, and those that have failed.
bool Traffic::is_excused(const TrafficOp& op) {
    if (workers_[op.worker].is_dead || workers_[op.peer].is_dead)
        return true;
    if (!is_alone())
        return is_broken(*op.ep);
    const Tick broken = way(op.worker, op.peer).broken;
    const bool has_failed = op.is_over() && !op.is_refused && op.status < TW_OK;
    return broken > op.call.begin || (broken > 0 && has_failed);
}

/// In both directions.
void Traffic::note_break(unsigned from, unsigned to, Tick until) {
    for (TrafficWay* each : {&way(from, to), &way(to, from)}) {
        Tick before = each->broken.load(std::memory_order_relaxed);
        while (before < until &&
               !each->broken.compare_exchange_weak(before, until, std::memory_order_relaxed)) {
        }
    }
}

/// In progress of any thread. The endpoint is closed by one that has it alone.
void Traffic::on_failure(void* arg, tw_ep_h ep, tw_status_t /*status*/) {
    auto& traffic = *static_cast<Traffic*>(arg);
    auto& failed = *static_cast<TrafficEp*>(tw_ep_user_data(ep));
    if (failed.failures.fetch_add(1, std::memory_order_relaxed) != 0)
        traffic.wrong("an endpoint fails twice");
    if (traffic.way(failed.from, failed.to).broken == 0)
        traffic.wrong("an endpoint fails, and nobody has broken anything");
    traffic.note_break(failed.from, failed.to, traffic.tick());
    traffic.way(failed.from, failed.to).has_failed = true;
}

/// Until a side is told that a connection has broken, an endpoint that it makes may be one of that
/// connection, and go with it. One thread learns that from the endpoint.
void Traffic::on_peer(void* arg, std::uint64_t id, tw_peer_event_t event, tw_status_t status) {
    const auto& at = *static_cast<TrafficWorker*>(arg);
    Traffic& traffic = *at.traffic;
    if (event == TW_PEER_UP || status == TW_OK)
        return;
    for (const TrafficWorker& peer : traffic.workers_) {
        if (peer.id != id)
            continue;
        if (traffic.way(at.index, peer.index).broken == 0)
            traffic.wrong("a connection ends badly that nobody has broken");
        else if (!traffic.is_alone())
            traffic.note_break(at.index, peer.index, traffic.tick());
    }
}

void Traffic::open_ep(unsigned from, unsigned to) {
    TrafficWay& entry = way(from, to);
    const std::unique_lock alone(entry.lock, std::try_to_lock);
    if (!alone || entry.ep != nullptr || workers_[to].is_dead || entry.is_closing)
        return;
    TrafficEp& ep = entry.eps.emplace_back();
    ep.from = from;
    ep.to = to;
    ep.number = ++eps_;
    ep.created = tick();
    const Bytes& address = workers_[to].address;
    const tw_ep_params_t params{
        .address = address.data(), .address_length = address.size(), .user_data = &ep};
    const tw_status_t status = tw_ep_create(workers_[from].worker.get(), &params, &ep.handle);
    if (status == TW_OK)
        entry.ep = &ep;
    else if (is_for_lack_of_memory(status))
        return;
    else if (status != TW_ERR_ALREADY_EXISTS && !workers_[to].is_dead)
        wrong(std::string("tw_ep_create() answers ") + tw_status_string(status));
    else if ((is_alone() || !options_.has_closes) && !workers_[to].is_dead)
        wrong("there is an endpoint that nobody has made");
}

/// A lock that keeps the endpoint open, which is made if there is none. Not owned: not now.
std::shared_lock<std::shared_mutex> Traffic::use_ep(unsigned from, unsigned to) {
    TrafficWay& entry = way(from, to);
    std::shared_lock use(entry.lock, std::try_to_lock);
    if (use && entry.ep == nullptr) {
        use.unlock();
        open_ep(from, to);
        use = std::shared_lock(entry.lock, std::try_to_lock);
    }
    if (use && entry.ep == nullptr)
        use.unlock();
    return use;
}

// ---- Closes

void Traffic::close(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    const bool is_forced = options_.has_breaks && chance(self, 3);
    {
        TrafficWay& entry = way(worker, to);
        const std::unique_lock alone(entry.lock, std::try_to_lock);
        if (!alone || entry.ep == nullptr || entry.has_failed || workers_[to].is_dead)
            return;
        if (chance(self, 2))
            memory_.free_key(*entry.ep);
        if (is_forced)
            close_by_force(self, worker, to);
        else
            close_in_order(self, worker, to, draw_level(self));
    }
    // The peer learns of the break when it is spoken to again.
    if (is_forced && is_alone())
        open_ep(worker, to);
}

/// Anything under way between the two, in either direction, may be lost.
void Traffic::close_by_force(TrafficThread& self, unsigned worker, unsigned to) {
    TrafficWay& entry = way(worker, to);
    note_break(worker, to, 1);
    TrafficOp& op = new_op(self, Kind::kClose, worker);
    op.peer = to;
    op.ep = entry.ep;
    op.is_forced = true;
    op.report = Report::kNobody;
    op.call.begin = tick();
    const tw_status_t status = tw_ep_close(op.ep->handle, TW_CLOSE_FORCE, nullptr, nullptr);
    if (status != TW_OK && status != TW_INPROGRESS)
        return wrong(std::string("a close by force answers ") + tw_status_string(status));
    entry.ep = nullptr;
    op.call.end = op.told = tick();
    op.status = status;
    op.ends = 1;
    note_break(worker, to, op.told);
}

/// True: it is closed, or on its way.
bool Traffic::close_in_order(TrafficThread& self, unsigned worker, unsigned to,
                             tw_flush_level_t level) {
    TrafficWay& entry = way(worker, to);
    TrafficOp& op = new_op(self, Kind::kClose, worker);
    op.peer = to;
    op.ep = entry.ep;
    op.level = level;
    draw_report(self, op);
    tw_status_t answer = TW_OK;
    entry.is_closing = is_alone();
    const bool is_under_way = post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return answer = tw_ep_close(op.ep->handle, level, what, request_p);
    });
    if (is_under_way || is_closed_by(answer))
        entry.ep = nullptr;
    if (!is_under_way)
        entry.is_closing = false;
    // It had failed, and the program has not been told.
    if (!is_under_way && is_closed_by(answer) && is_alone())
        note_break(worker, to, tick());
    return entry.ep == nullptr;
}

/// Some thread's progress was told that one of this worker's has failed.
void Traffic::close_failed(TrafficThread& self, unsigned worker) {
    for (unsigned to = 0; to < workers_.size(); ++to) {
        TrafficWay& entry = way(worker, to);
        if (!entry.has_failed)
            continue;
        const std::unique_lock alone(entry.lock, std::try_to_lock);
        if (!alone || !entry.has_failed.exchange(false))
            continue;
        // It may have been closed since: then there is none, or another one.
        if (entry.ep == nullptr || entry.ep->failures == 0)
            continue;
        const bool is_forced = chance(self, 2);
        const tw_flush_level_t level = is_forced ? TW_CLOSE_FORCE : TW_FLUSH_DELIVERED;
        const tw_status_t status =
            tw_ep_close(std::exchange(entry.ep, nullptr)->handle, level, nullptr, nullptr);
        // In order it is the failure, unless nothing was sent.
        if (status != TW_OK && (is_forced || !is_closed_by(status)))
            wrong(std::string("the close of a failed endpoint answers ") +
                  tw_status_string(status));
        if (is_alone())
            note_break(worker, to, tick());
    }
}

// ---- Flushes

void Traffic::flush(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    const std::shared_lock use(way(worker, to).lock, std::try_to_lock);
    if (use && way(worker, to).ep != nullptr)
        flush_way(self, worker, to, draw_level(self));
}

tw_status_t Traffic::flush_way(TrafficThread& self, unsigned worker, unsigned to,
                               tw_flush_level_t level) {
    TrafficOp& op = new_op(self, Kind::kFlush, worker);
    op.peer = to;
    op.ep = way(worker, to).ep;
    op.level = level;
    draw_report(self, op);
    tw_status_t answer = TW_OK;
    post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return answer = tw_ep_flush(op.ep->handle, level, what, request_p);
    });
    return answer;
}

/// A close is a flush, too. With one thread, everything that was sent and put before is there now,
/// if it was delivered.
void Traffic::end_flush(TrafficOp& op, const tw_completion_t& done) {
    if (!is_alone())
        return;
    TrafficWay& entry = way(op.worker, op.peer);
    if (op.kind == Kind::kClose) {
        entry.is_closing = false;
        if (entry.broken > 0)
            note_break(op.worker, op.peer, tick());
    }
    if (done.status != TW_OK || workers_[op.peer].is_dead || op.level != TW_FLUSH_DELIVERED)
        return;
    memory_.flushed(op);
    const Tick now = tick();
    for (TrafficOp* sent : entry.sent)
        if (sent->ep == op.ep && sent->call.is_before(op.call) && !is_excused(*sent))
            sent->taken = std::min(sent->taken, now);
    check_flushed(op.peer);
}

void Traffic::check_flushed(unsigned to) {
    std::uint64_t wanted = 0, arrived = 0;
    for (unsigned from = 0; from < workers_.size(); ++from)
        for (const TrafficOp* sent : way(from, to).sent)
            wanted += sent->taken != kNever && sent->cancelled == kNever && !is_excused(*sent);
    std::array<tw_worker_counter_t, 128> counters;
    unsigned count = counters.size();
    if (tw_worker_counters(workers_[to].worker.get(), counters.data(), &count) != TW_OK)
        wrong("the counters of a worker cannot be read");
    for (unsigned i = 0; i < count; ++i) {
        const std::string_view name = counters.at(i).name;
        if (name == "rx_expected" || name == "rx_unexpected")
            arrived += counters.at(i).value;
    }
    if (arrived < wanted)
        wrong("a flush has ended too early: " + std::to_string(arrived) + " messages of " +
              std::to_string(wanted) + " have arrived at worker " + std::to_string(to));
}

}  // namespace tagwire::test
