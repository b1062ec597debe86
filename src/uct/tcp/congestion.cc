// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/congestion.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "ucs/log/log.hpp"
#include "ucs/sys/fd.hpp"
#include "ucs/sys/limits.hpp"

namespace tagwire::tcp {

namespace {

constexpr std::size_t kNameBytes = 16;  // TCP_CA_NAME_MAX of the kernel
constexpr std::string_view kAuto = "auto";
/// Every kernel has it, and lets everybody use it.
constexpr std::string_view kUnpaced = "reno";

bool try_set(int fd, std::string_view name) {
    return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                        static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

ucs_status_t set_congestion_control(int fd, const char* name) {
    if (name == kAuto) {
        static_cast<void>(try_set(fd, kUnpaced));
        return UCS_OK;
    }
    if (try_set(fd, name))
        return UCS_OK;
    TW_LOG_ERROR(
        "TAGWIRE_TCP_CONGESTION=%s: %s; /proc/sys/net/ipv4/tcp_allowed_congestion_control names "
        "those that may be used",
        name, ucs::error_text(errno).c_str());
    return UCS_ERR_INVALID_PARAM;
}

void leave_host(int fd, const char* name) {
    if (name != kAuto)
        return;
    const ucs::UniqueFd fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fresh)
        static_cast<void>(try_set(fd, congestion_control_of(fresh.get())));
}

std::string congestion_control_of(int fd) {
    char name[kNameBytes] = "";
    socklen_t bytes = sizeof name;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0)
        return "";
    return {name, ::strnlen(name, bytes)};
}

}  // namespace tagwire::tcp
