// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cm/connecting.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr std::uint64_t kConnectTimeoutNs = 10'000'000'000;
/// Behind which an address that does not answer is not waited for alone.
constexpr std::uint64_t kNextAddressNs = 250'000'000;

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

Connecting::Connecting(ConnectionManager& owner, const char* where,
                       const tw_connect_params_t& params)
    : Watched(owner),
      where_(where),
      params_(params),
      private_data_(copy_of(params.private_data, params.private_length)) {}

Connecting::~Connecting() {
    unwatch_all();
}

ucs_status_t Connecting::begin(ConnectionManager& cm, const char* where, const ucs::HostPort& at,
                               const tw_connect_params_t& params) {
    std::unique_ptr<Connecting> one(new Connecting(cm, where, params));
    const ucs_status_t status = one->lookup_.begin(at);
    if (status != UCS_OK)
        return status;
    if (!cm.watch(*one, one->lookup_.fd(), EPOLLIN))
        return UCS_ERR_IO_ERROR;
    const std::uint64_t timeout = params.timeout_ns == 0 ? kConnectTimeoutNs : params.timeout_ns;
    const std::uint64_t now = ucs::clock_now_ns();
    cm.set_deadline(*one, timeout < UINT64_MAX - now ? now + timeout : UINT64_MAX);
    cm.add(std::move(one));
    return UCS_OK;
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
    fail(is_ours ? UCS_ERR_IO_ERROR : UCS_ERR_UNREACHABLE, "%s", std::strerror(error_));
}

bool Connecting::begin_attempt(const addrinfo& at) {
    ucs::PrivateFd fd(ucs::make_tcp_socket(at).release());
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

void Connecting::attempt_over(Attempt& attempt) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(attempt.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error == 0 && ucs::is_own_end(attempt.fd()))
        error = ECONNREFUSED;
    if (error == 0)
        return connected(attempt.release());
    error_ = error;
    std::erase_if(attempts_, [&](const auto& each) { return each.get() == &attempt; });
    try_next();
}

void Connecting::connected(ucs::PrivateFd fd) {
    attempts_.clear();
    fd_ = std::move(fd);
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const ReserveBytes request =
        encode(CmKind::kRequest, CmVerdict::kAccepted, cm.address(), private_data_);
    // The connection is new, so there is room for all of it.
    if (::send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT) !=
            static_cast<ssize_t>(request.size()) ||
        !cm.watch(*this, fd_.get(), EPOLLIN | EPOLLRDHUP))
        return fail(UCS_ERR_CONNECTION_RESET, "%s", std::strerror(errno));
    state_ = State::kWaiting;
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
    const ucs_status_t status =
        cm.connect(reader_.message().address, false, params_.flags, params_.user_data, &ep);
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
