// SPDX-License-Identifier: BSD-3-Clause
#include "stranger.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <uct/api/tagwire_uct.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "ucs/sys/process.hpp"

namespace tagwire::test {

namespace {

constexpr int kStepsMax = 20'000'000;  // a fast machine makes two in a second

tcp::IfaceAddress address_of(const Entity& entity) {
    tcp::IfaceAddress address;
    std::memcpy(&address, entity.iface_address().data(), sizeof address);
    return address;
}

}  // namespace

const Resource& loopback_of_tcp() {
    for (const Resource& resource : all_resources())
        if (resource.transport == "tcp" && resource.device == "lo")
            return resource;
    throw std::runtime_error("tcp does not list the loopback");
}

bool steps_until(std::initializer_list<Entity*> all, const std::function<bool()>& done) {
    for (int i = 0; i < kStepsMax; ++i) {
        if (done())
            return true;
        for (Entity* each : all)
            each->progress();
    }
    return done();
}

void expect_exchange(Entity& from, uct_ep_h ep, Entity& to) {
    const std::uint64_t before = to.am_count;
    ASSERT_TRUE(steps_until({&from, &to}, [&] {
        return uct_ep_am_short(ep, Entity::kAmId, 0, nullptr, 0) != UCS_ERR_NO_RESOURCE;
    }));
    ASSERT_TRUE(steps_until({&from, &to}, [&] { return to.am_count == before + 1; }));
}

std::uint64_t counter_of(const Entity& entity, std::string_view name) {
    tagwire_uct_counter_t counters[64];
    unsigned count = 64;
    EXPECT_EQ(UCS_OK, tagwire_uct_iface_query_counters(entity.iface(), counters, &count));
    for (unsigned i = 0; i < count; ++i)
        if (name == counters[i].name)
            return counters[i].value;
    return UINT64_MAX;
}

Stranger::Stranger(Entity& victim, const char* from)
    : victim_(victim), cookie_(tcp::random_cookie()), instance_(ucs::random_u64()) {
    const auto device = tcp::parse_device_address(victim.device_address().data());
    const tcp::IpAddress ip = tcp::ip_of(device.value());
    fd_.reset(::socket(ip.is_inet6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (from != nullptr) {
        sockaddr_in own{};
        own.sin_family = AF_INET;
        EXPECT_EQ(1, ::inet_pton(AF_INET, from, &own.sin_addr));
        EXPECT_EQ(0, ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own));
    }
    socklen_t bytes = 0;
    const sockaddr_storage to = tcp::sockaddr_of(ip, tcp::port_of(address_of(victim)), &bytes);
    EXPECT_EQ(0, ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), bytes));
    EXPECT_TRUE(ucs::make_nonblocking(fd_.get()));
}

void Stranger::send(const void* bytes, std::size_t length) {
    const auto* from = static_cast<const std::byte*>(bytes);
    steps_until({&victim_}, [&] {
        const ssize_t sent = ::send(fd_.get(), from, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno != EAGAIN;  // ended: the test says whether that is right
        from += sent;
        length -= static_cast<std::size_t>(sent);
        return length == 0;
    });
}

tcp::Hello Stranger::hello() const {
    return {tcp::kHelloMagic,
            tcp::kVersionMin,
            tcp::kVersionMax,
            1,
            0,
            instance_,
            address_of(victim_).cookie,
            cookie_,
            tcp::kSegBytesMax,
            tcp::own_host()};
}

tcp::Verdict Stranger::greet(const tcp::Hello& hello) {
    send(&hello, sizeof hello);
    tcp::Reply reply{};
    ssize_t got = -1;
    steps_until({&victim_}, [&] {
        got = ::recv(fd_.get(), &reply, sizeof reply, MSG_DONTWAIT);
        return got >= 0;
    });
    EXPECT_EQ(ssize_t{sizeof reply}, got);
    EXPECT_TRUE(tcp::is_reply(reply, tcp::instance_of(address_of(victim_))));
    return reply.verdict;
}

void Stranger::vanish() {
    sock_filter drop_all[] = {{BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog program{1, drop_all};
    EXPECT_EQ(0, ::setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
}

Endpoint Stranger::endpoint() const {
    const tcp::IfaceAddress address = tcp::pack(1, instance_, cookie_);
    Bytes bytes(sizeof address);
    std::memcpy(bytes.data(), &address, sizeof address);
    return connect_to_address(victim_, victim_.device_address(), bytes);
}

bool Stranger::is_ended() {
    return steps_until({&victim_}, [&] {
        std::byte rest[512];
        const ssize_t got = ::recv(fd_.get(), rest, sizeof rest, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno != EAGAIN);
    });
}

}  // namespace tagwire::test
