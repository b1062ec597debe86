// SPDX-License-Identifier: BSD-3-Clause
// The transport's part of sending: the send queue of an endpoint, and the end of its requests.
// rc gives each endpoint a queue of its own; dc lends channels, which may be shared.
//
// Threads: owner of the interface.
#pragma once

#include "uct/ib/completion_queue.hpp"
#include "uct/ib/message_ep.hpp"

namespace tagwire::ib {

class QueueSource {
  public:
    QueueSource() = default;
    QueueSource(const QueueSource&) = delete;
    QueueSource& operator=(const QueueSource&) = delete;

    /// There is too little room for so many requests and messages: makes it, if it can.
    virtual bool make_room(MessageEp& ep, unsigned requests, unsigned messages) = 0;
    /// The endpoint does not use the room that it had after all.
    virtual void gave_up(MessageEp&) {}
    /// Each request of the queue has ended.
    virtual void drained(WorkQueue& queue) = 0;

    // ---- Special queues, and queues with requests of several endpoints
    virtual void special_completed(WorkQueue&, const Completion&) {}
    [[nodiscard]] virtual bool has_requests(const MessageEp&) const { return false; }
    /// Whose requests are under way there and may be followed by another; null: nobody's.
    [[nodiscard]] virtual MessageEp* poster_of(const WorkQueue& queue) const { return queue.owner; }

    // ---- The ends of endpoints
    /// Nothing is posted for it any more, and what was posted ends.
    virtual void stop(MessageEp& ep) = 0;
    /// The device may still read or write memory of the program for it.
    [[nodiscard]] virtual bool uses_memory(const MessageEp& ep) const { return !ep.has_ended(); }
    /// Operations still in the queue of an endpoint that uses no memory of the program end for the
    /// program; flushes go to the endpoint's own list, because rendezvous end before them.
    virtual void end_copied(MessageEp&) {}
    /// A destroy has waited so long for the end of the requests of `ep` (watched time), and nothing
    /// completes now.
    virtual void press(MessageEp&, std::uint64_t /*waited_ns*/) {}
    /// The endpoint has failed, and its requests end by themselves soon, if the device works.
    [[nodiscard]] virtual bool ends_soon(const MessageEp&) const { return true; }
    /// The device ends its requests by no completion: from now on it touches nothing of them. They
    /// end by OpEnds::finish_later().
    virtual void give_up(MessageEp& ep) = 0;

  protected:
    ~QueueSource() = default;
};

}  // namespace tagwire::ib
