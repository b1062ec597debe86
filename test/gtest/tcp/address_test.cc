// SPDX-License-Identifier: BSD-3-Clause
// Addresses, and the check of a greeting.
#include "uct/tcp/address.hpp"

#include <gtest/gtest.h>

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
