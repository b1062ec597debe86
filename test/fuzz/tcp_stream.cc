// SPDX-License-Identifier: BSD-3-Clause
// Fuzz target of the bytes that come over a connection of tcp: the first byte of the input says how
// the peer greets, the rest follows its greeting. The interface has memory that may be put to and
// got from, a posted receive and handlers; whatever comes, it goes on.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "entity.hpp"
#include "input.hpp"
#include "operations.hpp"
#include "target.hpp"
#include "ucs/sys/fd.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::fuzz::tcp_stream_fuzz {
namespace {

const test::Resource& loopback() {
    for (const test::Resource& resource : test::all_resources())
        if (resource.transport == "tcp" && resource.device == "lo")
            return resource;
    std::abort();
}

class Victim {
  public:
    Victim() : entity_(loopback()), memory_(4096) {
        entity_.keep_record = false;
        require(uct_md_mem_reg(entity_.md(), memory_.data(), memory_.size(), UCT_MD_MEM_ACCESS_RMA,
                               &memh_) == UCS_OK);
        tcp::PackedRkey key;
        require(uct_md_mkey_pack(entity_.md(), memh_, &key) == UCS_OK);
        key_ = key;
        std::memcpy(&address_, entity_.iface_address().data(), sizeof address_);
    }

    void meet(std::span<const std::byte> bytes) {
        const unsigned greeting = bytes.empty() ? 0 : std::to_integer<unsigned>(bytes[0]);
        const ucs::UniqueFd fd = connect();
        tcp::Hello hello{tcp::kHelloMagic,
                         tcp::kVersionMin,
                         tcp::kVersionMax,
                         1,
                         0,
                         ++instance_,
                         address_.cookie,
                         {},
                         tcp::kSegBytesMax,
                         0};
        if (greeting != 0)
            reinterpret_cast<unsigned char*>(&hello)[greeting % sizeof hello] ^= 1;
        send(fd.get(), &hello, sizeof hello);
        std::vector<std::byte> rest(bytes.begin() + (bytes.empty() ? 0 : 1), bytes.end());
        name_memory(rest);
        // In two parts, so that frames are cut at any place.
        const std::size_t cut = rest.size() * greeting / 256;
        send(fd.get(), rest.data(), cut);
        progress();
        send(fd.get(), rest.data() + cut, rest.size() - cut);
        progress();
    }

    /// A peer that keeps to the rules is served.
    void serve_another() {
        const ucs::UniqueFd fd = connect();
        const tcp::Hello hello{tcp::kHelloMagic,
                               tcp::kVersionMin,
                               tcp::kVersionMax,
                               1,
                               0,
                               ++instance_,
                               address_.cookie,
                               {},
                               tcp::kSegBytesMax,
                               0};
        send(fd.get(), &hello, sizeof hello);
        tcp::Reply reply{};
        ssize_t got = 0;
        // The kernel brings bytes over loopback when it comes to it. Without end where none come.
        do {
            progress();
            got = ::recv(fd.get(), &reply, sizeof reply, MSG_DONTWAIT);
        } while (got < 0 && (errno == EAGAIN || errno == EINTR));
        require(got == ssize_t{sizeof reply});
        require(reply.verdict == tcp::Verdict::kWelcome);
    }

  private:
    static constexpr int kSteps = 12;

    ucs::UniqueFd connect() {
        const auto device = tcp::parse_device_address(entity_.device_address().data());
        require(device.has_value());
        const tcp::IpAddress ip = tcp::ip_of(*device);
        ucs::UniqueFd fd(::socket(ip.is_inet6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        socklen_t length = 0;
        const sockaddr_storage to = tcp::sockaddr_of(ip, tcp::port_of(address_), &length);
        require(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), length) == 0);
        // One that is closed in order keeps its port for a minute, and there are 28 000.
        constexpr std::uint64_t kInOrder = 16;
        const linger at_once{1, 0};
        if (++connects_ % kInOrder != 0)
            ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        return fd;
    }
    static void send(int fd, const void* bytes, std::size_t length) {
        if (length > 0)
            static_cast<void>(::send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    void progress() {
        for (int i = 0; i < kSteps; ++i)
            entity_.progress();
    }
    /// An input cannot guess a key: the places of one get the real one where they hold its mark.
    void name_memory(std::span<std::byte> bytes) const {
        constexpr std::uint64_t kMark = 0x59454b21;
        for (std::size_t at = 0; at + 3 * sizeof kMark <= bytes.size(); at += sizeof kMark) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes.data() + at, sizeof word);
            if (word != kMark)
                continue;
            const tcp::Key key = key_.key();
            std::memcpy(bytes.data() + at, &key_.address, sizeof key_.address);
            std::memcpy(bytes.data() + at + sizeof kMark, &key, sizeof key);
        }
    }

    test::Entity entity_;
    std::vector<std::byte> memory_;
    uct_mem_h memh_ = nullptr;
    tcp::PackedRkey key_{};
    tcp::IfaceAddress address_{};
    std::uint64_t instance_ = 0;
    std::uint64_t connects_ = 0;
};

void run_input(const std::uint8_t* data, std::size_t size) {
    static auto* const victim = new Victim;
    victim->meet(std::as_bytes(std::span(data, size)));
    victim->serve_another();
}

}  // namespace

extern const Target kTarget{"tcp_stream", nullptr, run_input};

}  // namespace tagwire::fuzz::tcp_stream_fuzz
