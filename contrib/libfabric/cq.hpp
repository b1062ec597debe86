// SPDX-License-Identifier: BSD-3-Clause
// Completion queue: a ring that the endpoints bound to it fill, from calls and from progress.
//
// 1. Entries leave in the order in which operations ended, errors among them: an error at the head
//    makes reads answer -FI_EAVAIL until fi_cq_readerr() has taken it.
// 2. It does not overrun: sends answer -FI_EAGAIN once `size` entries wait, and the ring grows for
//    what was posted before. Where there is no memory for that, entries are lost, and one error
//    (FI_EOVERRUN) says how many (`data`).
// 3. Room for `size` entries is there from the start, but only as much of it is touched as entries
//    have waited at once.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric.hpp"
#include "sleeper.hpp"

namespace tagwire::fi {

class Ep;

struct Completion {
    fi_cq_tagged_entry entry;
    fi_addr_t source;
};

class Cq : public fid_cq {
  public:
    Cq(Domain& parent, const fi_cq_attr& attr, void* user_context);
    Cq(const Cq&) = delete;
    Cq& operator=(const Cq&) = delete;
    ~Cq();

    static int open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq_p, void* user_context);

    // ---- For endpoints, with the domain's lock

    int add(Ep& ep);
    void remove(Ep& ep);
    bool has_endpoints() const { return !eps_.empty(); }
    bool is_full() const { return tail_ - head_ >= size_; }
    /// The place of the next entry, to be filled by the caller.
    Completion& push() {
        if (tail_ - head_ > mask_ && !grow()) [[unlikely]]
            return lose();
        sleeper_.wake();
        return ring_[tail_++ & mask_];
    }
    void push_error(const fi_cq_err_entry& error);

    // ---- The calls of fi_cq(3)

    ssize_t read(void* buf, std::size_t count, fi_addr_t* sources);
    ssize_t read_error(fi_cq_err_entry& entry, std::uint64_t flags);
    ssize_t wait_and_read(void* buf, std::size_t count, fi_addr_t* sources, int timeout_ms);
    int signal();
    int try_wait();
    int get_wait(void* arg) const;

    Domain& domain;
    const fi_cq_format format;
    const fi_wait_obj wait_obj;

  private:
    /// Marks, in place of a source, the entries whose rest is in errors_.
    static constexpr fi_addr_t kIsError = FI_ADDR_UNSPEC - 1;

    bool grow();
    /// Where an entry is written that there is no room for.
    Completion& lose();
    fi_cq_err_entry next_error() const;
    void progress();
    std::size_t take(void* buf, std::size_t count, fi_addr_t* sources);
    bool is_error_next() const { return ring_[head_ & mask_].source == kIsError; }

    const std::size_t size_;
    std::size_t room_;  ///< Entries that ring_ has memory for.
    std::size_t mask_;  ///< Entries that the ring has now, a power of two, less one.
    std::unique_ptr<Completion[]> ring_;
    std::size_t head_ = 0;
    std::size_t tail_ = 0;
    std::vector<Ep*> eps_;
    std::deque<fi_cq_err_entry> errors_;
    std::size_t lost_ = 0;     ///< Entries, since that was last told.
    std::size_t lost_at_ = 0;  ///< Where the ring tells it; only with lost_.
    Completion nowhere_{};
    bool is_signaled_ = false;
    Sleeper sleeper_;
};

}  // namespace tagwire::fi
