// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap_stage.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tagwire::fuzz {

BootstrapStage* BootstrapStage::current = nullptr;

namespace {

constexpr std::uint64_t kNsPerMs = 1'000'000;
constexpr std::uint64_t kNsPerS = 1'000'000'000;
constexpr std::uint64_t kPauseMs = 1500;  // longer than a beat

/// A name that is no file and that no other process has.
socklen_t name_socket(sockaddr_un* name) {
    static unsigned count = 0;
    name->sun_family = AF_UNIX;
    const int length = std::snprintf(name->sun_path + 1, sizeof name->sun_path - 1,
                                     "tagwire-fuzz-%d-%u", ::getpid(), ++count);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(length));
}

ucs::UniqueFd make_socket() {
    ucs::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    require(static_cast<bool>(fd));
    return fd;
}

}  // namespace

BootstrapStage::BootstrapStage(Input& input, const bootstrap::Settings& settings, bool listens)
    : input_(input), settings_(settings), listens_(listens), listener_(make_socket()) {
    entry_.ai_family = AF_UNIX;
    entry_.ai_socktype = SOCK_STREAM;
    entry_.ai_addrlen = name_socket(&name_);
    entry_.ai_addr = reinterpret_cast<sockaddr*>(&name_);
    require(::bind(listener_.get(), entry_.ai_addr, entry_.ai_addrlen) == 0);
    require(::listen(listener_.get(), 64) == 0);
    current = this;
}

BootstrapStage::~BootstrapStage() {
    current = nullptr;
}

bool BootstrapStage::has_proven(std::uint32_t rank) const {
    return std::ranges::count(proven_, rank) > 0 || std::ranges::any_of(peers_, [&](auto& peer) {
               return peer != nullptr && peer->has_proven() && peer->rank() == rank;
           });
}

void BootstrapStage::hear_all() {
    for (const auto& peer : peers_)
        if (peer != nullptr)
            peer->hear();
}

// ---- Acts

/// A connection to the process under test, or the next one that it has made.
void BootstrapStage::meet(std::size_t place) {
    ucs::UniqueFd fd;
    if (listens_) {
        fd = make_socket();
        if (::connect(fd.get(), entry_.ai_addr, entry_.ai_addrlen) != 0)
            return;  // it listens no more
    } else {
        fd = ucs::UniqueFd(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!fd)
            return;
    }
    const auto rank = static_cast<std::uint32_t>(1 + place % std::max(settings_.size - 1, 1U));
    peers_[place] = std::make_unique<BootstrapPeer>(std::move(fd), settings_, rank);
}

void BootstrapStage::act_of(BootstrapPeer& peer, unsigned act) {
    switch (act) {
        case 0:
            peer.compose(input_, call);
            break;
        case 1:
            peer.compose(input_, call);
            peer.deliver(SIZE_MAX);
            break;
        case 2:
            peer.deliver(input_.take<std::uint8_t>());
            break;
        case 3:
            peer.deliver(SIZE_MAX);
            break;
        case 4:
            peer.hear();
            break;
        case 5:
            peer.finish_sending();
            break;
        case 6:
            // The false rank 0 does not know the secret.
            listens_ ? peer.compose_as_member(call) : peer.compose_as_root(false);
            break;
        default:
            peer.hear();
            listens_ ? peer.compose_as_member(call) : peer.compose_as_root(true);
            peer.deliver(SIZE_MAX);
            break;
    }
}

/// False: the script is over.
bool BootstrapStage::act() {
    if (input_.at_end() || acts_ == kActsMax)
        return false;
    ++acts_;
    const auto choice = input_.take<std::uint8_t>();
    auto& peer = peers_[choice >> 4 & (kPeersMax - 1)];
    const unsigned act = choice & 15U;
    if (act == 14) {
        now_ns_ += kPauseMs * kNsPerMs;
    } else if (peer == nullptr) {
        meet(choice >> 4 & (kPeersMax - 1));
    } else if (act >= 12) {
        if (peer->has_proven())
            proven_.push_back(peer->rank());
        peer.reset();
    } else {
        act_of(*peer, act);
    }
    return true;
}

/// Whoever polls on and on must find something, or let time pass.
int BootstrapStage::poll(pollfd* fds, nfds_t count, int timeout_ms) {
    require(timeout_ms >= 0);
    for (;;) {
        const timespec at_once{};
        const int ready = ::ppoll(fds, count, &at_once, nullptr);
        if (ready != 0 || timeout_ms == 0) {
            require(++idle_polls_ < kIdlePollsMax);
            return ready;
        }
        idle_polls_ = 0;
        const bool has_acted = act();
        if (has_acted && count > 0)
            continue;
        now_ns_ += static_cast<std::uint64_t>(timeout_ms) * kNsPerMs;
        return 0;
    }
}

}  // namespace tagwire::fuzz

using tagwire::fuzz::BootstrapStage;

extern "C" {

int __real_poll(pollfd* fds, nfds_t count, int timeout_ms);
int __wrap_poll(pollfd* fds, nfds_t count, int timeout_ms);
int __real_clock_gettime(clockid_t clock, timespec* time);
int __wrap_clock_gettime(clockid_t clock, timespec* time);

int __wrap_poll(pollfd* fds, nfds_t count, int timeout_ms) {
    BootstrapStage* const stage = BootstrapStage::current;
    return stage == nullptr ? __real_poll(fds, count, timeout_ms)
                            : stage->poll(fds, count, timeout_ms);
}

int __wrap_clock_gettime(clockid_t clock, timespec* time) {
    const BootstrapStage* const stage = BootstrapStage::current;
    if (stage == nullptr || clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, time);
    time->tv_sec = static_cast<time_t>(stage->now_ns() / tagwire::fuzz::kNsPerS);
    time->tv_nsec = static_cast<long>(stage->now_ns() % tagwire::fuzz::kNsPerS);
    return 0;
}
}
