// SPDX-License-Identifier: BSD-3-Clause
//
// The pending queue: sends that an endpoint refused for lack of resources, waiting for their turn.
//
// One PendingQueue per interface, one PendingGroup per endpoint. Requests of a group run in the
// order in which they were added; groups with requests take turns, one request each, so that none
// starves. Every operation is O(1) and allocates nothing: a request's link lives in
// uct_pending_req_t::priv.
//
// The status that a request's callback returns decides (as uct_pending_callback_t in UCT):
//   UCS_OK          it is done and dropped here; the callback may have freed it or added it anew
//   UCS_INPROGRESS  it made progress and stays first of its group; the next group's turn
//   anything else   it stays first, and its group waits for the next dispatch()
//
// A callback may add requests to any group, purge or destroy any group (its own included) and send.
// While it runs its request is out of the queue and belongs to it: a purge of its own group passes
// the others only, and one that destroys its own group returns UCS_OK. dispatch() within dispatch()
// does nothing.
//
// A transport refuses a new send of an endpoint while group.blocks_sends(), so that order is kept;
// sends from within the callback of that group's first request pass.
//
// Not thread-safe.

#pragma once

#include <uct/api/uct.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "ucs/debug/check.hpp"

namespace tagwire::uct {

namespace detail {

/** A circular doubly linked list of groups; the list itself is a link with no group around it. */
struct PendingLink {
    PendingLink* next = this;
    PendingLink* prev = this;

    PendingLink() = default;
    PendingLink(const PendingLink&) = delete;
    PendingLink& operator=(const PendingLink&) = delete;

    bool alone() const { return next == this; }
    void unlink() {
        next->prev = prev;
        prev->next = next;
        next = this;
        prev = this;
    }
    void insert_before(PendingLink& link) {
        link.prev = prev;
        link.next = this;
        prev->next = &link;
        prev = &link;
    }
    void push_back(PendingLink& link) { insert_before(link); }
    void push_front(PendingLink& link) { next->insert_before(link); }
    void append_all_of(PendingLink& other) {
        if (other.alone())
            return;
        prev->next = other.next;
        other.next->prev = prev;
        other.prev->next = this;
        prev = other.prev;
        other.next = &other;
        other.prev = &other;
    }
};

}  // namespace detail

class PendingGroup : private detail::PendingLink {
  public:
    PendingGroup() = default;
    ~PendingGroup() {
        TW_ASSERT(head_ == nullptr);  // purge first: each request must reach somebody
        unlink();
        if (visit_ != nullptr)
            visit_->group_destroyed = true;
    }

    bool empty() const { return head_ == nullptr; }
    bool blocks_sends() const { return head_ != nullptr && visit_ == nullptr; }
    /// The callback of its first request runs.
    bool is_visited() const { return visit_ != nullptr; }

  private:
    friend class PendingQueue;
    struct Visit {
        bool group_destroyed = false;
    };

    static_assert(UCT_PENDING_REQ_PRIV_LEN >= sizeof(uct_pending_req_t*));
    static uct_pending_req_t* next_of(const uct_pending_req_t* request) {
        uct_pending_req_t* next;
        std::memcpy(&next, request->priv, sizeof(void*));
        return next;
    }
    static void set_next(uct_pending_req_t* request, uct_pending_req_t* next) {
        std::memcpy(request->priv, &next, sizeof(void*));
    }

    void push_back(uct_pending_req_t* request) {
        set_next(request, nullptr);
        if (head_ == nullptr)
            head_ = request;
        else
            set_next(tail_, request);
        tail_ = request;
    }
    void push_front(uct_pending_req_t* request) {
        set_next(request, head_);
        if (head_ == nullptr)
            tail_ = request;
        head_ = request;
    }
    uct_pending_req_t* pop_front() { return std::exchange(head_, next_of(head_)); }

    uct_pending_req_t* head_ = nullptr;
    uct_pending_req_t* tail_ = nullptr;  // meaningful while there is a head
    Visit* visit_ = nullptr;             // while the callback of this group's first request runs
};

class PendingQueue {
  public:
    /** `request->func` is set; the rest of it is ours until its callback returned UCS_OK or purge
     * passed it on. */
    void add(PendingGroup& group, uct_pending_req_t* request) {
        group.push_back(request);
        if (group.alone())
            ready_.push_back(group);
    }

    /** Runs at most `callbacks_max` callbacks, fewer when all groups are empty or refused. Returns
     * the number that made progress. */
    std::size_t dispatch(std::size_t callbacks_max) {
        if (ready_.alone() || dispatching_)
            return 0;
        dispatching_ = true;
        std::size_t progressed = 0;
        for (; callbacks_max != 0 && !ready_.alone(); --callbacks_max)
            progressed += visit(static_cast<PendingGroup&>(*ready_.next));
        ready_.append_all_of(refused_);  // behind those that had no turn
        dispatching_ = false;
        return progressed;
    }

    /** Empties the group, passing each request in order to `callback(request)`, which owns it from
     * then on. */
    template <class Callback>
    void purge(PendingGroup& group, Callback&& callback) {
        uct_pending_req_t* request = std::exchange(group.head_, nullptr);
        if (group.visit_ == nullptr)
            group.unlink();
        while (request != nullptr) {
            uct_pending_req_t* next = PendingGroup::next_of(request);
            callback(request);
            request = next;
        }
    }

    /** The resource that the group was refused is available: its turn comes next. It has
     * requests. */
    void put_first(PendingGroup& group) {
        if (group.visit_ != nullptr)
            return;  // it is its turn
        group.unlink();
        ready_.push_front(group);
    }

    bool empty() const { return ready_.alone() && refused_.alone(); }

  private:
    bool visit(PendingGroup& group) {
        PendingGroup::Visit visit;
        group.visit_ = &visit;
        uct_pending_req_t* request = group.pop_front();
        const ucs_status_t status = request->func(request);
        const bool progressed = status == UCS_OK || status == UCS_INPROGRESS;
        if (visit.group_destroyed) {
            TW_ASSERT(status == UCS_OK);
            return progressed;
        }
        group.visit_ = nullptr;
        if (status != UCS_OK)
            group.push_front(request);
        group.unlink();
        if (!group.empty())
            (progressed ? ready_ : refused_).push_back(group);
        return progressed;
    }

    detail::PendingLink ready_;  // groups whose turn comes, in this order
    // Groups that refused in the running dispatch; empty outside of one.
    detail::PendingLink refused_;
    bool dispatching_ = false;
};

}  // namespace tagwire::uct
