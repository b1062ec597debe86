// SPDX-License-Identifier: BSD-3-Clause
// Completion queue: entries that the endpoints bound to it push, from calls and from progress, and
// errors among them.
//
// 1. Entries leave in the order in which operations ended, errors among them: an error at the head
//    makes reads answer -FI_EAVAIL until fi_cq_readerr() has taken it.
// 2. It does not overrun: sends answer -FI_EAGAIN once `size` entries wait, and the queue grows for
//    what was posted before. Where there is no memory for that, entries are lost, and one error
//    (FI_EOVERRUN) says how many (`data`).
// 3. A full queue does not refuse for ever: a call that is repeated without a read between is taken
//    in the end. Open MPI 4.1 handles an entry of a synchronous message by a send, and reads no
//    queue before that is taken where it has threads.
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "entry_queue.hpp"
#include "fabric.hpp"
#include "sleeper.hpp"

namespace tagwire::fi {

class Ep;

class Cq : public fid_cq {
  public:
    Cq(Domain& parent, const fi_cq_attr& attr, void* user_context);
    Cq(const Cq&) = delete;
    Cq& operator=(const Cq&) = delete;
    ~Cq();

    static int open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq_p, void* user_context);

    // ---- For endpoints, with the domain's lock

    /// 0, or a negative error of libfabric: nothing has changed.
    int add(Ep& ep);
    void remove(Ep& ep);
    bool has_endpoints() const { return !eps_.empty(); }
    /// Endpoints that have more to do in progress than their workers know.
    void add_backlogs(int count) {
        entries_.end_loan();
        backlogs_ += count;
        entries_.set_slow(EntryQueue::kBacklogs, backlogs_ != 0);
    }
    bool is_full() const { return entries_.waiting_bytes() >= full_bytes_; }
    /// A call that ends with an entry is not taken now.
    bool refuses() { return is_full() && refuses_once_more(); }
    /// `source` answers the source of the entry, if that is kept.
    template <class Source>
    void push(const fi_cq_tagged_entry& entry, Source source) {
        if (!entries_.push(entry, source))
            lose();
        sleeper_.wake();
    }
    void push(const fi_cq_tagged_entry& entry) {
        push(entry, [] { return FI_ADDR_NOTAVAIL; });
    }
    /// An entry may be pushed by push_fast(), and is_full() does not hold. Until the next call of
    /// anything else that pushes.
    bool has_fast_room() const { return entries_.has_fast_room(); }
    template <class Entry>
    void push_fast(const Entry& entry) {
        entries_.push_fast(entry);
    }
    /// Its prov_errno is a tw_status_t, as fi_cq_strerror() takes it; TW_OK: the one that `err`
    /// stands for.
    void push_error(fi_cq_err_entry error);

    // ---- The calls of fi_cq(3)

    ssize_t read(void* buf, std::size_t count, fi_addr_t* sources);
    /// The same for a queue that is_fast(), without lock and sources, and with `count` from 1 to
    /// EntryQueue::kLentMax: one that has_one(), and one that is_empty(). Entry is that of the
    /// queue's format.
    template <class Entry>
    ssize_t read_one(void* buf);
    template <class Entry, bool kLocked>
    ssize_t read_new(void* buf, std::size_t count);
    bool is_fast() const { return entries_.is_fast(); }
    bool has_one() const { return entries_.waiting_bytes() == entries_.entry_bytes(); }
    bool is_empty() const { return entries_.is_empty(); }
    ssize_t read_error(fi_cq_err_entry& entry, std::uint64_t flags);
    ssize_t wait_and_read(void* buf, std::size_t count, fi_addr_t* sources, int timeout_ms);
    int signal();
    int try_wait();
    int get_wait(void* arg) const;

    Domain& domain;
    const fi_cq_format format;
    const fi_wait_obj wait_obj;

  private:
    struct Error {
        std::size_t position;
        fi_cq_err_entry entry;
    };

    /// The entry that there is no memory for.
    void lose();
    bool refuses_once_more();
    void mark_changed();
    void endpoints_changed();
    std::size_t next_mark() const;
    bool is_lost_next() const;
    bool is_error_next() const { return has_marks_ && next_mark() == passed_; }
    /// Neither an entry nor a mark is there.
    bool is_idle() const { return entries_.is_empty() && !has_marks_; }
    fi_cq_err_entry next_error() const;
    void progress();
    ssize_t nothing_read() const;
    template <bool kLocked>
    ssize_t end_read_new(void* buf, std::size_t count, std::size_t taken);
    [[gnu::noinline]] ssize_t go_away_and_read(void* buf, std::size_t count);
    ssize_t read_locked(void* buf, std::size_t count, fi_addr_t* sources);

    tw_worker_h only_worker_ = nullptr;  ///< The worker of the only endpoint, if there is one.
    EntryQueue entries_;
    std::size_t full_bytes_;  ///< Entries of that length, with the errors, are `size`.
    const std::size_t size_;

    // Errors, and the place of entries that were lost, are marks between the entries.
    bool has_marks_ = false;
    std::size_t passed_ = 0;  ///< Entries read since there are marks, else 0.
    std::deque<Error> errors_;
    std::size_t lost_ = 0;     ///< Entries, since that was last told.
    std::size_t lost_at_ = 0;  ///< Position at which that is told; only with lost_.

    unsigned refusals_ = 0;  ///< Calls since the last read, or since one was taken.

    std::vector<Ep*> eps_;
    int backlogs_ = 0;
    bool is_signaled_ = false;
    Sleeper sleeper_;
};

}  // namespace tagwire::fi
