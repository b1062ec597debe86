// SPDX-License-Identifier: BSD-3-Clause
// Connections by host and port: socket addresses, the worker that gets the endpoint, and programs
// that connect and end in one breath.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "protocols/listening.hpp"
#include "ucs/sys/fd.hpp"

namespace tagwire::test {
namespace {

class MsgListenPlaces : public ListenTest {
  protected:
    static sockaddr_in ipv4(const char* host, std::uint16_t port = 0) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port);
        EXPECT_EQ(::inet_pton(AF_INET, host, &at.sin_addr), 1);
        return at;
    }
    static sockaddr_in6 ipv6(const char* host) {
        sockaddr_in6 at{};
        at.sin6_family = AF_INET6;
        EXPECT_EQ(::inet_pton(AF_INET6, host, &at.sin6_addr), 1);
        return at;
    }
    template <class T>
    static const sockaddr* generic(const T& at) {
        return reinterpret_cast<const sockaddr*>(&at);
    }
    static std::uint16_t port_of(const sockaddr_storage& at) {
        return ntohs(at.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(at).sin6_port
                                              : reinterpret_cast<const sockaddr_in&>(at).sin_port);
    }
    static std::uint32_t host_of(const sockaddr_storage& at) {
        EXPECT_EQ(at.ss_family, AF_INET);
        return ntohl(reinterpret_cast<const sockaddr_in&>(at).sin_addr.s_addr);
    }

    tw_listen_params_t listening() {
        tw_listen_params_t params{};
        params.request = Server::on_request;
        params.arg = &server_;
        return params;
    }
    tw_connect_params_t connecting() {
        tw_connect_params_t params{};
        params.connected = Client::on_connected;
        params.arg = &client_;
        return params;
    }
    template <class T>
    tw_status_t listen_at(const T& at) {
        tw_listen_params_t params = listening();
        params.sockaddr = generic(at);
        params.sockaddr_bytes = sizeof at;
        return tw_listen(this->at().worker(), nullptr, &params, &server_.listener);
    }
    sockaddr_storage own_end() {
        tw_listener_attr_t attr{};
        EXPECT_EQ(tw_listener_query(server_.listener, &attr), TW_OK);
        return attr.sockaddr;
    }
    tw_conn_request_attr_t asked() {
        tw_conn_request_attr_t attr{};
        EXPECT_EQ(tw_conn_request_query(server_.request, &attr), TW_OK);
        return attr;
    }
    static void exchange(Node& from, tw_ep_h ep, Node& to, const std::function<void()>& progress) {
        const std::uint64_t sent = 0x7461677769726531;
        std::uint64_t got = 0;
        tw_request_h receive = nullptr;
        ASSERT_NE(tw_tag_recv(to.worker(), &got, sizeof got, 7, 0, nullptr, &receive), TW_OK);
        tw_request_h send = nullptr;
        tw_status_t status = tw_tag_send(ep, &sent, sizeof sent, 7, nullptr, &send);
        for (int i = 0; status == TW_INPROGRESS && i < 100'000'000; ++i) {
            progress();
            status = tw_request_test(send, nullptr);
        }
        EXPECT_EQ(status, TW_OK);
        status = TW_INPROGRESS;
        for (int i = 0; status == TW_INPROGRESS && i < 100'000'000; ++i) {
            progress();
            status = tw_request_test(receive, nullptr);
        }
        EXPECT_EQ(status, TW_OK);
        EXPECT_EQ(got, sent);
        tw_request_free(send);
        tw_request_free(receive);
        static_cast<void>(from);
    }
};

// ---- Socket addresses

TEST_F(MsgListenPlaces, socket_addresses_go_in_and_come_out) {
    ASSERT_EQ(listen_at(ipv4("127.0.0.1")), TW_OK);
    server_.answer = Server::Answer::kNone;
    const sockaddr_storage where = own_end();
    EXPECT_NE(port_of(where), 0);
    EXPECT_EQ("127.0.0.1:" + std::to_string(port_of(where)), server_.address());
    tw_connect_params_t params = connecting();
    params.sockaddr = generic(where);
    params.sockaddr_bytes = sizeof(sockaddr_in);
    const sockaddr_in own = ipv4("127.0.0.2");  // any of 127.0.0.0/8 is this machine's
    params.local_sockaddr = generic(own);
    params.local_sockaddr_bytes = sizeof own;
    ASSERT_EQ(tw_ep_connect(from().worker(), nullptr, &params), TW_INPROGRESS);
    run_until([&] { return server_.request != nullptr; });
    const tw_conn_request_attr_t attr = asked();
    EXPECT_EQ(host_of(attr.peer_sockaddr), INADDR_LOOPBACK + 1);
    EXPECT_EQ("127.0.0.2:" + std::to_string(port_of(attr.peer_sockaddr)), attr.peer);
    EXPECT_EQ(host_of(attr.local_sockaddr), INADDR_LOOPBACK);
    EXPECT_EQ(port_of(attr.local_sockaddr), port_of(where));
    EXPECT_EQ(server_.accept(), TW_OK);
    run_until([&] { return client_.is_over(); });
    EXPECT_EQ(client_.status, TW_OK);
}

TEST_F(MsgListenPlaces, so_do_those_of_ipv6) {
    const ucs::UniqueFd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in6 loopback = ipv6("::1");
    if (!probe || ::bind(probe.get(), generic(loopback), sizeof loopback) != 0)
        GTEST_SKIP() << "this machine has no ::1";
    ASSERT_EQ(listen_at(loopback), TW_OK);
    const sockaddr_storage where = own_end();
    EXPECT_EQ(where.ss_family, AF_INET6);
    tw_connect_params_t params = connecting();
    params.sockaddr = generic(where);
    params.sockaddr_bytes = sizeof(sockaddr_in6);
    ASSERT_EQ(tw_ep_connect(from().worker(), nullptr, &params), TW_INPROGRESS);
    run_until([&] { return client_.is_over(); });
    EXPECT_EQ(client_.status, TW_OK);
    EXPECT_EQ(server_.status, TW_OK);
}

TEST_F(MsgListenPlaces, places_that_are_none_are_refused_with_what_would_be_right) {
    const sockaddr_in right = ipv4("127.0.0.1");
    tw_listen_params_t params = listening();
    tw_worker_h const worker = at().worker();
    const auto listen = [&](const char* where, const sockaddr* address, std::size_t bytes) {
        params.sockaddr = address;
        params.sockaddr_bytes = bytes;
        return tw_listen(worker, where, &params, &server_.listener);
    };
    EXPECT_EQ(listen(nullptr, nullptr, 0), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(listen("127.0.0.1:0", generic(right), sizeof right), TW_ERR_INVALID_PARAM);
    sockaddr_storage room{};
    reinterpret_cast<sockaddr_in&>(room) = right;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, sizeof right - 1,
                                    sizeof right + 1, sizeof(sockaddr_in6), sizeof room})
        EXPECT_EQ(listen(nullptr, generic(room), bytes), TW_ERR_INVALID_PARAM) << bytes;
    sockaddr_in foreign = right;
    foreign.sin_family = AF_UNIX;
    EXPECT_EQ(listen(nullptr, generic(foreign), sizeof foreign), TW_ERR_INVALID_PARAM);
    EXPECT_EQ(listen_at(ipv4("192.0.2.1")), TW_ERR_UNREACHABLE);

    tw_connect_params_t client = connecting();
    client.sockaddr = generic(right);  // port 0
    client.sockaddr_bytes = sizeof right;
    EXPECT_EQ(tw_ep_connect(worker, nullptr, &client), TW_ERR_INVALID_PARAM);
    client.sockaddr = nullptr;
    EXPECT_EQ(tw_ep_connect(worker, nullptr, &client), TW_ERR_INVALID_PARAM);
    client.local_sockaddr = generic(right);
    client.local_sockaddr_bytes = 1;
    EXPECT_EQ(tw_ep_connect(worker, "127.0.0.1:1", &client), TW_ERR_INVALID_PARAM);
}

TEST_F(MsgListenPlaces, an_own_end_that_cannot_be_is_told) {
    ASSERT_EQ(listen_at(ipv4("127.0.0.1")), TW_OK);
    const sockaddr_in elsewhere = ipv4("192.0.2.1");
    const sockaddr_in6 other_family = ipv6("::1");
    tw_connect_params_t params = connecting();
    for (const auto& [own, bytes] : {std::pair{generic(elsewhere), sizeof elsewhere},
                                     std::pair{generic(other_family), sizeof other_family}}) {
        client_ = {};
        params.local_sockaddr = own;
        params.local_sockaddr_bytes = bytes;
        ASSERT_EQ(tw_ep_connect(from().worker(), server_.address().c_str(), &params),
                  TW_INPROGRESS);
        EXPECT_FALSE(client_.is_over());  // not within the call
        run_until([&] { return client_.is_over(); });
        EXPECT_EQ(client_.status, TW_ERR_UNREACHABLE);
    }
    EXPECT_EQ(server_.requests, 0);
}

// ---- The worker that gets the endpoint

TEST_F(MsgListenPlaces, any_worker_of_the_context_gets_the_endpoint) {
    Node& serving = node(2);
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    server_.answer = Server::Answer::kNone;
    ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
    run_until([&] { return server_.request != nullptr; });
    tw_accept_params_t params{};
    params.worker = serving.worker();
    params.user_data = &params;
    tw_ep_h ep = nullptr;
    ASSERT_EQ(tw_accept(std::exchange(server_.request, nullptr), &params, &ep), TW_OK);
    run_until([&] { return client_.is_over(); });
    ASSERT_EQ(client_.status, TW_OK);
    EXPECT_EQ(tw_ep_user_data(ep), &params);
    EXPECT_EQ(tw_ep_find(serving.worker(), from().id()), ep);
    EXPECT_EQ(tw_ep_find(at().worker(), from().id()), nullptr);
    EXPECT_EQ(tw_ep_find(from().worker(), serving.id()), client_.ep);
    const auto progress = [&] {
        at().progress();
        from().progress();
        serving.progress();
    };
    exchange(from(), client_.ep, serving, progress);
    exchange(serving, ep, from(), progress);
    // The listener has no part in it.
    tw_listener_destroy(server_.listener);
    exchange(from(), client_.ep, serving, progress);
}

TEST_F(MsgListenPlaces, one_client_connects_with_each_worker_behind_a_listener) {
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    server_.answer = Server::Answer::kNone;
    for (const std::size_t number : {2U, 3U, 4U, 0U}) {
        client_ = {};
        ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
        run_until([&] { return server_.request != nullptr; });
        tw_accept_params_t params{};
        params.worker = node(number).worker();
        tw_ep_h ep = nullptr;
        ASSERT_EQ(tw_accept(std::exchange(server_.request, nullptr), &params, &ep), TW_OK);
        run_until([&] { return client_.is_over(); });
        EXPECT_EQ(client_.status, TW_OK) << number;
        EXPECT_EQ(tw_ep_find(from().worker(), node(number).id()), client_.ep);
    }
}

TEST_F(MsgListenPlaces, a_worker_of_another_context_is_refused_and_the_request_stays) {
    tw_context_h other = nullptr;
    ASSERT_EQ(tw_context_create(nullptr, &other), TW_OK);
    {
        const Node stranger(other);
        ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
        server_.answer = Server::Answer::kNone;
        ASSERT_EQ(client_.connect(from(), server_.address()), TW_INPROGRESS);
        run_until([&] { return server_.request != nullptr; });
        tw_accept_params_t params{};
        params.worker = stranger.worker();
        tw_ep_h ep = nullptr;
        EXPECT_EQ(tw_accept(server_.request, &params, &ep), TW_ERR_INVALID_PARAM);
        EXPECT_EQ(server_.accept(), TW_OK);
        run_until([&] { return client_.is_over(); });
        EXPECT_EQ(client_.status, TW_OK);
    }
    tw_context_destroy(other);
}

// One thread listens for the workers of two others; each client connects, sends, and closes.
TEST_F(MsgListenPlaces, threads_serve_what_one_thread_accepts) {
    constexpr int kClients = 24;
    constexpr std::size_t kServers = 2;
    const auto worker_params = [] {
        tw_worker_params_t params{};
        params.thread_mode = TW_THREAD_MULTI;
        return params;
    };
    struct Service {
        tw_listener_h listener = nullptr;
        std::vector<tw_worker_h> workers;
        std::atomic<int> accepted{0};
        static void on_request(void* arg, tw_conn_request_h request) {
            auto& self = *static_cast<Service*>(arg);
            tw_accept_params_t params{};
            const auto number = static_cast<std::size_t>(self.accepted.load());
            params.worker = self.workers[number % self.workers.size()];
            tw_ep_h ep = nullptr;
            EXPECT_EQ(tw_accept(request, &params, &ep), TW_OK);
            ++self.accepted;
        }
    } service;
    std::atomic<bool> is_over{false};
    std::vector<std::unique_ptr<Node>> servers;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kServers; ++i) {
        servers.push_back(std::make_unique<Node>(context_.get(), worker_params()));
        service.workers.push_back(servers.back()->worker());
    }
    for (tw_worker_h worker : service.workers)
        threads.emplace_back([worker, &is_over] {
            while (!is_over)
                tw_worker_progress(worker);
        });
    tw_listen_params_t params{};
    params.request = Service::on_request;
    params.arg = &service;
    ASSERT_EQ(tw_listen(at().worker(), "127.0.0.1:0", &params, &service.listener), TW_OK);
    server_.listener = service.listener;
    std::vector<std::uint64_t> received(kClients);
    std::vector<tw_request_h> receives(kClients);
    for (int i = 0; i < kClients; ++i) {
        const auto place = static_cast<std::size_t>(i);
        ASSERT_EQ(tw_tag_recv(service.workers[place % kServers], &received[place],
                              sizeof received[place], place, 0, nullptr, &receives[place]),
                  TW_INPROGRESS);
    }
    for (int i = 0; i < kClients; ++i) {
        const auto place = static_cast<std::size_t>(i);
        Node client(context_.get());
        Client connecting;
        ASSERT_EQ(connecting.connect(client, server_.address()), TW_INPROGRESS);
        while (!connecting.is_over()) {
            at().progress();
            client.progress();
        }
        ASSERT_EQ(connecting.status, TW_OK);
        const std::uint64_t number = place + 1;
        tw_request_h send = nullptr;
        tw_op_t how{};
        how.flags = TW_OP_DELIVERY_COMPLETE;
        tw_status_t status = tw_tag_send(connecting.ep, &number, sizeof number, place, &how, &send);
        while (status == TW_INPROGRESS) {
            client.progress();
            status = tw_request_test(send, nullptr);
        }
        EXPECT_EQ(status, TW_OK);
        tw_request_free(send);
    }
    is_over = true;
    for (std::thread& thread : threads)
        thread.join();
    for (std::size_t i = 0; i < receives.size(); ++i) {
        EXPECT_EQ(tw_request_test(receives[i], nullptr), TW_OK);
        EXPECT_EQ(received[i], i + 1);
        tw_request_free(receives[i]);
    }
    tw_listener_destroy(service.listener);
}

// ---- In one breath

TEST_F(MsgListenPlaces, a_program_that_connects_and_ends_in_one_breath_is_heard) {
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    for (int round = 1; round <= 20; ++round) {
        Client client;
        auto breath = std::make_unique<Node>(context_.get());
        ASSERT_EQ(client.connect(*breath, server_.address()), TW_INPROGRESS);
        if (round % 2 == 0)
            breath->progress();
        breath.reset();
        EXPECT_FALSE(client.is_over());
        run_until([&] { return server_.requests == round; });
        EXPECT_EQ(server_.status, TW_ERR_CONNECTION_RESET);
    }
    expect_served();
}

TEST_F(MsgListenPlaces, one_that_is_connected_and_ends_at_once_is_heard_with_its_end) {
    ASSERT_EQ(server_.listen(at(), "127.0.0.1:0"), TW_OK);
    for (int round = 0; round < 10; ++round) {
        Client client;
        auto breath = std::make_unique<Node>(context_.get());
        ASSERT_EQ(client.connect(*breath, server_.address()), TW_INPROGRESS);
        while (!client.is_over()) {
            at().progress();
            breath->progress();
        }
        ASSERT_EQ(client.status, TW_OK);
        const tw_ep_h ep = std::exchange(server_.ep, nullptr);
        ASSERT_NE(ep, nullptr);
        if (round % 2 == 0)
            static_cast<void>(tw_ep_close(client.ep, TW_FLUSH_DELIVERED, nullptr, nullptr));
        const std::size_t before = at().failures.size();
        breath.reset();
        run_until([&] { return at().failures.size() > before; });
        EXPECT_EQ(at().failures.back().first, ep);
        EXPECT_NE(at().failures.back().second, TW_OK);
        EXPECT_NE(tw_ep_close(ep, TW_FLUSH_DELIVERED, nullptr, nullptr), TW_INPROGRESS);
    }
}

}  // namespace
}  // namespace tagwire::test
