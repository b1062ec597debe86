// SPDX-License-Identifier: BSD-3-Clause
#include "acceptor.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "stranger.hpp"
#include "ucs/sys/process.hpp"

namespace tagwire::test {

Acceptor::Acceptor(Entity& opener)
    : opener_(opener), instance_(ucs::random_u64()), cookie_(tcp::random_cookie()) {
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(0, ::bind(listener_.get(), at, bytes));
    EXPECT_EQ(0, ::listen(listener_.get(), 1));
    EXPECT_EQ(0, ::getsockname(listener_.get(), at, &bytes));
    port_ = ntohs(address.sin_port);
}

/// The kernel drops what finds the queue of a listener full.
void Acceptor::be_silent() {
    sockaddr_in address{};
    socklen_t bytes = sizeof address;
    auto* at = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(0, ::getsockname(listener_.get(), at, &bytes));
    for (int i = 0; i < 4; ++i) {
        waiting_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        ::connect(waiting_.back().get(), at, bytes);
    }
}

Endpoint Acceptor::endpoint() const {
    const tcp::IfaceAddress address = tcp::pack(port_, instance_, cookie_);
    Bytes packed(sizeof address);
    std::memcpy(packed.data(), &address, sizeof address);
    return connect_to_address(opener_, opener_.device_address(), packed);
}

void Acceptor::take_hello() {
    connection_.reset();
    ASSERT_TRUE(steps_until({&opener_}, [&] {
        connection_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        return static_cast<bool>(connection_);
    }));
    tcp::Hello hello{};
    ASSERT_TRUE(steps_until({&opener_}, [&] {
        return ::recv(connection_.get(), &hello, sizeof hello, MSG_DONTWAIT) ==
               ssize_t{sizeof hello};
    }));
    EXPECT_EQ(tcp::Verdict::kWelcome, tcp::check_hello(hello, cookie_));
}

tcp::Reply Acceptor::reply(tcp::Verdict verdict) const {
    return {tcp::kReplyMagic,  verdict,        0, tcp::kVersionMax, instance_,
            tcp::kSegBytesMax, tcp::own_host()};
}

void Acceptor::send(const void* bytes, std::size_t length) const {
    EXPECT_EQ(static_cast<ssize_t>(length), ::send(fd(), bytes, length, MSG_NOSIGNAL));
}

}  // namespace tagwire::test
