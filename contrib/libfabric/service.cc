// SPDX-License-Identifier: BSD-3-Clause
#include "service.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "deadline.hpp"
#include "thread.hpp"

namespace tagwire::fi {

namespace {

/// In the last byte, where a name has its length.
constexpr std::byte kPlaceMark{0xff};

// They tell the two from other traffic, and from later versions of themselves.
constexpr std::uint64_t kQuestion = 0x3f314d4e5f4957'54;
constexpr std::uint64_t kAnswer = 0x21314d4e5f4957'54;
constexpr int kFirstWaitMs = 10;
constexpr int kLongestWaitMs = 200;

struct Question {
    std::uint64_t kind = kQuestion;
    std::uint64_t number = 0;
    std::byte rest[112]{};
};
struct Answer {
    std::uint64_t kind = kAnswer;
    std::uint64_t number = 0;
    Name name;
};
static_assert(sizeof(Answer) < sizeof(Question));

struct Socket {
    explicit Socket(int number) : fd(number) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() {
        if (fd >= 0)
            ::close(fd);
    }
    int fd;
};

const char* text_of(const char* text) {
    return text == nullptr ? "-" : text;
}

/// False: there is nothing to read within that time.
bool wait_for(int fd, int timeout_ms) {
    pollfd one = {fd, POLLIN, 0};
    return ::poll(&one, 1, timeout_ms) > 0;
}

}  // namespace

std::optional<Place> Place::resolve(const char* node, const char* service, std::uint64_t flags) {
    const bool is_source = (flags & FI_SOURCE) != 0;
    addrinfo wanted{};
    wanted.ai_flags =
        (is_source ? AI_PASSIVE : 0) | ((flags & FI_NUMERICHOST) != 0 ? AI_NUMERICHOST : 0);
    wanted.ai_socktype = SOCK_DGRAM;
    // An endpoint at no address in particular is at all, of both kinds; the first kind that a node
    // has is that which such an endpoint surely has.
    const bool is_anywhere = is_source && node == nullptr;
    addrinfo* found = nullptr;
    int status = EAI_NONAME;
    for (const int family : {is_anywhere ? AF_INET6 : AF_INET, is_anywhere ? AF_INET : AF_INET6}) {
        wanted.ai_family = family;
        status = ::getaddrinfo(node, service, &wanted, &found);
        if (status == EAI_MEMORY)
            throw std::bad_alloc();
        if (status != 0)
            continue;
        Place place;
        std::memcpy(&place.address_, found->ai_addr,
                    std::min<std::size_t>(found->ai_addrlen, sizeof place.address_));
        ::freeaddrinfo(found);
        if (!is_source || place.is_local())
            return place;
        status = EAI_ADDRFAMILY;
    }
    FI_INFO(&provider, FI_LOG_CORE, "node %s, service %s: %s\n", text_of(node), text_of(service),
            status == EAI_ADDRFAMILY ? "not an address of this machine" : ::gai_strerror(status));
    return std::nullopt;
}

std::optional<Place> Place::of(const Name& name) {
    Place place;
    std::memcpy(&place.address_, name.bytes.data(), sizeof place.address_);
    const sa_family_t family = place.address_.any.sa_family;
    if (name.bytes.back() != kPlaceMark || (family != AF_INET && family != AF_INET6))
        return std::nullopt;
    return place;
}

Name Place::name() const {
    static_assert(sizeof address_ < kNameBytes);
    Name name;
    std::memcpy(name.bytes.data(), &address_, sizeof address_);
    name.bytes.back() = kPlaceMark;
    return name;
}

std::string Place::str() const {
    char text[INET6_ADDRSTRLEN] = "?";
    const bool is_v6 = address_.any.sa_family == AF_INET6;
    const void* address = &address_.v4.sin_addr;
    if (is_v6)
        address = &address_.v6.sin6_addr;
    ::inet_ntop(address_.any.sa_family, address, text, sizeof text);
    return (is_v6 ? "[" + std::string(text) + "]" : text) + ":" + std::to_string(port());
}

std::uint16_t Place::port() const {
    return ntohs(address_.any.sa_family == AF_INET6 ? address_.v6.sin6_port : address_.v4.sin_port);
}

socklen_t Place::length() const {
    return address_.any.sa_family == AF_INET6 ? sizeof address_.v6 : sizeof address_.v4;
}

int Place::bound_socket(bool with_port) const {
    Address address = address_;
    const bool is_v6 = address.any.sa_family == AF_INET6;
    if (!with_port)
        (is_v6 ? address.v6.sin6_port : address.v4.sin_port) = 0;
    const int fd = ::socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    const int both = 0;
    if (is_v6)
        ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
    if (::bind(fd, &address.any, length()) == 0)
        return fd;
    const int error = errno;
    ::close(fd);
    errno = error;
    return -1;
}

bool Place::is_local() const {
    return Socket(bound_socket(false)).fd >= 0;
}

std::optional<Name> Place::ask(int timeout_ms) const {
    if (port() == 0) {
        FI_WARN(&provider, FI_LOG_AV,
                "%s: no service was given: pass fi_getinfo() the service that the endpoint there "
                "was opened with\n",
                str().c_str());
        return std::nullopt;
    }
    const Socket socket(
        ::socket(address_.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    Question question;
    if (socket.fd < 0 || ::connect(socket.fd, &address_.any, length()) != 0 ||
        ::getrandom(&question.number, sizeof question.number, 0) != sizeof question.number)
        return std::nullopt;
    const Deadline deadline(timeout_ms);
    int wait_ms = kFirstWaitMs;
    do {
        // A port where nobody is may be an error of either call; somebody may come yet.
        const bool is_sent = ::send(socket.fd, &question, sizeof question, 0) >= 0;
        const Deadline again(std::min(wait_ms, deadline.left_ms()));
        wait_ms = std::min(2 * wait_ms, kLongestWaitMs);
        bool is_refused = !is_sent;
        while (!is_refused && wait_for(socket.fd, again.left_ms())) {
            Answer answer;
            const ssize_t got = ::recv(socket.fd, &answer, sizeof answer, 0);
            is_refused = got < 0 && errno != EAGAIN && errno != EINTR;
            if (got == sizeof answer && answer.kind == kAnswer &&
                answer.number == question.number && answer.name.worker_id())
                return answer.name;
        }
        if (is_refused)
            ::poll(nullptr, 0, again.left_ms());
    } while (!deadline.is_over());
    FI_INFO(&provider, FI_LOG_AV, "no endpoint replied at %s within %d ms\n", str().c_str(),
            timeout_ms);
    return std::nullopt;
}

std::optional<Name> named(const char* node, const char* service, std::uint64_t flags) {
    if (node != nullptr && service == nullptr) {
        if (const auto name = Name::parse(node))
            return name;
        // Nobody's resolver is asked for what cannot be a host.
        if (std::strstr(node, "://") != nullptr) {
            FI_INFO(&provider, FI_LOG_CORE,
                    "node %s is neither a host nor an address as fi_av_straddr() writes it\n",
                    node);
            return std::nullopt;
        }
    }
    const auto place = Place::resolve(node, service, flags);
    if (!place)
        return std::nullopt;
    return place->name();
}

std::optional<Name> name_at(const Name& name) {
    const auto place = Place::of(name);
    return place ? place->ask(settings().lookup_ms) : name;
}

int Door::open(const Place& place, const Name& name, std::unique_ptr<Door>* door_p) {
    std::unique_ptr<Door> door(new Door(name));
    door->socket_ = place.bound_socket(true);
    door->stop_ = door->socket_ < 0 ? -1 : ::eventfd(0, EFD_CLOEXEC);
    if (door->stop_ < 0) {
        const int error = errno;
        FI_WARN(&provider, FI_LOG_EP_CTRL, "cannot open an endpoint at %s: %s\n",
                place.str().c_str(), std::strerror(error));
        return -error;
    }
    const int status = start_thread(&door->thread_, [own = door.get()] { own->serve(); });
    if (status == 0)
        *door_p = std::move(door);
    return status;
}

Door::~Door() {
    if (thread_.joinable()) {
        const std::uint64_t one = 1;
        while (::write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
        }
        thread_.join();
    }
    for (const int fd : {socket_, stop_})
        if (fd >= 0)
            ::close(fd);
}

void Door::serve() const {
    for (;;) {
        pollfd both[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
        ::poll(both, std::size(both), -1);
        if (both[1].revents != 0)
            return;
        Question question;
        sockaddr_storage from{};
        socklen_t length = sizeof from;
        const ssize_t got = ::recvfrom(socket_, &question, sizeof question, MSG_TRUNC,
                                       reinterpret_cast<sockaddr*>(&from), &length);
        if (got != sizeof question || question.kind != kQuestion)
            continue;
        const Answer answer{.kind = kAnswer, .number = question.number, .name = name_};
        ::sendto(socket_, &answer, sizeof answer, 0, reinterpret_cast<const sockaddr*>(&from),
                 length);
    }
}

}  // namespace tagwire::fi
