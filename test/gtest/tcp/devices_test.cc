// SPDX-License-Identifier: BSD-3-Clause
// Which network interfaces are used, and in which order, on hosts that have many.
#include "uct/tcp/devices.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "common/network.hpp"
#include "common/skip.hpp"

namespace tagwire::tcp {
namespace {

using test::enter_network_with_loopback;
using test::run_in_network_of;

/// In a process with a network namespace of its own, which has these interfaces.
class TcpDevices : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!enter_network_with_loopback())
            TW_SKIP("needs nsenter(1) and ip(8), and the right to make network namespaces");
    }
    void TearDown() override {
        ::unsetenv("TAGWIRE_TCP_DEVICES");
        run("for i in $(seq 0 20); do ip link delete d$i 2>/dev/null || true; done");
    }
    /// Wires d`first` to d`last` whose other ends are here, too, without an address. `each` is run
    /// for number $i before it comes up.
    static bool add_wires(unsigned first, unsigned last, const std::string& each) {
        return run("for i in $(seq " + std::to_string(first) + " " + std::to_string(last) +
                   "); do ip link add d$i type veth peer name e$i; "
                   "ip link set d$i addrgenmode none; ip link set e$i addrgenmode none; " +
                   each +
                   "; ip link set d$i up; ip link set e$i up; "
                   "n=0; until ip link show d$i | grep -q LOWER_UP; do n=$((n + 1)); "
                   "test $n -lt 1000; sleep 0.01; done; done");
    }
    static bool run(const std::string& commands) { return run_in_network_of(::getpid(), commands); }
    /// "NAME ADDRESS" of those that are used, separated by commas.
    static std::string used() {
        std::string text;
        for (const Device& device : list_devices())
            if (device.problem.empty())
                text += (text.empty() ? "" : ", ") + device.name + " " + text_of(device.address);
        return text;
    }
    static std::string problem_of(const std::string& name) {
        for (const Device& device : list_devices())
            if (device.name == name)
                return device.problem;
        return "not listed";
    }
};

TEST_F(TcpDevices, one_with_a_link_local_address_alone_is_used_if_it_is_named) {
    ASSERT_TRUE(add_wires(0, 0, "ip address add fe80::7/64 dev d0 nodad"));
    EXPECT_EQ("lo 127.0.0.1", used());
    EXPECT_NE(std::string::npos, problem_of("d0").find("TAGWIRE_TCP_DEVICES")) << problem_of("d0");
    ::setenv("TAGWIRE_TCP_DEVICES", "d0", 1);
    EXPECT_EQ("d0 fe80::7", used());
    ::setenv("TAGWIRE_TCP_DEVICES", "^lo", 1);
    EXPECT_EQ("", used());
}

TEST_F(TcpDevices, that_of_the_default_route_comes_first_and_the_loopback_last) {
    ASSERT_TRUE(add_wires(1, 3, "ip address add 10.95.$i.1/24 dev d$i"));
    ASSERT_TRUE(run("ip route add default via 10.95.2.2 dev d2"));
    EXPECT_EQ("d2 10.95.2.1, d1 10.95.1.1, d3 10.95.3.1, lo 127.0.0.1", used());
}

TEST_F(TcpDevices, the_first_ones_are_used_if_there_are_too_many) {
    ASSERT_TRUE(add_wires(1, 20, "ip address add 10.95.$i.1/24 dev d$i"));
    ASSERT_TRUE(run("ip route add default via 10.95.20.2 dev d20"));
    std::size_t count = 0;
    for (const Device& device : list_devices())
        count += device.problem.empty() ? 1 : 0;
    EXPECT_EQ(kDevicesMax + 1, count) << "and the loopback";
    EXPECT_EQ("", problem_of("d20"));
    EXPECT_NE(std::string::npos, problem_of("d19").find("TAGWIRE_TCP_DEVICES"));
    ::setenv("TAGWIRE_TCP_DEVICES", "d*", 1);
    EXPECT_EQ("", problem_of("d19"));
}

TEST_F(TcpDevices, an_ipv6_address_that_stays_is_preferred) {
    ASSERT_TRUE(add_wires(0, 0,
                          "ip address add 2001:db8::1/64 dev d0 nodad preferred_lft 0;"
                          "ip address add 2001:db8::2/64 dev d0 nodad"));
    EXPECT_EQ("d0 2001:db8::2, lo 127.0.0.1", used());
    ASSERT_TRUE(run("ip address delete 2001:db8::2/64 dev d0"));
    EXPECT_EQ("d0 2001:db8::1, lo 127.0.0.1", used());
}

TEST_F(TcpDevices, a_list_is_kept_for_a_moment_and_renewed_when_asked) {
    DeviceList list;
    const DeviceList::Devices before = list.renew();
    EXPECT_EQ(before, list.now());
    EXPECT_NE(before, list.renew());
}

}  // namespace
}  // namespace tagwire::tcp
