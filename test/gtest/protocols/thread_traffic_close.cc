// SPDX-License-Identifier: BSD-3-Clause
// Endpoints: made, flushed, closed, failed.
#include <utility>

#include "protocols/thread_traffic.hpp"

namespace tagwire::test {

/// Operations on it may end with an error, and its messages may be lost.
bool ThreadTraffic::is_broken(const ThreadEp& ep) {
    return ep.failures > 0 || ep.has_met_a_break || way(ep.from, ep.to).broken > ep.created;
}

bool ThreadTraffic::is_anything_broken(unsigned worker) {
    for (unsigned i = 0; i < workers_.size(); ++i)
        if (way(worker, i).broken > 0 || way(i, worker).broken > 0)
            return true;
    return false;
}

/// In both directions.
void ThreadTraffic::note_break(unsigned from, unsigned to, Tick until) {
    for (ThreadWay* each : {&way(from, to), &way(to, from)}) {
        Tick before = each->broken.load(std::memory_order_relaxed);
        while (before < until &&
               !each->broken.compare_exchange_weak(before, until, std::memory_order_relaxed)) {
        }
    }
}

/// In progress of any thread. The endpoint is closed by one that has it alone.
void ThreadTraffic::on_failure(void* arg, tw_ep_h ep, tw_status_t /*status*/) {
    auto& traffic = *static_cast<ThreadTraffic*>(arg);
    auto& failed = *static_cast<ThreadEp*>(tw_ep_user_data(ep));
    if (failed.failures.fetch_add(1, std::memory_order_relaxed) != 0)
        traffic.wrong("an endpoint fails twice");
    if (traffic.way(failed.from, failed.to).broken == 0)
        traffic.wrong("an endpoint fails, and nobody has broken anything");
    traffic.note_break(failed.from, failed.to, traffic.tick());
    traffic.way(failed.from, failed.to).has_failed = true;
}

/// Until a side is told that a connection has broken, an endpoint that it makes may be one of that
/// connection, and go with it.
void ThreadTraffic::on_peer(void* arg, std::uint64_t id, tw_peer_event_t event,
                            tw_status_t status) {
    const auto& at = *static_cast<ThreadWorker*>(arg);
    ThreadTraffic& traffic = *at.traffic;
    if (event == TW_PEER_UP || status == TW_OK)
        return;
    for (const ThreadWorker& peer : traffic.workers_)
        if (peer.id == id && traffic.way(at.index, peer.index).broken > 0)
            traffic.note_break(at.index, peer.index, traffic.tick());
        else if (peer.id == id)
            traffic.wrong("a connection ends badly that nobody has broken");
}

void ThreadTraffic::open_ep(unsigned from, unsigned to) {
    ThreadWay& entry = way(from, to);
    const std::unique_lock alone(entry.lock, std::try_to_lock);
    if (!alone || entry.ep != nullptr || workers_[to].is_dead)
        return;
    ThreadEp& ep = entry.eps.emplace_back();
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
    else if (status != TW_ERR_ALREADY_EXISTS && !workers_[to].is_dead)
        wrong(std::string("tw_ep_create() answers ") + tw_status_string(status));
    else if (!options_.has_closes && !workers_[to].is_dead)
        wrong("there is an endpoint that nobody has made");
}

/// A lock that keeps the endpoint open, which is made if there is none. Not owned: not now.
std::shared_lock<std::shared_mutex> ThreadTraffic::use_ep(unsigned from, unsigned to) {
    ThreadWay& entry = way(from, to);
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

void ThreadTraffic::close(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    ThreadWay& entry = way(worker, to);
    const std::unique_lock alone(entry.lock, std::try_to_lock);
    if (!alone || entry.ep == nullptr || entry.has_failed || workers_[to].is_dead)
        return;
    ThreadEp& ep = *entry.ep;
    if (options_.has_breaks && chance(self, 3)) {
        note_break(worker, to, 1);
        ThreadOp& op = new_op(self, Kind::kClose, worker);
        op.peer = to;
        op.ep = &ep;
        op.is_forced = true;
        op.report = Report::kNobody;
        op.call.begin = tick();
        const tw_status_t status = tw_ep_close(ep.handle, TW_EP_CLOSE_FORCE, nullptr, nullptr);
        if (status != TW_OK && status != TW_INPROGRESS)
            return wrong(std::string("a close by force answers ") + tw_status_string(status));
        entry.ep = nullptr;
        op.call.end = op.told = tick();
        op.status = status;
        op.ends = 1;
        note_break(worker, to, op.told);
        return;
    }
    ThreadOp& op = new_op(self, Kind::kClose, worker);
    op.peer = to;
    op.ep = &ep;
    draw_report(self, op);
    tw_status_t answer = TW_OK;
    const bool is_under_way = post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return answer = tw_ep_close(ep.handle, 0, what, request_p);
    });
    if (is_under_way || is_closed_by(answer))
        entry.ep = nullptr;
}

/// Some thread's progress was told that one of this worker's has failed.
void ThreadTraffic::close_failed(unsigned worker) {
    for (unsigned to = 0; to < workers_.size(); ++to) {
        ThreadWay& entry = way(worker, to);
        if (!entry.has_failed)
            continue;
        const std::unique_lock alone(entry.lock, std::try_to_lock);
        if (!alone || !entry.has_failed.exchange(false))
            continue;
        // It may have been closed since: then there is none, or another one.
        if (entry.ep == nullptr || entry.ep->failures == 0)
            continue;
        const tw_status_t status = tw_ep_close(std::exchange(entry.ep, nullptr)->handle,
                                               TW_EP_CLOSE_FORCE, nullptr, nullptr);
        if (status != TW_OK)
            wrong(std::string("the close of a failed endpoint answers ") +
                  tw_status_string(status));
    }
}

void ThreadTraffic::flush(TrafficThread& self, unsigned worker) {
    const auto to = static_cast<unsigned>(pick(self, workers_.size()));
    ThreadWay& entry = way(worker, to);
    const std::shared_lock use(entry.lock, std::try_to_lock);
    if (!use || entry.ep == nullptr)
        return;
    ThreadEp& ep = *entry.ep;
    ThreadOp& op = new_op(self, Kind::kFlush, worker);
    op.peer = to;
    op.ep = &ep;
    draw_report(self, op);
    post(self, op, [&](const tw_op_t* what, tw_request_h* request_p) {
        return tw_ep_flush(ep.handle, what, request_p);
    });
}

}  // namespace tagwire::test
