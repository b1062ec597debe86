// SPDX-License-Identifier: BSD-3-Clause
// Event queue: insertions into address vectors (FI_EVENT), and what the program writes. It has a
// lock of its own, since it belongs to the fabric.
#pragma once

#include <rdma/fi_eq.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "fabric.hpp"

namespace tagwire::fi {

class Eq : public fid_eq {
  public:
    struct Event {
        std::uint32_t number;
        std::vector<std::byte> data;
        bool is_error;
    };
    using Events = std::list<Event>;

    Eq(Fabric& parent, const fi_eq_attr& attr, void* user_context);
    Eq(const Eq&) = delete;
    Eq& operator=(const Eq&) = delete;
    ~Eq();

    static int open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq_p, void* user_context);

    /// Adds an event to a list. May throw for want of memory.
    static void add(Events& events, std::uint32_t event, const void* data, std::size_t length);
    static void add_error(Events& events, const fi_eq_err_entry& entry);
    /// Takes all events of the list, which needs no memory.
    void push(Events& events);
    /// The event's bytes, or -FI_EAGAIN, -FI_EAVAIL, -FI_ETOOSMALL.
    ssize_t read(std::uint32_t* event, void* buf, std::size_t length, std::uint64_t flags);
    ssize_t read_error(fi_eq_err_entry& entry, std::uint64_t flags);
    ssize_t wait_and_read(std::uint32_t* event, void* buf, std::size_t length, int timeout_ms,
                          std::uint64_t flags);
    int try_wait();
    int get_wait(void* arg) const;

    Fabric& fabric;
    const fi_wait_obj wait_obj;
    std::atomic<int> users = 0;

  private:
    void pop();

    std::mutex lock_;
    Events events_;
    int event_fd_ = -1;  ///< Readable while there are events.
};

}  // namespace tagwire::fi
