// SPDX-License-Identifier: BSD-3-Clause
#include "vhca/engine/control.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/unix_socket.hpp"
#include "vhca/engine/engine.hpp"

namespace tagwire::vhca {
namespace {

constexpr std::size_t kOrderBytesMax = 64;

ucs::UnixAddress address_of(unsigned user, int process, unsigned device) {
    return {"", "tagwire-vhca.control." + std::to_string(user) + "." + std::to_string(process) +
                    "." + std::to_string(device)};
}

bool may_order(int fd) {
    ucs::PeerCredentials peer{};
    return ucs::unix_peer_credentials(fd, &peer) == UCS_OK &&
           (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

bool ControlSocket::open(unsigned index) {
    const ucs_status_t status =
        ucs::unix_listen(address_of(::geteuid(), ::getpid(), index), &listener_);
    if (status != UCS_OK)
        TW_LOG_DEBUG("virtual HCA: vhca%u takes no orders: %s", index, ucs_status_string(status));
    return status == UCS_OK;
}

void ControlSocket::reset() {
    client_.reset();
    listener_.reset();
}

bool ControlSocket::accept() {
    if (ucs::unix_accept(listener_.get(), &client_) != UCS_OK)
        return false;
    if (!may_order(client_.get()))
        client_.reset();
    return static_cast<bool>(client_);
}

void ControlSocket::serve(Engine& engine) {
    if (!client_ && !accept())
        return;
    std::array<std::byte, kOrderBytesMax> order;
    ucs::ReceivedMessage message;
    const ucs_status_t status = ucs::unix_receive(client_.get(), order, &message);
    if (status == UCS_ERR_NO_PROGRESS)
        return;
    if (status == UCS_OK) {
        const auto incident =
            incident_of({reinterpret_cast<const char*>(order.data()), message.bytes});
        const std::int32_t answer = incident ? engine.happen(*incident) : EINVAL;
        static_cast<void>(
            ucs::unix_send(client_.get(), std::as_bytes(std::span(&answer, 1)), nullptr, 0));
    }
    client_.reset();
}

int order_incident(int process, unsigned device, const std::string& incident) {
    constexpr int kPatienceMs = 5000;
    if (incident.empty() || incident.size() > kOrderBytesMax)
        return EINVAL;
    struct stat owner {};
    if (process <= 0 || ::stat(("/proc/" + std::to_string(process)).c_str(), &owner) != 0)
        return ESRCH;
    if (owner.st_uid != ::geteuid() && ::geteuid() != 0)
        return EPERM;
    ucs::UniqueFd fd;
    if (ucs::unix_connect(address_of(owner.st_uid, process, device), &fd) != UCS_OK)
        return ESRCH;
    ucs::PeerCredentials peer{};
    if (ucs::unix_peer_credentials(fd.get(), &peer) != UCS_OK || peer.uid != owner.st_uid)
        return EPERM;
    if (ucs::unix_send(fd.get(), std::as_bytes(std::span(incident)), nullptr, 0) != UCS_OK)
        return ESRCH;
    pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, kPatienceMs) <= 0)
        return ETIMEDOUT;
    std::int32_t answer = 0;
    ucs::ReceivedMessage message;
    const auto room = std::as_writable_bytes(std::span(&answer, 1));
    const bool is_answered = ucs::unix_receive(fd.get(), room, &message) == UCS_OK &&
                             message.bytes == sizeof answer && answer >= 0;
    return is_answered ? answer : ESRCH;
}

}  // namespace tagwire::vhca
