// SPDX-License-Identifier: BSD-3-Clause
#include "cq.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "away.hpp"
#include "deadline.hpp"
#include "ep.hpp"
#include "info.hpp"

namespace tagwire::fi {

namespace {

Cq& cq_of(fid_cq* handle) {
    return static_cast<Cq&>(*handle);
}

int close_cq(fid* handle) {
    auto& cq = object_of<Cq, fid_cq>(handle);
    if (cq.has_endpoints())
        return -FI_EBUSY;
    delete &cq;
    return 0;
}

int control_cq(fid* handle, int command, void* arg) {
    auto& cq = object_of<Cq, fid_cq>(handle);
    switch (command) {
        case FI_GETWAIT:
            return cq.get_wait(arg);
        case FI_GETWAITOBJ:
            *static_cast<fi_wait_obj*>(arg) = cq.wait_obj;
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

[[gnu::noinline]] ssize_t read_cq_slowly(fid_cq* cq, void* buf, std::size_t count) {
    return cq_of(cq).read(buf, count, nullptr);
}

template <class Entry, bool kLocked>
[[gnu::noinline, gnu::hot]] ssize_t read_new_cq(fid_cq* cq, void* buf, std::size_t count) {
    return cq_of(cq).read_new<Entry, kLocked>(buf, count);
}

// Each of the three ways is a jump: the short one saves no registers.
template <class Entry, bool kLocked>
[[gnu::hot]] ssize_t read_cq(fid_cq* handle, void* buf, std::size_t count) {
    Cq& cq = cq_of(handle);
    if ((kLocked && has_threads()) || !cq.is_fast() || count - 1 >= EntryQueue::kLentMax)
        [[unlikely]]
        return read_cq_slowly(handle, buf, count);
    if (cq.has_one()) [[likely]]
        return cq.read_one<Entry>(buf);
    return cq.is_empty() ? read_new_cq<Entry, kLocked>(handle, buf, count)
                         : read_cq_slowly(handle, buf, count);
}

ssize_t read_from_cq(fid_cq* cq, void* buf, std::size_t count, fi_addr_t* sources) {
    return cq_of(cq).read(buf, count, sources);
}

ssize_t read_error_cq(fid_cq* cq, fi_cq_err_entry* entry, std::uint64_t flags) {
    return cq_of(cq).read_error(*entry, flags);
}

ssize_t sread_cq(fid_cq* cq, void* buf, std::size_t count, const void*, int timeout) {
    return cq_of(cq).wait_and_read(buf, count, nullptr, timeout);
}

ssize_t sread_from_cq(fid_cq* cq, void* buf, std::size_t count, fi_addr_t* sources, const void*,
                      int timeout) {
    return cq_of(cq).wait_and_read(buf, count, sources, timeout);
}

int signal_cq(fid_cq* cq) {
    return cq_of(cq).signal();
}

const char* strerror_cq(fid_cq*, int prov_errno, const void*, char* buf, std::size_t length) {
    const char* text = tw_status_string(static_cast<tw_status_t>(prov_errno));
    if (buf != nullptr && length > 0) {
        std::strncpy(buf, text, length - 1);
        buf[length - 1] = '\0';
    }
    return text;
}

constexpr std::size_t kSizeDefault = 1024;
/// Enough for a thread that reads to get the lock between calls of others.
constexpr unsigned kRefusalsMax = 64;

fi_ops cq_fid_ops = {sizeof(fi_ops), close_cq, kAbsent, control_cq, kAbsent, kAbsent, kAbsent};
template <class Entry, bool kLocked>
fi_ops_cq cq_ops = with_later_calls(
    fi_ops_cq{
        .size = sizeof(fi_ops_cq),
        .read = read_cq<Entry, kLocked>,
        .readfrom = read_from_cq,
        .readerr = read_error_cq,
        .sread = sread_cq,
        .sreadfrom = sread_from_cq,
        .signal = signal_cq,
        .strerror = strerror_cq,
    },
    kAbsent);

fi_ops_cq* table_of(fi_cq_format format, bool is_locked) {
    if (format == FI_CQ_FORMAT_TAGGED)
        return is_locked ? &cq_ops<fi_cq_tagged_entry, true> : &cq_ops<fi_cq_tagged_entry, false>;
    return is_locked ? &cq_ops<fi_cq_entry, true> : &cq_ops<fi_cq_entry, false>;
}

std::size_t bytes_of(fi_cq_format format) {
    switch (format) {
        case FI_CQ_FORMAT_MSG:
            return sizeof(fi_cq_msg_entry);
        case FI_CQ_FORMAT_DATA:
            return sizeof(fi_cq_data_entry);
        case FI_CQ_FORMAT_TAGGED:
            return sizeof(fi_cq_tagged_entry);
        default:
            return sizeof(fi_cq_entry);
    }
}

// Each format is the start of the next one.
static_assert(offsetof(fi_cq_tagged_entry, len) == offsetof(fi_cq_msg_entry, len));
static_assert(offsetof(fi_cq_tagged_entry, data) == offsetof(fi_cq_data_entry, data));

bool has_wait_object(fi_wait_obj wait) {
    return wait == FI_WAIT_UNSPEC || wait == FI_WAIT_FD;
}

}  // namespace

Cq::Cq(Domain& parent, const fi_cq_attr& attr, void* user_context)
    : fid_cq{},
      domain(parent),
      format(attr.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_TAGGED : attr.format),
      wait_obj(attr.wait_obj),
      entries_(bytes_of(format), attr.size == 0 ? kSizeDefault : attr.size),
      size_(attr.size == 0 ? kSizeDefault : attr.size) {
    fid.fclass = FI_CLASS_CQ;
    fid.context = user_context;
    fid.ops = &cq_fid_ops;
    ops = table_of(format, domain.is_locked);
    endpoints_changed();
    entries_.set_slow(EntryQueue::kWaits, has_wait_object(wait_obj));
    mark_changed();
    ++domain.children;
}

Cq::~Cq() {
    --domain.children;
}

int Cq::open(fid_domain* domain, fi_cq_attr* attr, fid_cq** cq_p, void* user_context) {
    const fi_cq_attr asked = attr == nullptr ? fi_cq_attr{} : *attr;
    if ((asked.flags & ~std::uint64_t{FI_AFFINITY}) != 0 || asked.size > kQueueMax ||
        static_cast<unsigned>(asked.format) > FI_CQ_FORMAT_TAGGED)
        return -FI_EINVAL;
    if (asked.wait_obj != FI_WAIT_NONE && asked.wait_obj != FI_WAIT_YIELD &&
        !has_wait_object(asked.wait_obj)) {
        FI_WARN(&provider, FI_LOG_CQ, "wait objects are descriptors, or none\n");
        return -FI_ENOSYS;
    }
    return without_exceptions([&] {
        auto cq = std::make_unique<Cq>(static_cast<Domain&>(*domain), asked, user_context);
        const int status = has_wait_object(asked.wait_obj) ? cq->sleeper_.open() : 0;
        if (status != 0)
            return status;
        if (attr != nullptr)
            attr->format = cq->format;
        *cq_p = cq.release();
        return 0;
    });
}

int Cq::add(Ep& ep) {
    if (std::ranges::find(eps_, &ep) != eps_.end())
        return 0;
    return without_exceptions([&] {
        if ((ep.caps & FI_SOURCE) != 0)
            entries_.keep_sources();
        eps_.push_back(&ep);
        const int error = sleeper_.add(ep.worker, &ep.is_restless);
        if (error != 0)
            eps_.pop_back();
        endpoints_changed();
        return error;
    });
}

void Cq::remove(Ep& ep) {
    std::erase(eps_, &ep);
    endpoints_changed();
    sleeper_.remove(ep.worker);
}

void Cq::endpoints_changed() {
    only_worker_ = eps_.size() == 1 ? eps_.front()->worker : nullptr;
    entries_.set_slow(EntryQueue::kShared, only_worker_ == nullptr);
}

// ---- Errors

void Cq::mark_changed() {
    has_marks_ = lost_ != 0 || !errors_.empty();
    entries_.set_slow(EntryQueue::kMarks, has_marks_);
    if (!has_marks_)
        passed_ = 0;
    const std::size_t marks = errors_.size() + (lost_ != 0 ? 1 : 0);
    full_bytes_ = marks < size_ ? (size_ - marks) * entries_.entry_bytes() : 0;
}

void Cq::lose() {
    entries_.end_loan();
    if (lost_++ == 0)
        lost_at_ = passed_ + entries_.waiting();
    mark_changed();
}

bool Cq::refuses_once_more() {
    if (++refusals_ <= kRefusalsMax)
        return true;
    refusals_ = 0;
    return false;
}

void Cq::push_error(fi_cq_err_entry error) {
    entries_.end_loan();
    if (error.prov_errno == TW_OK)
        error.prov_errno = status_of(error.err);
    const int status = without_exceptions([&] {
        errors_.push_back({passed_ + entries_.waiting(), error});
        return 0;
    });
    if (status != 0)
        lose();
    mark_changed();
    sleeper_.wake();
}

/// There are marks.
std::size_t Cq::next_mark() const {
    return is_lost_next() ? lost_at_ : errors_.front().position;
}

bool Cq::is_lost_next() const {
    return lost_ != 0 && (errors_.empty() || lost_at_ < errors_.front().position);
}

fi_cq_err_entry Cq::next_error() const {
    if (!is_lost_next())
        return errors_.front().entry;
    fi_cq_err_entry entry{};
    entry.data = lost_;
    entry.err = FI_EOVERRUN;
    entry.prov_errno = TW_ERR_NO_MEMORY;
    return entry;
}

ssize_t Cq::read_error(fi_cq_err_entry& entry, std::uint64_t flags) {
    const Guard guard(domain);
    if (!is_error_next())
        return -FI_EAGAIN;
    copy_error(entry, next_error(), domain.fabric.api_version);
    if ((flags & FI_PEEK) != 0)
        return 1;
    if (is_lost_next())
        lost_ = 0;
    else
        errors_.pop_front();
    mark_changed();
    return 1;
}

// ---- Reading

void Cq::progress() {
    domain.is_progressed = true;
    for (Ep* ep : eps_)
        ep->progress();
}

template <class Entry>
[[gnu::always_inline]] inline ssize_t Cq::read_one(void* buf) {
    entries_.take_one<Entry>(buf);
    return 1;
}

/// Entries that are pushed meanwhile go straight to the program. Most calls find nothing, and touch
/// as few cache lines and pages as they can: where ranks are more than processors, each finds them
/// gone.
template <class Entry, bool kLocked>
[[gnu::always_inline]] inline ssize_t Cq::read_new(void* buf, std::size_t count) {
    entries_.lend<Entry>(buf, count);
    tw_worker_progress(only_worker_);
    if (!entries_.is_lent()) [[unlikely]]
        return end_read_new<kLocked>(buf, count, entries_.take_back<Entry>(buf));
    const std::size_t taken = entries_.take_back<Entry>(buf);
    if (taken > 0)
        return static_cast<ssize_t>(taken);
    if constexpr (kLocked)
        return end_read_new<kLocked>(buf, count, taken);
    return -FI_EAGAIN;  // a mark would have ended the loan
}

/// Workers of a domain that is never locked go away in progress.
template <bool kLocked>
[[gnu::noinline]] ssize_t Cq::end_read_new(void* buf, std::size_t count, std::size_t taken) {
    if (taken > 0)
        return static_cast<ssize_t>(taken);
    return kLocked && eps_.front()->away ? go_away_and_read(buf, count) : nothing_read();
}

ssize_t Cq::go_away_and_read(void* buf, std::size_t count) {
    Away away(domain);
    {
        const Guard guard(domain);
        if (is_idle())
            away.take(eps_);
    }
    away.go();
    const Guard guard(domain);
    return read_locked(buf, count, nullptr);
}

ssize_t Cq::nothing_read() const {
    if (is_error_next())
        return -FI_EAVAIL;
    return entries_.is_empty() ? -FI_EAGAIN : 0;
}

ssize_t Cq::read(void* buf, std::size_t count, fi_addr_t* sources) {
    ssize_t taken = 0;
    bool is_one_of_many = false;
    Away away(domain);
    {
        const Guard guard(domain);
        taken = read_locked(buf, count, sources);
        if (taken == -FI_EAGAIN) {
            is_one_of_many = domain.polls_beside_others();
            away.take(eps_);
        }
    }
    if (away.go()) {
        const Guard guard(domain);
        return read_locked(buf, count, sources);
    }
    if (is_one_of_many)
        tw_yield();
    return taken;
}

ssize_t Cq::read_locked(void* buf, std::size_t count, fi_addr_t* sources) {
    if (is_idle() || count == 0)
        progress();
    if (has_marks_)
        count = std::min(count, next_mark() - passed_);
    const std::size_t taken = entries_.take(buf, count, sources);
    passed_ += has_marks_ ? taken : 0;
    refusals_ = 0;
    return taken > 0 ? static_cast<ssize_t>(taken) : nothing_read();
}

ssize_t Cq::wait_and_read(void* buf, std::size_t count, fi_addr_t* sources, int timeout_ms) {
    if (wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    const Deadline deadline(timeout_ms);
    Sleep sleep(sleeper_);
    for (;;) {
        ssize_t taken = 0;
        {
            const Guard guard(domain);
            taken = read_locked(buf, count, sources);
        }
        {
            const Guard guard(domain);
            sleep.awake();
            if (taken != -FI_EAGAIN)
                return taken;
            if (is_signaled_ || deadline.is_over()) {
                is_signaled_ = false;
                return -FI_EAGAIN;
            }
            if (is_idle())
                sleep.fall_asleep();
        }
        sleep.wait(deadline.left_ms());
    }
}

int Cq::signal() {
    const Guard guard(domain);
    if (wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    is_signaled_ = true;
    sleeper_.ring();
    return 0;
}

int Cq::try_wait() {
    const Guard guard(domain);
    if (!sleeper_.is_open())
        return -FI_EINVAL;
    if (is_idle())
        progress();
    return is_idle() && sleeper_.try_arm() ? 0 : -FI_EAGAIN;
}

int Cq::get_wait(void* arg) const {
    if (!sleeper_.is_open())
        return -FI_ENODATA;
    *static_cast<int*>(arg) = sleeper_.fd();
    return 0;
}

}  // namespace tagwire::fi
