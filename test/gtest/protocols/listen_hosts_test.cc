// SPDX-License-Identifier: BSD-3-Clause
// Connections by host and port, where an address of the host is silent or descriptors are short.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "common/skip.hpp"
#include "protocols/fixture.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::test {
namespace {

class MsgListenHosts : public MsgTest {};

/// A listener, and its program, which accepts or waits.
struct HostServer {
    tw_status_t listen(const Node& at, const std::string& where) {
        tw_listen_params_t params{};
        params.arg = this;
        params.request = [](void* arg, tw_conn_request_h asked) {
            HostServer& self = *static_cast<HostServer*>(arg);
            ++self.requests;
            self.request = asked;
            tw_ep_h ep = nullptr;
            const tw_accept_params_t nothing{};
            if (self.accepts) {
                EXPECT_EQ(tw_accept(asked, &nothing, &ep), TW_OK);
            }
        };
        return tw_listen(at.worker(), where.c_str(), &params, &listener);
    }
    std::string address() const {
        tw_listener_attr_t attr{};
        EXPECT_EQ(tw_listener_query(listener, &attr), TW_OK);
        return attr.address;
    }
    std::uint16_t port() const {
        const std::string text = address();
        return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
    }

    bool accepts = true;
    int requests = 0;
    tw_listener_h listener = nullptr;
    tw_conn_request_h request = nullptr;
};

struct HostClient {
    tw_status_t connect(const Node& from, const std::string& where) {
        tw_connect_params_t params{};
        params.arg = this;
        params.timeout_ns = 20'000'000'000;
        params.connected = [](void* arg, tw_ep_h, tw_status_t end, const void*, std::size_t) {
            static_cast<HostClient*>(arg)->status = end;
        };
        return tw_ep_connect(from.worker(), where.c_str(), &params);
    }
    bool is_over() const { return status != TW_INPROGRESS; }

    tw_status_t status = TW_INPROGRESS;
};

ucs::UniqueFd connect_to(std::uint16_t port) {
    ucs::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    return fd;
}

/// No more than so many descriptors beside those that this process has now.
class FewDescriptors {
  public:
    explicit FewDescriptors(unsigned more) {
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
        const ucs::UniqueFd next = ucs::duplicate(0);
        rlimit few = before_;
        few.rlim_cur = static_cast<rlim_t>(next.get()) + more;
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    FewDescriptors(const FewDescriptors&) = delete;
    FewDescriptors& operator=(const FewDescriptors&) = delete;
    ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

  private:
    rlimit before_{};
};

TEST_F(MsgListenHosts, a_lack_of_descriptors_is_not_told_as_an_unreachable_peer) {
    HostClient client;
    const Node& self = node(0);
    HostClient before;
    ASSERT_EQ(before.connect(self, "127.0.0.1:1"), TW_INPROGRESS);
    run_until([&] { return before.is_over(); });
    {
        const FewDescriptors one(1);  // for the look-up
        ASSERT_EQ(client.connect(self, "127.0.0.1:1"), TW_INPROGRESS);
        run_until([&] { return client.is_over(); });
    }
    EXPECT_EQ(client.status, TW_ERR_IO_ERROR);
}

TEST_F(MsgListenHosts, a_lack_of_descriptors_ends_though_a_request_is_not_answered_yet) {
    HostServer server;
    server.accepts = false;
    ASSERT_EQ(server.listen(node(0), "127.0.0.1:0"), TW_OK);
    HostClient first, second;
    ASSERT_EQ(first.connect(node(1), server.address()), TW_INPROGRESS);
    run_until([&] { return server.requests == 1; });
    const tw_conn_request_h held = server.request;
    {
        const ucs::UniqueFd waiting = connect_to(server.port());
        const FewDescriptors none(0);
        for (int i = 0; i < 10'000; ++i)
            node(0).progress();
    }
    ASSERT_EQ(second.connect(node(1), server.address()), TW_INPROGRESS);
    run_until([&] { return server.requests == 2; });
    ASSERT_EQ(server.requests, 2);
    EXPECT_EQ(tw_reject(held, nullptr, 0), TW_OK);
    EXPECT_EQ(tw_reject(server.request, nullptr, 0), TW_OK);
}

/// A name with two addresses of the loopback, while it lives.
class TwoAddresses {
  public:
    static constexpr const char* kName = "two-addresses.test";

    TwoAddresses() {
        char path[] = "/tmp/test-hosts-XXXXXX";
        const ucs::UniqueFd file(::mkstemp(path));
        const std::string text =
            std::string("127.0.0.1 localhost ") + kName + "\n127.0.0.2 " + kName + "\n";
        if (!file || ::write(file.get(), text.data(), text.size()) < 0)
            return;
        is_there_ = ::unshare(CLONE_NEWNS) == 0 &&
                    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    ::mount(path, "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
        ::unlink(path);
    }
    TwoAddresses(const TwoAddresses&) = delete;
    TwoAddresses& operator=(const TwoAddresses&) = delete;
    ~TwoAddresses() {
        if (is_there_)
            ::umount2("/etc/hosts", MNT_DETACH);
    }
    bool is_there() const { return is_there_; }

  private:
    bool is_there_ = false;
};

/// Nobody accepts connections, and there is room for none.
class SilentPort {
  public:
    SilentPort(const char* ip, std::uint16_t port) {
        at_.sin_family = AF_INET;
        at_.sin_port = htons(port);
        ::inet_pton(AF_INET, ip, &at_.sin_addr);
        listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::bind(listener_.get(), name(), sizeof at_), 0);
        EXPECT_EQ(::listen(listener_.get(), 0), 0);
        for (ucs::UniqueFd& each : waiting_) {
            each.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            ::connect(each.get(), name(), sizeof at_);
        }
    }

  private:
    sockaddr* name() { return reinterpret_cast<sockaddr*>(&at_); }

    sockaddr_in at_{};
    ucs::UniqueFd listener_;
    ucs::UniqueFd waiting_[3];
};

TEST_F(MsgListenHosts, an_address_of_a_name_that_is_silent_holds_up_no_other) {
    const TwoAddresses name;
    if (!name.is_there())
        TW_SKIP("needs the right to make mount namespaces");
    const char* const ips[] = {"127.0.0.1", "127.0.0.2"};
    for (int i = 0; i < 2; ++i) {
        HostServer server;
        ASSERT_EQ(server.listen(node(0), std::string(ips[i]) + ":0"), TW_OK);
        const SilentPort silent(ips[1 - i], server.port());
        HostClient client;
        ASSERT_EQ(client.connect(node(1), std::string(TwoAddresses::kName) + ":" +
                                              std::to_string(server.port())),
                  TW_INPROGRESS);
        run_until([&] { return client.is_over(); });
        EXPECT_EQ(client.status, TW_OK);
        destroy_nodes();
    }
}

}  // namespace
}  // namespace tagwire::test
