// SPDX-License-Identifier: BSD-3-Clause
#include "eq.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

namespace tagwire::fi {

namespace {

Eq& eq_of(fid_eq* handle) {
    return static_cast<Eq&>(*handle);
}

int close_eq(fid* handle) {
    auto& eq = object_of<Eq, fid_eq>(handle);
    if (eq.users != 0)
        return -FI_EBUSY;
    delete &eq;
    return 0;
}

int control_eq(fid* handle, int command, void* arg) {
    auto& eq = object_of<Eq, fid_eq>(handle);
    switch (command) {
        case FI_GETWAIT:
            return eq.get_wait(arg);
        case FI_GETWAITOBJ:
            *static_cast<fi_wait_obj*>(arg) = eq.wait_obj;
            return 0;
        default:
            return -FI_ENOSYS;
    }
}

ssize_t read_eq(fid_eq* eq, std::uint32_t* event, void* buf, std::size_t length,
                std::uint64_t flags) {
    return eq_of(eq).read(event, buf, length, flags);
}

ssize_t read_error_eq(fid_eq* eq, fi_eq_err_entry* entry, std::uint64_t flags) {
    return eq_of(eq).read_error(*entry, flags);
}

ssize_t write_eq(fid_eq* eq, std::uint32_t event, const void* buf, std::size_t length,
                 std::uint64_t flags) {
    if (flags != 0)
        return -FI_EINVAL;
    const int status = without_exceptions([&] {
        Eq::Events events;
        Eq::add(events, event, buf, length);
        eq_of(eq).push(events);
        return 0;
    });
    return status == 0 ? static_cast<ssize_t>(length) : status;
}

ssize_t sread_eq(fid_eq* eq, std::uint32_t* event, void* buf, std::size_t length, int timeout,
                 std::uint64_t flags) {
    return eq_of(eq).wait_and_read(event, buf, length, timeout, flags);
}

const char* strerror_eq(fid_eq*, int prov_errno, const void*, char* buf, std::size_t length) {
    const char* text = fi_strerror(prov_errno);
    if (buf != nullptr && length > 0) {
        std::strncpy(buf, text, length - 1);
        buf[length - 1] = '\0';
    }
    return text;
}

fi_ops eq_fid_ops = {sizeof(fi_ops), close_eq, kAbsent, control_eq, kAbsent, kAbsent, kAbsent};
fi_ops_eq eq_ops = {
    .size = sizeof(fi_ops_eq),
    .read = read_eq,
    .readerr = read_error_eq,
    .write = write_eq,
    .sread = sread_eq,
    .strerror = strerror_eq,
};

}  // namespace

Eq::Eq(Fabric& parent, const fi_eq_attr& attr, void* user_context)
    : fid_eq{}, fabric(parent), wait_obj(attr.wait_obj) {
    fid.fclass = FI_CLASS_EQ;
    fid.context = user_context;
    fid.ops = &eq_fid_ops;
    ops = &eq_ops;
    ++fabric.children;
}

Eq::~Eq() {
    if (event_fd_ >= 0)
        close(event_fd_);
    --fabric.children;
}

int Eq::open(fid_fabric* fabric, fi_eq_attr* attr, fid_eq** eq_p, void* user_context) {
    const fi_eq_attr asked = attr == nullptr ? fi_eq_attr{} : *attr;
    if ((asked.flags & ~std::uint64_t{FI_WRITE | FI_AFFINITY}) != 0)
        return -FI_EINVAL;
    if (asked.wait_obj != FI_WAIT_NONE && asked.wait_obj != FI_WAIT_UNSPEC &&
        asked.wait_obj != FI_WAIT_FD)
        return -FI_ENOSYS;
    return without_exceptions([&] {
        auto eq = std::make_unique<Eq>(static_cast<Fabric&>(*fabric), asked, user_context);
        if (asked.wait_obj != FI_WAIT_NONE) {
            eq->event_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            if (eq->event_fd_ < 0)
                return -errno;
        }
        *eq_p = eq.release();
        return 0;
    });
}

void Eq::push(Events& events) {
    const std::lock_guard guard(lock_);
    const bool is_first = events_.empty() && !events.empty();
    events_.splice(events_.end(), events);
    if (event_fd_ >= 0 && is_first)
        eventfd_write(event_fd_, 1);
}

void Eq::pop() {
    events_.pop_front();
    eventfd_t value;
    if (event_fd_ >= 0 && events_.empty())
        eventfd_read(event_fd_, &value);
}

void Eq::add(Events& events, std::uint32_t event, const void* data, std::size_t length) {
    const auto* bytes = static_cast<const std::byte*>(data);
    events.push_back({event, {bytes, bytes + length}, false});
}

void Eq::add_error(Events& events, const fi_eq_err_entry& entry) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&entry);
    events.push_back({0, {bytes, bytes + sizeof entry}, true});
}

ssize_t Eq::read(std::uint32_t* event, void* buf, std::size_t length, std::uint64_t flags) {
    const std::lock_guard guard(lock_);
    if (events_.empty())
        return -FI_EAGAIN;
    const Event& first = events_.front();
    if (first.is_error)
        return -FI_EAVAIL;
    if (length < first.data.size())
        return -FI_ETOOSMALL;
    *event = first.number;
    std::ranges::copy(first.data, static_cast<std::byte*>(buf));
    const auto bytes = static_cast<ssize_t>(first.data.size());
    if ((flags & FI_PEEK) == 0)
        pop();
    return bytes;
}

ssize_t Eq::read_error(fi_eq_err_entry& entry, std::uint64_t flags) {
    const std::lock_guard guard(lock_);
    if (events_.empty() || !events_.front().is_error)
        return -FI_EAGAIN;
    fi_eq_err_entry first;
    std::memcpy(&first, events_.front().data.data(), sizeof first);
    copy_error(entry, first, fabric.api_version);
    if ((flags & FI_PEEK) == 0)
        pop();
    return static_cast<ssize_t>(error_bytes_of<fi_eq_err_entry>(fabric.api_version));
}

ssize_t Eq::wait_and_read(std::uint32_t* event, void* buf, std::size_t length, int timeout_ms,
                          std::uint64_t flags) {
    if (event_fd_ < 0)
        return -FI_EINVAL;
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
        const ssize_t count = read(event, buf, length, flags);
        if (count != -FI_EAGAIN)
            return count;
        int left = -1;
        if (timeout_ms >= 0) {
            using std::chrono::milliseconds;
            left = static_cast<int>(std::chrono::ceil<milliseconds>(end - Clock::now()).count());
            if (left <= 0)
                return -FI_EAGAIN;
        }
        pollfd readable{event_fd_, POLLIN, 0};
        if (poll(&readable, 1, left) < 0 && errno != EINTR)
            return -errno;
    }
}

int Eq::try_wait() {
    const std::lock_guard guard(lock_);
    return events_.empty() ? 0 : -FI_EAGAIN;
}

int Eq::get_wait(void* arg) const {
    if (event_fd_ < 0)
        return -FI_ENODATA;
    *static_cast<int*>(arg) = event_fd_;
    return 0;
}

}  // namespace tagwire::fi
