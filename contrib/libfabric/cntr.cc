// SPDX-License-Identifier: BSD-3-Clause
#include "cntr.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "away.hpp"
#include "deadline.hpp"
#include "ep.hpp"

namespace tagwire::fi {

namespace {

Cntr& cntr_of(fid_cntr* handle) {
    return static_cast<Cntr&>(*handle);
}

int close_cntr(fid* handle) {
    auto& cntr = object_of<Cntr, fid_cntr>(handle);
    if (cntr.is_bound())
        return -FI_EBUSY;
    delete &cntr;
    return 0;
}

int control_cntr(fid* handle, int command, void* arg) {
    auto& cntr = object_of<Cntr, fid_cntr>(handle);
    switch (command) {
        case FI_GETWAIT:
            return cntr.get_wait(arg);
        case FI_GETWAITOBJ:
            *static_cast<fi_wait_obj*>(arg) = cntr.wait_obj;
            return 0;
        case FI_GETOPSFLAG:
            *static_cast<std::uint64_t*>(arg) = 0;
            return 0;
        case FI_SETOPSFLAG:
            return *static_cast<std::uint64_t*>(arg) == 0 ? 0 : -FI_EINVAL;
        default:
            return -FI_ENOSYS;
    }
}

std::uint64_t read_cntr(fid_cntr* cntr) {
    return cntr_of(cntr).read();
}

std::uint64_t read_error_cntr(fid_cntr* cntr) {
    return cntr_of(cntr).read_errors();
}

int add_cntr(fid_cntr* cntr, std::uint64_t value) {
    cntr_of(cntr).add(value, 0);
    return 0;
}

int set_cntr(fid_cntr* cntr, std::uint64_t value) {
    cntr_of(cntr).set(value);
    return 0;
}

int wait_cntr(fid_cntr* cntr, std::uint64_t threshold, int timeout) {
    return cntr_of(cntr).wait(threshold, timeout);
}

int add_error_cntr(fid_cntr* cntr, std::uint64_t value) {
    cntr_of(cntr).add(0, value);
    return 0;
}

int set_error_cntr(fid_cntr* cntr, std::uint64_t value) {
    cntr_of(cntr).set_errors(value);
    return 0;
}

fi_ops cntr_fid_ops = {sizeof(fi_ops), close_cntr, kAbsent, control_cntr,
                       kAbsent,        kAbsent,    kAbsent};
fi_ops_cntr cntr_ops = with_later_calls(
    fi_ops_cntr{
        .size = sizeof(fi_ops_cntr),
        .read = read_cntr,
        .readerr = read_error_cntr,
        .add = add_cntr,
        .set = set_cntr,
        .wait = wait_cntr,
        .adderr = add_error_cntr,
        .seterr = set_error_cntr,
    },
    kAbsent);

}  // namespace

Cntr::Cntr(Domain& parent, const fi_cntr_attr& attr, void* user_context)
    : fid_cntr{}, domain(parent), wait_obj(attr.wait_obj) {
    fid.fclass = FI_CLASS_CNTR;
    fid.context = user_context;
    fid.ops = &cntr_fid_ops;
    ops = &cntr_ops;
    ++domain.children;
}

Cntr::~Cntr() {
    --domain.children;
}

int Cntr::open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** cntr_p, void* user_context) {
    fi_cntr_attr asked{};
    asked.wait_obj = FI_WAIT_UNSPEC;
    if (attr != nullptr)
        asked = *attr;
    if (asked.events != FI_CNTR_EVENTS_COMP || asked.flags != 0)
        return -FI_EINVAL;
    const bool sleeps = asked.wait_obj == FI_WAIT_UNSPEC || asked.wait_obj == FI_WAIT_FD;
    if (!sleeps && asked.wait_obj != FI_WAIT_NONE && asked.wait_obj != FI_WAIT_YIELD)
        return -FI_ENOSYS;
    return without_exceptions([&] {
        auto cntr = std::make_unique<Cntr>(static_cast<Domain&>(*domain), asked, user_context);
        const int status = sleeps ? cntr->sleeper_.open() : 0;
        if (status == 0)
            *cntr_p = cntr.release();
        return status;
    });
}

int Cntr::add_endpoint(Ep& ep) {
    if (std::ranges::find(eps_, &ep) != eps_.end())
        return 0;
    eps_.push_back(&ep);
    const int error = watch(ep);
    if (error != 0)
        eps_.pop_back();
    return error;
}

void Cntr::remove_endpoint(Ep& ep) {
    std::erase(eps_, &ep);
    unwatch(ep);
}

int Cntr::add_region() {
    if (regions_ == 0) {
        domain.region_cntrs.push_back(this);
        for (const Ep* ep : domain.eps) {
            if (const int error = watch(*ep); error != 0) {
                regions_ = 1;
                remove_region();
                return error;
            }
        }
    }
    ++regions_;
    return 0;
}

void Cntr::remove_region() {
    if (--regions_ > 0)
        return;
    std::erase(domain.region_cntrs, this);
    for (const Ep* ep : domain.eps)
        if (std::ranges::find(eps_, ep) == eps_.end())
            unwatch(*ep);
}

int Cntr::watch(const Ep& ep) {
    return sleeper_.has(ep.worker) ? 0 : sleeper_.add(ep.worker, &ep.is_restless);
}

void Cntr::unwatch(const Ep& ep) {
    sleeper_.remove(ep.worker);
}

void Cntr::progress() {
    domain.is_progressed = true;
    if (regions_ != 0) {
        domain.progress();
        return;
    }
    for (Ep* ep : eps_)
        ep->progress();
}

std::uint64_t Cntr::read() {
    return look_at(successes_);
}

std::uint64_t Cntr::read_errors() {
    return look_at(errors_);
}

std::uint64_t Cntr::look_at(const std::uint64_t& number) {
    std::uint64_t found = 0;
    bool is_one_of_many = false;
    Away away(domain);
    {
        const Guard guard(domain);
        progress();
        found = number;
        if (std::exchange(seen_, successes_ + errors_) == successes_ + errors_) {
            is_one_of_many = domain.polls_beside_others();
            away.take(regions_ != 0 ? domain.eps : eps_);
        }
    }
    if (away.go()) {
        const Guard guard(domain);
        progress();
        seen_ = successes_ + errors_;
        return number;
    }
    if (is_one_of_many)
        tw_yield();
    return found;
}

void Cntr::add(std::uint64_t successes, std::uint64_t errors) {
    const Guard guard(domain);
    successes_ += successes;
    errors_ += errors;
    sleeper_.wake();
}

void Cntr::set(std::uint64_t successes) {
    const Guard guard(domain);
    successes_ = successes;
    sleeper_.wake();
}

void Cntr::set_errors(std::uint64_t errors) {
    const Guard guard(domain);
    errors_ = errors;
    sleeper_.wake();
}

/// Without a wait object it yields: programs wait for counters with FI_WAIT_NONE, too, though
/// fi_cntr(3) forbids it.
int Cntr::wait(std::uint64_t threshold, int timeout_ms) {
    const Deadline deadline(timeout_ms);
    Sleep sleep(sleeper_);
    std::uint64_t errors_before = 0;
    for (bool is_first = true;; is_first = false) {
        {
            const Guard guard(domain);
            sleep.awake();
            if (is_first)
                errors_before = errors_;
            progress();
            if (successes_ >= threshold)
                return 0;
            if (errors_ != errors_before)
                return -FI_EAVAIL;
            if (deadline.is_over())
                return -FI_ETIMEDOUT;
            sleep.fall_asleep();
        }
        sleep.wait(deadline.left_ms());
    }
}

int Cntr::try_wait() {
    const Guard guard(domain);
    if (!sleeper_.is_open())
        return -FI_EINVAL;
    progress();
    return successes_ + errors_ == seen_ && sleeper_.try_arm() ? 0 : -FI_EAGAIN;
}

int Cntr::get_wait(void* arg) const {
    if (!sleeper_.is_open())
        return -FI_ENODATA;
    *static_cast<int*>(arg) = sleeper_.fd();
    return 0;
}

}  // namespace tagwire::fi
