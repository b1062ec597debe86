// SPDX-License-Identifier: BSD-3-Clause
// --server and --connect, and peers that are not there, talk nonsense or die.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "command.hpp"
#include "common/skip.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::test {
namespace {

/// A server on a free port.
struct Server {
    Server() : command("TAGWIRE_TEST_COMMAND", {"perf", "--server", "0"}) {
        const std::string line = command.read_line();
        port = line.substr(line.rfind(' ') + 1);
    }

    Command command;
    std::string port;
};

int connect_to(const std::string& port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
}

TEST(PerfServer, client_measures_against_it) {
    Server server;
    const Finished client = tagwire({"perf", "tag_lat", "--connect", "127.0.0.1:" + server.port,
                                     "--size", "8,64k", "--iters", "100", "--validate"});
    EXPECT_EQ(client.status, 0) << client.error;
    EXPECT_NE(client.out.find("64k"), std::string::npos);
    EXPECT_EQ(server.command.wait().status, 0);
}

/// A network of this process's own with a loopback device, where no other process holds a port.
bool enter_own_network() {
    const uid_t user = getuid();
    if (unshare(CLONE_NEWNET) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
            return false;
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << user << ' ' << user << " 1";
    }
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP;
    const bool is_up = ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
    close(fd);
    return is_up;
}

// The fixed port is another test's or program's elsewhere, so this runs in a network of its own.
TEST(PerfServer, and_client_meet_without_ports) {
    constexpr int kCannot = 77;
    const pid_t child = fork();
    if (child == 0) {
        if (!enter_own_network())
            _exit(kCannot);
        Command server("TAGWIRE_TEST_COMMAND", {"perf", "--server"});
        EXPECT_EQ(server.read_line(), "tagwire: listening on port 13377");
        const Finished client =
            tagwire({"perf", "tag_lat", "--connect", "127.0.0.1", "--iters", "100"});
        EXPECT_EQ(client.status, 0) << client.error;
        EXPECT_EQ(server.wait().status, 0);
        std::fflush(nullptr);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kCannot)
        TW_SKIP("no network namespace can be made here");
    EXPECT_EQ(status, 0);
}

TEST(PerfServer, that_is_not_there_is_an_error_with_advice) {
    // A port that this process has, and that nobody listens on.
    const ucs::UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(taken.get(), name, bytes), 0);
    ASSERT_EQ(::getsockname(taken.get(), name, &bytes), 0);
    const std::string port = std::to_string(ntohs(address.sin_port));
    const Finished client = tagwire({"perf", "tag_lat", "--connect", "127.0.0.1:" + port});
    EXPECT_EQ(client.status, 1);
    EXPECT_NE(client.error.find("tagwire perf --server " + port), std::string::npos)
        << client.error;
}

TEST(PerfServer, unknown_host_is_named) {
    const Finished client = tagwire({"perf", "tag_lat", "--connect", "no-such-host.invalid"});
    EXPECT_EQ(client.status, 1);
    EXPECT_NE(client.error.find("no-such-host.invalid"), std::string::npos) << client.error;
}

TEST(PerfServer, refuses_a_stranger) {
    Server server;
    const int fd = connect_to(server.port);
    const std::string nonsense = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    EXPECT_EQ(write(fd, nonsense.data(), nonsense.size()), static_cast<ssize_t>(nonsense.size()));
    const Finished finished = server.command.wait();
    close(fd);
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("not tagwire"), std::string::npos) << finished.error;
}

TEST(PerfServer, ends_when_its_client_vanishes) {
    Server server;
    close(connect_to(server.port));
    EXPECT_EQ(server.command.wait().status, 1);
}

TEST(PerfServer, client_ends_when_the_server_is_killed) {
    Server server;
    Command client("TAGWIRE_TEST_COMMAND", {"perf", "tag_lat", "--connect",
                                            "127.0.0.1:" + server.port, "--iters", "1000000000"});
    // The server's processor time tells that the measurement runs, without a clock in this test.
    std::string stat;
    for (long ticks = 0; ticks < 10;) {
        std::FILE* const file =
            std::fopen(("/proc/" + std::to_string(server.command.pid()) + "/stat").c_str(), "r");
        ASSERT_NE(file, nullptr);
        ASSERT_EQ(
            std::fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld", &ticks),
            1);
        std::fclose(file);
        usleep(1000);
    }
    server.command.kill_now();
    const Finished finished = client.wait();
    EXPECT_EQ(finished.status, 1);
    EXPECT_NE(finished.error.find("tagwire:"), std::string::npos);
}

}  // namespace
}  // namespace tagwire::test
