// SPDX-License-Identifier: BSD-3-Clause
#include "cq.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "deadline.hpp"
#include "ep.hpp"
#include "info.hpp"

namespace tagwire::fi {

namespace {

constexpr std::size_t kRingMin = 64;

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

ssize_t read_cq(fid_cq* cq, void* buf, std::size_t count) {
    return cq_of(cq).read(buf, count, nullptr);
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

fi_ops cq_fid_ops = {sizeof(fi_ops), close_cq, kAbsent, control_cq, kAbsent, kAbsent, kAbsent};
fi_ops_cq cq_ops = with_later_calls(
    fi_ops_cq{
        .size = sizeof(fi_ops_cq),
        .read = read_cq,
        .readfrom = read_from_cq,
        .readerr = read_error_cq,
        .sread = sread_cq,
        .sreadfrom = sread_from_cq,
        .signal = signal_cq,
        .strerror = strerror_cq,
    },
    kAbsent);

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

/// Word by word: so short a copy is not worth a call.
void copy_entry(std::byte* to, const fi_cq_tagged_entry& entry, std::size_t bytes) {
    const auto* from = reinterpret_cast<const std::byte*>(&entry);
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t))
        std::memcpy(to + at, from + at, sizeof(std::uint64_t));
}
static_assert(sizeof(fi_cq_entry) % sizeof(std::uint64_t) == 0 &&
              sizeof(fi_cq_msg_entry) % sizeof(std::uint64_t) == 0 &&
              sizeof(fi_cq_data_entry) % sizeof(std::uint64_t) == 0 &&
              sizeof(fi_cq_tagged_entry) % sizeof(std::uint64_t) == 0);

/// From this version of the interface on programs say what room for data their error entry has.
constexpr std::uint32_t kErrDataSizeSince = FI_VERSION(1, 5);

/// The length that fi_cq_err_entry had in that version: programs keep the one that they were built
/// with, and the headers that the provider is built with may know a longer one.
std::size_t error_bytes_of(std::uint32_t api_version) {
    if (FI_VERSION_LT(api_version, kErrDataSizeSince))
        return offsetof(fi_cq_err_entry, err_data_size);
    constexpr std::size_t kBefore1_20 =
        offsetof(fi_cq_err_entry, err_data_size) + sizeof(fi_cq_err_entry::err_data_size);
    return FI_VERSION_LT(api_version, FI_VERSION(1, 20)) ? kBefore1_20 : sizeof(fi_cq_err_entry);
}

bool has_wait_object(fi_wait_obj wait) {
    return wait == FI_WAIT_UNSPEC || wait == FI_WAIT_FD;
}

}  // namespace

Cq::Cq(Domain& parent, const fi_cq_attr& attr, void* user_context)
    : fid_cq{},
      domain(parent),
      format(attr.format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_TAGGED : attr.format),
      wait_obj(attr.wait_obj),
      size_(attr.size == 0 ? 1024 : attr.size),
      room_(std::bit_ceil(std::max(size_, kRingMin))),
      mask_(kRingMin - 1),
      ring_(std::make_unique_for_overwrite<Completion[]>(room_)) {
    fid.fclass = FI_CLASS_CQ;
    fid.context = user_context;
    fid.ops = &cq_fid_ops;
    ops = &cq_ops;
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
    eps_.push_back(&ep);
    return sleeper_.add(ep.worker);
}

void Cq::remove(Ep& ep) {
    std::erase(eps_, &ep);
    sleeper_.remove(ep.worker);
}

bool Cq::grow() {
    const std::size_t mask = 2 * mask_ + 1;
    if (mask < room_) {
        // Entries stay, or move to the half that is new.
        for (std::size_t i = head_; i != tail_; ++i)
            ring_[i & mask] = ring_[i & mask_];
    } else {
        std::unique_ptr<Completion[]> larger(new (std::nothrow) Completion[mask + 1]);
        if (larger == nullptr)
            return false;
        for (std::size_t i = head_; i != tail_; ++i)
            larger[i & mask] = ring_[i & mask_];
        ring_ = std::move(larger);
        room_ = mask + 1;
    }
    mask_ = mask;
    return true;
}

Completion& Cq::lose() {
    if (lost_ == 0) {
        // The newest entry tells of it, and so is lost, too.
        lost_at_ = tail_ - 1;
        Completion& newest = ring_[lost_at_ & mask_];
        if (newest.source == kIsError)
            errors_.pop_back();
        newest.source = kIsError;
        ++lost_;
    }
    ++lost_;
    return nowhere_;
}

void Cq::push_error(const fi_cq_err_entry& error) {
    Completion& entry = push();
    if (&entry == &nowhere_)
        return;
    entry.source = kIsError;
    const int status = without_exceptions([&] {
        errors_.push_back(error);
        return 0;
    });
    if (status == 0)
        return;
    if (lost_++ == 0)
        lost_at_ = tail_ - 1;
    else
        --tail_;
}

void Cq::progress() {
    for (Ep* ep : eps_)
        ep->progress();
}

std::size_t Cq::take(void* buf, std::size_t count, fi_addr_t* sources) {
    const std::size_t bytes = bytes_of(format);
    auto* to = static_cast<std::byte*>(buf);
    std::size_t taken = 0;
    for (; taken < count && head_ != tail_; ++taken, ++head_, to += bytes) {
        const Completion& next = ring_[head_ & mask_];
        if (next.source == kIsError) [[unlikely]]
            break;
        copy_entry(to, next.entry, bytes);
        if (sources != nullptr)
            sources[taken] = next.source;
    }
    return taken;
}

ssize_t Cq::read(void* buf, std::size_t count, fi_addr_t* sources) {
    const Guard guard(domain);
    if (head_ == tail_ || count == 0) {
        progress();
        if (head_ == tail_)
            return -FI_EAGAIN;
    }
    const std::size_t taken = take(buf, count, sources);
    if (taken == 0 && is_error_next())
        return -FI_EAVAIL;
    return static_cast<ssize_t>(taken);
}

ssize_t Cq::read_error(fi_cq_err_entry& entry, std::uint64_t flags) {
    const Guard guard(domain);
    if (head_ == tail_ || !is_error_next())
        return -FI_EAGAIN;
    const std::uint32_t api_version = domain.fabric.api_version;
    fi_cq_err_entry next = next_error();
    clear_source(next);
    // No error has data; whoever brought room for some keeps it.
    if (FI_VERSION_GE(api_version, kErrDataSizeSince))
        next.err_data = entry.err_data;
    std::memcpy(&entry, &next, error_bytes_of(api_version));
    if ((flags & FI_PEEK) != 0)
        return 1;
    if (lost_ != 0 && head_ == lost_at_)
        lost_ = 0;
    else
        errors_.pop_front();
    ++head_;
    return 1;
}

fi_cq_err_entry Cq::next_error() const {
    if (lost_ == 0 || head_ != lost_at_)
        return errors_.front();
    fi_cq_err_entry entry{};
    entry.data = lost_;
    entry.err = FI_EOVERRUN;
    entry.prov_errno = TW_ERR_NO_MEMORY;
    return entry;
}

ssize_t Cq::wait_and_read(void* buf, std::size_t count, fi_addr_t* sources, int timeout_ms) {
    if (wait_obj == FI_WAIT_NONE)
        return -FI_EINVAL;
    const Deadline deadline(timeout_ms);
    Sleep sleep(sleeper_);
    for (;;) {
        const ssize_t taken = read(buf, count, sources);
        {
            const Guard guard(domain);
            sleep.awake();
            if (taken != -FI_EAGAIN)
                return taken;
            if (is_signaled_ || deadline.is_over()) {
                is_signaled_ = false;
                return -FI_EAGAIN;
            }
            if (head_ == tail_)
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
    if (head_ == tail_)
        progress();
    return head_ == tail_ && sleeper_.try_arm() ? 0 : -FI_EAGAIN;
}

int Cq::get_wait(void* arg) const {
    if (!sleeper_.is_open())
        return -FI_ENODATA;
    *static_cast<int*>(arg) = sleeper_.fd();
    return 0;
}

}  // namespace tagwire::fi
