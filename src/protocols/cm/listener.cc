// SPDX-License-Identifier: BSD-3-Clause
#include "protocols/cm/listener.hpp"

#include <netinet/in.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "protocols/worker/peer_table.hpp"
#include "ucs/debug/check.hpp"
#include "ucs/log/log.hpp"
#include "ucs/time/clock.hpp"

namespace tagwire::proto {

namespace {

constexpr int kBacklog = 1024;
constexpr std::uint64_t kRequestTimeoutNs = 5'000'000'000;
constexpr unsigned kRequestsMax = 64;
// A peer that has closed its endpoint tells so by another way than it connects anew by.
constexpr std::uint64_t kHeldNs = 200'000'000;
constexpr std::uint64_t kHeldLookNs = 1'000'000;
/// Others may have given descriptors back by then.
constexpr std::uint64_t kShortageNs = 100'000'000;

ucs_status_t listen_status(int error) {
    if (error == EADDRINUSE)
        return UCS_ERR_BUSY;
    return error == EADDRNOTAVAIL ? UCS_ERR_UNREACHABLE : UCS_ERR_IO_ERROR;
}

std::uint64_t timeout_of(const tw_listen_params_t& params) {
    return params.timeout_ns == 0 ? kRequestTimeoutNs : params.timeout_ns;
}

/// The descriptors are others' for now: progress does not spin on those that wait.
bool is_shortage(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

// ---- Listener

ucs_status_t Listener::create(ConnectionManager& cm, const char* where,
                              const ucs::AddressList& list, const tw_listen_params_t& params,
                              Listener** listener_p) {
    int error = 0;
    ucs::PrivateFd fd;
    for (const addrinfo* at = list.get(); at != nullptr && !fd; at = at->ai_next) {
        fd.reset(ucs::make_tcp_socket(*at).release());
        // "[::]" is all of IPv6; "0.0.0.0" can be at the same port beside it.
        const int on = 1;
        if (fd && at->ai_family == AF_INET6)
            ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        if (fd && (::bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0 ||
                   ::listen(fd.get(), kBacklog) != 0)) {
            error = errno;
            fd.reset();
        } else if (!fd) {
            error = errno;
        }
    }
    if (!fd) {
        TW_LOG_ERROR("tw_listen: cannot listen at %s: %s", where, std::strerror(error));
        return listen_status(error);
    }
    std::unique_ptr<Listener> listener(new Listener(cm, params, std::move(fd)));
    if (!cm.watch(*listener, listener->fd_.get(), EPOLLIN))
        return UCS_ERR_IO_ERROR;
    *listener_p = listener.get();
    cm.add(std::move(listener));
    return UCS_OK;
}

Listener::Listener(ConnectionManager& owner, const tw_listen_params_t& params, ucs::PrivateFd fd)
    : Watched(owner), params_(params), fd_(std::move(fd)) {}

Listener::~Listener() {
    for (ConnRequest* request : requests_)
        request->listener_ended();
}

void Listener::query(tw_listener_attr_t* attr) const {
    const std::string text = address();
    TW_CHECK(text.size() < sizeof attr->address);
    std::memcpy(attr->address, text.c_str(), text.size() + 1);
    attr->sockaddr = ucs::own_address(fd_.get());
}

void Listener::end() {
    while (true) {
        const auto unknown = std::ranges::find_if(
            requests_, [](const ConnRequest* request) { return !request->is_offered(); });
        if (unknown == requests_.end())
            break;
        cm.destroy(**unknown);
    }
    cm.unwatch(*this, fd_.get());
    cm.destroy(*this);
}

void Listener::on_ready() {
    const std::size_t most = params_.requests_max == 0 ? kRequestsMax : params_.requests_max;
    while (requests_.size() < most) {
        ucs::PrivateFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd && is_shortage(errno)) {
            const char* const why = std::strerror(errno);
            TW_LOG_REPEATED(ucs::LogLevel::kWarn, cm.failures.due(why),
                            "listener at %s: a peer waits: %s", address().c_str(), why);
            break;
        }
        if (!fd)
            return;
        auto request = std::make_unique<ConnRequest>(cm, *this, std::move(fd));
        if (!request->begin())
            break;
        requests_.push_back(request.get());
        cm.add(std::move(request));
    }
    pause(true);
    // Else the end of a request makes room.
    if (requests_.size() < most)
        cm.set_deadline(*this, ucs::clock_now_ns() + kShortageNs);
}

void Listener::pause(bool is_paused) {
    if (std::exchange(is_paused_, is_paused) != is_paused)
        cm.watch(*this, fd_.get(), is_paused ? 0U : unsigned{EPOLLIN});
}

void Listener::request_ended(const ConnRequest& gone) {
    std::erase(requests_, &gone);
    pause(false);
}

// ---- ConnRequest

ConnRequest::ConnRequest(ConnectionManager& owner, Listener& of, ucs::PrivateFd fd)
    : Watched(owner), listener_(&of), fd_(std::move(fd)), peer_(ucs::peer_text(fd_.get())) {}

ConnRequest::~ConnRequest() {
    if (fd_)
        cm.unwatch(*this, fd_.get());
    if (listener_ != nullptr)
        listener_->request_ended(*this);
}

bool ConnRequest::begin() {
    cm.set_deadline(*this, ucs::clock_now_ns() + timeout_of(listener_->params()));
    return cm.watch(*this, fd_.get(), EPOLLIN | EPOLLRDHUP);
}

void ConnRequest::turn_away(const char* why) {
    TW_LOG_REPEATED(ucs::LogLevel::kWarn, cm.failures.due(why), "listener: %s is turned away: %s",
                    peer_.c_str(), why);
    cm.destroy(*this);
}

void ConnRequest::on_late() {
    if (held_until_ != 0)
        return came();
    turn_away("it does not say what it wants; expected a request of tw_ep_connect()");
}

void ConnRequest::on_ready() {
    if (is_offered_) {
        cm.unwatch(*this, fd_.get());
        fd_.reset();  // the program learns of it when it answers
        return;
    }
    if (held_until_ != 0)
        return cm.destroy(*this);
    switch (reader_.read(fd_.get())) {
        case CmReader::State::kMore:
            return;
        case CmReader::State::kForeign:
            return turn_away("what it sends is no request of tw_ep_connect()");
        case CmReader::State::kOtherVersion:
            reply(CmVerdict::kVersion, {}, {});
            return turn_away("it speaks another version of the protocol");
        case CmReader::State::kWhole:
            return came();
    }
}

/// Held back for a while if this worker is connected with that one: its program has closed that
/// connection, else it gets none.
void ConnRequest::came() {
    const std::uint64_t now = ucs::clock_now_ns();
    if (held_until_ == 0) {
        std::string reason;
        const auto address = parse(reader_.message().address, &reason);
        if (!address)
            return turn_away(("its worker's address is none: " + reason).c_str());
        worker_id_ = address->id;
        held_until_ = now + kHeldNs;
    }
    if (now >= held_until_ || !cm.peers().is_engaged(worker_id_))
        return offer();
    cm.set_deadline(*this, now + kHeldLookNs);
    // More bytes, or an end: it has given up.
    if (!cm.watch(*this, fd_.get(), EPOLLIN | EPOLLRDHUP))
        turn_away("the system has no room");
}

void ConnRequest::offer() {
    is_offered_ = true;
    cm.set_deadline(*this, UINT64_MAX);
    // More bytes, or an end: it has given up.
    if (!cm.watch(*this, fd_.get(), EPOLLIN | EPOLLRDHUP))
        return turn_away("the system has no room");
    const tw_listen_params_t params = listener_->params();
    cm.count_event();
    const ProgramCall call(cm.callbacks());
    params.request(params.arg, this);
}

void ConnRequest::query(tw_conn_request_attr_t* attr) const {
    attr->peer = peer_.c_str();
    attr->worker_id = worker_id_;
    attr->private_data = reader_.message().private_data.data();
    attr->private_length = reader_.message().private_data.size();
    attr->listener = listener_;
    if (fd_) {
        attr->peer_sockaddr = ucs::peer_address(fd_.get());
        attr->local_sockaddr = ucs::own_address(fd_.get());
    }
}

bool ConnRequest::reply(CmVerdict verdict, WireBytes address, WireBytes private_data) {
    const ReserveBytes bytes = encode(CmKind::kReply, verdict, address, private_data);
    // Nothing was sent on this connection, so there is room for all of it.
    return fd_ && ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                      static_cast<ssize_t>(bytes.size());
}

bool ConnRequest::has_given_up() const {
    std::byte byte{};
    return !fd_ || ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

ucs_status_t ConnRequest::answer(ucs_status_t status, WireBytes own, WireBytes private_data) {
    if (status == UCS_OK && !reply(CmVerdict::kAccepted, own, private_data))
        status = UCS_ERR_CONNECTION_RESET;
    if (status != UCS_OK && status != UCS_ERR_CONNECTION_RESET && fd_) {
        reply(status == UCS_ERR_ALREADY_EXISTS ? CmVerdict::kExists : CmVerdict::kFailed, {}, {});
        const char* const why = status == UCS_ERR_ALREADY_EXISTS
                                    ? "the program has an endpoint to its worker"
                                    : ucs_status_string(status);
        TW_LOG_REPEATED(ucs::LogLevel::kWarn, cm.failures.due(why),
                        "tw_accept: %s, worker %016lx, is turned away: %s", peer_.c_str(),
                        worker_id_, why);
    }
    cm.destroy(*this);
    return status;
}

void ConnRequest::reject(WireBytes private_data) {
    reply(CmVerdict::kRejected, {}, private_data);
    cm.destroy(*this);
}

}  // namespace tagwire::proto
