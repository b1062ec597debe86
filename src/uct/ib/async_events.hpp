// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events of a device, handed to the interface that each concerns.
//
// A device has one event queue for all objects on it, and interfaces may belong to workers of
// different threads. So the first interface to find the file descriptor readable takes all events,
// puts each into the mailbox of its interface (qp_context, srq_context and cq_context are
// mailboxes) and acknowledges it at once, so that no object waits for its last event to be
// acknowledged.
//
// Threads: any; a mutex guards the mailboxes.
#pragma once

#include <infiniband/verbs.h>

#include <mutex>
#include <vector>

#include "ucs/memory/reserve.hpp"
#include "uct/ib/verbs.hpp"

namespace tagwire::ib {

struct AsyncEvent {
    ibv_event_type type;
    std::uint32_t qp_num;  // events of a queue pair
    int port;              // events of a port
};

/// The target of the context pointers of an interface's verbs objects.
struct Mailbox {
    ucs::ReserveVector<AsyncEvent> events;
};

class AsyncEvents {
  public:
    /// The descriptor of `context` does not block.
    AsyncEvents(const VerbsTable& verbs, ibv_context* context);

    /// Readable when events wait.
    [[nodiscard]] int fd() const { return context_->async_fd; }

    void add(Mailbox& mailbox);
    void remove(Mailbox& mailbox);
    /// Takes what the device has, then what lies in this mailbox.
    ucs::ReserveVector<AsyncEvent> collect(Mailbox& mailbox);
    /// The queue pair was destroyed: its events leave the mailbox, before another one has its
    /// number. There are no later ones, because ibv_destroy_qp() waits for acknowledgements.
    void forget(Mailbox& mailbox, std::uint32_t qp_num);

  private:
    void deliver(const ibv_async_event& event);

    const VerbsTable& verbs_;
    ibv_context* context_;
    std::mutex mutex_;
    std::vector<Mailbox*> mailboxes_;
};

}  // namespace tagwire::ib
