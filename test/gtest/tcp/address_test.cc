// SPDX-License-Identifier: BSD-3-Clause
// Addresses, and the check of a greeting.
#include "uct/tcp/address.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "common/skip.hpp"
#include "uct/tcp/options.hpp"
#include "uct/tcp/wire.hpp"

namespace tagwire::tcp {
namespace {

TEST(TcpAddress, comes_back_as_it_went) {
    IpAddress ip;
    ip.is_inet6 = true;
    ip.is_loopback = true;
    ip.bytes[15] = 1;
    const DeviceAddress packed = pack(ip);
    const auto parsed = parse_device_address(&packed);
    ASSERT_TRUE(parsed.has_value());
    const IpAddress back = ip_of(*parsed);
    EXPECT_TRUE(back.is_inet6);
    EXPECT_TRUE(back.is_loopback);
    EXPECT_EQ(ip.bytes, back.bytes);
    EXPECT_EQ("::1", text_of(back));
    EXPECT_TRUE(is_same_space(packed, *parsed));

    const Cookie cookie = random_cookie();
    const IfaceAddress iface = pack(0xabcd, 0x1122334455667788, cookie);
    EXPECT_EQ(0xabcd, port_of(iface));
    EXPECT_EQ(0x1122334455667788U, instance_of(iface));
    EXPECT_TRUE(is_equal(cookie, iface.cookie));
}

/// The address of a process that cannot see /proc; nothing: that is not permitted. Its two calls
/// agree.
std::optional<DeviceAddress> address_without_proc() {
    int pipe[2];
    if (::pipe(pipe) != 0)
        return std::nullopt;
    const pid_t child = ::fork();
    if (child == 0) {
        if (::unshare(CLONE_NEWNS) != 0 ||
            ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("none", "/proc", "tmpfs", 0, nullptr) != 0)
            ::_exit(1);
        const DeviceAddress one = pack(IpAddress{}), again = pack(IpAddress{});
        if (!is_same_space(one, again) || ::write(pipe[1], &one, sizeof one) != sizeof one)
            ::_exit(2);
        ::_exit(0);
    }
    ::close(pipe[1]);
    DeviceAddress address{};
    const bool is_told = ::read(pipe[0], &address, sizeof address) == sizeof address;
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_NE(2, WEXITSTATUS(status)) << "two addresses of one process differ";
    return is_told ? std::optional(address) : std::nullopt;
}

TEST(TcpAddress, hosts_that_cannot_be_told_are_not_the_same) {
    const auto one = address_without_proc(), other = address_without_proc();
    if (!one || !other)
        TW_SKIP("needs the right to make mount namespaces");
    EXPECT_FALSE(is_same_space(*one, *other));
    EXPECT_FALSE(is_same_space(*one, pack(IpAddress{})));
}

TEST(TcpAddress, that_is_none_is_refused) {
    const DeviceAddress good = pack(IpAddress{});
    ASSERT_TRUE(parse_device_address(&good).has_value());
    DeviceAddress bad = good;
    bad.magic ^= 1;
    EXPECT_FALSE(parse_device_address(&bad).has_value());
    bad = good;
    bad.kind = 4;
    EXPECT_FALSE(parse_device_address(&bad).has_value());
    bad = good;
    bad.address[4] = 1;  // behind the four bytes of IPv4
    EXPECT_FALSE(parse_device_address(&bad).has_value());
}

TEST(TcpAddress, cookies_differ_in_any_byte) {
    const Cookie cookie = random_cookie();
    for (std::size_t i = 0; i < cookie.size(); ++i) {
        Cookie other = cookie;
        other[i] ^= 0x80;
        EXPECT_FALSE(is_equal(cookie, other));
    }
    EXPECT_FALSE(is_equal(cookie, random_cookie()));
}

TEST(TcpHello, is_refused_for_one_reason_each) {
    const Cookie own = random_cookie();
    const Hello good{kHelloMagic, kVersionMin, kVersionMax, 1, 0, 1, own, {}, kSegBytesMax, 0};
    EXPECT_EQ(Verdict::kWelcome, check_hello(good, own));
    Hello bad = good;
    ++bad.magic;
    EXPECT_EQ(Verdict::kForeign, check_hello(bad, own));
    bad = good;
    bad.wanted[0] ^= 1;
    EXPECT_EQ(Verdict::kCookie, check_hello(bad, own));
    bad = good;
    bad.version_min = bad.version_max = kVersionMax + 1;
    EXPECT_EQ(Verdict::kVersion, check_hello(bad, own));
    bad = good;
    bad.seg_bytes_max = kSegBytesMax - 1;
    EXPECT_EQ(Verdict::kLimits, check_hello(bad, own));
}

TEST(TcpOptions, the_tables_are_sound) {
    EXPECT_EQ("", ucs::config_table_problem(device_option_table()));
    EXPECT_EQ("", ucs::config_table_problem(tcp_option_table()));
}

}  // namespace
}  // namespace tagwire::tcp
