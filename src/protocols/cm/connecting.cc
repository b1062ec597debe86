// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cm/connecting.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr std::uint64_t kConnectTimeoutNs = 10'000'000'000;
/// Behind which an address that does not answer is not waited for alone.
constexpr std::uint64_t kNextAddressNs = 250'000'000;
constexpr std::uint64_t kAtOnce = 1;  // a time that has passed

ReserveBytes copy_of(const void* data, std::size_t length) {
    const auto* bytes = static_cast<const std::byte*>(data);
    ReserveBytes copy;
    copy.assign(bytes, bytes + length);
    return copy;
}

}  // namespace

// ---- Attempt

Attempt::Attempt(Connecting& owner, ucs::PrivateFd fd)
    : Watched(owner.cm), owner_(owner), fd_(std::move(fd)) {}

Attempt::~Attempt() {
    if (fd_)
        cm.unwatch(*this, fd_.get());
}

ucs::PrivateFd Attempt::release() {
    cm.unwatch(*this, fd_.get());
    return std::move(fd_);
}

void Attempt::on_ready() {
    owner_.attempt_over(*this);
}

void Attempt::on_late() {
    owner_.try_next();
}

void Attempt::on_no_memory() {
    owner_.on_no_memory();
}

// ---- Connecting

Connecting::Connecting(ConnectionManager& owner, const ucs::HostPort& at,
                       const tw_connect_params_t& params)
    : Watched(owner),
      where_(ucs::text_of(at)),
      params_(params),
      private_data_(copy_of(params.private_data, params.private_length)) {
    if (params.local_sockaddr != nullptr)
        std::memcpy(&own_, params.local_sockaddr, params.local_sockaddr_bytes);
    cm.begun.push_back(this);
}

Connecting::~Connecting() {
    std::erase(cm.begun, this);
    unwatch_all();
}

ucs_status_t Connecting::begin(ConnectionManager& cm, const ucs::HostPort& at,
                               const tw_connect_params_t& params) {
    std::unique_ptr<Connecting> one(new Connecting(cm, at, params));
    const ucs_status_t status = one->lookup_.begin(at);
    if (status != UCS_OK)
        return status;
    if (!cm.watch(*one, one->lookup_.fd(), EPOLLIN))
        return UCS_ERR_IO_ERROR;
    const std::uint64_t timeout = params.timeout_ns == 0 ? kConnectTimeoutNs : params.timeout_ns;
    const std::uint64_t now = ucs::clock_now_ns();
    cm.set_deadline(*one, timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX);
    if (one->lookup_.was_number())
        one->begin_at_once();
    cm.add(std::move(one));
    return UCS_OK;
}

/// The address is a number. The call that has begun may be the last one of the program, so what can
/// be done is done in it; failures are told in progress.
void Connecting::begin_at_once() {
    lookup_.take(&list_);
    unwatch_all();
    state_ = State::kConnecting;
    next_ = list_.get();
    while (next_ != nullptr && !begin_attempt(*std::exchange(next_, next_->ai_next)))
        continue;
    if (attempts_.empty())
        return cm.set_deadline(*this, kAtOnce);
    if (!try_send_request() && attempts_.empty())
        cm.set_deadline(*this, kAtOnce);
}

void Connecting::send_requests(std::span<Connecting* const> all, std::uint64_t end_ns) {
    constexpr timespec kPause{0, 100'000};
    while (true) {
        std::size_t under_way = 0;
        for (Connecting* one : all)
            if (one->state_ == State::kConnecting && !one->try_send_request())
                under_way += one->attempts_.size();
        if (under_way == 0 || ucs::clock_now_ns() >= end_ns)
            return;
        ::nanosleep(&kPause, nullptr);
    }
}

void Connecting::unwatch_all() {
    if (state_ == State::kLookingUp && serial != 0)
        cm.unwatch(*this, lookup_.fd());
    else if (fd_)
        cm.unwatch(*this, fd_.get());
    fd_.reset();
    attempts_.clear();
}

void Connecting::on_ready() {
    switch (state_) {
        case State::kLookingUp:
            return looked_up();
        case State::kConnecting:
            return;  // the attempts have descriptors of their own
        case State::kWaiting:
            return replied();
    }
}

void Connecting::on_late() {
    if (state_ == State::kConnecting && attempts_.empty())
        return try_next();  // which tells why nothing could begin
    constexpr const char* kDoing[] = {"its name is being looked up", "it does not accept",
                                      "it has accepted, but its program does not answer"};
    fail(UCS_ERR_TIMED_OUT, "%s", kDoing[static_cast<std::size_t>(state_)]);
}

void Connecting::looked_up() {
    if (!lookup_.is_over())
        return;
    const int error = lookup_.take(&list_);
    unwatch_all();
    state_ = State::kConnecting;
    if (error != 0)
        return fail(UCS_ERR_UNREACHABLE, "its name cannot be resolved: %s", ::gai_strerror(error));
    next_ = list_.get();
    try_next();
}

void Connecting::try_next() {
    while (next_ != nullptr)
        if (begin_attempt(*std::exchange(next_, next_->ai_next)))
            return;
    if (!attempts_.empty())
        return;
    // A shortage of this process says nothing about the peer.
    const bool is_ours =
        error_ == EMFILE || error_ == ENFILE || error_ == ENOBUFS || error_ == ENOMEM;
    fail(is_ours ? UCS_ERR_IO_ERROR : UCS_ERR_UNREACHABLE, "%s%s", failed_, std::strerror(error_));
}

bool Connecting::begin_attempt(const addrinfo& at) {
    failed_ = "";
    ucs::PrivateFd fd(ucs::make_tcp_socket(at).release());
    if (fd && !bind_own(fd.get(), at.ai_family)) {
        failed_ = "local_sockaddr cannot be used: ";
        return false;
    }
    if (!fd || (::connect(fd.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS)) {
        error_ = errno;
        return false;
    }
    auto attempt = std::make_unique<Attempt>(*this, std::move(fd));
    if (!cm.watch(*attempt, attempt->fd(), EPOLLOUT)) {
        error_ = ENOMEM;
        return false;
    }
    if (next_ != nullptr)
        cm.set_deadline(*attempt, ucs::clock_now_ns() + kNextAddressNs);
    attempts_.push_back(std::move(attempt));
    return true;
}

bool Connecting::bind_own(int fd, int family) {
    if (own_.ss_family == AF_UNSPEC)
        return true;
    error_ = EAFNOSUPPORT;
    if (own_.ss_family != family)
        return false;
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&own_),
               static_cast<socklen_t>(params_.local_sockaddr_bytes)) == 0)
        return true;
    error_ = errno;
    return false;
}

int Connecting::error_of(int fd) const {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    return error == 0 && ucs::is_own_end(fd) ? ECONNREFUSED : error;
}

void Connecting::attempt_over(Attempt& attempt) {
    failed_ = "";
    error_ = error_of(attempt.fd());
    if (error_ == 0 && send_request(attempt.release()))
        return;
    std::erase_if(attempts_, [&](const auto& each) { return each.get() == &attempt; });
    try_next();
}

bool Connecting::try_send_request() {
    for (const auto& attempt : attempts_) {
        pollfd entry{attempt->fd(), POLLOUT, 0};
        if (::poll(&entry, 1, 0) == 1 && error_of(attempt->fd()) == 0)
            return send_request(attempt->release());
    }
    return false;
}

/// The other attempts go. False: so does this one.
bool Connecting::send_request(ucs::PrivateFd fd) {
    attempts_.clear();
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const ReserveBytes request =
        encode(CmKind::kRequest, CmVerdict::kAccepted, cm.address(), private_data_);
    // The connection is new, so there is room for all of it.
    if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            static_cast<ssize_t>(request.size()) ||
        !cm.watch(*this, fd.get(), EPOLLIN | EPOLLRDHUP)) {
        error_ = errno;
        return false;
    }
    fd_ = std::move(fd);
    state_ = State::kWaiting;
    return true;
}

void Connecting::replied() {
    switch (reader_.read(fd_.get())) {
        case CmReader::State::kMore:
            return;
        case CmReader::State::kForeign:
            return fail(UCS_ERR_CONNECTION_RESET,
                        "it has closed the connection, or is no listener of tw_listen()");
        case CmReader::State::kOtherVersion:
            return fail(UCS_ERR_UNSUPPORTED,
                        "it speaks version %u of the protocol, this library %u",
                        unsigned{reader_.message().head.version}, unsigned{kCmVersion});
        case CmReader::State::kWhole:
            break;
    }
    switch (reader_.message().head.verdict) {
        case CmVerdict::kAccepted:
            return accepted();
        case CmVerdict::kRejected:
            return end(UCS_ERR_REJECTED, nullptr, reader_.message().private_data);
        case CmVerdict::kFailed:
            return fail(UCS_ERR_UNREACHABLE,
                        "it has accepted, but cannot connect to this worker; its log says why");
        case CmVerdict::kExists:
            return fail(UCS_ERR_ALREADY_EXISTS,
                        "it has an endpoint to this worker, whose connection has not ended");
        case CmVerdict::kVersion:
            return fail(UCS_ERR_UNSUPPORTED, "it does not speak version %u of the protocol",
                        unsigned{kCmVersion});
    }
}

void Connecting::accepted() {
    tw_ep_h ep = nullptr;
    const ucs_status_t status = connect_anew(cm.peers(), reader_.message().address, false,
                                             params_.flags, params_.user_data, &ep);
    if (status == UCS_OK)
        return end(UCS_OK, ep, reader_.message().private_data);
    fail(status == UCS_ERR_INVALID_ADDR ? UCS_ERR_CONNECTION_RESET : status,
         "it has accepted, but its worker cannot be reached: %s", ucs_status_string(status));
}

void Connecting::fail(ucs_status_t status, const char* format, ...) {
    constexpr std::size_t kText = 256;
    char text[kText];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char what[2 * kText];
    std::snprintf(what, sizeof what, "%s: %s", where_.c_str(), text);
    TW_LOG_REPEATED(ucs::LogLevel::kWarn, cm.failures.due(what), "tw_ep_connect: %s", what);
    end(status, nullptr, {});
}

void Connecting::end(ucs_status_t status, tw_ep_h ep, WireBytes private_data) {
    const tw_connect_params_t params = params_;
    const ReserveBytes data = copy_of(private_data.data(), private_data.size());
    const CallbackPort& callbacks = cm.callbacks();
    cm.count_event();
    cm.destroy(*this);
    const ProgramCall call(callbacks);
    params.connected(params.arg, ep, static_cast<tw_status_t>(status), data.data(), data.size());
}

}  // namespace tagwire::proto
