// SPDX-License-Identifier: BSD-3-Clause
#include "sockets.hpp"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace tagwire::torture {
namespace {

std::set<std::string> socket_inodes(int pid) {
    std::set<std::string> inodes;
    std::error_code error;
    const std::string directory = "/proc/" + std::to_string(pid) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
        const std::string prefix = "socket:[";
        if (target.rfind(prefix, 0) == 0)
            inodes.insert(target.substr(prefix.size(), target.size() - prefix.size() - 1));
    }
    return inodes;
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;)
        words.push_back(word);
    return words;
}

}  // namespace

Fd::~Fd() {
    if (fd_ >= 0)
        ::close(fd_);
}

std::vector<std::string> listening_names(int pid) {
    constexpr std::size_t kFlags = 3;
    constexpr std::size_t kInode = 6;
    constexpr std::size_t kPath = 7;
    const std::set<std::string> inodes = socket_inodes(pid);
    std::vector<std::string> names;
    std::ifstream table("/proc/net/unix");
    for (std::string line; std::getline(table, line);) {
        const auto words = words_of(line);
        if (words.size() > kPath && words[kFlags] == "00010000" &&
            inodes.count(words[kInode]) > 0 && words[kPath].front() == '@') {
            names.push_back(words[kPath].substr(1));
        }
    }
    return names;
}

std::vector<UdpPlace> udp_places(int pid) {
    constexpr std::size_t kLocal = 1;
    constexpr std::size_t kInode = 9;
    const std::set<std::string> inodes = socket_inodes(pid);
    std::vector<UdpPlace> places;
    std::ifstream table("/proc/net/udp");
    for (std::string line; std::getline(table, line);) {
        const auto words = words_of(line);
        if (words.size() > kInode && inodes.count(words[kInode]) > 0) {
            char* end = nullptr;
            const auto address =
                static_cast<std::uint32_t>(std::strtoul(words[kLocal].c_str(), &end, 16));
            places.push_back(
                {address, static_cast<std::uint16_t>(std::strtoul(end + 1, nullptr, 16))});
        }
    }
    return places;
}

Fd connect_to(const std::string& name) {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
        return Fd();
    return socket;
}

bool send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
    iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
    }
    return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

bool enter_private_network() {
    if (unshare(CLONE_NEWNET) != 0)
        return false;
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq loopback = {};
    std::strncpy(loopback.ifr_name, "lo", IFNAMSIZ - 1);
    loopback.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(socket.get(), SIOCSIFFLAGS, &loopback) == 0;
}

}  // namespace tagwire::torture
